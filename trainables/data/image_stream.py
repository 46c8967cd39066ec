"""Images that are read from files during training: worker processes decode each batch when it is needed.

Training crops at random (Szegedy et al. 2015), evaluation crops the center. The random numbers of an image depend only
on (seed, index), so that a pass is the same with any number of processes.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from archray.errors import InvalidInput
from archray.trainables.data.dataset import Augmentation, Dataset, Split, View
from archray.trainables.data.image_form import ImageForm, middle, read_picture
from archray.trainables.data.raw import RawFiles, split_parts
from archray.trainables.data.settings import AugmentationSettings, DataSettings

IMAGE_SIZE = 224
MEAN = (0.485, 0.456, 0.406)  # of ImageNet's images in 0..1, per channel; the data's own need a pass over all images
STD = (0.229, 0.224, 0.225)
CENTER = 224 / 256  # of the shorter side, in an evaluation (He et al. 2016)
AREA = (0.08, 1.0)  # of the image, in a random crop
RATIO = (3 / 4, 4 / 3)  # width / height, drawn uniformly in the logarithm
ATTEMPTS = 10  # draws of a crop inside the image; after that the largest allowed centered one
PREFETCHED = 2  # batches that each process prepares in advance

Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels
MIDDLE = View()


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Names of images, and their conversion to tensors; every worker process has a copy.

    Attributes:
        folder: Folder to which the names are relative.
        names: (n,) bytes in one array, because each process would copy a list of a million strings.
        size: Height and width of the tensors.
        view: How the images are cropped.
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
        """Returns (size, size, 3). Raises: InvalidInput, with the file's name, if it cannot be read as an image."""
        from PIL import Image

        rgb = read_picture(self.path(index))
        box, mirrored = cut(rgb.size, self.view, index)
        if self.view.cuts_at_random:  # otherwise the filter reads pixels outside the box, as if resized before the crop
            rgb, box = rgb.crop(box), (0, 0, round(box[2]) - round(box[0]), round(box[3]) - round(box[1]))
        pixels = np.asarray(rgb.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box))
        return pixels[:, ::-1] if mirrored else pixels

    def __getitems__(self, indices: Sequence[int]) -> Tensor | InvalidInput:
        """Returns a batch, (b, 3, size, size) of 8 bits, or an error, which a worker would wrap in a traceback."""
        batch = np.empty((len(indices), self.size, self.size, 3), dtype=np.uint8)
        try:
            for place, index in enumerate(indices):
                batch[place] = self[index]
        except InvalidInput as error:
            return error
        return torch.from_numpy(batch).permute(0, 3, 1, 2)


def cut(size: tuple[int, int], view: View, index: int) -> tuple[Box, bool]:
    """Returns the used part of an image of (width, height), and whether it is mirrored."""
    width, height = size
    if view.seed is None:
        return middle(width, height, CENTER), False
    rng = np.random.Generator(np.random.Philox(key=[view.seed, index]))
    box = _random_box(width, height, rng) if view.cuts_at_random else middle(width, height, CENTER)
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


def _identity(batch: Any) -> Any:
    return batch


