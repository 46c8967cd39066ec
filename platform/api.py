"""The public functions, with the names of the commands: `archray.search(...)`, `archray.resume(...)`, ..."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console

from archray.cluster.connect import ClusterSettings, check_address, connect
from archray.cluster.resources import ResourceSettings
from archray.errors import InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.config import SearchConfig, merge, nest, read_config_file, validate
from archray.platform.engine.pool_scoring import PoolSettings
from archray.platform.engine.stage import Context, run_stages
from archray.platform.methods import METHODS, get_method
from archray.platform.run.run import Run, refuse_existing
from archray.trainables.data import DATASETS, DataSettings, check_data, data_kind
from archray.trainables.proxies import PROXIES, ProxySettings
from archray.trainables.spaces import SPACES, Space, get_space

if TYPE_CHECKING:
    import torch
    from ray import tune

    from archray.trainables.feature_maps.classifier import Classifier

DEFAULT_PRESET = "demo"


@dataclass(frozen=True)
class SearchResult:
    """A run that has ended.

    Attributes:
        path: its folder.
        architecture: what was found, as the space's string; None for an ensemble.
        members: the architectures of the ensemble that was found.
        validation_accuracy: in the search; None where the architecture was given. test_accuracy: the mean over the
            final trainings. Fractions.
        grids: the `ResultGrid` of every stage that ran Tune in this process: `search`, `final`, `baseline`.
        repeats: the results of the repeats, of which this is the best on validation.
    """

    path: str
    architecture: str | None
    validation_accuracy: float | None
    test_accuracy: float | None
    members: Sequence[str] = ()
    grids: Mapping[str, tune.ResultGrid] = field(default_factory=dict, repr=False)
    repeats: Sequence[SearchResult] = field(default=(), repr=False)

    @property
    def result_grid(self) -> tune.ResultGrid:
        """Tune's results of the search. Raises: InvalidInput if the search stage had ended before."""
        if "search" not in self.grids:
            raise InvalidInput(
                f"the search of {self.path} ended in an earlier process; read {self.path}/trials.parquet"
            )
        return self.grids["search"]

    @property
    def trials(self) -> pd.DataFrame:
        """All trials of all stages."""
        return Folder(self.path).read_parquet("trials.parquet")

    def model(self) -> torch.nn.Module | Classifier:
        """The trained network or ensemble, on the CPU, in evaluation mode; of a feature map, its classifier."""
        from archray.platform.models.export import load_model

        return load_model(Run.open(self.path))


def search(
    method: str = "hnas",
    *,
    space: str | None = None,
    data: str | tuple[Any, ...] | None = None,
    preset: str | None = None,
    config: str | Path | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    run_config: tune.RunConfig | None = None,
    tune_config: tune.TuneConfig | None = None,
    callbacks: Sequence[tune.Callback] = (),
    time_budget_s: float | None = None,
    console: Console | None = None,
    command: str | None = None,
    **options: Any,
) -> SearchResult:
    """Runs a search from the beginning to a trained architecture and a report.

    Args:
        method: see `archray list methods`.
        space: a registered space, or `module:attribute` / `path.py:attribute`.
        data: a data set by name, or arrays `(x_train, y_train)` or `(x_train, y_train, x_test, y_test)`:
            images (n, C, H, W) or (n, H, W, C), integer labels (n,).
        preset: `smoke`, `demo` (the default) or `paper`; what follows overrides it.
        config: a file (.toml, .json, .yaml) or a nested dictionary.
        out: the run's folder, a path or a pyarrow URI; a new one under `archray-runs/` by default.
        run_config, tune_config, callbacks, time_budget_s: as in Ray Tune, for the Tune run of the search;
            `callbacks` serve every stage. They are not kept for a resume.
        options: the command's flags (`budget=20`, `epochs=12`, `seed=1`, ...), or any option by its path with
            double underscores (`train__lr=0.05`).

    Raises: ArchrayError for anything that is wrong with these, before Ray starts; RunInterrupted.
    """
    from archray.platform.engine.tuning import TuneOptions

    arrays = data if not isinstance(data, str | None) else None
    if arrays is not None and len(arrays) not in (2, 4):
        raise InvalidInput(f"expected data as 2 or 4 arrays, got {len(arrays)}; (x_train, y_train[, x_test, y_test])")
    chosen = make_config(
        method, preset, config, {**options, "space": space, "data": data if arrays is None else "arrays:given.npz"}
    )
    check(chosen, data_given=arrays is not None)
    place = str(out) if out is not None else default_place(chosen.method)
    refuse_existing(Folder(place))
    tune_options = TuneOptions(run_config, tune_config, tuple(callbacks), time_budget_s)
    run = Run.create(place, chosen, arrays=_arrays_writer(arrays) if arrays is not None else None, command=command)
    return _execute(run, tune_options, console or Console())


