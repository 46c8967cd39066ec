"""Settings of a data set: source, split and augmentation. Imports no torch."""

from pathlib import Path

from pydantic import Field, field_validator

from archray.files import local_path
from archray.settings import Seed, Settings

STREAM = "imagefolder-stream:"  # prefix of the path of images that stay in their files
PATH_PREFIXES = ("folder:", "arrays:", STREAM)


class DataSettings(Settings):
    """A data set by name, and its options. Paths are made absolute here, so that workers read the same files.

    Attributes:
        name: `digits`, `glyphs` (or `glyphs:K`, K from 10 to 50: letters of K classes), `cifar10`, `cifar100`,
            `imagenet16-120`, `gaussian`, `folder:PATH` (images in class folders), `imagefolder-stream:PATH`
            (the same for more images than memory holds: they are decoded as they are trained on), `arrays:PATH.npz`
            (see `save_arrays`), the texts `docstrings` (of five libraries, or `docstrings:numpy,torch` for two) and
            `imdb`, or `module:attribute` / `path.py:attribute` naming a function from these settings to a `Dataset` or
            a `TextDataset`.
        data_dir: the folder with the published files of CIFAR, ImageNet16-120 and IMDb.
        seed: of splits that are not published, of `limit`'s choice, and of `gaussian`, `glyphs` and `docstrings`.
        image_size: height and width in pixels; None: digits 8, glyphs, gaussian and folder 32, imagefolder-stream 224.
            Other sizes are resized once, on loading, bilinearly with antialiasing. Texts have none.
        validation_fraction: share of the training points held out for validation. None follows each data set:
            cifar10 0.5 (the sizes of NAS-Bench-201's `cifar10-valid`, in a seeded, stratified split instead of its
            published index lists); cifar100 and imagenet16-120 halve the official test images into validation and
            test, as NAS-Bench-201 does, and imdb its test texts; digits and docstrings 0.25 (60/20/20 over all);
            folders and arrays 0.2 unless they have a validation part; glyphs and gaussian have a fixed one.
        limit: at most this many points in each part, chosen by seed, classes kept in proportion; None is all.
        workers: processes that decode images of `imagefolder-stream`, in each trial; None: as many as the trial has
            CPUs; 0 decodes in the trial itself. They change no result.
        flip: whether a mirrored image keeps its label, so that augmentation may flip. None: yes, except for digits and
            glyphs. Texts have none.
    """

    name: str = "digits"
    data_dir: str | None = None
    seed: Seed = 0
    image_size: int | None = Field(None, ge=2)
    validation_fraction: float | None = Field(None, gt=0, lt=1)
    limit: int | None = Field(None, ge=1)
    flip: bool | None = None
    workers: int | None = Field(None, ge=0)

    @field_validator("name")
    @classmethod
    def _absolute_name(cls, name: str) -> str:
        for prefix in PATH_PREFIXES:
            if name.startswith(prefix) and len(name) > len(prefix):
                return f"{prefix}{local_path(name[len(prefix) :])}"
        return name

    @field_validator("data_dir")
    @classmethod
    def _absolute_data_dir(cls, data_dir: str | None) -> str | None:
        return None if data_dir is None else str(local_path(data_dir))

    @property
    def streamed(self) -> bool:
        """Whether the images stay in their files."""
        return self.name.startswith(STREAM)

    @property
    def path(self) -> Path:
        """The path in a name such as `folder:PATH`."""
        return Path(self.name.partition(":")[2])

    @property
    def paths(self) -> list[str]:
        """The folders and files of the data set in these settings."""
        paths = [str(self.path)] if self.name.startswith(PATH_PREFIXES) else []
        return [*paths, *([self.data_dir] if self.data_dir else [])]


class AugmentationSettings(Settings):
    """Augmentation of training images.

    Attributes:
        crop: pixels of padding before the crop; 0 does not crop. None is an eighth of the image's size (4 of 32).
        flip: mirror half of the images; None: if a mirrored image of the data set keeps its label.
        cutout: side of the blanked square in pixels; 0 blanks nothing.
    """

    crop: int | None = Field(None, ge=0)
    flip: bool | None = None
    cutout: int = Field(0, ge=0)
