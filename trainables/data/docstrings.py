"""Docstrings: real texts that need no download; which library does a docstring belong to?"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from archray.errors import DataNotFound, InvalidInput
from archray.trainables.data.data_cache import cached_json
from archray.trainables.data.data_settings import DataSettings
from archray.trainables.data.docstring_extraction import docstrings_of, masker, module_names, package_folder
from archray.trainables.data.raw import RawText

PREFIX = "docstrings:"
PACKAGES = {"numpy": "numpy", "scipy": "scipy", "scikit-learn": "sklearn", "pandas": "pandas", "torch": "torch"}
PER_LIBRARY = 2000  # NumPy has 1,100 or so, scikit-learn 1,500, the others more
MINIMUM_WORDS = 10  # after masking
FORMAT = 1  # of the cached file and of what is taken and masked; raise it when any of that changes


def check(settings: DataSettings) -> None:
    """Raises: InvalidInput if the name chooses no two libraries; DataNotFound if one is not installed."""
    chosen_libraries(settings.name)
    for library, package in PACKAGES.items():
        if package_folder(package) is None:
            raise DataNotFound(f"docstrings: {library} is not installed (pip install {library})")


def read(settings: DataSettings) -> RawText:
    """At most PER_LIBRARY masked docstrings of each library, drawn by `settings.seed`, to be split 60/20/20."""
    libraries = chosen_libraries(settings.name)
    masked = masked_docstrings()
    texts: list[str] = []
    labels: list[int] = []
    for label, library in enumerate(libraries):
        own = masked[library]
        rng = np.random.default_rng([settings.seed, list(PACKAGES).index(library)])
        drawn = np.sort(rng.permutation(len(own))[:PER_LIBRARY])
        texts += [own[i] for i in drawn]
        labels += [label] * len(drawn)
    return RawText(
        train=(np.array(texts, dtype=np.object_), np.array(labels, dtype=np.int64)),
        num_classes=len(libraries),
        classes=libraries,
        validation_fraction=0.25,
    )


def chosen_libraries(name: str) -> tuple[str, ...]:
    """The libraries of `docstrings` (all five) or `docstrings:numpy,torch`, in the order of PACKAGES.

    Raises: InvalidInput if that is not two or more of them, each once.
    """
    if name + ":" == PREFIX:
        return tuple(PACKAGES)
    named = [library.strip() for library in name.removeprefix(PREFIX).split(",")]
    if len(named) < 2 or len(set(named)) != len(named) or not set(named) <= set(PACKAGES):
        raise InvalidInput(
            f"expected docstrings, or docstrings: and two or more of {', '.join(PACKAGES)} (docstrings:numpy,torch), "
            f"got {name!r}"
        )
    return tuple(library for library in PACKAGES if library in named)


def masked_docstrings() -> dict[str, list[str]]:
    """Every library's public docstrings, masked, each text once, sorted; texts that two libraries share are left out.

    All five libraries are read whatever is chosen: what is masked comes from all of them. Kept in the cache folder
    under their versions.
    """
    versions = {library: _version(library) for library in PACKAGES}
    key = hashlib.sha256(repr((FORMAT, sorted(versions.items()))).encode()).hexdigest()[:16]
    return cached_json(f"docstrings-{key}.json", extract_masked)


def extract_masked() -> dict[str, list[str]]:
    """What `masked_docstrings` returns, read from the installed libraries."""
    folders = {library: package_folder(package) for library, package in PACKAGES.items()}
    mask = masker({name for folder in folders.values() if folder is not None for name in module_names(folder)})
    spellings: dict[str, str] = {}  # words, spaced evenly -> the first text of these words
    owners: dict[str, set[str]] = defaultdict(set)
    for library, folder in folders.items():
        assert folder is not None  # checked
        for docstring in docstrings_of(folder):
            text = mask(docstring)
            words = text.split()
            if len(words) >= MINIMUM_WORDS:
                even = " ".join(words)
                spellings.setdefault(even, text)
                owners[even].add(library)
    return {
        library: sorted(spellings[even] for even, found in owners.items() if found == {library}) for library in PACKAGES
    }


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError as error:
        raise DataNotFound(f"docstrings: {library} is not installed (pip install {library})") from error
