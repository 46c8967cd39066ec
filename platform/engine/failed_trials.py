"""Records of failed trials, with the stacks of processes that died; handling of full disks and damaged checkpoints.

Tune reads a trial's configuration from its last result. A trial that failed before its first result has no result, or
the result of the trial whose actor it reuses. archray therefore writes the configuration when the trial fails. Compiled
code (torch, oneDNN, a custom extension) can abort the whole process. Ray's message then lacks the cause, which is at
the end of the worker's log; archray keeps this end.
"""

import errno
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import ray
from ray import exceptions, tune

from archray.cluster.ray_compat import TASK_ERROR, TRIAL_ERROR, hidden_lines, process_wide, replaced
from archray.disks import FULL_TEXTS, is_full
from archray.errors import DiskFull, TrialCrashed
from archray.files import Folder
from archray.platform.engine.result_log import experiment_folder
from archray.platform.engine.tune_memory import keep_checkpoints
from archray.platform.run.layout import FAILED
from archray.plurals import count

logger = logging.getLogger(__name__)

STACK_BYTES = 2**18  # bytes read from the end of a worker's log; a stack has a few kilobytes
PROCESS_DIED = "worker process has died"  # in Ray's message for a dead process, but not for a dead node
RAYLET_NOTICES = ("A worker died or was killed while executing a task", "killed due to the node running low on memory")
KILLED = "killed"  # the process died, by a signal if its stack names one
NODE_LOST = "lost with its node"
MEMORY_SHORT = "ended by Ray, as its node was short of memory"  # stored in files, and compared
ERROR = "archray_error"  # attribute with a trial's last error, in its temporary state, which Tune never saves
STACK_BEGINS = re.compile(r"\*\*\* (?P<signal>SIG[A-Z]+) received|Fatal Python error: (?P<name>.*)")


@dataclass(frozen=True)
class FailedTrial:
    """A trial that ended in an error, or that failed and is retried."""

    trial_id: str
    folder: str  # name of its folder in the folder of the Tune run
    config: dict[str, Any]  # without `settings`
    reported: bool  # whether it had reported a result; if not, Tune's last result belongs to another trial
    error: str  # the last error, in one line
    processes: Sequence[int] = ()  # ids of its processes that died; 0 if unknown
    cause: str | None = None  # cause of the last death: a signal in the stack, NODE_LOST or MEMORY_SHORT
    stack: str | None = None  # file with the stacks, if it exists

    @property
    def sentence(self) -> str:
        """The reason of the failure."""
        if not self.processes:
            return self.error
        return f"the process of the trial {_death(self.cause, len(self.processes))}{_left(self)}"


def _death(cause: str | None, times: int, was: str = "was") -> str:
    if cause is None or cause in (NODE_LOST, MEMORY_SHORT):
        how = f"{was} {cause or KILLED}"
    else:
        how = f"crashed ({cause})"
    return how if times == 1 else f"{how}, {'twice' if times == 2 else count(times, 'time')}"


def _left(trial: FailedTrial, whose: str = "") -> str:
    if trial.cause in (NODE_LOST, MEMORY_SHORT):
        return ""
    place = "is available" if trial.stack is None else f"is in {trial.stack}"
    return f"; {'no' if trial.stack is None else 'the'} native stack{whose} {place}"


class FailureLog(tune.Callback):
    """Records every failure of a trial. It has neither state nor paths: Tune pickles callbacks, and a run may move."""

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        folder = experiment_folder(trial) / FAILED
        name = f"{trial.trial_id}.json"
        before = folder.read_json(name) if folder.exists(name) else {}
        processes, cause, stack = before.get("processes", []), before.get("cause"), before.get("stack")
        error = last_error(trial)
        death = _death_of(error)
        if death is None:
            processes = []
        else:
            pid = re.search(r"\bpid[:=] ?(\d+)", str(error))
            number = int(pid[1]) if pid else 0
            if not number or number not in processes:  # the death of a reused actor is reported twice
                processes.append(number)
                cause, stack = death, None
                if death == KILLED:
                    cause, stack = _keep_stack(folder, f"{trial.trial_id}.txt", str(error), number)
        lines = str(error or "").strip().splitlines()  # the last line, after the traceback, names the error
        failed = FailedTrial(
            trial_id=trial.trial_id,
            folder=trial.relative_logdir,
            config=searched_keys(trial.config),
            reported=bool(set(trial.run_metadata.last_result) - {"trial_id"}),
            error=lines[-1].strip() if lines else "see its error.txt",
            processes=processes,
            cause=cause,
            stack=stack,
        )
        folder.write_json(name, asdict(failed))

    on_trial_recover = on_trial_error