def resume(
    path: str | Path,
    *,
    force: bool = False,
    run_config: tune.RunConfig | None = None,
    tune_config: tune.TuneConfig | None = None,
    callbacks: Sequence[tune.Callback] = (),
    time_budget_s: float | None = None,
    console: Console | None = None,
    **options: Any,
) -> SearchResult:
    """Continues a run that was interrupted, or extends one that has ended (`budget=40`).

    Args:
        force: resume also what another version of archray or Ray began. Tune's state is pickled objects: resume
            only folders that you trust.
        run_config, tune_config, callbacks, time_budget_s: as in `search`.
        options: what the method allows to change: for HNAS budget, final_epochs, final_seeds, random.

    Raises: RunFolderError for a folder that holds no run, or another version's; InvalidInput.
    """
    from archray.platform.engine.tuning import TuneOptions

    run = Run.open(str(path), force=force, to_resume=True)
    method = get_method(run.config.method)
    given = {name: value for name, value in options.items() if value is not None}
    refused = [name for name in given if name not in method.extendable]
    if refused:
        raise InvalidInput(
            f"a run of {method.name} cannot change {', '.join(refused)} when it is resumed; "
            f"it can change {', '.join(method.extendable)}. Begin a new run for the rest"
        )
    values = merge(run.config.model_dump(mode="json"), *(nest(method.flags[k], v) for k, v in given.items()))
    amended = validate(method.config, values)
    amended.check_extends(run.config)
    run.amend(amended)
    return _execute(run, TuneOptions(run_config, tune_config, tuple(callbacks), time_budget_s), console or Console())


def report(path: str | Path) -> str:
    """Writes the report of a run anew, also of one that has not ended; returns where it lies."""
    from archray.platform.methods.report_stage import REPORT, write_report
    from archray.platform.repeats import write_repeats_report

    run = Run.open(str(path))
    write = write_report if run.config.repeats == 1 else write_repeats_report
    write(run)
    return f"{run.folder}/{REPORT}"


def show(path: str | Path, console: Console | None = None) -> None:
    """Prints what a run found, and how far it is."""
    from archray.platform.engine.stage import DONE
    from archray.platform.methods.report_stage import print_found
    from archray.platform.repeats import print_repeats, repeat_runs

    console = console or Console()
    run = Run.open(str(path))
    if run.config.repeats > 1:
        print_repeats(repeat_runs(run), console)
        return
    method = get_method(run.config.method)
    print_found(run, console)
    method.show(run, console)
    left = [stage.name for stage in method.stages if not (run.folder / stage.name).exists(DONE)]
    if left:
        console.print(f"not done yet: {', '.join(left)}; continue with: archray resume {run.folder}", soft_wrap=True)
    else:
        console.print(f"report              {run.folder}/report.html", soft_wrap=True)


def compare(
    paths: Sequence[str | Path], *, out: str | Path | None = None, console: Console | None = None
) -> pd.DataFrame:
    """Compares runs that select a feature map: test error at equal solver calls, and at equal seconds.

    Args:
        paths: folders of runs, one for each method; repeats of a run give means and standard errors.
        out: an HTML file with the curves and the table, new.

    Returns: a row per run. Raises: RunFolderError for a folder that holds no run, or one without solver calls.
    """
    from archray.platform.compare import compare_runs

    return compare_runs(
        [Run.open(str(path)) for path in paths], out=None if out is None else Path(out), console=console or Console()
    )


def export(path: str | Path, to: str | Path | None = None) -> list[str]:
    """Writes the trained network as files that load elsewhere; returns their names.

    Args:
        to: an empty or new folder; `export` in the run by default.

    Raises: RunFolderError if the run has no trained network yet, or the folder is not empty.
    """
    from archray.platform.models.export import export_model

    run = Run.open(str(path))
    folder = Folder(to) if to is not None else run.folder / "export"
    return [f"{folder}/{name}" for name in export_model(run, folder)]


def proxies(
    space: str = "nasbench201",
    data: str = "digits",
    out: str | Path = "pool.parquet",
    *,
    size: int | None = None,
    chunk: int | None = None,
    seed: int = 0,
    data_settings: DataSettings | None = None,
    settings: ProxySettings | None = None,
    resources: ResourceSettings | None = None,
    cluster: ClusterSettings | None = None,
    console: Console | None = None,
) -> pd.DataFrame:
    """Scores architectures of a space without training them, into one Parquet table.

    Called again with the same arguments after an interruption, it scores only what is left.

    Args:
        size: how many canonical forms, drawn uniformly; all of them by default.
        chunk: architectures an actor gets at a time; by default as many as take seconds.

    Raises: RunFolderError if `out` exists; ArchrayError for anything wrong, before Ray starts.
    """
    from archray.platform.proxies import score_to_file

    data_settings = data_settings or validate(DataSettings, {"name": data})
    return score_to_file(
        Path(out),
        space=space,
        data=data_settings,
        proxies=settings or ProxySettings(metrics=("grad_norm", "snip", "ntk_trace", "kappa")),
        pool=validate(PoolSettings, {"size": size, "chunk": chunk}),
        seed=seed,
        resources=resources or ResourceSettings(),
        cluster=cluster or ClusterSettings(),
        console=console or Console(),
    )


