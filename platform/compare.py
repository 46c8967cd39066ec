"""Comparison of several runs: `archray.compare`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from archray.errors import InvalidInput, RunFolderError, expect
from archray.files import Folder, new_file, write_file
from archray.platform.config import flat
from archray.platform.run.layout import REPORT, command
from archray.platform.run.run_summary import RunSummary, read_manifest
from archray.platform.show import aligned, print_text

if TYPE_CHECKING:  # imported when there are runs to compare
    import pandas as pd

    from archray.platform.methods.feature_maps.tables import Progress
    from archray.platform.report.side_by_side import Compared
    from archray.platform.run.run import Run

VALIDATION = "data.validation_fraction"  # usually a part of the training data: the test data stay the same
_OWN = ("method", "space", "data", "seed", "repeats", "resources", "cluster")  # keys that are not compared


def compare(paths: Sequence[str | Path], *, out: str | Path | None = None) -> "pd.DataFrame":
    """Compares runs on the same data by accuracy, network size and cost of the search.

    Feature map searches in one space are also compared at equal solver calls and at equal seconds.

    Args:
        paths: folders of finished runs; repeats of a run give means and standard deviations.
        out: new HTML file (.html) for the tables and figures.

    Returns: a row per run, indexed by its label: `method`, `space`, `data`, `members`, `repeats`; for each quantity its
    mean `KEY`, standard deviation `KEY_std` and number of values `KEY_n`.
    Raises: RunFolderError for a folder without a run, or with an unfinished run; InvalidInput for runs on different
    data, or if `out` does not end in .html.

    Example:
        ```python
        table = archray.compare(["runs/random", "runs/hnas"], out="comparison.html")
        ```
    """
    expect("paths", paths, list, tuple)
    if out is not None:
        new_file(out, ".html")
    runs = compared_runs(paths)
    # pandas, torch and matplotlib, only when there are runs to compare
    from archray.platform.methods import open_run
    from archray.platform.methods.feature_maps.report import equal_cost_sections
    from archray.platform.methods.feature_maps.tables import comparison_table, written
    from archray.platform.report import side_by_side
    from archray.platform.report.page import write_page
    from archray.platform.report.section import flowing

    progress = compared_progress([open_run(summary.path, uses="tables") for _, summary in runs])
    console = Console()
    _print(side_by_side.written_side_by_side(runs), console)
    differences = different_options(runs)
    for key, values in differences.items():
        print_text(f"{key}: {', '.join(map(str, values))}", console)
    if progress:
        _print(written(comparison_table(progress)), console)
    if out is not None:
        lead = f'<p class="lead">{flowing(side_by_side.comparison_lead(runs))}</p>'
        header = f'<p class="kicker">archray · comparison</p><h1>Comparison</h1>{lead}'
        sections = side_by_side.side_by_side_sections(runs, differences)
        sections += equal_cost_sections(progress) if progress else []
        write_file(out, write_page("archray: comparison", header, sections).encode())
        console.print(f"report              {out}", soft_wrap=True)
    return side_by_side.side_by_side(runs)


def _print(words: "pd.DataFrame", console: Console) -> None:
    columns = [["", *words.columns], *([name, *row] for name, row in zip(words.index, words.to_numpy(), strict=True))]
    print_text("\n".join(aligned(list(zip(*columns, strict=True)))), console)


def compared_runs(paths: Sequence[str | Path]) -> "Compared":
    """Returns the label and the summary of each run. The label includes the folder if a method occurs twice.

    Raises: RunFolderError for an unfinished run; InvalidInput for no runs, a repeated run, or different data.
    """
    summaries = [RunSummary.read(path) for path in paths]
    if not summaries:
        raise InvalidInput("expected at least one run, got none. Pass the folders of the runs")
    for summary in summaries:
        if summary.state != "done":
            raise RunFolderError(
                f"expected finished runs, got {summary.path}, which has not ended. Continue with: "
                f"{command('resume', summary.path)}"
            )
        if summary.findings:
            problem = f"expected runs of searches, got {summary.path}, a study ({summary.method})"
            raise InvalidInput(f"{problem}. See its report {summary.path}/{REPORT}")
    _check_data(summaries)
    names = labels([(summary.method, summary.path) for summary in summaries])
    return list(zip(names, summaries, strict=True))


def labels(runs: Sequence[tuple[str, str]]) -> list[str]:
    """Returns a name for each run: the method, and also the folder if the method occurs twice.

    Args:
        runs: method and folder of each run.

    Raises: InvalidInput for a repeated folder.
    """
    methods = [method for method, _ in runs]
    names = [method if methods.count(method) == 1 else f"{method}, {path.rpartition('/')[2]}" for method, path in runs]
    if len({path for _, path in runs}) < len(runs):
        raise InvalidInput("expected distinct runs, got the same folder twice. Pass every folder once")
    if len(set(names)) < len(names):
        names = [f"{method}, {path}" for method, path in runs]
    return names


def _check_data(summaries: Sequence[RunSummary]) -> None:
    first, *others = summaries
    manifest = read_manifest(Folder(first.path))
    for summary in others:
        manifests = (manifest, read_manifest(Folder(summary.path)))
        checksums = [str(m["data_checksum"])[:12] for m in manifests]
        if manifests[0]["data_checksum"] != manifests[1]["data_checksum"]:
            differ = _different([flat({"data": m["config"]["data"]}) for m in manifests])
            test_labels = {m.get("test_labels_checksum") for m in manifests}
            if list(differ) == [VALIDATION] and len(test_labels) == 1 and None not in test_labels:
                continue
            differ = differ or {"data_checksum": checksums}  # other files under the same names, or arrays of the user
            differences = "; ".join(f"{key}: {a} and {b}" for key, (a, b) in differ.items())
            raise InvalidInput(
                f"expected runs on the same data, got {first.path} and {summary.path} with {differences}. "
                "Accuracies on different data are not comparable"
            )


def different_options(runs: "Compared") -> dict[str, list[Any]]:
    """Returns the configuration options that differ between the runs, by their paths.

    The result omits the columns of the table, and options such as the seed and the cluster.
    """
    from archray.platform.methods.ensembles.tables import attack_question

    configs = [flat(read_manifest(Folder(summary.path))["config"]) for _, summary in runs]
    attacks = [flat({"attack": attack_question(Folder(summary.path)) or {}}) for _, summary in runs]
    configs = [config | attack for config, attack in zip(configs, attacks, strict=True)]
    different = _different(configs).items()
    return {key: values for key, values in different if key == VALIDATION or key.partition(".")[0] not in _OWN}


def _different(configs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    keys = [key for key in configs[0] if all(key in config for config in configs)]
    values = {key: [config[key] for config in configs] for key in keys}
    return {key: options for key, options in values.items() if any(value != options[0] for value in options)}


def compared_progress(runs: "Sequence[Run[Any]]") -> "list[Progress]":
    """Returns the solver calls of feature map searches; empty unless all runs are such searches in one space."""
    from archray.platform.methods.recipe import recipe_of  # torch

    progress_of = [recipe_of(run).report.progress for run in runs]
    if not all(progress_of) or len({run.config.space for run in runs}) > 1:
        return []
    names = labels([(run.config.method, str(run.folder)) for run in runs])
    return [(name, of(run)) for name, of, run in zip(names, progress_of, runs, strict=True) if of is not None]
