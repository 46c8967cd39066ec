"""Replay of a log: a new Tuner continues a Tune run, whose searcher and scheduler learn what happened before."""

import copy
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler
from ray.tune.search import Searcher
from ray.tune.search.variant_generator import generate_variants

from archray.errors import RunFolderError
from archray.platform.durable.session import CHECKPOINTS, DAMAGED, Session, checkpoints_of, current, log_id
from archray.platform.run.trial_log import ITERATION, Event, LoggedRun, LoggedTrial, plain_config

logger = logging.getLogger(__name__)
PENDING = 200  # maximum number of trials that wait for resources, as in Tune without a searcher
UNLIMITED = 10**6  # concurrent trials of a run without a limit
TOTALS = (ITERATION, "time_total_s", "timesteps_total", "episodes_total")  # entries of results that grow in a trial


class Variants(Searcher):
    """Suggests the configurations of a `param_space` as Tune does without a searcher: a grid, and random draws.

    Args:
        space: the `param_space`.
        num_samples: as in `TuneConfig`; -1: without end.
        seed: seed of the draws, for the same configurations after a resume.
    """

    def __init__(self, space: Mapping[str, Any], num_samples: int = 1, seed: int = 0) -> None:
        super().__init__()
        self._variants = self._draw(dict(space), num_samples, np.random.RandomState(seed))

    @staticmethod
    def _draw(space: dict[str, Any], num_samples: int, random_state: Any) -> Iterator[dict[str, Any]]:
        while num_samples != 0:
            # Not below the key `config`: functions of `tune.sample_from` receive the configuration, as from a Tuner.
            for _, config in generate_variants(space, random_state=random_state):
                yield config
            num_samples -= 1

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        self._metric, self._mode = metric, mode
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str:  # type: ignore[override]  # Ray omits FINISHED
        config: dict[str, Any] | None = next(self._variants, None)
        return Searcher.FINISHED if config is None else config

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None: ...


