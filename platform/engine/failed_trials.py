"""Trials that ended in an error: the row of each, and of one whose process died the stack that it left.

Tune reads a trial's configuration from its last result. One that failed before its first has none, or that of the
trial whose actor it was about to take over; so its configuration is written down as it fails. And compiled code (torch,
oneDNN, an extension of the user's) can abort the whole process. Ray has a long message then and no cause: the cause is
in the log of the worker, whose end is kept beside.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import ray
from ray import cloudpickle, tune
from ray._private import worker as ray_worker
from ray.exceptions import RayActorError
from ray.tune import Result

from archray.errors import TrialCrashed
from archray.files import Folder
from archray.platform.engine.result_log import experiment_folder
from archray.platform.run.layout import FAILED
from archray.plurals import count

STACK_BYTES = 2**18  # of a worker's log, from its end; a stack is of a few kilobytes
PROCESS_DIED = "worker process has died"  # in Ray's message, of a process and not of a node
RAYLET_NOTICE = "A worker died or was killed while executing a task"
STACK_BEGINS = re.compile(r"\*\*\* (?P<signal>SIG[A-Z]+) received|Fatal Python error: (?P<name>.*)")


@dataclass(frozen=True)
class FailedTrial:
    """A trial that ended in an error, or that failed and is tried again."""

    trial_id: str
    folder: str  # its name in the folder of the Tune run
    config: dict[str, Any]  # without `settings`
    reported: bool  # whether it had reported a result; if not, what Tune holds as its last one is another trial's
    error: str  # the last one, in a line
    processes: Sequence[int] = ()  # the numbers of those that died of it, one for each time
    cause: str | None = None  # the signal that the last of them received, as its stack says, if it left one
    stack: str | None = None  # where the stacks lie, if there is one

    @property
    def sentence(self) -> str:
        """What the trial failed of."""
        if not self.processes:
            return self.error
        return f"the process of the trial {_death(self.cause, len(self.processes))}; {_left(self.stack)}"


def _death(cause: str | None, times: int) -> str:
    how = "was killed" if cause is None else f"crashed ({cause})"
    return how if times == 1 else f"{how}, {'twice' if times == 2 else count(times, 'time')}"


def _left(stack: str | None, whose: str = "") -> str:
    return f"no native stack{whose} was left" if stack is None else f"the native stack{whose} is in {stack}"


class FailureLog(tune.Callback):
    """Writes down every failure of a trial. Holds no state and no path: Tune pickles callbacks, and a run may move."""

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        folder = experiment_folder(trial) / FAILED
        name = f"{trial.trial_id}.json"
        before = folder.read_json(name) if folder.exists(name) else {}
        processes, cause, stack = before.get("processes", []), before.get("cause"), before.get("stack")
        error = last_error(trial)
        if _is_death(error):
            number = int(found[1]) if (found := re.search(r"\bpid: (\d+)", str(error))) else 0
            if number not in processes:  # a dead actor that was to be reused fails twice of one death
                processes.append(number)
                cause, stack = _keep_stack(folder, f"{trial.trial_id}.txt", str(error), number)
        lines = str(error or "").strip().splitlines()  # the last one names the error: before it comes the traceback
        failed = FailedTrial(
            trial_id=trial.trial_id,
            folder=trial.relative_logdir,
            config=own_keys(trial.config),
            reported=bool(set(trial.run_metadata.last_result) - {"trial_id"}),
            error=lines[-1].strip() if lines else "see its error.txt",
            processes=processes,
            cause=cause,
            stack=stack,
        )
        folder.write_json(name, asdict(failed))

    on_trial_recover = on_trial_error


def own_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a trial's configuration that its searcher, or the plan, set."""
    return {key: value for key, value in config.items() if key != "settings"}


def last_error(trial: Any) -> BaseException | None:
    """The error that Tune has just written to the trial's local folder; None if it cannot be read."""
    try:
        error = cloudpickle.loads(Path(trial.pickled_error_file).read_bytes())
    except Exception:  # an exception of the user's own may not unpickle, or not even have been pickled
        return None
    return error if isinstance(error, BaseException) else None


def _is_death(error: object) -> bool:
    """Whether an error says that the process of an actor died; a node that left is none."""
    return isinstance(error, RayActorError) and PROCESS_DIED in str(error)


