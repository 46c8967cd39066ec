"""Repeats of the whole run, each from a seed of its own: what each found, and mean and spread over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from archray.platform.report.quantity import MISSING, Quantity, count, finite_values
from archray.platform.report.section import Column, Section, table
from archray.platform.report.view import RunView

_TEST = Quantity.of("test_accuracy")


def repeats_section(view: RunView) -> Section | None:
    """A row per repeat. Nothing for fewer than two."""
    if len(view.repeats) < 2:
        return None
    columns = (
        Column("No.", "number"),
        Column("Seed", "number"),
        Column("Architecture", "code"),
        Column(_TEST.axis, "number"),
        Column("random (%)", "number"),
    )
    rows = [
        (
            repeat.get("repeat", number),
            repeat.get("seed", MISSING),
            repeat.get("architecture") or "nothing found",
            _TEST.spread(values_of(repeat, "test_accuracy")).removesuffix(" %"),
            _TEST.spread(values_of(repeat, "baseline")).removesuffix(" %"),
        )
        for number, repeat in enumerate(view.repeats)
    ]
    return Section(
        "repeats",
        "Repeats",
        f"<p>{_summary(view.repeats)}</p>" + table(columns, rows, label="The repeats of the run"),
    )


def _summary(repeats: Iterable[Mapping[str, Any]]) -> str:
    repeats = list(repeats)
    found, random = (
        np.array([values.mean() for repeat in repeats if (values := values_of(repeat, key)).size])
        for key in ("test_accuracy", "baseline")
    )
    names = [repeat.get("architecture") for repeat in repeats if repeat.get("architecture")]
    text = f"The whole run, {count(len(repeats), 'time')}, each with a seed of its own"
    text += f": {_TEST.spread(found)} test accuracy over {count(found.size, 'repeat')}" if found.size else ""
    text += f", random architectures {_TEST.spread(random)}" if random.size else ""
    text += ". ± is the standard deviation of the repeats' means."
    if names:
        text += f" They found {count(len(set(names)), 'distinct architecture')}."
    return text


def values_of(repeat: Mapping[str, Any], key: str) -> np.ndarray:
    """The finite values under `key`, which holds one number or several."""
    value = repeat.get(key)
    if value is None:
        return np.empty(0)
    return finite_values(value if np.ndim(value) else [value])
