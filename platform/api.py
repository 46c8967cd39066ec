"""Public functions, named as the commands: `archray.search(...)`, `archray.resume(...)`, ..."""

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from archray.cluster.settings import forks_workers
from archray.cluster.warm_workers import warm_python
from archray.errors import InvalidInput, RunFolderError, expect
from archray.files import Folder
from archray.platform.config import SearchConfig, comment, config_text, merge, nested, validate
from archray.platform.engine.settings import TuneOptions
from archray.platform.methods import METHODS, STUDIES, get_method, open_run
from archray.platform.methods.configure import check_config, make_config
from archray.platform.run.heartbeat import lock
from archray.platform.run.layout import DATA_ARRAYS, MANIFEST, RUNS, call_start
from archray.platform.run.run import Run, check_same_search, reject_existing, removed_after_error
from archray.platform.run.run_summary import read_manifest
from archray.platform.run_result import RunResult
from archray.plurals import count
from archray.trainables.data import DATASETS, DataSettings, TextDataset
from archray.trainables.data.arrays import Arrays, check_arrays, is_dataset, read_arrays
from archray.trainables.proxies import PROXIES
from archray.trainables.spaces import SPACES, Space
from archray.trainables.spaces.genotypes import named_architectures

if TYPE_CHECKING:  # the import takes 1 s, and `archray list` does not need it
    from ray import tune

    from archray.trainables.data import Dataset

WORK = {"method": "archray search", "study": "archray understand"}  # by the kind of a method


def search(
    method: str = "rank-surrogate",
    *,
    space: "str | Space | type[Space] | Callable[..., Any] | None" = None,
    data: "str | Arrays | Callable[[DataSettings], Dataset | TextDataset] | None" = None,
    preset: str | None = None,
    config: str | Path | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    run_config: "tune.RunConfig | None" = None,
    tune_config: "tune.TuneConfig | None" = None,
    callbacks: "Sequence[tune.Callback]" = (),
    time_budget_s: float | None = None,
    or_resume: bool = False,
    trust: bool = False,
    **options: Any,
) -> RunResult:
    """Runs a search, trains the found architecture, and writes a report.

    Args:
        method: name of a method; see `archray list methods`. The default is the method to start with.
        space: name of a registered space; or a custom one: a reference (`module:attribute` or `path.py:attribute`), a
            model with choices, a function that returns one, a `ModelSpace`, or a `Space`. The run stores a copy of it.
        data: name of a data set, or a function from `DataSettings` to a `Dataset`; arrays `(x_train, y_train)` or
            `(x_train, y_train, x_test, y_test)`: images (n, C, H, W) or (n, H, W, C), integer labels (n,); or a torch
            `Dataset` of pairs (image, label), or two `(train, test)`. The run stores a copy of arrays and data sets.
        preset: `smoke`, `demo` (the default) or `paper`; later arguments override it.
        config: configuration file (.toml, .json, .yaml) or nested dictionary.
        out: folder of the run, a path or a pyarrow URI; by default a new one under `archray-runs/`.
        run_config, tune_config, callbacks, time_budget_s: as in Ray Tune, for the Tune run of the search;
            `callbacks` apply to every stage. A resume does not keep them.
        or_resume: whether to resume the run in `out` if it has this configuration. Only its `cluster` may differ;
            another difference raises an error.
        trust: as in `resume`; only with `or_resume`.
        options: flags of the command (`budget=20`, `epochs=12`, `seed=1`, ...), or any option by its path with
            double underscores (`train__lr=0.05`). Metrics (`proxy`, `proxies`) and costs (`cost`) may be functions.

    Returns: the finished run.
    Raises: ArchrayError for a wrong argument, before Ray starts; RunInterrupted.

    Example:
        ```python
        result = archray.search("rank-surrogate", space="nasbench201", data="digits", preset="smoke", out="runs/first")
        print(result.architecture, result.test_accuracy)

        # Arrays as data: images (n, C, H, W), integer labels (n,)
        result = archray.search("random", data=(x_train, y_train, x_test, y_test), budget=20, out="runs/arrays")

        # A torch Dataset, such as one of torchvision
        result = archray.search("random", data=CIFAR10("data"), budget=20, out="runs/dataset")
        ```
    """
    METHODS.check(method)
    tune_options = TuneOptions(run_config, tune_config, callbacks, time_budget_s)
    options |= {"preset": preset, "config": config, "out": out, "or_resume": or_resume, "trust": trust}
    return _search(method, tune_options=tune_options, space=space, data=data, **options)