def searched_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys of a trial's configuration that the searcher or the plan set."""
    return {key: value for key, value in config.items() if key != "settings"}


def last_error(trial: Any) -> BaseException | None:
    """Returns the last error of a trial, in this process and inside `quiet_deaths`."""
    error: BaseException | None = getattr(trial.temporary_state, ERROR, None)
    return error


def _death_of(error: object) -> str | None:
    """Returns why the process of a trial died, by the error; None for an error inside a live process."""
    if isinstance(error, exceptions.OutOfMemoryError):
        return MEMORY_SHORT
    if isinstance(error, exceptions.NodeDiedError | exceptions.LocalRayletDiedError | exceptions.ObjectLostError):
        return NODE_LOST
    if isinstance(error, exceptions.WorkerCrashedError):
        return KILLED
    if isinstance(error, exceptions.RayActorError) and not error.actor_init_failed:
        return KILLED if PROCESS_DIED in str(error) else NODE_LOST
    return None


def _keep_stack(folder: Folder, name: str, message: str, process: int) -> tuple[str | None, str | None]:
    """Copies a process's stack from the worker's log to the file; returns its signal, and the place of the stack."""
    node = re.search(r"\bip: (\S+)", message)
    # the folder with the workers' logs of this node
    sockets = [n["ObjectStoreSocketName"] for n in ray.nodes() if node and n["NodeManagerAddress"] == node[1]]
    logs = Path(sockets[0]).parent.parent / "logs" if sockets else None
    log = next(iter(sorted(logs.glob(f"worker-*-{process}.err"))), None) if logs else None
    if log is None:
        return None, f"{logs}/worker-*-{process}.err on the node {node[1]}" if logs and node else None
    text = log.read_bytes()[-STACK_BYTES:].decode(errors="replace")
    first_line = STACK_BEGINS.search(text)
    if first_line is None:
        return None, None
    earlier = folder.read_bytes(name).decode() + "\n" if folder.exists(name) else ""
    folder.write_bytes(name, f"{earlier}Process {process}\n\n{text[first_line.start() :]}".encode())
    return first_line["signal"] or first_line["name"], f"{folder}/{name}"


def failed_trial(result: tune.Result) -> FailedTrial | None:
    """Returns the record of a trial that ended in an error; None for another trial."""
    if result.error is None:
        return None
    place = PurePosixPath(result.path)
    trials = failed_trials(Folder(str(place.parent), filesystem=result.filesystem))
    return next((failed for failed in trials.values() if failed.folder == place.name), None)


def failed_trials(folder: Folder) -> Mapping[str, FailedTrial]:
    """Returns the failed trials of the Tune run in `folder`, by id; a retry may have succeeded later."""
    records = folder / FAILED
    names = [name for name in records.files() if name.endswith(".json")]
    return {name.removesuffix(".json"): FailedTrial(**records.read_json(name)) for name in names}


def check_crashes(folder: Folder, statuses: Sequence[str], resume: str) -> None:
    """Checks the Tune run in `folder` for crashes.

    Args:
        statuses: statuses of its trials.
        resume: command that resumes the run.

    Raises: TrialCrashed if all trials ended in an error, and processes died.
    """
    dead = crashed_trials(folder, statuses)
    if not dead:
        return
    shown = next((trial for trial in dead if trial.stack), dead[0])
    if len(statuses) == 1:
        what = shown.sentence
    else:
        times = sum(len(trial.processes) for trial in dead)
        several = f"{'all' if len(dead) == len(statuses) else f'{len(dead)} of'} {count(len(statuses), 'trial')}"
        in_all = " in all" if len(dead) > 1 else ""
        what = f"the processes of {several} {_death(shown.cause, times, 'were')}{in_all}{_left(shown, ' of one')}"
    if shown.cause == NODE_LOST:
        advice = "Check the state of the node"
    elif shown.cause == MEMORY_SHORT:
        advice = "Run fewer trials at a time, or use a smaller network"
    elif shown.cause is None:
        advice = (
            "The usual cause is a machine without free memory (see dmesg). Run fewer trials at a time, or use a "
            "smaller network"
        )
    else:
        advice = (
            "The cause is in compiled code (torch, oneDNN, a custom extension). Use other kernels (set "
            "ONEDNN_MAX_CPU_ISA=AVX in the environment), or another version of torch"
        )
    raise TrialCrashed(f"{what}. {advice}. Then restart these trials with: {resume}")