class LoggedSearcher(Searcher):
    """The searcher of a Tune run with a log: records suggestions and ends of trials, and replays those in the log.

    Trials that had not ended come first, with their checkpoints. Finished trials never reach Tune.

    Args:
        searcher: suggests the trials, in its state before the first of them.
        most: maximum number of trials in the log; -1: as many as the searcher suggests.
        strict: whether a searcher must suggest the configurations in the log again. If not, it does not learn from a
            trial for which it suggests another configuration.
        fixed: keys of all configurations that the searcher does not suggest.
        scheduler: a scheduler whose method `replay`, if it has one, receives the log.

    Attributes:
        inner: the searcher that suggests the trials.
        configs: the suggested configurations of all trials, by id, if they have entries that the log cannot represent.
    """

    def __init__(
        self,
        searcher: Searcher,
        *,
        most: int = -1,
        strict: bool = True,
        fixed: Mapping[str, Any] | None = None,
        scheduler: Any = None,
    ) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._inner, self._most, self._strict, self._fixed = searcher, most, strict, fixed or {}
        self._limit = UNLIMITED
        self._handed: dict[str, dict[str, Any]] = {}  # suggestions that Tune works on, by the ids of their trials
        self._waiting: list[LoggedTrial] | None = None  # trials of earlier sessions; None before the replay
        self._suggested: dict[str, dict[str, Any]] = {}  # configurations of waiting trials
        self._unlearned: set[str] = set()  # ids of trials for which the searcher suggests other configurations
        self.configs: dict[str, dict[str, Any]] = {}

    def __reduce__(self) -> Any:
        return Searcher, ()  # Tune pickles its Tuner, and nothing reads the pickle

    @property
    def inner(self) -> Searcher:
        return self._inner

    @property
    def metric(self) -> Any:
        return self._inner.metric

    @property
    def mode(self) -> Any:
        return self._inner.mode

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        return bool(self._inner.set_search_properties(metric, mode, config, **spec))

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self._inner.set_max_concurrency(max_concurrent)
        self._limit = max_concurrent
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]  # Ray omits FINISHED
        session = current()
        self.replayed()
        assert self._waiting is not None  # after the replay
        for name in session.dropped:
            self._suggested[name] = self._handed.pop(name)
            self._waiting.append(session.open[name])
        session.dropped.clear()
        pending = sum(session.open[name].started is None for name in self._handed)
        if trial_id in session.ids or len(self._handed) >= self._limit or pending >= PENDING:
            return None  # Tune asks again, with another id
        if self._waiting:
            trial = self._waiting.pop(0)
            name = trial.trial_id
            config = self._suggested.pop(name, {})
            if not self._strict:  # a scheduler may have changed the configuration
                config = {**config, **trial.config}
            handed = {**config, **continued(session, trial)}
        else:
            if 0 <= self._most <= session.ended + len(session.open):
                return Searcher.FINISHED
            name = session.next_id()
            suggestion: Any = self._inner.suggest(name)
            if not isinstance(suggestion, dict):
                return suggestion
            handed = config = suggestion
            session.record("suggested", name, config=plain_config({**self._fixed, **config}))
            self._keep(name, config)
        session.ids[trial_id] = name
        self._handed[name] = config
        return dict(handed)

    def _keep(self, name: str, config: dict[str, Any]) -> None:
        if plain_config(config) != config:  # objects that the log cannot represent
            self.configs[name] = config

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        name = current().ids[trial_id]
        self.replayed()
        if name not in self._unlearned:
            self._inner.on_trial_result(name, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        session = current()
        name = session.ids[trial_id]
        self.replayed()
        if error:
            return  # `Recorder` decides whether the trial has ended; `_learn_errors` comes before the next call
        session.record("ended", name, has_result=result is not None)
        self._handed.pop(name)
        if name not in self._unlearned:
            self._inner.on_trial_complete(name, result=result)

    def _learn_errors(self, session: Session) -> None:
        """Tells the searcher which trials have ended in an error, or without a call of Tune."""
        for name in [name for name in self._handed if name not in session.open]:
            del self._handed[name]
            if name not in self._unlearned:
                self._inner.on_trial_complete(name, error=True)

    def save(self, checkpoint_path: str) -> None:
        """Writes an empty file: Tune saves searchers, and the log has the state."""
        open(checkpoint_path, "wb").close()

    def restore(self, checkpoint_path: str) -> None: ...

    # Replay

    def replayed(self) -> Searcher:
        """Returns the searcher that suggests the trials, after all calls of earlier sessions and of this one."""
        if self._waiting is None:
            self.replay(current())
        self._learn_errors(current())
        return self._inner

    def replay(self, session: Session) -> None:
        """Repeats the calls of earlier sessions.

        Raises: RunFolderError, with the first trial, if a strict searcher suggests other configurations.
        """
        logged = session.logged
        assert logged is not None  # before the replay
        results: dict[str, dict[str, Any]] = {}
        for event in logged.events:
            name = event.trial
            if event.event == "suggested":
                self._suggest_again(event)
            elif event.event == "reopened":
                self._suggested[name] = {**self.configs.get(name, {}), **logged.trials[name].config}
            elif name in self._unlearned:
                continue
            elif event.event == "result":
                results[name] = {**event.result, "trial_id": name}
                if not event.result.get("done"):
                    self._inner.on_trial_result(name, results[name])
            elif event.event == "ended":
                self._suggested.pop(name, None)
                result = results.get(name) if event.has_result else None
                self._inner.on_trial_complete(name, result=result, error=event.error)
        self._waiting = []
        for trial in list(session.open.values()):
            if trial.is_complete and trial.trial_id not in self._unlearned:  # a kill came before its end
                session.record("ended", trial.trial_id, has_result=True)
                self._inner.on_trial_complete(trial.trial_id, result={**trial.metrics})
            else:
                self._waiting.append(trial)
        if hasattr(self._scheduler, "replay"):  # after these ends
            self._scheduler.replay(logged, log_id)
        session.logged = None

    def _suggest_again(self, event: Event) -> None:
        suggestion: Any = self._inner.suggest(event.trial)
        is_config = isinstance(suggestion, dict)
        self._suggested[event.trial] = dict(suggestion) if is_config else {}
        if isinstance(self._inner, Variants):  # draws may depend on more than the seed, and the log has them
            self._suggested[event.trial] |= event.config
            self._keep(event.trial, self._suggested[event.trial])
            return
        again = plain_config({**self._fixed, **suggestion}) if is_config else suggestion
        if again == event.config:
            self._keep(event.trial, suggestion)
            return
        self._suggested[event.trial] |= event.config
        kind = type(self._inner).__name__
        if self._strict:
            raise RunFolderError(
                f"Expected {kind} to suggest {event.config} for trial {event.trial} as before the interruption, got "
                f"{again}. Resume with the version of archray, the space and the files with which the run was started"
            )
        logger.warning(
            "%s suggests %s again for trial %s, which has the config %s. It does not learn from this trial.",
            kind,
            suggestion,
            event.trial,
            event.config,
        )
        self._unlearned.add(event.trial)
        if is_config:
            self._inner.on_trial_complete(event.trial, error=True)


def continued(session: Session, trial: LoggedTrial) -> dict[str, Any]:
    """Returns the entry of the configuration with which a trial continues; empty if it starts from scratch.

    The entry has the checkpoints of earlier sessions, the newest first, each with the totals of its result.
    """
    existing = checkpoints_of(session, trial)
    if not existing:
        return {}
    results = {result.get(ITERATION): result for result in trial.results}
    folder = session.folder
    filesystem = None if "://" in folder.uri or folder.local_path() is not None else folder.filesystem
    saved = []
    for path, iteration in existing:
        place = (folder / path).path if filesystem is not None else (folder / path).uri
        totals = {name: value for name in TOTALS if (value := results.get(iteration, {}).get(name)) is not None}
        saved.append((tune.Checkpoint(place, filesystem=filesystem), {ITERATION: iteration, **totals}))
    return {CHECKPOINTS: saved}


def resumable(trainable: Any, *, unpickles: bool) -> type[tune.Trainable]:
    """Returns a subclass of a Tune trainable that continues from the checkpoints in its configuration.

    It loads them before the first step. If the newest checkpoint cannot be read, the trial continues from the one
    before, or starts from scratch.

    Args:
        trainable: a class, a function, or a registered name.
        unpickles: whether a checkpoint may be a dictionary, which Tune pickles.
    """
    base = class_of(trainable)

    class Resumed(base):  # type: ignore[misc, valid-type]  # a class that is known at run time only
        """A trainable that can continue from checkpoints of an earlier session."""

        # Names that no trainable of a user has.
        _archray_saved: Sequence[tuple[tune.Checkpoint, dict[str, float]]]  # checkpoints to try, see `continued`
        _archray_before: dict[str, float]  # totals of the loaded checkpoint

        def __init__(self, config: dict[str, Any] | None = None, *arguments: Any, **options: Any) -> None:
            self._archray_saved, self._archray_before = (config or {}).pop(CHECKPOINTS, ()), {}
            super().__init__(config, *arguments, **options)

        def reset(self, new_config: dict[str, Any], *arguments: Any, **options: Any) -> bool:
            self._archray_saved, self._archray_before = new_config.pop(CHECKPOINTS, ()), {}
            return bool(super().reset(new_config, *arguments, **options))

        def train(self) -> dict[str, Any]:
            saved, self._archray_saved = self._archray_saved, ()
            damaged = ""
            for number, (checkpoint, totals) in enumerate(saved, start=1):
                try:
                    if unpickles:
                        super().restore(checkpoint)
                    else:
                        with checkpoint.as_directory() as folder:
                            self.load_checkpoint(folder)
                    self._archray_before = totals
                    break
                except Exception as error:
                    action = "resumes from the previous checkpoint" if number < len(saved) else "restarts"
                    damaged = f"cannot read the checkpoint {checkpoint.path} ({error}); the trial {action}"
                    logger.warning("%s: %s", self, damaged)
                    self.setup(copy.deepcopy(self.config))
            result: dict[str, Any] = super().train()
            if damaged:
                result[DAMAGED] = damaged
            for name, before in self._archray_before.items():
                if name in result:
                    result[name] += before
            return result

        def restore(self, *arguments: Any, **options: Any) -> Any:
            self._archray_saved, self._archray_before = (), {}  # Tune restores a checkpoint of this session
            return super().restore(*arguments, **options)

    Resumed.__name__ = Resumed.__qualname__ = base.__name__
    return Resumed


def class_of(trainable: Any) -> type[tune.Trainable]:
    """Returns the class of a Tune trainable; Tune wraps functions in one."""
    from ray.tune.registry import get_trainable_cls

    if isinstance(trainable, type):
        return trainable
    if not isinstance(trainable, str):
        name = getattr(trainable, "__name__", "trainable")
        tune.register_trainable(name, trainable)
        trainable = name
    return get_trainable_cls(trainable)


class ResumedASHA(AsyncHyperBandScheduler):
    """Ray Tune's ASHA (Li et al. 2020), which replays the results of a resumed run, since Tune saves no scheduler.

    It knows trials by their ids in the log. A trial that repeats results after its last checkpoint gets the same
    decisions: it goes on, or stops at the result at which it had stopped.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._added: set[str] = set()  # ids of the trials that it knows
        self._stopped: dict[str, int] = {}  # iterations of the last results of trials whose end is not in the log

    @classmethod
    def from_scheduler(cls, scheduler: AsyncHyperBandScheduler) -> "ResumedASHA":
        """Returns a copy of a scheduler that has received no result yet."""
        resumed = cls()
        vars(resumed).update(copy.deepcopy(vars(scheduler)))
        return resumed

    def replay(self, logged: LoggedRun, log_id: Any = None) -> None:
        """Repeats the calls of earlier sessions."""
        last: dict[str, dict[str, Any]] = {}
        for event in logged.events:
            trial = _stub(event.trial)
            if event.event == "suggested":
                self._add(event.trial)
            elif event.event == "result":
                if event.trial in last:
                    super().on_trial_result(NO_CONTROLLER, trial, last[event.trial])
                last[event.trial] = event.result
            elif event.event == "ended" and event.trial in last:  # Tune reports a trial's own end only as its end
                super().on_trial_complete(NO_CONTROLLER, trial, last.pop(event.trial))
        for name, result in last.items():
            super().on_trial_result(NO_CONTROLLER, _stub(name), result)
            if result.get("done"):
                self._stopped[name] = result.get(ITERATION, 0)

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        if _named(trial).trial_id not in self._added:
            self._add(_named(trial).trial_id)

    def _add(self, name: str) -> None:
        super().on_trial_add(NO_CONTROLLER, _stub(name))
        self._added.add(name)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        decision = super().on_trial_result(tune_controller, _named(trial), result)
        stopped = self._stopped.get(log_id(trial), math.inf) <= result.get(ITERATION, 0)
        return TrialScheduler.STOP if stopped else str(decision)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        super().on_trial_complete(tune_controller, _named(trial), result)

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        super().on_trial_remove(tune_controller, _named(trial))


NO_CONTROLLER: Any = None  # ASHA asks nothing of Tune's controller


def _stub(name: str) -> Any:
    """Returns all that ASHA reads of a trial."""
    return SimpleNamespace(trial_id=name)


def _named(trial: Any) -> Any:
    """Returns a trial under its id in the log; under its own id outside of a Tune run with a log."""
    return _stub(log_id(trial))
