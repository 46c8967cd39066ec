"""Images per second of `imagefolder-stream`, against torchvision's own `ImageFolder` and v2 transforms.

Both decode the same JPEG files in the same number of processes of torch's DataLoader, crop at random (8 to 100 % of the
area), resize to 224 x 224, mirror and normalize, in float32. The files are synthetic: noise smoothed to the sharpness
of photographs, in ImageNet's most frequent size (500 x 375). The ways take turns, and the medians over the repeats
count, because other work on the machine then affects both alike. Processor time, over all processes, does not depend on
other work. Both times include the start of the processes. The script compares the images, their order and their crops
over numbers of processes: they must be equal, otherwise the exit status is 1.

    python benchmarks/streaming.py --images 1000 --workers 0 1 2 --repeats 3
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from archray.trainables.data import AugmentationSettings, DataSettings
from archray.trainables.data.image_stream import MEAN, STD, StreamedDataset
from archray.trainables.data.load import read_data

SIZE = 224


def write_images(folder: Path, number: int) -> None:
    """Writes `number` JPEG files of 500 x 375 in two classes, and one per class for validation and test."""
    rng = np.random.default_rng(0)
    parts = {"train": number // 2, "val": 1, "test": 1}
    for part, count_per_class in parts.items():
        for label in ("a", "b"):
            place = folder / part / label
            place.mkdir(parents=True)
            for index in range(count_per_class):
                noise = Image.fromarray(rng.integers(0, 256, (375, 500, 3), dtype=np.uint8))
                noise.filter(ImageFilter.GaussianBlur(1.2)).save(place / f"{index}.jpg", quality=90)


def ours(dataset: StreamedDataset, batch: int) -> Iterator[Tensor]:
    order = torch.randperm(len(dataset.train), generator=torch.Generator().manual_seed(0))
    yield from dataset.train.batches(order.split(batch), dataset.augmentation(AugmentationSettings()).view(0))


def torchvisions(folder: Path, workers: int, batch: int) -> Iterator[Tensor]:
    """Loads images like torchvision's reference for training classifiers, by v2 on PIL's images."""
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(SIZE, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    images = ImageFolder(str(folder / "train"), transform=transform)
    for pixels, _ in DataLoader(images, batch_size=batch, shuffle=True, num_workers=workers):
        yield pixels


def seconds(passing: Callable[[], Iterator[Tensor]]) -> tuple[float, float]:
    """Returns the wall time of a pass, and the processor time of this process and the decoding processes."""
    start, before = time.perf_counter(), processor_time()
    for _ in passing():
        pass
    return time.perf_counter() - start, processor_time() - before


def processor_time() -> float:
    taken = os.times()
    return taken.user + taken.system + taken.children_user + taken.children_system


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    sums = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_images(folder, options.images)
        print("processes  ours, images/s  torchvision's  ratio  ours, images/CPU s  torchvision's  ratio")
        for workers in options.workers:
            settings = DataSettings(name=f"imagefolder-stream:{folder}", image_size=SIZE, workers=workers)
            dataset = read_data(settings)
            assert isinstance(dataset, StreamedDataset)
            times: dict[str, list[tuple[float, float]]] = {"ours": [], "theirs": []}
            for _ in range(options.repeats):
                times["ours"].append(seconds(lambda: ours(dataset, options.batch)))  # noqa: B023  # called at once
                times["theirs"].append(seconds(lambda: torchvisions(folder, workers, options.batch)))  # noqa: B023
            line = f"{workers:9}"
            for clock, width in ((0, 14), (1, 18)):
                mine, theirs = (
                    options.images / statistics.median(seconds_of_pass[clock] for seconds_of_pass in times[name])
                    for name in times
                )
                line += f"  {mine:{width}.0f}  {theirs:13.0f}  {mine / theirs:5.2f}"
            print(line, flush=True)
            sums.append([float(batch.double().sum()) for batch in ours(dataset, options.batch)])
    if any(other != sums[0] for other in sums):
        print("the images depend on the number of processes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
