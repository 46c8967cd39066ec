"""Several runs side by side: `archray.compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from archray.errors import InvalidInput, RunFolderError, expect
from archray.files import Folder, new_file, write_file
from archray.platform.config import flat
from archray.platform.run.layout import REPORT, command
from archray.platform.run.run_summary import RunSummary, read_manifest
from archray.platform.show import aligned, print_text

if TYPE_CHECKING:  # what compares is imported once it is known that there are runs to compare
    import pandas as pd

    from archray.platform.methods.feature_maps.tables import Progress
    from archray.platform.report.side_by_side import Compared
    from archray.platform.run.run import Run

VALIDATION = "data.validation_fraction"  # of the training points, most often: the test data are the same
_OWN = ("method", "space", "data", "seed", "repeats", "resources", "cluster")  # no differences in what is compared


def compare(paths: Sequence[str | Path], *, out: str | Path | None = None) -> pd.DataFrame:
    """Compares runs on the same data: their accuracies, the size of what they found, what the search cost.

    Searches for a feature map in one space are compared at equal solver calls and at equal seconds, too.

    Args:
        paths: folders of runs that have ended; repeats of a run give means and standard deviations.
        out: an HTML file with the tables and figures, new.

    Returns: a row per run, see `side_by_side`. Raises: RunFolderError for a folder that holds no run, or one that has
    not ended; InvalidInput for runs on different data.
    """
    expect("paths", paths, list, tuple)
    if out is not None:
        new_file(out)
    runs = compared_runs(paths)
    # pandas, torch and matplotlib, once there are runs to compare
    from archray.platform.methods import open_run
    from archray.platform.methods.feature_maps.report import equal_cost_sections
    from archray.platform.methods.feature_maps.tables import comparison_table, written
    from archray.platform.report.page import write_page
    from archray.platform.report.section import flowing
    from archray.platform.report.side_by_side import (
        comparison_lead,
        side_by_side,
        side_by_side_sections,
        written_side_by_side,
    )

    progress = compared_progress([open_run(summary.path, uses="tables") for _, summary in runs])
    console = Console()
    _print(written_side_by_side(runs), console)
    differences = different_options(runs)
    for key, values in differences.items():
        print_text(f"{key}: {', '.join(map(str, values))}", console)
    if progress:
        _print(written(comparison_table(progress)), console)
    if out is not None:
        lead = f'<p class="lead">{flowing(comparison_lead(runs))}</p>'
        header = f'<p class="kicker">archray · comparison</p><h1>Comparison</h1>{lead}'
        sections = side_by_side_sections(runs, differences)
        sections += equal_cost_sections(progress) if progress else []
        write_file(out, write_page("archray: comparison", header, sections).encode())
        console.print(f"report              {out}", soft_wrap=True)
    return side_by_side(runs)


def _print(words: pd.DataFrame, console: Console) -> None:
    """A line per quantity, and a column per run: runs are few, and quantities many."""
    columns = [["", *words.columns], *([name, *row] for name, row in zip(words.index, words.to_numpy(), strict=True))]
    print_text("\n".join(aligned(list(zip(*columns, strict=True)))), console)


def compared_runs(paths: Sequence[str | Path]) -> Compared:
    """What each run is called beside the others, by its folder too where a method comes twice, and its summary.

    Raises: RunFolderError if one has not ended; InvalidInput if there is none, one comes twice, or their data differ.
    """
    summaries = [RunSummary.read(path) for path in paths]
    if not summaries:
        raise InvalidInput("expected runs to compare, got none; name the folder of at least one")
    for summary in summaries:
        if summary.state != "done":
            raise RunFolderError(
                f"{summary.path} has not ended and cannot be compared yet; continue it with: "
                f"{command('resume', summary.path)}"
            )
        if summary.findings:
            problem = f"expected runs of searches, got {summary.path}, a study ({summary.method}), which finds nothing"
            raise InvalidInput(f"{problem}; its report is {summary.path}/{REPORT}")
    _check_data(summaries)
    names = labels([(summary.method, summary.path) for summary in summaries])
    return list(zip(names, summaries, strict=True))


def labels(runs: Sequence[tuple[str, str]]) -> list[str]:
    """A name for each method and folder: the method's, and the folder's too where the method comes twice.

    Raises: InvalidInput for a folder that comes twice.
    """
    methods = [method for method, _ in runs]
    names = [method if methods.count(method) == 1 else f"{method}, {path.rpartition('/')[2]}" for method, path in runs]
    if len({path for _, path in runs}) < len(runs):
        raise InvalidInput("expected each run once, got one more than once; name every folder once")
    if len(set(names)) < len(names):
        names = [f"{method}, {path}" for method, path in runs]
    return names


def _check_data(summaries: Sequence[RunSummary]) -> None:
    first, *others = [(summary, read_manifest(Folder(summary.path))) for summary in summaries]
    for summary, manifest in others:
        if manifest["data_checksum"] != first[1]["data_checksum"]:
            differ = _different(flat({"data": m["config"]["data"]}) for m in (first[1], manifest))
            test_labels = {m.get("test_labels_checksum") for m in (first[1], manifest)}
            if list(differ) == [VALIDATION] and len(test_labels) == 1 and None not in test_labels:
                continue
            if not differ:  # the same words for other files, or arrays of the user's own
                differ = {"data_checksum": [str(m["data_checksum"])[:12] for m in (first[1], manifest)]}
            differences = "; ".join(f"{key}: {a} and {b}" for key, (a, b) in differ.items())
            raise InvalidInput(
                f"expected runs on the same data, got {first[0].path} and {summary.path} with {differences}; "
                "accuracies on different data do not compare"
            )


def different_options(runs: Compared) -> dict[str, list[Any]]:
    """Options of the configuration that all runs have, and whose values are not the same, by their paths.

    Not among them is what the table has, and what of a run is its own: its seed, where it ran.
    """
    from archray.platform.methods.ensembles.tables import attack_question

    configs = [flat(read_manifest(Folder(summary.path))["config"]) for _, summary in runs]
    questions = [attack_question(Folder(summary.path)) for _, summary in runs]
    configs = [config | flat({"attack": question or {}}) for config, question in zip(configs, questions, strict=True)]
    different = _different(configs).items()
    return {key: values for key, values in different if key == VALIDATION or key.partition(".")[0] not in _OWN}


def _different(values_of_runs: Any) -> dict[str, list[Any]]:
    configs = list(values_of_runs)
    keys = [key for key in configs[0] if all(key in config for config in configs)]
    values = {key: [config[key] for config in configs] for key in keys}
    return {key: options for key, options in values.items() if any(value != options[0] for value in options)}


def compared_progress(runs: Sequence[Run[Any]]) -> list[Progress]:
    """The solver calls of the runs that select a feature map; none unless all of them do, in one space."""
    from archray.platform.methods.recipe import recipe_of  # torch

    progress_of = [recipe_of(run).progress for run in runs]
    if not all(progress_of) or len({run.config.space for run in runs}) > 1:
        return []
    names = labels([(run.config.method, str(run.folder)) for run in runs])
    return [(name, of(run)) for name, of, run in zip(names, progress_of, runs, strict=True) if of is not None]