def list_names(kind: str) -> dict[str, str]:
    """What is registered of a kind (`spaces`, `datasets`, `proxies`, `methods`): names and one-line descriptions.

    Raises: InvalidInput for another kind.
    """
    listed = {
        "spaces": lambda: {n: _size(SPACES.get(n)()) for n in SPACES},
        "datasets": lambda: {n: DATASETS.get(n).description for n in DATASETS},
        "proxies": lambda: {n: PROXIES.summary(n) for n in PROXIES},
        "methods": lambda: {n: METHODS.get(n).summary for n in METHODS},
    }
    if kind not in listed:
        raise InvalidInput(f"there is nothing called {kind!r} to list; choose one of {', '.join(listed)}")
    return listed[kind]()


def _size(space: Space) -> str:
    return f"{space.kind}s, continuous" if math.isinf(space.size) else f"{space.size:,} architectures"


def make_config(
    method: str, preset: str | None, config: str | Path | Mapping[str, Any] | None, options: Mapping[str, Any]
) -> SearchConfig:
    """The configuration of a run: the paper's defaults, the preset, the file, the options, each over the one before."""
    chosen = get_method(method)
    preset = preset or DEFAULT_PRESET
    if preset not in chosen.presets:
        raise InvalidInput(f"{method} has no preset {preset!r}; choose one of {', '.join(chosen.presets)}")
    from_file = config if isinstance(config, Mapping) else read_config_file(Path(config)) if config is not None else {}
    flags = {**COMMON_FLAGS, **chosen.flags}
    given = []
    for name, value in options.items():
        if value is None:
            continue
        path = flags.get(name, name.replace("__", ".") if "__" in name else name)
        given.append(nest(path, value))
    told = merge(chosen.presets[preset], from_file, *given, {"method": method})
    space = told.get("space", chosen.config.model_fields["space"].default)
    return validate(chosen.config, merge(chosen.defaults(space), told))


COMMON_FLAGS = {
    "data": "data.name",
    "data_dir": "data.data_dir",
    "channels": "network.channels",
    "cells": "network.cells",
    "max_concurrent": "resources.max_concurrent",
    "cpus_per_trial": "resources.cpus_per_trial",
    "gpus_per_trial": "resources.gpus_per_trial",
    "address": "cluster.address",
}


def check(config: SearchConfig, *, data_given: bool = False) -> None:
    """Everything about a configuration that can be found wrong before Ray starts. Raises: ArchrayError."""
    method = get_method(config.method)
    space = get_space(config.space)
    reason = method.serves(space)
    if reason is not None:
        raise InvalidInput(f"{config.method} cannot search {config.space}: {reason}")
    if not data_given:
        check_data(config.data)
        held = data_kind(config.data)
        if held != space.data_kind:
            others = [name for name in DATASETS if DATASETS.get(name).kind == space.data_kind]
            raise InvalidInput(
                f"{config.space} is for {space.data_kind}, and {config.data.name} holds {held}; "
                f"choose --data {', '.join(others)}"
            )
    config.check()
    check_address(config.cluster)


def default_place(method: str) -> str:
    return str(Path("archray-runs") / f"{method}-{datetime.now():%Y%m%d-%H%M%S}")


def _arrays_writer(arrays: tuple[Any, ...]) -> Callable[[Path], None]:
    from archray.trainables.data import save_arrays

    def write(path: Path) -> None:
        save_arrays(path, *arrays)

    return write


def _execute(run: Run, tune_options: Any, console: Console) -> SearchResult:
    from archray.platform.repeats import run_repeats

    if run.config.repeats > 1:
        with connect(run.config.cluster, user_files=run.user_files, announce=console.print):
            return run_repeats(run, lambda repeat: _execute(repeat, tune_options, console), console)
    context = Context(run, console, tune_options)
    run_stages(get_method(run.config.method).stages, context)
    return result_of(run, context.grids)


def result_of(run: Run, grids: Mapping[str, Any] | None = None) -> SearchResult:
    """The result of a run that has ended. Raises: RunFolderError if it has not."""
    if not run.folder.exists("architecture.json"):
        raise RunFolderError(f"{run.folder} has not ended; continue it with 'archray resume {run.folder}'")
    told = run.folder.read_json("architecture.json")
    return SearchResult(
        str(run.folder),
        told.get("architecture"),
        told.get("validation_accuracy", told["value"]),
        told["test_accuracy"],
        tuple(told.get("members", ())),
        grids or {},
    )