def understand(study: str, **options: Any) -> RunResult:
    """Runs a study of cells, supernets or validation data, and writes its report.

    Args:
        study: name of a study; see `archray list studies`.
        options: arguments of `search`.

    Returns: the finished run, with the conclusions in its `findings`.
    Raises: the errors of `search`.

    Example:
        ```python
        result = archray.understand("topology", architecture=["darts-v2"], preset="smoke", out="runs/topology")
        for finding in result.findings:
            print(finding)
        ```
    """
    STUDIES.check(study)
    names = ("run_config", "tune_config", "callbacks", "time_budget_s")
    tune_options = TuneOptions(**{name: options.pop(name) for name in names if name in options})
    return _search(study, tune_options=tune_options, **options)


def _search(
    name: str,
    /,
    *,
    preset: str | None = None,
    config: str | Path | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    tune_options: TuneOptions,
    or_resume: bool = False,
    trust: bool = False,
    **options: Any,
) -> RunResult:
    data, arrays = options.get("data"), None
    if not isinstance(data, str | None) and (is_dataset(data) or not callable(data)):
        check_arrays(data)
        options["data"], arrays = DATA_ARRAYS, data
    configuration = make_config(name, preset, config, options)
    return begin_run(configuration, arrays=arrays, out=out, tune_options=tune_options, or_resume=or_resume, trust=trust)


def begin_run(
    config: SearchConfig,
    *,
    arrays: Arrays | None = None,
    out: str | Path | None = None,
    tune_options: TuneOptions | None = None,
    command: str | None = None,
    or_resume: bool = False,
    trust: bool = False,
) -> RunResult:
    """Executes the run of a configuration; with `or_resume`, completes the run in `out`.

    Args:
        arrays: arrays or torch data sets, instead of a data set by name.
        command: the command line, for the manifest.

    Raises: the errors of `search`.
    """
    started = call_start()
    if or_resume:
        if out is None:
            raise InvalidInput("expected --out with --or-resume, got none. Pass the folder of the run as --out")
        if (folder := Folder(out)).exists(MANIFEST):
            read_manifest(folder)
            with lock(folder, WORK[config.kind]):
                run = open_run(folder, trust=trust, uses="resume")
                check_same_search(run, config)
                run.amend(run.config.model_copy(update={"cluster": config.cluster}))
                return _execute(run, tune_options or TuneOptions(), started)
    place = new_place(config.method, out, or_resume=or_resume)
    check_config(config, data_given=arrays is not None)
    if arrays is not None:
        arrays = read_arrays(arrays, partial(Console().print, soft_wrap=True, highlight=False, markup=False))
    folder = Folder(place)
    ray = sys.modules.get("ray")
    starts_ray = config.needs_ray and forks_workers(config.cluster) and not (ray and ray.is_initialized())
    warm = warm_python() if starts_ray else nullcontext()  # it imports torch while this process does
    with warm, lock(folder, WORK[config.kind]), removed_after_error(folder):
        run = Run.create(place, config, arrays=arrays, command=command, again=or_resume)
        return _execute(run, tune_options or TuneOptions(), started)


def new_place(method: str, out: str | Path | None, *, or_resume: bool = False) -> str:
    """Returns the folder of a new run, or of a run to resume. Raises: RunFolderError if it has other content."""
    place = out if out is not None else Path(RUNS) / f"{method}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = Folder(place)
    if not (or_resume and folder.exists(MANIFEST)):
        reject_existing(folder, again=or_resume)
        _reject_inside_run(folder)
    folder.check_writable()
    return os.fspath(place)


def _reject_inside_run(folder: Folder) -> None:
    """Raises: InvalidInput for a folder inside the folder of another run."""
    while (folder := folder.parent).path:
        with suppress(RunFolderError, OSError):  # the folder contains no run, or a bucket cannot be listed
            read_manifest(folder)
            raise InvalidInput(
                f"expected a folder outside of other runs, got one in the run {folder}. Choose another --out"
            )


