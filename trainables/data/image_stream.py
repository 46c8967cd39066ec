"""Images decoded from their files as they are asked for, in worker processes.

For training they are cut at random (Szegedy et al. 2015), for evaluation in the middle.

What is drawn for an image is a function of (seed, its index) alone: a pass is the same with any number of processes.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader

from archray.errors import InvalidInput
from archray.trainables.data.image_form import middle, read_picture

CENTRE = 224 / 256  # of the shorter side, what an evaluation sees (He et al. 2016)
AREA = (0.08, 1.0)  # of the image, what a random cut takes
RATIO = (3 / 4, 4 / 3)  # of its width to its height, drawn uniformly in the logarithm
ATTEMPTS = 10  # draws of a cut that lies in the image; then the largest in the middle whose ratio is allowed
PREFETCHED = 2  # batches that each process has ready

Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels


@dataclass(frozen=True)
class View:
    """How the images of a pass are cut. seed: of what is drawn; None draws nothing: the middle, not mirrored.

    random_crop: cut at random, else the middle. flip: mirror half of them.
    """

    seed: int | None = None
    random_crop: bool = True
    flip: bool = True

    @property
    def cuts_at_random(self) -> bool:
        return self.seed is not None and self.random_crop


MIDDLE = View()


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Names of images, and how to make tensors of them: what every worker process holds. No image stays here.

    Attributes:
        folder: that the names are relative to.
        names: (n,) bytes, one array: a list of a million strings would be copied by every process as it is read.
        size: height and width of what an image becomes.
    """

    folder: str
    names: npt.NDArray[np.bytes_]
    size: int
    view: View = MIDDLE

    def __len__(self) -> int:
        return len(self.names)

    def path(self, index: int) -> str:
        return os.path.join(self.folder, os.fsdecode(bytes(self.names[index])))

    def __getitem__(self, index: int) -> npt.NDArray[np.uint8]:
        """(size, size, 3). Raises: InvalidInput, with the file's name, if it cannot be read as an image."""
        from PIL import Image

        rgb = read_picture(self.path(index))
        box, mirrored = cut(rgb.size, self.view, index)
        if self.view.cuts_at_random:  # else the filter sees what lies beside, as if resized before the cut
            rgb, box = rgb.crop(box), (0, 0, round(box[2]) - round(box[0]), round(box[3]) - round(box[1]))
        pixels = np.asarray(rgb.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box))
        return pixels[:, ::-1] if mirrored else pixels

    def __getitems__(self, indices: Sequence[int]) -> torch.Tensor | InvalidInput:
        """A batch, (b, 3, size, size) of 8 bits. An error is returned: a worker would wrap it in a traceback."""
        batch = np.empty((len(indices), self.size, self.size, 3), dtype=np.uint8)
        try:
            for place, index in enumerate(indices):
                batch[place] = self[index]
        except InvalidInput as error:
            return error
        return torch.from_numpy(batch).permute(0, 3, 1, 2)


def cut(size: tuple[int, int], view: View, index: int) -> tuple[Box, bool]:
    """What of an image of (width, height) is taken, and whether it is mirrored."""
    width, height = size
    if view.seed is None:
        return middle(width, height, CENTRE), False
    rng = np.random.Generator(np.random.Philox(key=[view.seed, index]))
    box = _random_box(width, height, rng) if view.cuts_at_random else middle(width, height, CENTRE)
    return box, view.flip and bool(rng.random() < 0.5)


def _random_box(width: int, height: int, rng: np.random.Generator) -> Box:
    for _ in range(ATTEMPTS):
        area = width * height * rng.uniform(*AREA)
        ratio = np.exp(rng.uniform(*np.log(RATIO)))
        across, down = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            left, top = int(rng.integers(width - across + 1)), int(rng.integers(height - down + 1))
            return left, top, left + across, top + down
    across = min(width, max(1, round(height * RATIO[1])))
    down = min(height, max(1, round(width / RATIO[0])))
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down


def decoded(files: ImageFiles, batches: Sequence[Sequence[int]], workers: int, pin: bool) -> Iterator[torch.Tensor]:
    """The batches of a pass in order, (b, 3, size, size) of 8 bits each; at most a few of them are held.

    workers: processes that decode; 0 decodes here. pin: for copies to a GPU beside its work.
    Raises: InvalidInput, with the file's name, if an image cannot be read.
    """
    loader: DataLoader[Any] = DataLoader(
        files,  # type: ignore[arg-type]  # it need not be a subclass
        batch_sampler=[list(batch) for batch in batches],
        num_workers=workers,
        collate_fn=_as_it_is,
        pin_memory=pin,
        prefetch_factor=PREFETCHED if workers else None,
        generator=torch.Generator(),  # else each pass would draw a seed from torch's global one
    )
    for batch in loader:
        if isinstance(batch, InvalidInput):
            raise batch
        yield batch


def _as_it_is(batch: Any) -> Any:
    return batch
