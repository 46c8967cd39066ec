"""The base class of all archray searchers: a state machine with numbered suggestions and ordered results.

Suggestion k is a function of the run's seed and of the results of suggestions 1 to k - q (q = concurrency). So the
order in which trials finish does not change a run, and a resumed run equals an uninterrupted one.
"""

import json
import logging
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from ray.tune.result import DEFAULT_METRIC
from ray.tune.search import Searcher
from ray.tune.search.variant_generator import parse_spec_vars

from archray.errors import ArchrayError, InvalidInput
from archray.searchers import ledger
from archray.searchers.arguments import check_metric_mode, check_whole_number
from archray.searchers.ledger import Ledger, Record, SearcherStateError
from archray.seeds import named_rng, trial_seed

logger = logging.getLogger(__name__)


class Wait:
    """The type of `WAIT`."""


WAIT = Wait()  # `propose` returns it while results that it needs are pending
Proposal = dict[str, Any] | Wait | None  # a trial's config; WAIT; or None when no config is left


class ArchraySearcher(Searcher):
    """Base class of archray's searchers.

    A subclass defines `propose(number)`, which returns the next trial's config. It may override the other methods under
    "Methods of a subclass". It returns the data that it keeps between calls from `search_state`.

    The searcher writes its state file atomically and reconciles it with Tune's state when it is restored. Tune saves
    the two files one after the other and copies them in the background, so a killed driver can leave files from
    different times.

    Args:
        budget: maximum number of trials, failed trials included. None: as many as the method needs.
        seed: the run's seed. Trial k gets the seed `trial_seed(seed, k)` under the key `seed`.
        metric, mode: as in Tune. None: the values of `TuneConfig`. Tune passes them to the searcher only if
            `param_space` is not empty.
        points_to_evaluate: configs to suggest first, in this order; they count in the budget.
        max_concurrent: q, the number of concurrent trials (default: 1). `max_concurrent_trials` of `TuneConfig`
            overrides it.
        asynchronous: use every result that is available when a suggestion is made. This is faster but not reproducible.

    Raises: InvalidInput for an invalid argument.

    Example:
        ```python
        class Sweep(ArchraySearcher):
            def propose(self, number):
                return {"width": 2**number}


        search = Sweep(budget=5, metric="accuracy", mode="max")
        drive(search, lambda config: 1 - 1 / config["width"])
        print(search.best())  # {'width': 32, 'seed': ..., 'number': 5, 'value': 0.96875}
        ```
    """

    _restore_problem: ArchrayError | None = None
    result_keys: ClassVar[tuple[str, ...]] = ()  # entries of a trial's result to keep in its record
    opened: ClassVar[tuple[str, ...]] = ()  # cached attributes that are not pickled; they are read again
    identity_fields: ClassVar[tuple[str, ...]] = ()  # the attributes of `search_identity`
    state_fields: ClassVar[tuple[str, ...]] = ()  # the attributes of `search_state`, saved without leading underscore
    depends_on_results: ClassVar[bool] = True  # False: suggestion k is a function of the seed alone

    def __init__(
        self,
        *,
        budget: int | None,
        seed: int = 0,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        max_concurrent: int | None = None,
        asynchronous: bool = False,
    ) -> None:
        for name, number in (("budget", budget), ("max_concurrent", max_concurrent)):
            if number is not None:
                check_whole_number(name, number)
        check_whole_number("seed", seed, least=0)
        check_metric_mode(metric, mode)
        super().__init__(metric=metric, mode=mode)
        self.ledger = Ledger(self.result_keys)
        self.budget = budget
        self.seed = int(seed)
        self.asynchronous = asynchronous
        self._concurrency = max_concurrent
        self._told_of_concurrency = False
        self.points_to_evaluate = [self.check_point(dict(point)) for point in points_to_evaluate or ()]
        self._points_used = 0
        self.seconds = 0.0  # wall time inside `suggest` and `on_trial_complete`, in this process

    # Methods of a subclass -----------------------------------------------------------------------------------------

    @abstractmethod
    def propose(self, number: int) -> Proposal:
        """Returns the config of suggestion `number`, a function of `usable_records(number)`.

        Returns None when no config is left, and `WAIT` if the method needs more results than these. The method must not
        change the searcher's state unless it returns a config.
        """

    def check_point(self, point: dict[str, Any]) -> dict[str, Any]:
        """Returns the complete config of a point of `points_to_evaluate` or `add_evaluated_point`.

        Raises: InvalidInput for an invalid point.
        """
        return point

    def propose_point(self, number: int, point: dict[str, Any]) -> dict[str, Any] | None:
        """Returns the config that evaluates `point`; None if the records already contain its value."""
        return dict(point)

    def on_evaluated_point(self, record: Record) -> None:
        """Handles the record of an external evaluation; called by `add_evaluated_point`."""

    def prepare(self) -> None:
        """Opens external resources such as a pool or a space. It is called before the first trial and may raise."""

    def search_identity(self) -> dict[str, Any]:
        """Returns the subclass's settings that must equal those of a saved state. JSON-able."""
        return {name: getattr(self, name) for name in self.identity_fields}

    def search_state(self) -> dict[str, Any]:
        """Returns the data that the subclass keeps between calls. JSON-able."""
        return {name.removeprefix("_"): getattr(self, name) for name in self.state_fields}

    def set_search_state(self, state: dict[str, Any]) -> None:
        """Restores the data that `search_state` returned."""
        for name in self.state_fields:
            setattr(self, name, copy(state.get(name.removeprefix("_"), getattr(self, name))))

    # Methods for subclasses and users ------------------------------------------------------------------------------

    def rng(self, *purpose: str | int) -> np.random.Generator:
        """Returns a random generator for one purpose, derived from the run's seed: `rng("local-search", number)`."""
        return named_rng(self.seed, *purpose)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Adds the wall time of a block to `seconds`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start

    def usable_records(self, number: int) -> dict[int, Record]:
        """Returns the records that suggestion `number` may use: 1 to number - q, and all external evaluations."""
        records = self.ledger.records.items()
        if self.asynchronous:
            return {k: record for k, record in records if record.ended}
        last = number - self._q
        return {k: record for k, record in records if k <= last}

    def usable_losses(self, number: int) -> dict[int, float | None]:
        """Returns the losses of the records that suggestion `number` may use, by number."""
        return {k: self.loss(record) for k, record in self.usable_records(number).items()}

    def records(self) -> list[Record]:
        """Returns the records of all trials, in the order of suggestion, and of all external evaluations."""
        return list(self.ledger.records.values())

    def in_flight(self) -> dict[str, dict[str, Any]]:
        """Returns the configs of the suggested trials that have not ended, by trial id."""
        return {r.trial_id: r.config for r in self.records() if not r.ended and r.trial_id is not None}

    def loss(self, record: Record) -> float | None:
        """Returns a record's value as a loss (smaller is better); None for a trial without a value."""
        if record.value is None:
            return None
        return record.value if self._mode == "min" else -record.value

    def best(self) -> dict[str, Any] | None:
        """Returns the config with the best value, and its `number` and `value`; None if no trial has a value.

        Of equal values it returns the first suggestion.

        Raises: SearcherStateError if the saved state could not be loaded.
        """
        self.check_restored()
        losses = {k: loss for k, record in self.ledger.records.items() if (loss := self.loss(record)) is not None}
        if not losses:
            return None
        record = self.ledger.records[min(losses, key=lambda k: (losses[k], abs(k)))]
        return {**record.config, "number": record.number, "value": record.value}

    def history(self) -> pd.DataFrame:
        """Returns a table with one row per trial and external evaluation.

        Columns: number, trial_id, the config's keys, value (NaN for a failed trial), failure (the reason), given (True
        for an external evaluation).

        Raises: SearcherStateError if the saved state could not be loaded.
        """
        self.check_restored()
        rows = [self.row(record) for record in self.records()]
        frame = pd.DataFrame(rows, columns=None if rows else ["number", "trial_id", "value", "failure", "given"])
        return frame.astype({"seed": "Int64"}) if "seed" in frame else frame  # external evaluations have no seed

    def row(self, record: Record) -> dict[str, Any]:
        """Returns a record as a row of the history."""
        value = float("nan") if record.value is None else record.value
        failure = record.failure if record.ended else "has not ended"
        row = {"number": record.number, "trial_id": record.trial_id, **record.config}
        return row | {"value": value, "failure": failure, "given": record.number < 0}

    # Tune's interface ----------------------------------------------------------------------------------------------

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Takes metric and mode from `TuneConfig`.

        Raises: InvalidInput for unresolved domains, or if `TuneConfig` contradicts the searcher's metric or mode.
        """
        _, domains, grids = parse_spec_vars(config or {})
        if domains or grids:
            names = ", ".join("/".join(map(str, path)) for path, _ in [*domains, *grids])
            raise InvalidInput(
                f"Expected fixed values in param_space, got search domains for {names}. {type(self).__name__} suggests "
                "its own configs. Give fixed values in param_space."
            )
        for name, setting, other in (("metric", self._metric, metric), ("mode", self._mode, mode)):
            if setting and other and setting != other:
                raise InvalidInput(
                    f"Expected one {name}, got {name}={setting!r} in {type(self).__name__} and {other!r} in "
                    "TuneConfig. Set it in one place."
                )
        check_metric_mode(metric, mode)
        self._metric = self._metric or metric
        self._mode = self._mode or mode
        self._require_metric_mode()
        self.prepare()
        return True

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Takes q from `max_concurrent_trials`. The searcher then enforces the limit, and Tune adds no limiter."""
        self._concurrency = max_concurrent
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]  # Ray omits FINISHED
        """Returns the next trial's config, None while the results that it depends on are pending, or FINISHED.

        Raises: SearcherStateError if the saved state could not be loaded.
        """
        with self._timed():
            self.check_restored()
            record = self.ledger.of_trial(trial_id)
            if record is not None:
                return dict(record.config)
            metric = self._require_metric_mode()
            self.prepare()
            record = self.ledger.lost_record
            while record is None:
                following = self._next_record()
                if not isinstance(following, Record):
                    return following
                record = None if self.ledger.adopt(following, metric) else following
            self.ledger.assign(record, trial_id)
            return dict(record.config)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Keeps the newest value, in case the trial is stopped without a last result."""
        if self._metric:
            self.ledger.report(trial_id, result, self._metric)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Ends a trial. Unknown trials, and a second end of the same trial, are logged and ignored.

        `Tuner.restore` with `resume_errored=True` or `restart_errored=True` runs a failed trial again. If the trial
        then succeeds, its result replaces the error. Suggestions made in the meantime stay as they are. Later
        suggestions depend on the result as if the trial had not failed; `Record.repaired` is the number of the first.
        """
        with self._timed():
            record = self.ledger.recognize(trial_id, result or {})
            if record is None:
                logger.warning("Trial %s does not belong to this searcher. Its result is ignored.", trial_id)
            elif record.errored and not error:
                self.ledger.repair(record, result, self._require_metric_mode())
            elif record.ended:
                logger.warning("Trial %s has already ended. Its second result is ignored.", trial_id)
            else:
                self.ledger.end(record, result, error, self._require_metric_mode())

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Adds an external evaluation, which does not count in the budget. `value` has the metric's sign.

        For a reproducible run, add all external evaluations before the first suggestion.

        Raises: InvalidInput for an invalid point.
        """
        config = self.check_point(dict(parameters))
        outcome = ledger.read_metric({"value": value}, "value")
        if error or value is None:
            outcome = None, "the external evaluation failed"
        self.on_evaluated_point(self.ledger.add_evaluation(config, *outcome))

    # State ---------------------------------------------------------------------------------------------------------

    def identity(self) -> dict[str, Any]:
        """Returns all settings that must equal those of a saved state. JSON-able."""
        shared = {"seed": self.seed, "asynchronous": self.asynchronous, "points_to_evaluate": self.points_to_evaluate}
        return json.loads(json.dumps(shared | self.search_identity()))  # in the form of a JSON round trip

    def get_state(self) -> dict[str, Any]:
        """Returns the state as plain data, for `set_state` of a searcher with the same arguments."""
        return {
            "class": type(self).__name__,
            "identity": self.identity(),
            "metric": self._metric,
            "mode": self._mode,
            "ledger": self.ledger.get_state(),
            "search": self.search_state(),
            "concurrency": self._concurrency,
            "points_used": self._points_used,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the state that `get_state` returned.

        Raises: SearcherStateError if the state belongs to a search with other settings.
        """
        if state.get("class") != type(self).__name__:
            raise SearcherStateError(f"Expected the state of a {type(self).__name__}, got {state.get('class')!r}")
        identity, saved = self.identity(), dict(state.get("identity", {}))
        for key, setting in (("metric", self._metric), ("mode", self._mode)):
            if setting and state.get(key):
                identity[key], saved[key] = setting, state[key]
        changed = [key for key in identity if key in saved and identity[key] != saved[key]]
        if changed:
            changes = "; ".join(f"{key} was {saved[key]!r}, now {identity[key]!r}" for key in changed)
            raise SearcherStateError(
                f"The saved state belongs to a search with other settings ({changes}). Use the same settings, or start "
                "a new search."
            )
        self._metric = self._metric or state.get("metric")
        self._mode = self._mode or state.get("mode")
        self.ledger.set_state(state.get("ledger", {}))
        self.set_search_state(state.get("search", {}))
        self._concurrency = state.get("concurrency", self._concurrency)
        self._points_used = state.get("points_used", 0)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in self.opened}

    def save(self, checkpoint_path: str) -> None:
        ledger.write_state(checkpoint_path, self.get_state())

    def restore(self, checkpoint_path: str) -> None:
        """Restores a saved state.

        If this method raised, Tune would silently start a new experiment. So it logs an unusable state, and the next
        `suggest` raises the error, which ends the run.
        """
        try:
            self.set_state(ledger.read_state(checkpoint_path))
            self._restore_problem = None
        except Exception as error:
            logger.error("%s cannot resume from %s: %s", type(self).__name__, checkpoint_path, error)
            if not isinstance(error, SearcherStateError):
                error = SearcherStateError(f"{checkpoint_path}: {error!r}")
            self._restore_problem = error

    def restore_from_dir(self, checkpoint_dir: str) -> None:
        """Restores the newest readable state in a Tune experiment folder, reconciled with Tune's trials."""
        files = sorted(Path(checkpoint_dir).glob(self.CKPT_FILE_TMPL.format("*")), reverse=True)
        if not files:
            self._restore_problem = SearcherStateError(f"Expected a searcher state in {checkpoint_dir}, got none")
            logger.error("%s", self._restore_problem)
        for file in files:
            self.restore(str(file))
            if self._restore_problem is None:
                break
        if self._restore_problem is not None or not self._metric:
            return
        try:
            trials = ledger.read_tune_trials(checkpoint_dir, self.ledger.settled)
            if trials is not None:
                self.ledger.reconcile(trials, self._metric)
        except SearcherStateError as error:  # raised by the next `suggest`, see `restore`
            logger.error("%s", error)
            self._restore_problem = error

    def check_restored(self) -> None:
        """Raises: SearcherStateError if the saved state is unusable."""
        if self._restore_problem is not None:
            raise self._restore_problem

    @property
    def _q(self) -> int:
        return self._concurrency or 1

    def _next_record(self) -> Record | str | None:
        """Returns a new record without a trial id; or FINISHED; or None while results are pending."""
        number = self.ledger.next_number
        if self.budget is not None and number > self.budget:
            return self.FINISHED
        if (self._concurrency or self.depends_on_results) and self.ledger.running >= self._q:
            if self._concurrency is None and not self._told_of_concurrency:
                self._told_of_concurrency = True
                logger.warning(
                    "%s trains one trial at a time. Set max_concurrent_trials in TuneConfig to train several.",
                    type(self).__name__,
                )
            return None
        if self.depends_on_results and not self.asynchronous and not self.ledger.have_ended(number - self._q):
            return None
        config: Proposal = None
        while config is None and self._points_used < len(self.points_to_evaluate):
            self._points_used += 1
            config = self.propose_point(number, self.points_to_evaluate[self._points_used - 1])
        if config is None:
            config = self.propose(number)
        if config is None:
            return self.FINISHED
        if isinstance(config, Wait):
            return None
        return self.ledger.add({**config, "seed": trial_seed(self.seed, number)})

    def _require_metric_mode(self) -> str:
        if self._mode and not self._metric:
            self._metric = DEFAULT_METRIC  # Tune's convention
        if not self._metric or not self._mode:
            name, settings = type(self).__name__, f"metric={self._metric!r}, mode={self._mode!r}"
            raise InvalidInput(
                f"Expected a metric and a mode, got {settings}. Pass both to the searcher: "
                f"{name}(..., metric='accuracy', mode='max'). Tune passes TuneConfig's values to a searcher only if "
                "the Tuner has a param_space that is not empty."
            )
        return self._metric