def dry_run(
    config: SearchConfig, *, out: str | Path | None = None, or_resume: bool = False, estimated: bool = False
) -> str:
    """Returns the stages of `begin_run` as comments, followed by the configuration as YAML for `--config`.

    The function writes no file and does not start Ray.

    Args:
        estimated: whether to train and score some networks, to estimate the time of the run.

    Raises: ArchrayError for a wrong argument.
    """
    place = new_place(config.method, out, or_resume=or_resume)
    check_config(config)
    from archray.platform.engine.run_costs import check_constraints_without_run  # Ray
    from archray.platform.engine.stage import Work, check_on_data
    from archray.platform.methods.recipe import all_stages

    check_on_data(config, config.space, config.data)
    check_constraints_without_run(config)
    stages = all_stages(get_method(config.method).recipe)
    width = max(len(stage.name) for stage in stages)
    times = f"{count(config.repeats, 'time')}, in repeat-00, ...:" if config.repeats > 1 else "these stages:"
    lines = comment("Dry run: archray wrote no files and did not start Ray. Without --dry-run it would create")
    lines += comment(f"the run {place} and execute {times}")
    runs, epochs = 0, dict[str, int]()
    for number, stage in enumerate(stages, start=1):
        amount = stage.amount(config)
        lines.append(f"#   {number}. {stage.name:<{width}}  {stage.title}{f': {amount}' if amount else ''}")
        if isinstance(amount, Work) and amount.epochs:
            epochs[stage.name] = amount.items * amount.epochs
            runs += amount.items
    if total := sum(epochs.values()):
        shares = ", ".join(f"{name} {number} ({number / total:.0%})" for name, number in epochs.items())
        lines += comment(f"Training: {count(runs, 'run')} with {count(total, 'epoch')}: {shares}.")
    if estimated:
        from archray.platform.engine.estimate import estimate  # torch

        lines += comment(estimate(config, stages))
    return "\n".join([*lines, "", config_text(config)])


