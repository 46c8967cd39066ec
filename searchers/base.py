"""The state machine that every searcher of archray shares: numbered suggestions, results in order, whole state.

Suggestion k is a function of the run's seed and of the results of suggestions 1 to k - q (q = concurrency), so that
a run is the same whatever order its trials finish in, and a resumed run equals an undisturbed one.
"""

from __future__ import annotations

import json
import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from ray.tune.result import DEFAULT_METRIC
from ray.tune.search import UNDEFINED_METRIC_MODE
from ray.tune.search.variant_generator import parse_spec_vars

from archray.errors import InvalidInput
from archray.searchers.ledger import Ledger
from archray.searchers.records import Record, read_metric
from archray.searchers.state import PersistentSearcher, SearcherStateError, TuneTrial
from archray.seeds import trial_seed

logger = logging.getLogger(__name__)


class _Wait:
    """The type of WAIT."""


WAIT = _Wait()  # what `_propose` returns when results it needs are not in yet


class ArchraySearcher(PersistentSearcher):
    """Base of archray's searchers.

    A subclass defines `_propose(number)`, the next trial's config, and may define the other methods under "What a
    subclass defines". Everything it keeps between calls goes into `_own_state`.

    Args:
        budget: how many trials are suggested at most; failed ones count. None: as many as the method needs.
        seed: the run's seed. Trial k gets the seed `trial_seed(seed, k)` under the key `seed`.
        metric, mode: as in Tune; taken from `TuneConfig` where they are None here.
        points_to_evaluate: configs suggested first, in this order; they count in the budget.
        max_concurrent: q. `max_concurrent_trials` of `TuneConfig` overrides it, and without either it is 1.
        asynchronous: decide on whatever results are in, however many. Faster; no longer reproducible.

    Raises: InvalidInput for a wrong argument.
    """

    depends_on_results: ClassVar[bool] = True  # False: suggestion k is a function of the seed alone
    takes_domains: ClassVar[bool] = False  # whether unresolved Tune domains in `param_space` are for this searcher
    result_keys: ClassVar[tuple[str, ...]] = ()  # entries of a trial's result that are kept in its record

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
        if budget is not None:
            _check_count("budget", budget)
        if max_concurrent is not None:
            _check_count("max_concurrent", max_concurrent)
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise InvalidInput(f"seed: expected a whole number of 0 or more, got {seed!r}")
        _check_metric_mode(metric, mode)
        super().__init__(metric=metric, mode=mode)
        self.budget = budget
        self.seed = int(seed)
        self.asynchronous = asynchronous
        self._concurrency = max_concurrent
        self._points = [self._check_point(dict(point)) for point in points_to_evaluate or ()]
        self._points_used = 0
        self._ledger = Ledger(self.result_keys)

    # What a subclass defines ---------------------------------------------------------------------------------------

    @abstractmethod
    def _propose(self, number: int) -> dict[str, Any] | _Wait | None:
        """The config of suggestion `number`, a function of `known(number)`; None when nothing is left to try.

        `WAIT` if it needs more results than those. Nothing may change before it returns a config.
        """

    def _check_point(self, point: dict[str, Any]) -> dict[str, Any]:
        """A config of `points_to_evaluate` or `add_evaluated_point`, made whole. Raises: InvalidInput."""
        return point

    def _propose_point(self, number: int, point: dict[str, Any]) -> dict[str, Any] | None:
        """The config that evaluates `point`; None if its value is known already."""
        return dict(point)

    def _on_given(self, record: Record) -> None:
        """Called when the user has handed over an evaluation."""

    def _prepare(self) -> None:
        """Opens what the searcher needs from outside. Raises its own errors; called before the first trial."""

    def _identity(self) -> dict[str, Any]:
        """The settings that a saved state must share with the searcher that loads it. JSON-able."""
        return {}

    def _own_state(self) -> dict[str, Any]:
        """What the subclass keeps between calls. JSON-able."""
        return {}

    def _set_own_state(self, state: dict[str, Any]) -> None:
        """Takes what `_own_state` gave."""

    # What a subclass and a reader use ------------------------------------------------------------------------------

    def known(self, number: int) -> dict[int, Record]:
        """The records whose results suggestion `number` may use: those of 1 to number - q, and all handed over."""
        if self.asynchronous:
            return {k: record for k, record in self._ledger.records.items() if record.ended}
        return {k: record for k, record in self._ledger.records.items() if k <= number - self._q}

    def loss(self, record: Record) -> float | None:
        """The value as something to minimise; None for a trial without one."""
        if record.value is None:
            return None
        return record.value if self._mode == "min" else -record.value

    def records(self) -> list[Record]:
        """All trials in the order of suggestion, and the evaluations handed over."""
        return list(self._ledger.records.values())

    def in_flight(self) -> dict[str, dict[str, Any]]:
        """Configs of the trials that were suggested and have not ended, by trial id."""
        return {r.trial_id: r.config for r in self.records() if not r.ended and r.trial_id is not None}

    def best(self) -> dict[str, Any] | None:
        """The config with the best value, with its `number` and `value`; None if no trial has one.

        Of equal values, the one suggested first. Raises: SearcherStateError if its state could not be read.
        """
        self._check_restored()
        losses = [(self.loss(record), record) for record in self.records()]
        finite = [(loss, abs(record.number), record) for loss, record in losses if loss is not None]
        if not finite:
            return None
        record = min(finite, key=lambda entry: entry[:2])[2]
        return {**record.config, "number": record.number, "value": record.value}

    def history(self) -> pd.DataFrame:
        """A row per trial: number, trial_id, the config's keys, value (NaN if it failed), failure, given.

        Raises: SearcherStateError if its state could not be read.
        """
        self._check_restored()
        rows = [self._row(record) for record in self.records()]
        frame = pd.DataFrame(rows, columns=None if rows else ["number", "trial_id", "value", "failure", "given"])
        return frame.astype({"seed": "Int64"}) if "seed" in frame else frame  # none for what was handed over

    def _row(self, record: Record) -> dict[str, Any]:
        value = float("nan") if record.value is None else record.value
        failure = record.failure if record.ended else "has not ended"
        return {"number": record.number, "trial_id": record.trial_id, **record.config} | {
            "value": value,
            "failure": failure,
            "given": record.number < 0,
        }

    # Tune's interface ----------------------------------------------------------------------------------------------

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Takes metric and mode from `TuneConfig`. Raises: InvalidInput for unresolved domains, or a contradiction."""
        _, domains, grids = parse_spec_vars(config or {})
        if (domains or grids) and not self.takes_domains:
            names = ", ".join("/".join(map(str, path)) for path, _ in [*domains, *grids])
            raise InvalidInput(
                f"{type(self).__name__} suggests its own configs, but param_space leaves {names} to be sampled; "
                "give fixed values in param_space"
            )
        for name, own, other in (("metric", self._metric, metric), ("mode", self._mode, mode)):
            if own and other and own != other:
                raise InvalidInput(
                    f"{type(self).__name__} was made with {name}={own!r}, and TuneConfig says {other!r}; give one"
                )
        _check_metric_mode(metric, mode)
        self._metric = self._metric or metric
        self._mode = self._mode or mode
        self._require_metric_mode()
        self._prepare()
        return True

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Takes q from `max_concurrent_trials`; the limit is then kept here, and Tune does not limit again."""
        self._concurrency = max_concurrent
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]  # Ray forgot FINISHED
        """The next trial's config, None while results it depends on are not in, or FINISHED.

        Raises: SearcherStateError if the state it was to continue from could not be read.
        """
        self._check_restored()
        again = self._ledger.of_trial(trial_id)
        if again is not None:
            return dict(again.config)
        metric = self._require_metric_mode()
        self._prepare()
        record = self._ledger.lost
        while record is None:
            made = self._next_record()
            if not isinstance(made, Record):
                return made
            record = None if self._ledger.adopt(made, metric) else made
        self._ledger.assign(record, trial_id)
        return dict(record.config)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Keeps the newest value, for a trial that is stopped without a last result."""
        if self._metric:
            self._ledger.report(trial_id, result, self._metric)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Ends a trial. Unknown trials, and a second end of the same trial, are logged and ignored."""
        record = self._ledger.of_trial(trial_id)
        if record is None:
            logger.warning("trial %s is none of this searcher's; its result is ignored", trial_id)
        elif record.ended:
            logger.warning("trial %s ended before; its second result is ignored", trial_id)
        else:
            self._ledger.end(record, result, error, self._require_metric_mode())

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Hands over an evaluation made elsewhere; it is free of budget. `value` is in the metric's own sign.

        In a reproducible run, hand them all over before the first suggestion. Raises: InvalidInput.
        """
        config = self._check_point(dict(parameters))
        found: float | None = None
        failure: str | None = "the evaluation handed over had failed"
        if not error and value is not None:
            found, failure = read_metric({"value": value}, "value")
        self._on_given(self._ledger.give(config, found, failure))

    # State ---------------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """All that a searcher made with the same arguments needs to continue. Plain data."""
        return {
            "class": type(self).__name__,
            "identity": self._full_identity(),
            "metric": self._metric,
            "mode": self._mode,
            "concurrency": self._concurrency,
            "points_used": self._points_used,
            "ledger": self._ledger.get_state(),
            "own": self._own_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from `get_state`. Raises: SearcherStateError if it is of a search with other settings."""
        ours, theirs = self._full_identity(), state.get("identity", {})
        differing = [key for key in ours if key in theirs and ours[key] != theirs[key]]
        for key in ("metric", "mode"):
            own = getattr(self, f"_{key}")
            if own and state.get(key) and own != state[key]:
                differing.append(key)
                ours, theirs = {**ours, key: own}, {**theirs, key: state[key]}
        if state.get("class") != type(self).__name__:
            raise SearcherStateError(f"expected the state of a {type(self).__name__}, got {state.get('class')!r}")
        if differing:
            told = "; ".join(f"{key} was {theirs[key]!r}, now {ours[key]!r}" for key in differing)
            raise SearcherStateError(f"the state is of a search with other settings: {told}; use the same ones")
        self._metric = self._metric or state.get("metric")
        self._mode = self._mode or state.get("mode")
        self._concurrency = state.get("concurrency", self._concurrency)
        self._points_used = state.get("points_used", 0)
        self._ledger.set_state(state.get("ledger", {}))
        self._set_own_state(state.get("own", {}))

    def _reconcile(self, trials: Sequence[TuneTrial]) -> None:
        if self._metric:
            self._ledger.reconcile(trials, self._metric)

    # Inside --------------------------------------------------------------------------------------------------------

    @property
    def _q(self) -> int:
        return self._concurrency or 1

    def _next_record(self) -> Record | str | None:
        """The next suggestion, recorded under no trial yet; or FINISHED; or None."""
        number = self._ledger.next_number
        if self.budget is not None and number > self.budget:
            return self.FINISHED
        if (self._concurrency or self.depends_on_results) and self._ledger.running >= self._q:
            return None
        if self.depends_on_results and not self.asynchronous:
            if not all(record.ended for record in self.known(number).values()):
                return None
        config: dict[str, Any] | _Wait | None = None
        while config is None and self._points_used < len(self._points):
            self._points_used += 1
            config = self._propose_point(number, self._points[self._points_used - 1])
        if config is None:
            config = self._propose(number)
        if config is None:
            return self.FINISHED
        if isinstance(config, _Wait):
            return None
        return self._ledger.add({**config, "seed": trial_seed(self.seed, number)})

    def _full_identity(self) -> dict[str, Any]:
        identity = {"seed": self.seed, "asynchronous": self.asynchronous, "points_to_evaluate": self._points}
        return json.loads(json.dumps({**identity, **self._identity()}))  # as it reads after a round trip

    def _require_metric_mode(self) -> str:
        if self._mode and not self._metric:
            self._metric = DEFAULT_METRIC  # Tune's convention
        if not self._metric or not self._mode:
            message = UNDEFINED_METRIC_MODE.format(cls=type(self).__name__, metric=self._metric, mode=self._mode)
            raise InvalidInput(f"{message} Tune hands those on only if param_space is not empty.")
        return self._metric


def _check_count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InvalidInput(f"{name}: expected a whole number of 1 or more, got {value!r}")


def _check_metric_mode(metric: Any, mode: Any) -> None:
    if metric is not None and not isinstance(metric, str):
        raise InvalidInput(f"metric: expected the name of one metric, got {metric!r}")
    if mode is not None and mode not in ("min", "max"):
        raise InvalidInput(f"mode: expected 'min' or 'max', got {mode!r}")
