"""Summaries of runs in the terminal: `archray.show`, `archray.runs`. Imports neither Ray, torch nor pandas."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from archray.errors import DamagedFile, RunFolderError, printable
from archray.files import Folder
from archray.objects import shown
from archray.platform.quantities import (
    DECIDING,
    HEADLINE,
    QUANTITIES,
    Spread,
    data_words,
    duration,
    quantity_of,
    whole_number,
)
from archray.platform.run.layout import MANIFEST, REPORT, RUNS, command
from archray.platform.run.run_summary import Listing, RunSummary, origin_words
from archray.platform.run.stage_progress import StageProgress, TrialProgress, stage_progress
from archray.plurals import count

SHOWN_ROWS = 30  # printed rows of a listing; `archray show --json` prints all
TEXT = ("run", "method", "space", "data", "state", "outcome")  # left-aligned columns
TESTED = (  # printed for each repeat
    "test_accuracy",
    "search_test_accuracy",
    "found_test_accuracy",
    "largest_test_accuracy",
    "others_test_accuracy",
    "random_test_accuracy",
    "best_random_test_accuracy",
)
LAST = ("architecture", "failure")  # columns of any length


def show(path: str | os.PathLike[str]) -> RunSummary:
    """Prints the state, result, accuracies and trials of a run.

    Args:
        path: folder of a running or finished run, a path or a pyarrow URI.

    Returns: the summary.
    Raises: RunFolderError for a folder without a run.

    Example:
        ```python
        summary = archray.show("runs/first")
        print(summary.state, summary.seconds)
        ```
    """
    summary = detailed(RunSummary.read(path))
    print_summary(summary, Console())
    return summary


def detailed(summary: RunSummary) -> RunSummary:
    """Returns the summary of an interrupted or failed run with a listing of the finished trials of its last stage."""
    try:
        progress = progress_of(summary) if summary.state in ("interrupted", "failed") else None
    except DamagedFile:  # a resume names it
        return summary
    if summary.stage is None or progress is None or progress.metric is None or not progress.ended:
        return summary
    stage, quantity = summary.stage.name, quantity_of(progress.metric, summary.stage.name)
    key = next((key for key, other in QUANTITIES.items() if other.label == quantity.label), progress.metric)
    rows = [{key: trial.value, "architecture": trial_words(trial)} for trial in progress.best_first]
    listing = Listing.of(f"finished trials of the stage {stage}, best first", rows)
    return replace(summary, listings=[*summary.listings, listing])


def current(summary: RunSummary) -> RunSummary:
    """Returns the run itself, or the repeat that started last."""
    return summary.repeats[-1] if summary.repeats else summary


def progress_of(summary: RunSummary) -> StageProgress | None:
    """Returns the progress of the running stage, or of the stage in which the run stopped."""
    stage = summary.stage
    return None if stage is None else stage_progress(Folder(current(summary).path) / stage.name)


def trial_words(trial: TrialProgress) -> str:
    """Names a trial by its round or architecture, or by its seed and the architecture of its last result."""
    config = trial.config
    if "round" in config:
        return f"round {config['round']}"
    if "architecture" in config:
        return str(config["architecture"])
    seed = f"seed {config['seed']}" if "seed" in config else trial.trial_id
    return f"{seed}: {trial.found}" if trial.found else seed


def runs(folder: str | os.PathLike[str] = RUNS) -> list[RunSummary]:
    """Lists the runs directly in a folder, the newest first.

    The function skips a run with a damaged file, and names the file on stderr.

    Args:
        folder: folder that contains the runs, a path or a pyarrow URI.

    Returns: summaries of the runs.
    Raises: RunFolderError if the folder does not exist.

    Example:
        ```python
        done = [summary for summary in archray.runs("runs") if summary.state == "done"]
        ```
    """
    place = Folder(folder)
    if not place.exists() or ((local := place.local_path()) is not None and not local.is_dir()):
        raise RunFolderError(f"there is no folder {place}. Pass the folder that contains the runs")
    summaries, errors = [], Console(stderr=True, highlight=False)
    for name in place.folders():
        try:
            if (place / name).exists(MANIFEST):
                summaries.append(RunSummary.read(place / name))
        except RunFolderError as error:
            errors.print(f"skipped: {error}", markup=False, soft_wrap=True)
    return sorted(summaries, key=lambda summary: summary.created, reverse=True)


def written(key: str, value: Any) -> str:
    """Formats a value of a summary, with its unit."""
    if isinstance(value, bool):
        return "*" if value else ""
    if key in QUANTITIES:
        return QUANTITIES[key].show(value)
    if isinstance(value, float):
        return f"{value:g}"
    return whole_number(value) if value is None or isinstance(value, int) else str(value)


def print_summary(summary: RunSummary, console: Console) -> None:
    print_text("\n".join(lines_of(summary)), console)


def print_text(text: str, console: Console) -> None:
    """Prints lines of text of any length without markup."""
    console.print(printable(text), soft_wrap=True, highlight=False, markup=False, emoji=False)


def aligned(rows: Sequence[Sequence[str]], left: int = 1) -> Iterator[str]:
    """Formats rows of text as lines, with the first `left` columns left-aligned and the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        texts = [f"{cell:{'<' if place < left else '>'}{width}}" for place, (cell, width) in enumerate(cells)]
        yield "  ".join(texts).rstrip()


def head_of(summary: RunSummary) -> list[tuple[str, str]]:
    """Returns the first lines about a run: labels and texts."""
    return [
        ("run", run_words(summary)),
        ("state", state_words(summary)),
        *(_measures(summary) if summary.repeats else _result(summary)),
    ]