def crashed_trials(folder: Folder, statuses: Sequence[str]) -> list[FailedTrial]:
    """Returns the trials whose processes died if all trials of the Tune run failed; else an empty list."""
    if not statuses or set(statuses) != {"ERROR"}:
        return []
    return [trial for trial in failed_trials(folder).values() if trial.processes]


@contextmanager
def stops_when_full(folder: Folder) -> Iterator[None]:
    """Converts an error of a full disk in the block. Raises: DiskFull.

    Args:
        folder: folder of the run.
    """
    try:
        yield
    except Exception as error:
        if not is_full(error):
            raise
        message = f"the disk (or the quota) of {folder} is full; finished work is saved. Free space there"
        raise DiskFull(message) from error


class CheckpointTrouble(tune.Callback):
    """Stops the Tune run when a trial cannot save on a full disk, where a retry would also fail.

    A trial whose last checkpoint cannot be read resumes from the previous checkpoint, or restarts. Tune calls this only
    if `TUNE_RESTORE_RETRY_NUM` is set. The callback has neither state nor paths.
    """

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        error = last_error(trial)
        if is_full(error):
            raise error or OSError(errno.ENOSPC, FULL_TEXTS[0])
        if trial.temporary_state.num_restore_failures and not isinstance(error, exceptions.RayActorError):
            _drop_last_checkpoint(trial)

    on_trial_error = on_trial_recover


def _drop_last_checkpoint(trial: Any) -> None:
    manager = trial.run_metadata.checkpoint_manager
    damaged = manager.latest_checkpoint_result
    if damaged is None:
        return
    others = [result for result in manager.best_checkpoint_results if result is not damaged]
    keep_checkpoints(trial, others)
    action = "resumes from the previous checkpoint" if others else "restarts"
    logger.warning("%s: cannot read the checkpoint %s; the trial %s", trial, damaged.checkpoint.path, action)


@contextmanager
def quiet_deaths() -> Iterator[None]:
    """Hides messages of Tune and Ray about a dead process or a full disk, which archray reports itself.

    Prints Tune's traceback of other errors once. Keeps each error for `last_error`, since Tune pickles only some types.
    """
    with (
        replaced(TRIAL_ERROR, _keeping_error),
        _quiet_loggers(),
        hidden_lines(lambda line: any(notice in line for notice in RAYLET_NOTICES)),
    ):
        yield


def _keeping_error(handle_error: Callable[..., None]) -> Callable[..., None]:
    def keep(trial: Any, exc: Any = None) -> None:
        setattr(trial.temporary_state, ERROR, exc)
        handle_error(trial, exc)

    return keep


class KilledForMemory(exceptions.RayActorError, exceptions.OutOfMemoryError):
    """The error of an actor that Ray killed for lack of memory, as a kind of actor error that Tune handles."""

    def __init__(self, message: str) -> None:
        super().__init__(error_msg=message)


@contextmanager
def retried_memory_kills() -> Iterator[None]:
    """Lets Tune handle a trial that Ray killed for lack of memory like a trial whose process died in another way.

    Without it, `Tuner.fit` raises RuntimeError.
    """
    with replaced(TASK_ERROR, _with_actor_error):
        yield


def _with_actor_error(task_failed: Callable[..., None]) -> Callable[..., None]:
    def failed(manager: Any, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, exceptions.OutOfMemoryError):
            exception = KilledForMemory(str(exception))
        task_failed(manager, tracked_actor_task, exception)

    return failed


LOST_CHECKPOINT = "Trial %s: Error handling checkpoint %s"  # as Tune logs it, with a traceback


@process_wide
@contextmanager
def _quiet_loggers() -> Iterator[None]:
    worth_printing = _WorthPrinting()
    loggers = [logging.getLogger(f"ray.tune.{name}") for name in ("execution.tune_controller", "tune")]
    for logger in loggers:
        logger.addFilter(worth_printing)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(worth_printing)


class _WorthPrinting(logging.Filter):
    """Filters Tune's messages so that each traceback appears once; Tune repeats it for every trial and attempt."""

    def __init__(self) -> None:
        super().__init__()
        self._errors: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg == "Trials did not complete: %s" and isinstance(record.args, tuple):
            trials: Any = record.args[0]
            return not all(trial.status == "ERROR" for trial in trials)  # archray printed a line for each
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return True
        last_line = f"{type(error).__name__} {error}".strip().rpartition("\n")[2]
        if last_line in self._errors or _death_of(error) is not None or is_full(error):
            return False
        self._errors.add(last_line)
        if record.msg == LOST_CHECKPOINT:  # the trial resumes from the previous one; one line is enough
            record.msg, record.exc_info = f"{LOST_CHECKPOINT}: {last_line.replace('%', '%%')}", None
        return True
