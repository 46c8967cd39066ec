"""Repeats of the whole run, each from a seed of its own: what each found, and mean and spread over them."""

from __future__ import annotations

from typing import Any

import numpy as np

from archray.platform.report.comparison import TEST, tested
from archray.platform.report.quantity import count
from archray.platform.report.section import Column, Section, numeric, table
from archray.platform.run.run import Run


def repeats_section(run: Run[Any]) -> Section | None:
    """A row per repeat. Nothing for fewer than two."""
    repeats = run.repeats
    if len(repeats) < 2:
        return None
    names = [_name(repeat) for repeat in repeats]
    accuracies = [(tested(repeat, "final"), tested(repeat, "baseline")) for repeat in repeats]
    columns = (*numeric("No.", "Seed"), Column("Architecture", "code"), *numeric(TEST.axis, "random (%)"))
    rows = [
        (
            number,
            repeat.config.seed,
            name or "nothing found",
            *(TEST.spread(values).removesuffix(" %") for values in tests),
        )
        for number, (repeat, name, tests) in enumerate(zip(repeats, names, accuracies, strict=True))
    ]
    body = f"<p>{_summary(names, accuracies)}</p>" + table(columns, rows, label="The repeats of the run")
    return Section("repeats", "Repeats", body)


def _name(repeat: Run[Any]) -> str | None:
    """The string of what a repeat found; None if it has found nothing."""
    found = repeat.found or {}
    return " + ".join(found["members"]) if "members" in found else found.get("architecture")


def _summary(names: list[str | None], accuracies: list[tuple[np.ndarray, np.ndarray]]) -> str:
    found, random = ([values.mean() for values in column if values.size] for column in zip(*accuracies, strict=True))
    text = f"The whole run, {count(len(names), 'time')}, each with a seed of its own"
    text += f": {TEST.spread(found)} test accuracy over {count(len(found), 'repeat')}" if found else ""
    text += f", random architectures {TEST.spread(random)}" if random else ""
    text += ". ± is the standard deviation of the repeats' means."
    distinct = set(names) - {None}
    if distinct:
        text += f" They found {count(len(distinct), 'distinct architecture')}."
    return text
