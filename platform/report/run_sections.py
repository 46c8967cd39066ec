"""What every report says of its run: what each repeat found, what failed and why, and the manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from archray.platform.quantities import quantity_of
from archray.platform.report.comparison import TEST
from archray.platform.report.measured import tested
from archray.platform.report.page import MakeSection
from archray.platform.report.section import Column, Section, escape, numeric, table
from archray.platform.report.short_names import short_names
from archray.platform.report.table_columns import failures, numbers
from archray.platform.run.layout import RERUN_GPUS
from archray.platform.run.run import Run
from archray.plurals import count

Tables = Mapping[str, tuple[str, str]]  # what was done, in words -> the stage and the table that tell what failed
_REASONS = 40  # more distinct reasons than this are counted together
_LONG = 300  # characters of a reason that are shown


def repeats_section(run: Run[Any]) -> Section | None:
    """A row per repeat of the whole run, and mean and spread over them. Nothing for fewer than two."""
    repeats = run.repeats
    if len(repeats) < 2:
        return None
    names, found = short_names(run), [repeat.architecture for repeat in repeats]
    accuracies = [(tested(repeat, "final"), tested(repeat, "baseline")) for repeat in repeats]
    columns = [Column("Architecture", "name"), Column(TEST.heading, "number", "descending")]
    columns += numeric(quantity_of("random_test_accuracy").heading, "No.", "Seed")
    rows = [
        (
            names.of(found[number]) if found[number] else "nothing found",
            *(TEST.spread(values).removesuffix(" %") for values in accuracies[number]),
            number,
            repeat.config.seed,
        )
        for number, repeat in sorted(enumerate(repeats), key=lambda pair: -_mean(accuracies[pair[0]][0]))
    ]
    body = f"<p>{_summary(found, accuracies)}</p>" + table(columns, rows, label="The repeats of the run")
    return Section("repeats", "Repeats", body)


def _mean(values: np.ndarray) -> float:
    """The mean; of none, less than any accuracy."""
    return float(values.mean()) if values.size else -1.0


def _summary(names: Sequence[str | None], accuracies: list[tuple[np.ndarray, np.ndarray]]) -> str:
    found, random = ([values.mean() for values in column if values.size] for column in zip(*accuracies, strict=True))
    text = f"The whole run, {count(len(names), 'time')}, each with a seed of its own"
    text += f": {TEST.spread(found)} test accuracy over {count(len(found), 'repeat')}" if found else ""
    text += f", random architectures {TEST.spread(random)}" if random else ""
    text += ". ± is the standard deviation of the repeats' means."
    distinct = set(names) - {None}
    if distinct:
        text += f" They found {count(len(distinct), 'distinct architecture')}."
    return text


def failures_section(tables: Tables) -> MakeSection:
    """A table of stage, reason and count, or the sentence that nothing failed. Nothing for a run without tables."""

    def make(run: Run[Any]) -> Section | None:
        stages = {words: run.pooled(*place) for words, place in tables.items()}
        if all(frame.empty for frame in stages.values()):
            return None
        rows = [row for stage, frame in stages.items() for row in _counted(stage, frame)]
        body = "<p>Nothing failed.</p>"
        if rows:
            columns = (Column("Stage"), Column("Reason"), *numeric("Failed", "of"))
            body = (
                "<p>A failure is a result with a reason; it takes no part in means, rankings or the figures above.</p>"
                + table(columns, rows, label="Failures by stage and reason")
            )
        again = [sentence for stage, frame in stages.items() if (sentence := _rerun(stage, frame))]
        return Section("failures", "Failures", body + "".join(f"<p>{escape(sentence)}</p>" for sentence in again))

    return make


def _rerun(stage: str, frame: pd.DataFrame) -> str | None:
    """What became of the trials that had run out of memory; None if there was none."""
    shares = numbers(frame, RERUN_GPUS).dropna()
    if shares.empty:
        return None
    failed = int(failures(frame)[shares.index].notna().sum())
    ended = f"{failed} of them failed again" if failed else "none of them failed again"
    which = ", ".join(map(str, frame["trial_id"][shares.index]))
    gpus = " or ".join(count(share, "GPU") for share in sorted(shares.unique()))
    return (
        f"{count(len(shares), 'trial')} of the {stage} ran out of memory, and were run again at {gpus} each: {which}. "
        f"Their rows are those of the last run; {ended}. What the search suggested after them, it suggested without "
        "these results."
    )


def failed(run: Run[Any], tables: Tables) -> str | None:
    """`3 in scoring, 1 in final`; None if nothing failed."""
    numbers = {words: int(failures(run.pooled(*place)).notna().sum()) for words, place in tables.items()}
    return ", ".join(f"{number} in {words}" for words, number in numbers.items() if number) or None


def _counted(stage: str, frame: pd.DataFrame) -> list[tuple[str, str, int, int]]:
    """Stage, reason, how many, of how many; the most frequent first."""
    counts = failures(frame).dropna().value_counts()
    rows = [
        (stage, reason if len(reason) <= _LONG else reason[:_LONG] + "…", int(number), len(frame))
        for reason, number in zip(counts.index[:_REASONS].map(str), counts, strict=False)
    ]
    rest = counts.iloc[_REASONS:]
    if len(rest):
        rows.append((stage, count(len(rest), "further reason"), int(rest.sum()), len(frame)))
    return rows


def manifest_section(run: Run[Any]) -> Section:
    """All of the manifest, folded, a table for each part."""
    nested = {key: value for key, value in run.manifest.items() if isinstance(value, Mapping) and value}
    single = {key: value for key, value in run.manifest.items() if key not in nested}
    tables = "".join(f"<h3>{escape(name)}</h3>{_pairs(part)}" for name, part in {"run": single, **nested}.items())
    body = (
        "<p>All that is needed to start the same run again.</p>"
        f'<details class="manifest"><summary>Manifest</summary>{tables}</details>'
    )
    return Section("manifest", "Manifest", body)


def _pairs(part: Mapping[str, Any]) -> str:
    rows = "".join(f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in _flat(part))
    return f'<dl class="pairs">{rows}</dl>'


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Pairs of dotted key and printed value; lists of plain values stay on one line."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list) and any(isinstance(inner, Mapping | list) for inner in value):
        for index, inner in enumerate(value):
            yield from _flat(inner, f"{key}[{index}]")
    elif isinstance(value, list):
        yield key, ", ".join(str(inner) for inner in value) or "[]"
    else:
        yield key, "null" if value is None else str(value)