def lines_of(summary: RunSummary) -> Iterator[str]:
    head = head_of(summary)
    states = [duration(stage.seconds) if stage.seconds is not None else stage.state for stage in summary.stages]
    stages = [f"{stage.name} {state}" for stage, state in zip(summary.stages, states, strict=True)]
    tail = [*([("stages", ", ".join(stages))] if stages else []), _next(summary)]
    width = max(len(label) for label, _ in (*head, *tail)) + 2
    yield from (f"{label:<{width}}{text}" for label, text in head)
    repeats = [Listing.of("repeats", _repeat_rows(summary))] if summary.repeats else []
    for listing in (*repeats, *summary.listings):
        yield f"{listing.title}:"
        yield from table_lines(listing)
    yield from (f"{label:<{width}}{text}" for label, text in tail)


def _next(summary: RunSummary) -> tuple[str, str]:
    if summary.state == "done":
        lost = f"missing; rewrite it with: {command('report', summary.path)}"
        return "report", f"{summary.path}/{REPORT}" if Folder(summary.path).exists(REPORT) else lost
    if summary.state == "running":
        return "watch it", command("watch", summary.path)
    return "continue with", command("resume", summary.path)


def run_words(summary: RunSummary) -> str:
    """Returns `random on nasbench201, digits, seed 0`, with the limit of the data if there is one."""
    data = data_words(shown(summary.data), summary.data_limit)
    return f"{summary.method} on {shown(summary.space)}, {data}, seed {summary.seed}"


def state_words(summary: RunSummary) -> str:
    """Returns `done, 2 min 05 s`, or the state with the reason why the run is not done."""
    reason = f": {summary.reason}" if summary.reason else ""
    if summary.state == "done":
        return f"done, {duration(summary.seconds)}{reason}"
    if summary.reason:
        return f"{summary.state}{reason}"
    return f"{summary.state}, in {summary.stage.name}" if summary.stage else summary.state


def _result(summary: RunSummary) -> Iterator[tuple[str, str]]:
    names, found = summary.architectures or summary.findings, summary.result.get("found")
    yield from zip(("architecture" if found else "found", *[""] * len(names)), names or ["nothing yet"], strict=False)
    if found:
        better = "after the same training, its validation accuracy is higher than that of the found architecture"
        yield "origin", f"{origin_words(summary.result)}; {better}"
        yield "found", found
    if names:
        yield from _measures(summary)


def _measures(summary: RunSummary) -> Iterator[tuple[str, str]]:
    """Yields the measures of the result, the headline first; with repeats, the measures over all repeats."""
    result = summary.result
    for key in sorted(QUANTITIES, key=lambda key: key != result.get(HEADLINE)):
        spread = Spread.read(result, key)
        counted = f"{key}_n" in result
        if spread and (counted or not summary.repeats):
            yield quantity_of(key).label, quantity_of(key).spread(spread) + (f", {spread.words}" if counted else "")


def _repeat_rows(summary: RunSummary) -> list[dict[str, Any]]:
    return [
        {
            "repeat": number,
            "seed": repeat.seed,
            "state": repeat.state,
            **{key: repeat.result.get(key) for key in (*DECIDING, *TESTED)},
            "architecture": " + ".join(repeat.architectures) or None,
        }
        for number, repeat in enumerate(summary.repeats)
    ]


def table_lines(listing: Listing, *, all_rows: bool = False) -> Iterator[str]:
    """Formats the rows in aligned columns; columns of variable length come last."""
    rows = listing.rows if all_rows else listing.rows[:SHOWN_ROWS]
    keys = [key for key in (rows[0] if rows else ()) if key not in LAST and not _is_list(rows, key)]
    keys = [key for key in keys if any(row.get(key) not in (None, False, "") for row in rows)]
    columns = [[quantity_of(key).label, *(written(key, row.get(key)) for row in rows)] for key in keys]
    widths = [max(map(len, column)) for column in columns]
    ends = ["architecture" if any(row.get("architecture") for row in rows) else "", *(_end(row) for row in rows)]
    for number, end in enumerate(ends):
        cells = [
            f"{column[number]:{'<' if key in TEXT else '>'}{width}}"
            for key, column, width in zip(keys, columns, widths, strict=True)
        ]
        yield f"    {'  '.join([*cells, end])}".rstrip()
    if len(rows) < listing.count:
        yield f"    and {count(listing.count - len(rows), 'row')} more; print all with: archray show --json"


def run_lines(summaries: Sequence[RunSummary], folder: str) -> Iterator[str]:
    """Yields a line per run; its result is the headline, or the mean over its repeats."""
    if not summaries:
        yield f"no runs in {folder}"
        return
    rows = [
        {
            "run": summary.path.rpartition("/")[2],
            "method": summary.method,
            "space": shown(summary.space),
            "data": data_words(shown(summary.data), summary.data_limit),
            "state": summary.state if summary.stage is None else f"{summary.state}, {summary.stage.name}",
            **_headline(summary),
            "repeats": len(summary.repeats) or None,
            "seconds": summary.seconds,
        }
        for summary in summaries
    ]
    yield from table_lines(Listing.of("runs", rows), all_rows=True)


def _headline(summary: RunSummary) -> dict[str, float | None]:
    """Returns the headline in the column of its key; with repeats, the mean of the available values."""
    runs = summary.repeats or [summary]
    headlines = [run.result.get(HEADLINE) for run in (summary, *runs)]
    headline = next(filter(None, headlines), TESTED[0])
    spread = Spread.of(run.result.get(headline) for run in runs)
    return {key: spread.mean if spread and key == headline else None for key in TESTED}


def _is_list(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    return any(isinstance(row.get(key), list | tuple) for row in rows)


def _end(row: Mapping[str, Any]) -> str:
    failure = f"failed: {row['failure']}" if row.get("failure") else ""
    return "  ".join(filter(None, [str(row.get("architecture") or ""), failure]))
