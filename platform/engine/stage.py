"""Stages, which are the steps of a method and read the files of earlier stages; the run's `summary.json`."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from typing import Any, Generic, TypeVar

from pydantic_core import to_jsonable_python
from ray import tune
from rich.console import Console

import archray
from archray.cluster.connect import connect
from archray.cluster.metrics import RunLabels
from archray.cluster.node_checks import checked_nodes
from archray.cluster.ray_watch import interrupted_when_lost, interruptible, why_stopped
from archray.cluster.settings import ResourceSettings, concurrency
from archray.errors import REWRITE, DamagedFile, DiskFull, RunInterrupted, UnreadableFile, printable
from archray.files import Folder
from archray.platform.config import SearchConfig
from archray.platform.durable.failed_trials import stops_when_full
from archray.platform.engine.run_costs import check_constraints, check_device, device_of
from archray.platform.engine.settings import TuneOptions
from archray.platform.run.documents import Done
from archray.platform.run.heartbeat import is_taken_over, lock
from archray.platform.run.layout import DONE, MANIFEST, MODEL, REPEAT, SUMMARY, command, now
from archray.platform.run.manifest import digest
from archray.platform.run.run import ConfigT, Run
from archray.platform.run.run_summary import (
    StageSummary,
    State,
    check_files,
    finished_stages,
    plain,
    worked_seconds,
    written_files,
)
from archray.plurals import count
from archray.seeds import stage_seed
from archray.trainables.costs import NetworkCosts
from archray.trainables.data import DataSettings, load_images
from archray.trainables.model_space import ModelSpace
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import TableSpace, get_space

Describe = Callable[[], Mapping[str, Any]]  # the present `result` and `listings` of a `RunSummary`


class RunRecord:
    """Writer of the `summary.json` of one run.

    Args:
        stages: stage titles by name, in order; empty for a run with several repeats.
        started: time (seconds since the epoch) at which this process started to work on the run; None if it does not
            work on the run. While it works, damaged files count as absent, since stages rewrite them.

    Attributes:
        reason: why the run stopped, if the final error does not contain it.
    """

    reason: str | None = None

    def __init__(
        self, folder: Folder, stages: Mapping[str, str], describe: Describe, started: float | None = None
    ) -> None:
        self._folder, self._describe, self._started = folder, describe, started
        self._active = started is not None
        self._seconds = worked_seconds(folder)  # time of earlier processes
        self._stages = {name: self._as_left(name, title) for name, title in stages.items()}
        self.describe()

    def _as_left(self, name: str, title: str) -> StageSummary:
        stage, folder = StageSummary(name, title), self._folder / name
        if not folder.exists(DONE):
            return stage
        try:
            done = folder.read_json(DONE, Done)
        except DamagedFile:
            if self._active:
                return stage
            raise
        return replace(stage, state="done", finished=done["finished"], seconds=done["seconds"])

    def started(self, name: str) -> None:
        """Records that a stage has started; later stages wait, since they read its files."""
        names = list(self._stages)
        for later in names[names.index(name) :]:
            self._stages[later] = StageSummary(later, self._stages[later].title)
        self._stages[name] = replace(self._stages[name], state="running", started=now())
        self.write("running")

    def was_done(self, name: str) -> None:
        """Records that a stage ended earlier and is valid."""
        self._stages[name] = self._as_left(name, self._stages[name].title)

    def ended(self, name: str) -> None:
        started = self._stages[name].started
        self.was_done(name)
        self._stages[name] = replace(self._stages[name], started=started)
        self.describe()
        self.write("running")

    def describe(self) -> None:
        """Updates the result and the listings."""
        try:
            self._description = dict(self._describe())
        except DamagedFile:
            if not self._active:
                raise
            self._description = {"result": {}, "listings": []}

    def finish(self) -> None:
        """Records that all stages are done. Raises: DamagedFile for a damaged file that no stage rewrites."""
        self._active = False
        self.describe()
        self.write("done")

    def write(self, state: State, reason: str | None = None) -> None:
        stages = [asdict(stage) for stage in self._stages.values()]
        seconds = self._seconds if self._started is None else self._seconds + time.time() - self._started
        summary = {"state": state, "reason": reason, "seconds": round(seconds, 1), "stages": stages}
        summary |= {**self._description, "written": now()}
        self._folder.write_json(SUMMARY, plain(summary))


@contextmanager
def recorded(
    folder: Folder, stages: Mapping[str, str], describe: Describe, started: float | None = None
) -> Iterator[RunRecord]:
    """Keeps the record of a run while the block runs, and writes its end.

    Args:
        started: see `RunRecord`; None: now.
    """
    with lock(folder, "archray"), ExitStack() as stack:
        record = RunRecord(folder, stages, describe, time.time() if started is None else started)
        stack.enter_context(interruptible(lambda why: record.write("interrupted", record.reason or why)))
        record.write("running")
        try:
            yield record
        except (KeyboardInterrupt, RunInterrupted) as error:
            reason = record.reason or why_stopped(error.__cause__ or error)  # the cause is the error of a repeat
            with suppress(OSError):  # a full disk may have stopped the run
                if not is_taken_over(folder):
                    record.write("interrupted", reason)
            raise
        except BaseException as error:
            with suppress(OSError):
                record.write("failed", f"{type(error).__name__}: {error}")
            raise
        record.finish()


def whole_run(folder: Folder) -> Folder:
    """Returns the folder to resume: for a repeat, the folder of all repeats."""
    parent = folder.parent
    return parent if folder.name.startswith(REPEAT) and parent.exists(MANIFEST) else folder


def run_name(folder: Folder) -> str:
    """Returns the name of a run in Ray's dashboard and metrics: `hnas`, or `hnas/repeat-00` for a repeat."""
    whole = whole_run(folder)
    return whole.name if whole is folder else f"{whole.name}/{folder.name}"


