"""A run's summary in the terminal: what was found, how good it is, how far the run is, what was tried."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from archray.platform.run.layout import REPORT
from archray.platform.run.listing import Listing
from archray.platform.run.run_summary import RunSummary

SHOWN_ROWS = 30  # of a listing; `archray show --json` has the others
WIDTH = 20  # of the labels
TEXT = ("run", "method", "space", "data", "state")  # columns that are set left
LAST = ("architecture", "failure")  # columns of any length

PERCENT = ("%", 100.0, 2)
# How the numbers of a summary are written: label, and unit, factor and decimals.
WORDS: Mapping[str, tuple[str, tuple[str, float, int]]] = {
    "test_accuracy": ("test accuracy", PERCENT),
    "random_test_accuracy": ("test accuracy (random)", PERCENT),
    "members_test_accuracy": ("test accuracy (members)", PERCENT),
    "search_test_accuracy": ("test accuracy (search)", PERCENT),
    "validation_accuracy": ("validation accuracy (search)", PERCENT),
    "shared_accuracy": ("validation accuracy (shared weights)", PERCENT),
    "selection_accuracy": ("validation accuracy (selection)", PERCENT),
    "shared_loss": ("validation loss (shared weights)", ("", 1.0, 4)),
    "test_nll": ("test NLL", ("", 1.0, 4)),
    "ece": ("ECE", PERCENT),
    "ppd": ("PPD", PERCENT),
    "delta": ("delta", ("", 1.0, 3)),
    "seconds": ("seconds", ("", 1.0, 1)),
}
MISSING = "-"


def words(key: str) -> str:
    """The label of a number."""
    return WORDS[key][0] if key in WORDS else key.replace("_", " ")


def written(key: str, value: Any) -> str:
    """A value with its unit."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "*" if value else ""
    if key not in WORDS:
        return f"{value:g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
    unit, factor, digits = WORDS[key][1]
    return f"{value * factor:.{digits}f}{' ' * bool(unit)}{unit}"


def duration(seconds: float) -> str:
    """`42 s`, `2 min 05 s`, `3 h 07 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def print_summary(summary: RunSummary, console: Console) -> None:
    """All of a run in the terminal."""
    for line in lines_of(summary):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def lines_of(summary: RunSummary) -> Iterator[str]:
    yield _line("run", f"{summary.method} on {summary.space}, {summary.data}, seed {summary.seed}")
    yield _line("state", state_words(summary))
    yield from _repeated(summary) if summary.repeats else _found(summary)
    for listing in summary.listings:
        yield f"{listing.title}:"
        yield from table_lines(listing)
    yield from _stages(summary)
    if summary.state == "done":
        yield _line("report", f"{summary.path}/{REPORT}")
    elif summary.state == "running":
        yield _line("watch it", f"archray watch {summary.path}")
    else:
        yield _line("continue with", f"archray resume {summary.path}")


def state_words(summary: RunSummary) -> str:
    """`done, 2 min 05 s`; or what is known of why it is not."""
    reason = f": {summary.reason}" if summary.reason else ""
    if summary.state == "done":
        return f"done, {duration(summary.seconds)}{reason}"
    if summary.reason:
        return f"{summary.state}{reason}"
    return f"{summary.state}, in {summary.stage.name}" if summary.stage else summary.state


def _found(summary: RunSummary) -> Iterator[str]:
    result, names = summary.result, summary.architectures
    if not names:
        yield _line("found", "nothing yet")
        return
    for label, name in zip(("found", *[""] * len(names)), names, strict=False):
        yield _line(label, name)
    accuracy = result.get("validation_accuracy", result.get("value"))
    for key, value in {**result, "validation_accuracy": accuracy}.items():
        if key in WORDS and value is not None:
            deviation = result.get(f"{key}_std")
            spread = "" if deviation is None else f" ± {written(key, deviation)}"
            yield _line(words(key), written(key, value) + spread)


def _repeated(summary: RunSummary) -> Iterator[str]:
    rows = [
        {
            "repeat": number,
            "seed": repeat.seed,
            "state": repeat.state,
            "validation_accuracy": repeat.result.get("validation_accuracy", repeat.result.get("value")),
            **{key: repeat.result.get(key) for key in ("test_accuracy", "random_test_accuracy")},
            "architecture": " + ".join(repeat.architectures) or None,
        }
        for number, repeat in enumerate(summary.repeats)
    ]
    yield "repeats:"
    yield from table_lines(Listing.of("repeats", rows))
    for key in ("test_accuracy", "random_test_accuracy"):
        values = [row[key] for row in rows if isinstance(row[key], float)]
        if len(values) > 1:
            mean, deviation = statistics.fmean(values), statistics.stdev(values)
            text = f"{written(key, mean)} ± {written(key, deviation)}, over {len(values)} repeats"
            yield _line(words(key), text)


def _stages(summary: RunSummary) -> Iterator[str]:
    if not summary.stages:
        return
    told = [
        f"{stage.name} {stage.state}" if stage.seconds is None else f"{stage.name} {duration(stage.seconds)}"
        for stage in summary.stages
    ]
    yield _line("stages", ", ".join(told))


def _line(label: str, text: str) -> str:
    return f"{label:<{WIDTH}}{text}" if len(label) < WIDTH else f"{label}  {text}"


def table_lines(listing: Listing, *, all_rows: bool = False) -> Iterator[str]:
    """The rows in columns as wide as they need, what has any length last."""
    rows = listing.rows if all_rows else listing.rows[:SHOWN_ROWS]
    keys = [key for key in (rows[0] if rows else ()) if key not in LAST and not _is_list(rows, key)]
    keys = [key for key in keys if any(row[key] not in (None, False) for row in rows)]
    columns = [[words(key), *(written(key, row[key]) for row in rows)] for key in keys]
    widths = [max(map(len, column)) for column in columns]
    ends = ["", *(_end(row) for row in rows)]
    for number, end in enumerate(ends):
        cells = [
            f"{column[number]:{'<' if key in TEXT else '>'}{width}}"
            for key, column, width in zip(keys, columns, widths, strict=True)
        ]
        yield f"    {'  '.join([*cells, end])}".rstrip()
    if len(rows) < listing.count:
        yield f"    and {listing.count - len(rows):,} more: archray show --json"


def run_lines(summaries: Sequence[RunSummary], folder: str) -> Iterator[str]:
    """A line for each run; its result is the test accuracy, the mean over its repeats."""
    if not summaries:
        yield f"no runs in {folder}"
        return
    rows = [
        {
            "run": summary.path.rpartition("/")[2],
            "method": summary.method,
            "space": summary.space,
            "data": summary.data,
            "state": summary.state if summary.stage is None else f"{summary.state}, {summary.stage.name}",
            **mean_test_accuracy(summary),
            "repeats": len(summary.repeats) or None,
            "seconds": summary.seconds,
        }
        for summary in summaries
    ]
    yield from table_lines(Listing.of("runs", rows), all_rows=True)


def mean_test_accuracy(summary: RunSummary) -> dict[str, float | None]:
    """Under its key; of repeats, the mean of those that have one."""
    values = [repeat.result.get("test_accuracy") for repeat in summary.repeats or [summary]]
    known = [value for value in values if value is not None]
    return {"test_accuracy": statistics.fmean(known) if known else None}


def _is_list(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    return any(isinstance(row[key], list | tuple) for row in rows)


def _end(row: Mapping[str, Any]) -> str:
    failure = row.get("failure")
    return "  ".join(
        [*([row["architecture"]] if row.get("architecture") else []), *([f"failed: {failure}"] if failure else [])]
    )
