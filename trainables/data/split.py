"""Seeded, stratified splits of labelled points: images or texts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from archray.errors import InvalidInput
from archray.trainables.data.data_settings import DataSettings
from archray.trainables.data.raw import Labels, Part, RawParts

TEST_FRACTION = 0.2  # of all points, where a data set has no test part of its own


def stratified_split(labels: Labels, fraction: float, seed: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Indices (kept, held out): `fraction` of the points, drawn by `seed`, each class in its proportion.

    Args:
        labels: (n,) classes.
        fraction: share held out, in (0, 1). round(fraction * n) points are held out in all: each class gives the
            whole part of its share, and the classes with the largest remainders one more.

    Both index arrays are sorted. Raises: InvalidInput if a part would be empty.
    """
    rng = np.random.default_rng(seed)
    classes, counts = np.unique(labels, return_counts=True)
    total = round(fraction * len(labels))
    if total == 0 or total == len(labels):
        raise InvalidInput(
            f"a share of {fraction} cannot be held out of {len(labels)} points; give more of them or another share"
        )
    exact = fraction * counts
    take = np.floor(exact).astype(int)
    remainders = exact - take
    order = np.argsort(-remainders, kind="stable")  # ties go to the lower class
    take[order[: total - take.sum()]] += 1
    held = [rng.permutation(np.flatnonzero(labels == cls))[:n] for cls, n in zip(classes, take, strict=True)]
    mask = np.zeros(len(labels), dtype=bool)
    mask[np.concatenate(held)] = True
    return np.flatnonzero(~mask), np.flatnonzero(mask)


def split_parts(raw: RawParts, settings: DataSettings) -> tuple[Part, Part, Part]:
    """(train, validation, test) of a data set, of each at most `limit` points; parts that its files hold are kept.

    A missing test part is 20 % of all. A missing validation part is `validation_fraction` of the training points
    that remain; if neither the settings nor the data set name a fraction, it is half of the test part.

    Raises: InvalidInput if a part would be empty.
    """
    train, validation, test = raw.train, raw.validation, raw.test
    seed = settings.seed
    if test is None:
        train, test = _hold_out(train, TEST_FRACTION, seed)
    if validation is None:
        fraction = raw.validation_fraction if settings.validation_fraction is None else settings.validation_fraction
        if fraction is None:
            validation, test = _hold_out(test, 0.5, seed + 1)
        else:
            train, validation = _hold_out(train, fraction, seed + 1)
    for name, (_, labels) in {"training": train, "validation": validation, "test": test}.items():
        if len(labels) == 0:
            raise InvalidInput(f"the {name} part of {settings.name} is empty; give it at least one point")
    train, validation, test = (_limited(part, settings.limit, seed + 2) for part in (train, validation, test))
    return train, validation, test


def _limited(part: Part, limit: int | None, seed: int) -> Part:
    """At most `limit` points of a part, classes in proportion; all of them if `limit` is None."""
    if limit is None or limit >= len(part[1]):
        return part
    return _hold_out(part, limit / len(part[1]), seed)[1]


def _hold_out(part: Part, fraction: float, seed: int) -> tuple[Part, Part]:
    points, labels = part
    kept, held = stratified_split(labels, fraction, seed)
    return (points[kept], labels[kept]), (points[held], labels[held])