def write_summary(folder: Folder, stages: Mapping[str, str], describe: Describe, *, ended: bool) -> None:
    """Rewrites the summary of a run that this process has locked.

    Args:
        ended: whether a run without a summary is done.
    """
    try:
        before = folder.read_json(SUMMARY)
    except DamagedFile:
        before = {}
    state, reason = before.get("state", "done" if ended else "interrupted"), before.get("reason")
    if state == "running":
        state, reason = "interrupted", "its process ended without a message"
    RunRecord(folder, stages, describe).write(state, reason)


@dataclass(frozen=True)
class Work:
    """Amount of work of a stage whose items are equal: training runs, or architectures to score.

    Attributes:
        text: the amount in words.
        items: number of items.
        unit: settings of an item, from which `estimate` measures its time.
        epochs: epochs of training of an item.
    """

    text: str
    items: int
    unit: Any
    epochs: int = 0

    def __str__(self) -> str:
        return self.text


ReadsT = TypeVar(
    "ReadsT", bound=SearchConfig, contravariant=True
)  # a stage that reads fewer options works for more methods


@contextmanager
def connected(run: Run[Any], console: Console) -> Iterator[None]:
    """Connects to Ray while the block runs. If it joins a cluster, it checks the nodes, and later those that join."""
    name = f"{run.config.method} {run_name(run.folder)}"
    with ExitStack() as stack:
        cluster = connect(run.config.cluster, user_files=run.user_files, announce=console.print, name=name)
        if stack.enter_context(cluster).joined:
            resources: ResourceSettings = run.config.resources
            # Ray may start a trial that only coordinates workers on any node.
            of_trial = resources if resources.train_workers == 1 else None
            stack.enter_context(checked_nodes(run.folder, run.data.paths, console.print, of_trial))
        yield


@dataclass
class Context(Generic[ConfigT]):
    """Arguments of a stage: the run, the terminal, and the caller's options for Tune."""

    run: Run[ConfigT]
    console: Console
    tune_options: TuneOptions = field(default_factory=TuneOptions)
    grids: dict[str, tune.ResultGrid] = field(default_factory=dict)  # for every stage that ran Tune in this process
    costs: NetworkCosts | None = None  # see `run_costs`
    started: float | None = None  # start of the work on the run, see `RunRecord`; None: start of its stages

    @property
    def config(self) -> ConfigT:
        return self.run.config

    def folder(self, stage: str) -> Folder:
        return self.run.folder / stage

    def seed(self, stage: str) -> int:
        """Returns the root seed of a stage."""
        return stage_seed(self.config.seed, stage)

    def labels(self, stage: str) -> RunLabels:
        """Returns the labels in Ray's metrics and in the names of trials and actors."""
        return RunLabels(run_name(self.run.folder), self.config.method, stage)

    def say(self, text: str) -> None:
        """Prints a line under the stage's title."""
        self.console.print(f"    {printable(text)}", soft_wrap=True, markup=False)


