"""Settings of a data set: source, split and augmentation. Imports no torch."""

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from archray.files import local_path
from archray.objects import named
from archray.settings import Seed, Settings

HUB = "hf:"  # prefix of a data set of the library `datasets`
STREAM = "imagefolder-stream:"  # prefix of a folder whose images are decoded during training
PATH_PREFIXES = ("folder:", "arrays:", "parquet:", STREAM)


class DataSettings(Settings):
    """A data set by name, and its options. Paths become absolute here, so that all workers read the same files.

    Attributes:
        name: Data set: `digits`, `glyphs` (or `glyphs:K`: letters of K classes, K from 10 to 50), `cifar10`,
            `cifar100`, `imagenet16-120`, `gaussian`, `folder:PATH` (images in class folders),
            `imagefolder-stream:PATH` (the same for data larger than memory: images are decoded during training),
            `arrays:PATH.npz` (see `save_arrays`), `parquet:PATH` (encoded images and labels in Parquet files, as on
            model hubs), `hf:NAME` or `hf:NAME:CONFIG` (images that `datasets.load_dataset` loads: a data set of the
            Hugging Face Hub, or a folder), the texts `docstrings` (of five libraries, or `docstrings:numpy,torch` for
            two) and `imdb`, or `module:attribute` / `path.py:attribute`, a function from these settings to a `Dataset`
            or a `TextDataset`.
        data_dir: Folder with the published files of CIFAR, ImageNet16-120 or IMDb; for CIFAR also a folder with
            Parquet files, as for `parquet:PATH`.
        seed: Seed of splits that are not published, of the choice of `limit`, and of `gaussian`, `glyphs` and
            `docstrings`.
        image_size: Height and width in pixels (default: digits 8, imagefolder-stream 224, glyphs, gaussian and folder
            32). Images of another size are resized once on loading, bilinearly with antialiasing. Not for texts.
        validation_fraction: Share of the training points held out for validation. The default depends on the data set:
            cifar10 0.5 (the sizes of NAS-Bench-201's `cifar10-valid`, in a seeded, stratified split instead of its
            published index lists); cifar100 and imagenet16-120 split the official test images in half, as
            NAS-Bench-201 does, and imdb its test texts; digits and docstrings 0.25 (60/20/20 overall); folders and
            arrays 0.2 unless they have a validation part; glyphs and gaussian have a fixed part.
        image_column: Column of the encoded images in Parquet files or of `hf:NAME` (default: the only one).
        label_column: Column of the labels in Parquet files or of `hf:NAME`, integers 0..K-1 or names of classes.
            Default: the first of `label`, `labels`, `class`, `target`, `category`, `fine_label` and `coarse_label`,
            or the only column of integers. Unless the file has class names, it may have at most a tenth as many
            classes as training images, or 10 classes with two images each.
        limit: Maximum number of points in each part, sampled by seed with class proportions kept (default: all).
        workers: Number of processes per trial that decode images of `imagefolder-stream` (default: the number of CPUs
            of the trial). 0 decodes in the trial's own process. The number does not change results.
        flip: Whether a mirrored image keeps its label, so that augmentation may flip it (default: true, except for
            digits and glyphs). Not for texts.

    Example:
        ```python
        DataSettings(name="digits", limit=500)
        DataSettings(name="folder:photos", image_size=64)
        ```
    """

    name: str = "digits"
    data_dir: str | None = None
    seed: Seed = 0
    image_size: int | None = Field(None, ge=2)
    validation_fraction: float | None = Field(None, gt=0, lt=1)
    image_column: str | None = None
    label_column: str | None = None
    limit: int | None = Field(None, ge=1)
    flip: bool | None = None
    workers: int | None = Field(None, ge=0)

    @field_validator("name", mode="before")
    @classmethod
    def _named(cls, name: Any) -> Any:
        return named(name, "dataset")

    @field_validator("name")
    @classmethod
    def _absolute_name(cls, name: str) -> str:
        for prefix in PATH_PREFIXES:
            if name.startswith(prefix) and len(name) > len(prefix):
                return f"{prefix}{local_path(name[len(prefix) :])}"
        if name.startswith(HUB) and name != HUB and Path(name.removeprefix(HUB)).expanduser().is_dir():
            return f"{HUB}{local_path(name.removeprefix(HUB))}"
        return name

    @field_validator("data_dir")
    @classmethod
    def _absolute_data_dir(cls, data_dir: str | None) -> str | None:
        return None if data_dir is None else str(local_path(data_dir))

    @property
    def streamed(self) -> bool:
        """Whether images are decoded from their files during training."""
        return self.name.startswith(STREAM)

    @property
    def path(self) -> Path:
        """The path in a name such as `folder:PATH`."""
        return Path(self.name.partition(":")[2])

    @property
    def paths(self) -> list[str]:
        """Folders and files that these settings refer to."""
        paths = [str(self.path)] if self.name.startswith((*PATH_PREFIXES, f"{HUB}/")) else []
        return [*paths, *([self.data_dir] if self.data_dir else [])]


class AugmentationSettings(Settings):
    """Augmentation of training images.

    Attributes:
        crop: Pixels of padding before the random crop; 0 disables it (default: an eighth of the image size, 4 of 32).
        flip: Whether to mirror half of the images (default: if a mirrored image of the data set keeps its label).
        cutout: Side of the blanked square in pixels; 0 disables cutout.
    """

    crop: int | None = Field(None, ge=0)
    flip: bool | None = None
    cutout: int = Field(0, ge=0)