# The worker's log


def _keep_stack(folder: Folder, name: str, message: str, process: int) -> tuple[str | None, str | None]:
    """Adds the stack that a process left to the file; the signal it died of, and where the stack is to be found."""
    node = re.search(r"\bip: (\S+)", message)
    # Where the node of that address keeps the logs of its workers, by its own path.
    sockets = [n["ObjectStoreSocketName"] for n in ray.nodes() if node and n["NodeManagerAddress"] == node[1]]
    logs = Path(sockets[0]).parent.parent / "logs" if sockets else None
    log = next(iter(sorted(logs.glob(f"worker-*-{process}.err"))), None) if logs else None
    if log is None:
        return None, f"{logs}/worker-*-{process}.err on the node {node[1]}" if logs and node else None
    text = log.read_bytes()[-STACK_BYTES:].decode(errors="replace")
    begin = STACK_BEGINS.search(text)
    if begin is None:
        return None, None
    earlier = folder.read_bytes(name).decode() + "\n" if folder.exists(name) else ""
    folder.write_bytes(name, f"{earlier}Process {process}\n\n{text[begin.start() :]}".encode())
    return begin["signal"] or begin["name"], f"{folder}/{name}"


# What is read back


def failed_trial(result: Result) -> FailedTrial | None:
    """What was written down of a trial that ended in an error; None of one that did not."""
    if result.error is None:
        return None
    place = PurePosixPath(result.path)
    trials = failed_trials(Folder(str(place.parent), filesystem=result.filesystem))
    return next((failed for failed in trials.values() if failed.folder == place.name), None)


def failed_trials(folder: Folder) -> Mapping[str, FailedTrial]:
    """Of a Tune run in `folder` the trials that failed, by id; some of them may have succeeded since."""
    kept = folder / FAILED
    names = [name for name in kept.files() if name.endswith(".json")]
    return {name.removesuffix(".json"): FailedTrial(**kept.read_json(name)) for name in names}


def check_crashes(folder: Folder, statuses: Sequence[str], resume: str) -> None:
    """Raises: TrialCrashed if all trials of the Tune run in `folder` ended in an error, and processes died of it.

    statuses: of its trials. resume: the command that continues the run.
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
        what = f"the processes of {several} {_death(shown.cause, times)}{in_all}; {_left(shown.stack, ' of one')}"
    advice = (
        "Most often the machine ran out of memory (see dmesg): try fewer trials at a time, or a smaller network"
        if shown.cause is None
        else "Compiled code does that (torch, oneDNN, an extension of your own): try other kernels, with "
        "ONEDNN_MAX_CPU_ISA=AVX in the environment, or another version of torch"
    )
    raise TrialCrashed(f"{what}. {advice}. Then begin these trials anew: {resume}")


def crashed_trials(folder: Folder, statuses: Sequence[str]) -> list[FailedTrial]:
    """The trials whose processes died, if no trial of the Tune run ended well; else none."""
    if not statuses or set(statuses) != {"ERROR"}:
        return []
    return [trial for trial in failed_trials(folder).values() if trial.processes]


# The terminal


@contextmanager
def quiet_deaths() -> Iterator[None]:
    """Keeps off the terminal what Tune and Ray print when a process died: it is told in a sentence."""
    loggers = [logging.getLogger(f"ray.tune.{name}") for name in ("execution.tune_controller", "tune")]
    for logger in loggers:
        logger.addFilter(_worth_telling)
    # Ray prints the raylet's notice from a thread of its own, and has no option for it (seen in 2.60).
    print_lines = ray_worker.print_to_stdstream

    def print_others(data: Any, *arguments: Any, **options: Any) -> None:
        if not any(RAYLET_NOTICE in line for line in data["lines"]):
            print_lines(data, *arguments, **options)

    ray_worker.print_to_stdstream = print_others
    try:
        yield
    finally:
        ray_worker.print_to_stdstream = print_lines
        for logger in loggers:
            logger.removeFilter(_worth_telling)


def _worth_telling(record: logging.LogRecord) -> bool:
    if record.msg == "Trials did not complete: %s" and isinstance(record.args, tuple):
        trials: Any = record.args[0]
        return not all(trial.status == "ERROR" for trial in trials)  # each has had its line
    return not (record.exc_info and _is_death(record.exc_info[1]))