class StreamedSplit(Split):
    """Images in files, and their labels (n,) on a device.

    Args:
        name: Name of the data set, for messages.
        workers: Number of decoding processes (default: the number of torch threads, which is the trial's CPUs).
    """

    def __init__(self, name: str, files: ImageFiles, labels: Tensor, workers: int | None) -> None:
        for attribute, value in {"name": name, "files": files, "labels": labels, "workers": workers}.items():
            object.__setattr__(self, attribute, value)  # a `Split` is frozen

    name: str
    files: ImageFiles
    workers: int | None

    @property
    def images(self) -> Tensor:
        """Raises: InvalidInput, because the images are not in memory."""
        raise InvalidInput(
            f"expected images in memory, got {self.name}, whose images are read from files during training. "
            "Use folder:PATH for images that fit into memory"
        )

    def to(self, device: str | torch.device) -> "StreamedSplit":
        return StreamedSplit(self.name, self.files, self.labels.to(device), self.workers)

    def batches(self, indices: Sequence[Tensor], view: View | None = None) -> Iterator[Tensor]:
        """Yields the images at `indices`, (b,) each, as (b, 3, S, S) float32, normalized, on the labels' device.

        Args:
            view: How the images are cropped (default: the center).

        Raises: InvalidInput, with the name of a file that cannot be read.
        """
        workers = torch.get_num_threads() if self.workers is None else self.workers
        workers = min(workers, len(indices) - 1)  # none for a single batch
        mean, std = (torch.tensor(values, device=self.device).view(1, -1, 1, 1) for values in (MEAN, STD))
        loader: DataLoader[Any] = DataLoader(
            replace(self.files, view=view or MIDDLE),  # type: ignore[arg-type]  # it need not be a subclass
            batch_sampler=[batch.tolist() for batch in indices],
            num_workers=workers,
            collate_fn=_identity,
            pin_memory=self.device.type == "cuda",
            prefetch_factor=PREFETCHED if workers else None,
            generator=torch.Generator(),  # otherwise each pass draws a seed from torch's global generator
        )
        for batch in loader:
            if isinstance(batch, InvalidInput):
                raise batch
            yield batch.to(self.device, non_blocking=True).float().div_(255).sub_(mean).div_(std)

    def in_order(self, size: int, part: slice = slice(None)) -> Iterator[tuple[Tensor, Tensor]]:
        places = torch.arange(len(self))[part].split(size)
        return zip(self.batches(places), self.labels[part].split(size), strict=True)

    def checksum(self) -> str:
        """Computes the SHA-256, in hex, of the names and sizes of its files, and of its labels; reads no file.

        Raises: InvalidInput for an empty file, a folder or a device.
        """
        digest = hashlib.sha256()
        for index, label in enumerate(self.labels.tolist()):
            file = os.stat(path := self.files.path(index))
            if not stat.S_ISREG(file.st_mode) or not file.st_size:
                raise InvalidInput(f"expected an image file, got {path}, which is empty or not a file. Remove it")
            digest.update(self.files.names[index] + f";{file.st_size};{label}\n".encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class StreamedDataset(Dataset):
    """Images in three parts, in files."""

    def checksum(self) -> str:
        """Computes the SHA-256, in hex, of names, sizes and labels of the files, and of the image size."""
        parts = [split.checksum() for split in (self.train, self.validation, self.test)]  # type: ignore[attr-defined]
        return hashlib.sha256(f"{parts} {self.image_size}".encode()).hexdigest()

    def sampled(self, chosen: Tensor, augmentation: AugmentationSettings | None, generator: torch.Generator) -> Tensor:
        draw = None if augmentation is None else self.augmentation(augmentation)
        seed = int(torch.randint(2**31, (1,), generator=generator))
        [images] = self.train.batches([chosen], None if draw is None else draw.view(seed))
        return images if draw is None else draw(images, generator)

    def augmentation(self, settings: AugmentationSettings) -> "StreamedAugmentation":
        return StreamedAugmentation(settings, self.flip, self.black)


class StreamedAugmentation(Augmentation):
    """Augmentation of images that are read from files, partly during decoding, partly in batches.

    `crop` of the settings: None crops at random (8 to 100 % of the area, with a ratio of 3/4 to 4/3) and resizes; 0
    takes the center; a number of pixels takes the center and crops a padded window, as for images in memory.
    """

    def __init__(self, settings: AugmentationSettings, flip: bool, black: Sequence[float]) -> None:
        super().__init__(settings.model_copy(update={"crop": settings.crop or 0, "flip": False}), black=black)
        self._random_crop = settings.crop is None
        self._mirrors = flip if settings.flip is None else settings.flip

    def view(self, seed: int) -> View:
        """Returns how images are decoded in a pass. seed: of the random numbers."""
        return View(seed, self._random_crop, self._mirrors)


def make_streamed_dataset(raw: RawFiles, settings: DataSettings) -> StreamedDataset:
    """Splits and limits the names, in this order; on the CPU. Raises: InvalidInput if a part would be empty."""
    size = settings.image_size or IMAGE_SIZE
    train, validation, test = (
        StreamedSplit(
            settings.name,
            ImageFiles(raw.folder, names, size),
            torch.from_numpy(np.ascontiguousarray(labels)),
            settings.workers,
        )
        for names, labels in split_parts(raw, settings)
    )
    return StreamedDataset(
        settings.name,
        train,
        validation,
        test,
        num_classes=raw.num_classes,
        in_channels=3,
        image_size=size,
        black=tuple(-mean / std for mean, std in zip(MEAN, STD, strict=True)),
        flip=True if settings.flip is None else settings.flip,
        form=ImageForm(channels=3, size=size, mean=MEAN, std=STD, crop=CENTER),
        classes=raw.classes,
    )
