"""IMDb: 50,000 film reviews, negative or positive (Maas et al. 2011); Khodak et al. 2020, appendix B.2.2."""

from pathlib import Path

import numpy as np

from archray.errors import DataNotFound
from archray.trainables.data.raw import Part, RawText
from archray.trainables.data.settings import DataSettings

FOLDER = "aclImdb"
CLASSES = ("neg", "pos")
PARTS = ("train", "test")
HINT = (
    f"download https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz and unpack it, so that the data "
    f"directory holds {FOLDER}/, or give another directory with --data-dir (data_dir)"
)


def check(settings: DataSettings) -> None:
    """Each of the four folders has a review. Raises: DataNotFound, naming those that have none and the download."""
    if settings.data_dir is None:
        raise DataNotFound(f"imdb needs a data directory, got none; {HINT}")
    folder = Path(settings.data_dir) / FOLDER
    missing = [
        f"{part}/{cls}/*.txt" for part in PARTS for cls in CLASSES if not any((folder / part / cls).glob("*.txt"))
    ]
    if missing:
        raise DataNotFound(f"imdb: expected {', '.join(missing)} in {folder}, which is not there; {HINT}")


def read(settings: DataSettings) -> RawText:
    """The published parts, 25,000 reviews each; the test part is halved for validation by default.

    The folder `train/unsup` has no labels and is left alone. Raises: DataNotFound for a file that is no UTF-8 text.
    """
    assert settings.data_dir is not None  # checked
    folder = Path(settings.data_dir) / FOLDER
    return RawText(
        train=_part(folder / "train"),
        test=_part(folder / "test"),
        num_classes=len(CLASSES),
        classes=CLASSES,
        validation_fraction=None,  # 25K / 12.5K / 12.5K
    )


def _part(folder: Path) -> Part:
    texts: list[str] = []
    labels: list[int] = []
    for label, cls in enumerate(CLASSES):
        for file in sorted((folder / cls).glob("*.txt")):
            try:
                texts.append(file.read_text(encoding="utf-8"))
            except UnicodeDecodeError as error:
                raise DataNotFound(f"{file} is not a text in UTF-8 ({error}); {HINT}") from error
            labels.append(label)
    return np.array(texts, dtype=np.object_), np.array(labels, dtype=np.int64)
