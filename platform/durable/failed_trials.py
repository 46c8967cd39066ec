"""Failures of trials, with the stacks of processes that died; handling of full disks and damaged checkpoints.

Compiled code (torch, oneDNN, a custom extension) can abort the whole process. Ray's message then lacks the cause, which
is at the end of the worker's log; archray keeps this end.
"""

import errno
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from pydantic import BaseModel
from ray import cloudpickle, exceptions, tune

from archray.cluster.ray_compat import TASK_ERROR, hidden_lines, process_wide, replaced
from archray.disks import FULL_TEXTS, is_full
from archray.errors import DiskFull, TrialCrashed
from archray.files import Folder
from archray.platform.durable.session import current
from archray.platform.run.layout import FAILED
from archray.platform.run.trial_log import LoggedTrial
from archray.plurals import count

logger = logging.getLogger(__name__)

STACK_BYTES = 2**18  # bytes read from the end of a worker's log; a stack has a few kilobytes
PROCESS_DIED = "worker process has died"  # in Ray's message for a dead process, but not for a dead node
SHORT_OF_MEMORY = "killed due to the node running low on memory"
RAYLET_NOTICES = ("A worker died or was killed while executing a task", SHORT_OF_MEMORY)
KILLED = "killed"  # the process died, by a signal if its stack names one
NODE_LOST = "lost with its node"
MEMORY_SHORT = "ended by Ray, as its node was short of memory"  # stored in files, and compared
STACK_BEGINS = re.compile(r"\*\*\* (?P<signal>SIG[A-Z]+) received|Fatal Python error: (?P<name>.*)")


class Failure(BaseModel, frozen=True):
    """A failure of a trial: its last one if the trial was retried."""

    error: str  # in one line
    processes: tuple[int, ...] = ()  # ids of the trial's processes that died; 0 if unknown
    cause: str | None = None  # cause of the last death: a signal in the stack, NODE_LOST or MEMORY_SHORT
    stack: str | None = None  # file with the stacks, if it exists

    @classmethod
    def of(cls, trial: LoggedTrial) -> "Failure":
        """Returns the failure of a trial that ended in an error."""
        return cls.model_validate(trial.failure or {"error": "see its error.txt"})

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


def _left(trial: Failure, whose: str = "") -> str:
    if trial.cause in (NODE_LOST, MEMORY_SHORT):
        return ""
    place = "is available" if trial.stack is None else f"is in {trial.stack}"
    return f"; {'no' if trial.stack is None else 'the'} native stack{whose} {place}"


class FailureLog(tune.Callback):
    """Records every failure of a trial. Must come before `Recorder`, which records the end of the trial."""

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        session = current()
        name = session.id_of(trial)
        before = session.failures.get(name) or Failure.of(session.open[name])
        processes, cause, stack = before.processes, before.cause, before.stack
        error = last_error(trial)
        death = _death_of(error)
        if death is None:
            processes = ()
        else:
            pid = re.search(r"\bpid[:=] ?(\d+)", str(error))
            number = int(pid[1]) if pid else 0
            if not number or number not in processes:  # the death of a reused actor is reported twice
                processes = (*processes, number)
                cause, stack = death, None
                if death == KILLED:
                    cause, stack = _keep_stack(session.folder / FAILED, f"{name}.txt", str(error), number)
        lines = str(error or "").strip().splitlines()  # the last line, after the traceback, names the error
        text = lines[-1].strip() if lines else "see its error.txt"
        failure = Failure(error=text, processes=processes, cause=cause, stack=stack)
        session.failures[name] = failure
        session.record("failed", name, failure=failure.model_dump(mode="json"))

    on_trial_recover = on_trial_error


def last_error(trial: Any) -> BaseException | None:
    """Returns the last error of a trial, which Tune has written in the trial's folder."""
    try:
        text = Path(trial.error_file).read_text(errors="replace").rpartition("Failure # ")[2].partition("\n")[2].strip()
    except (OSError, TypeError):  # no error
        return None
    with suppress(Exception):  # Tune pickles only some types
        error: BaseException = cloudpickle.loads(Path(trial.pickled_error_file).read_bytes())
        if str(error).strip() == text:  # not that of an earlier failure
            return error
    return RuntimeError(text)


def _death_of(error: object) -> str | None:
    """Returns why the process of a trial died, by the error; None for an error inside a live process."""
    if isinstance(error, exceptions.OutOfMemoryError) or SHORT_OF_MEMORY in str(error):  # Tune pickles only some types
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


def check_crashes(trials: Sequence[LoggedTrial], resume: str) -> None:
    """Checks the trials of a Tune run for crashes.

    Args:
        resume: command that resumes the run.

    Raises: TrialCrashed if all trials ended in an error, and processes died.
    """
    dead = crashed_trials(trials)
    if not dead:
        return
    shown = next((trial for trial in dead if trial.stack), dead[0])
    if len(trials) == 1:
        what = shown.sentence
    else:
        times = sum(len(trial.processes) for trial in dead)
        several = f"{'all' if len(dead) == len(trials) else f'{len(dead)} of'} {count(len(trials), 'trial')}"
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


def crashed_trials(trials: Sequence[LoggedTrial]) -> list[Failure]:
    """Returns the failures of trials whose processes died if all trials of a Tune run failed; else an empty list."""
    if not trials or not all(trial.ended and trial.error for trial in trials):
        return []
    return [failure for failure in map(Failure.of, trials) if failure.processes]


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
    if `TUNE_RESTORE_RETRY_NUM` is set.
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
    trial.run_metadata.checkpoint_manager = remaining = type(manager)(manager.checkpoint_config)
    for result in others:
        remaining.register_checkpoint(result)
    trial.run_metadata.invalidate_cache()
    action = "resumes from the previous checkpoint" if others else "restarts"
    logger.warning("%s: cannot read the checkpoint %s; the trial %s", trial, damaged.checkpoint.path, action)


@contextmanager
def quiet_deaths() -> Iterator[None]:
    """Hides messages of Tune and Ray about a dead process or a full disk, which archray reports itself.

    Prints Tune's traceback of other errors once.
    """
    with (
        _quiet_loggers(),
        hidden_lines(lambda line: any(notice in line for notice in RAYLET_NOTICES)),
    ):
        yield


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