@dataclass(frozen=True, kw_only=True)
class Stage(ABC, Generic[ReadsT]):
    """One step of a method.

    Inputs of a stage are JSON-serializable: space, data and seed, the configuration values that it reads, and values of
    other stages. A stage is done when it has ended with its present inputs, and its files are unchanged.
    """

    name: str  # name of its folder in the run
    title: str  # description of its work, for the terminal
    reads: Sequence[str] = ()  # paths in the configuration, such as `train.epochs`, and its properties
    depends: Callable[[Context[ReadsT]], Mapping[str, Any]] = lambda context: {}  # inputs from other stages
    needs_ray: bool = True
    without_data: Callable[[ReadsT], bool] = lambda config: False  # whether it opens no data set
    amount: Callable[[ReadsT], str | Work] = lambda config: ""  # amount of its work, if the configuration defines it
    of_run: Callable[[Run[Any]], Mapping[str, str]] = lambda run: {}  # checksums of its files outside its folder

    def inputs(self, context: Context[ReadsT]) -> dict[str, Any]:
        config, run = context.config, context.run
        values = {path: to_jsonable_python(attrgetter(path)(config)) for path in self.reads}
        data = None if self.without_data(config) else run.data_checksum()
        common = {"space": run.space, "data": data, "seed": config.seed}
        return {**common, **values, **self.depends(context)}

    def requires_ray(self, context: Context[ReadsT]) -> bool:
        return self.needs_ray

    def check_state(self, context: Context[ReadsT]) -> None:
        """Checks the state from which an interrupted stage resumes, before Ray starts. Raises: DamagedFile."""

    @abstractmethod
    def execute(self, context: Context[ReadsT], folder: Folder) -> None:
        """Executes the stage in its folder; archray calls it again on the same folder after an interruption."""

    def is_done(self, context: Context[ReadsT]) -> bool:
        if not context.folder(self.name).exists(DONE):
            return False
        try:
            self.check_inputs(context)
            check_files(context.run.folder, self.name)
        except DamagedFile:
            return False
        return True

    def check_inputs(self, context: Context[ReadsT]) -> None:
        """Checks that the finished stage had its present inputs. Raises: DamagedFile."""
        folder, run = context.folder(self.name), context.run.folder
        if folder.read_json(DONE, Done)["inputs"] != digest(self.inputs(context)):
            raise DamagedFile.at(
                f"{folder}/{DONE}",
                f"the stage {self.name} had other inputs than the configuration and the earlier stages of this run",
                f"repeat the stage: '{command('resume', whole_run(run))}' runs it again",
            )


@dataclass(frozen=True, kw_only=True)
class WorkStage(Stage[ReadsT]):
    """A stage that is a function: `work(context, folder)`."""

    work: Callable[[Context[ReadsT], Folder], None]

    def execute(self, context: Context[ReadsT], folder: Folder) -> None:
        self.work(context, folder)


def file_digests(*names: str) -> Callable[[Context[Any]], dict[str, str]]:
    """Returns a function for `Stage.depends` with the checksums of files of other stages, named `stage/file`."""

    def depends(context: Context[Any]) -> dict[str, str]:
        return {name: context.run.folder.sha256(name) for name in names}

    return depends


def check_stages(stages: Sequence[Stage[ReadsT]], context: Context[ReadsT]) -> None:
    """Checks the files that a report reads: the documents and tables of finished stages, and the inputs of the stages.

    The function compares no inputs after the first unfinished stage, since a resume repeats later stages if their
    inputs have changed, and none if another version of archray has started the run, which may name inputs differently.

    Raises: DamagedFile for the first stage whose inputs differ, or file that differs or is missing.
    """
    run = context.run
    recorded = finished_stages(run.folder)
    comparable = run.manifest["versions"].get("archray") == archray.__version__
    for stage in stages:
        if stage.name not in recorded and not context.folder(stage.name).exists(DONE):
            comparable = False
            continue
        if comparable:
            stage.check_inputs(context)
        check_files(run.folder, stage.name, _is_reported)


def _is_reported(file: str) -> bool:
    return file.endswith((".json", ".parquet")) and not file.startswith(f"{MODEL}/")