def config(
    method: str = "hnas",
    *,
    preset: str | None = None,
    config: str | Path | Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Builds the full configuration of a search, for the argument `config` of `archray.search`.

    Args:
        method, preset, config, options: as in `archray.search`; `space` and `data` are options.

    Returns: all options as a nested dictionary of JSON values.
    Raises: InvalidInput for an option that the method does not have or an invalid value; UnknownName for an unknown
    method, space or data set.

    Example:
        ```python
        options = archray.config("hnas", space="nasbench201", data="digits", preset="demo")
        options["search"]["budget"] = 10
        result = archray.search("hnas", config=options)
        ```
    """
    return make_config(method, preset, config, options).model_dump(mode="json")


def resume(
    path: str | Path,
    *,
    trust: bool = False,
    run_config: "tune.RunConfig | None" = None,
    tune_config: "tune.TuneConfig | None" = None,
    callbacks: "Sequence[tune.Callback]" = (),
    time_budget_s: float | None = None,
    **options: Any,
) -> RunResult:
    """Resumes an interrupted run, or extends a finished run (`budget=40`).

    Args:
        path: folder of the run, a path or a pyarrow URI.
        trust: whether the run's code may execute, and its cluster be joined, although you did not start the run on this
            machine, see docs/trust.md. archray then signs the run as yours.
        run_config, tune_config, callbacks, time_budget_s: as in `search`.
        options: new values of options that the method can extend, for example budget, final_epochs, final_seeds and
            random; for searches with several objectives also final_members. Another option raises an error that lists
            these.

    Returns: the finished run.
    Raises: RunFolderError for a folder without a run, or if the searcher suggests other trials; UntrustedCode;
    InvalidInput.

    Example:
        ```python
        result = archray.resume("runs/first")  # completes an interrupted run
        result = archray.resume("runs/first", budget=40)  # evaluates more architectures
        ```
    """
    started = call_start()
    folder = Folder(path)
    read_manifest(folder)
    with lock(folder, "archray resume"):
        run = open_run(folder, trust=trust, uses="resume")
        method = get_method(run.config.method)
        options = {name: value for name, value in options.items() if value is not None}
        unchangeable = [name for name in options if name not in method.extendable]
        if unchangeable:
            raise InvalidInput(
                f"expected options that a resume of {method.name} can change ({', '.join(method.extendable)}), got "
                f"{', '.join(unchangeable)}. Start a new run to change other options"
            )
        changes = nested({method.flags[name]: value for name, value in options.items()})
        amended = validate(method.config, merge(run.config.model_dump(mode="json"), changes))
        amended.check_extends(run.config)
        run.amend(amended)
        return _execute(run, TuneOptions(run_config, tune_config, callbacks, time_budget_s), started)


def report(path: str | Path, *, trust: bool = False) -> str:
    """Rewrites the report of a finished or unfinished run, and its summary unless another process works on the run.

    Args:
        path: folder of the run, a path or a pyarrow URI.
        trust: whether the run's code may execute although you did not start the run on this machine.

    Returns: path of the report.

    Raises:
        UntrustedCode: without `trust`.
        DamagedFile: if a file of a finished stage is missing or was changed. The report on disk stays unchanged.

    Example:
        ```python
        path = archray.report("runs/first")
        ```
    """
    run = open_run(path, trust=trust)
    from archray.platform.execution import rewrite_report  # torch and Ray

    return rewrite_report(run)


def export(
    path: str | Path,
    to: str | Path | None = None,
    *,
    formats: str | Sequence[str] | None = None,
    int8: bool = False,
    member: int | None = None,
    trust: bool = False,
) -> list[str]:
    """Exports the trained model as files that load without archray.

    It also writes `model.json`, which describes input and output, `load_model.py`, and a README.

    Args:
        path: folder of the run, a path or a pyarrow URI.
        to: output folder: new, empty, or with the same export, which is rewritten. By default `export` in the run, or
            `export-member-K` for a member.
        formats: one or several of `onnx`, `torch-export`, `safetensors`, `python` (plain PyTorch source), `state-dict`;
            None: torch-export and state-dict.
        int8: whether to also write an int8 graph with `onnx`, calibrated on the run's training images; `model.json`
            contains its accuracy.
        member: number of a fully trained member of the Pareto set in `run.pareto`
            (`archray.resume(path, final_members="all")`); None: the most accurate.
        trust: whether the run's code may execute although you did not start the run on this machine; see
            docs/trust.md.

    Returns: paths of the written files.
    Raises: UntrustedCode; RunFolderError if the run has no trained model yet, or the folder is not empty; UnknownName
    for another format; MissingExtra without a format's packages; InvalidInput for a model that a format cannot
    represent, or an unknown member.

    Example:
        ```python
        archray.export("runs/first", "exported", formats=["onnx", "python"], int8=True)
        ```
    """
    expect("formats", formats, str, list, tuple, type(None))
    run = open_run(path, trust=trust)
    from archray.platform.models.export_model import export_model  # torch

    folder = Folder(to) if to is not None else run.folder / export_name(member)
    names = [formats] if isinstance(formats, str) else formats
    return [f"{folder}/{name}" for name in export_model(run, folder, names, int8=int8, member=member)]


def export_name(member: int | None = None) -> str:
    """Returns the default folder of an export in a run."""
    return "export" if member is None else f"export-member-{member}"


LISTED = ("spaces", "architectures", "datasets", "proxies", "methods", "studies")


def list_names(kind: str) -> dict[str, str]:
    """Lists the registered names of a kind.

    Args:
        kind: `spaces`, `architectures` (published ones, by name), `datasets`, `proxies`, `methods` or `studies`.

    Returns: names, with one-line descriptions.
    Raises: InvalidInput for another kind.

    Example:
        ```python
        for name, description in archray.list_names("methods").items():
            print(name, description)
        ```
    """
    if kind == "spaces":
        return {name: _size(SPACES.get(name)()) for name in SPACES}
    if kind == "architectures":
        return {name: f"in {', '.join(spaces)}" for name, spaces in sorted(named_architectures().items())}
    if kind == "datasets":
        return {name: DATASETS.get(name).description for name in DATASETS}
    if kind == "proxies":
        return {name: PROXIES.get(name).summary for name in PROXIES}
    if isinstance(kind, str) and kind in (registries := {"methods": METHODS, "studies": STUDIES}):
        return {name: registries[kind].summary(name) for name in registries[kind]}
    raise InvalidInput(f"expected one of {', '.join(LISTED)}, got {kind!r}")


def _size(space: Space) -> str:
    return f"{space.kind}s, continuous" if math.isinf(space.size) else count(int(space.size), "architecture")


def _execute(run: Run[Any], tune_options: TuneOptions, started: float) -> RunResult:
    from archray.platform.execution import execute  # torch and Ray

    return execute(run, tune_options, Console(), started)