def run_stages(stages: Sequence[Stage[ReadsT]], context: Context[ReadsT], describe: Describe) -> None:
    """Runs every stage that is not done, in order, and connects to Ray when a stage first needs it.

    Args:
        describe: returns the present results, for the run's `summary.json`.

    Raises: RunInterrupted with the stage and the command that resumes the run.
    """
    console, run = context.console, context.run
    with ExitStack() as stack:
        titles = {stage.name: stage.title for stage in stages}
        record = stack.enter_context(recorded(run.folder, titles, describe, context.started))
        is_connected = checked = False

        def stopped(why: str) -> str:
            record.reason = f"{label}: {why}"
            return f"{record.reason}. Continue with: {command('resume', whole_run(run.folder))}"

        stack.enter_context(interruptible(lambda why: sys.stderr.write(stopped(why) + "\n")))
        for number, stage in enumerate(stages, start=1):
            label = f"[{number}/{len(stages)}] {stage.name}"
            try:
                if stage.is_done(context):
                    console.print(f"[dim]{label}: already done[/dim]")
                    record.was_done(stage.name)
                    continue
                console.print(f"[bold]{label}[/bold]: {stage.title}")
                record.started(stage.name)
                if (
                    number == 1 and not context.folder(stage.name).exists()
                ):  # after a resume, the trials report failures
                    check_on_data(run.config, run.space, run.data, context.say)
                if not checked and device_of(run.config) is None:
                    check_constraints(context)
                    checked = True
                stage.check_state(context)
                if stage.requires_ray(context) and not is_connected:
                    stack.enter_context(connected(run, console))
                    check_device(run.config)
                    resources = run.config.resources
                    # Otherwise a later stage could fail after hours.
                    concurrency(resources, workers=resources.train_workers)
                    is_connected = True
                if not checked:
                    check_constraints(context)
                    checked = True
                with interrupted_when_lost(), stops_when_full(run.folder):
                    _execute(stage, context)
                    record.ended(stage.name)
            except DamagedFile as error:
                raise _without_resume(error, run.folder) from error
            except (KeyboardInterrupt, RunInterrupted) as error:
                kind = DiskFull if isinstance(error, DiskFull) else RunInterrupted
                raise kind(stopped(why_stopped(error))) from error


def check_on_data(
    config: SearchConfig, space: str, data: DataSettings, say: Callable[[str], None] = lambda text: None
) -> None:
    """Checks the sizes of the data and networks on its images, before Ray starts.

    Args:
        space, data: those of the run, which has copies of the user's files, or of the configuration.
        say: called with a line on the tensors that the networks inherit.

    Raises: InvalidInput; InvalidArchitecture if a network fails.
    """
    from archray.trainables.devices import restored_randomness  # torch
    from archray.trainables.model_space.networks import inherit
    from archray.trainables.nets.build_network import check_build

    network, loaded = getattr(config, "network", None), get_space(space)
    if isinstance(network, NetworkSettings) and loaded.data_kind == "images" and not isinstance(loaded, TableSpace):
        dataset = load_images(data)
        config.check_size(len(dataset.train))
        check_build(loaded, network, dataset, config.seed)
        if network.weights is not None and isinstance(loaded, ModelSpace):
            shape: dict[str, Any] = {"in_channels": dataset.in_channels, "num_classes": dataset.num_classes}
            with restored_randomness(0):
                model = loaded.unresolved(**shape, channels=network.channels, cells=network.cells)
            number, tensors = inherit(model, network.weights)
            say(f"loaded {number} of {count(tensors, 'tensor')} of the model from {network.weights}")


def _execute(stage: Stage[ReadsT], context: Context[ReadsT]) -> None:
    folder = context.folder(stage.name).create()
    _delete_damaged(folder, context.say)
    if folder.exists(DONE):
        folder.delete(DONE)  # it describes files that this stage will rewrite
    started = time.monotonic()
    stage.execute(context, folder)
    seconds = time.monotonic() - started
    done = {
        "inputs": digest(stage.inputs(context)),
        "outputs": {name: folder.sha256(name) for name in written_files(folder)},
        "of_run": stage.of_run(context.run),
        "finished": now(),
        "seconds": round(seconds, 1),
    }
    folder.write_json(DONE, done)
    context.console.print(f"[dim]    {seconds:.0f} s[/dim]")


def _delete_damaged(folder: Folder, say: Callable[[str], None]) -> None:
    """Deletes damaged files of an earlier execution of a stage, which the stage would read before it rewrites them."""
    try:
        checksums = folder.read_json(DONE, Done)["outputs"]
    except DamagedFile:  # without checksums only incomplete documents are recognized
        checksums = {}
    for name in written_files(folder):
        try:
            if name not in checksums:
                if name.endswith(".json"):
                    folder.read_json(name, Any)
            elif folder.sha256(name) != checksums[name]:
                raise DamagedFile
        except UnreadableFile:
            raise
        except DamagedFile:
            say(f"{folder.name}/{name} is damaged; the stage writes it again")
            folder.delete(name)


def _without_resume(error: DamagedFile, run: Folder) -> DamagedFile:
    """Returns the error of a resume with an advice that helps, if it advises a resume."""
    stage, *parts = error.place.removeprefix(f"{run}/").split("/")
    if error.advice != REWRITE or not error.place.startswith(f"{run}/") or not parts:
        return error
    lost, again = "/".join(parts), "computes its content"
    if parts[0].startswith("tune-"):  # a Tune run continues only with all of its files
        lost, again = parts[0], "runs its trials"
    return error.with_advice(f"delete {run}/{stage}/{lost} and repeat the command: archray then {again} again")
