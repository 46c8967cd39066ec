"""The conformance suite of searchers, in one process: Tune's interface called as Tune calls it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import ray.cloudpickle
from ray import tune
from ray.tune.search import Searcher

from archray.references import load_reference
from archray.searchers.drive_searcher import drive

Evaluator = Callable[[dict[str, Any]], Mapping[str, Any] | float]
Configs = list[dict[str, Any]]
COMPLETION_SEEDS = (1, 2)  # orders in which trials in flight end
CONCURRENCIES = (1, 3)


def hashed_score(config: Mapping[str, Any]) -> float:
    """A score in [0, 1) that looks random but is a function of what the searcher suggested, its seed apart."""
    return fraction({key: value for key, value in config.items() if key != "seed"})


def fraction(value: Any) -> float:
    """A number in [0, 1) from the SHA-256 of a JSON value."""
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


class SearcherConformance:
    """Subclass it in a test file and define `make`; pytest collects the rest.

    Attributes:
        evaluator: reference (`module:attribute`) of a function config -> score, or -> a result dictionary with
            `score`. It must be deterministic, and importable in Ray's workers for `TunerConformance`.
        budget: a number of trials that shows what the searcher does.
    """

    evaluator: str = "archray.searchers.testing:hashed_score"
    budget: int = 7
    _undisturbed: ClassVar[dict[int, Configs]]

    def make(
        self, *, seed: int = 0, budget: int = 7, metric: str | None = "score", mode: str | None = "max"
    ) -> Searcher:
        """A fresh searcher; the same arguments give an equal one. A searcher without a budget ignores it."""
        raise NotImplementedError("define make in your subclass")

    def expected_trials(self, budget: int) -> int:
        """How many trials a search with `budget` makes."""
        return budget

    # How the tests run a search

    def evaluate(self) -> Evaluator:
        return load_reference(self.evaluator)

    def run(self, searcher: Searcher, evaluate: Evaluator | None = None, **options: Any) -> Configs:
        """Runs a search through `drive`; its suggestions in order."""
        configs = recorded(searcher)
        drive(searcher, evaluate or self.evaluate(), **options)
        return configs

    def fresh(self, **changes: Any) -> Searcher:
        return self.make(**{"seed": 0, "budget": self.budget, "metric": "score", "mode": "max", **changes})

    def undisturbed(self, concurrency: int = 1) -> Configs:
        """The suggestions of a search in which nothing special happens."""
        if concurrency not in self._undisturbed:
            self._undisturbed[concurrency] = self.run(self.fresh(), concurrency=concurrency)
        return self._undisturbed[concurrency]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._undisturbed = {}

    # Suggestions

    def test_same_seed_same_suggestions(self) -> None:
        assert self.run(self.fresh()) == self.undisturbed()
        assert self.run(self.fresh(seed=1)) == self.run(self.fresh(seed=1))

    def test_suggestions_are_json(self) -> None:
        for config in self.undisturbed():
            assert json.loads(json.dumps(config, allow_nan=False)) == config

    def test_order_of_completion_changes_nothing(self) -> None:
        for seed in COMPLETION_SEEDS:
            assert self.run(self.fresh(), concurrency=3, completion_seed=seed) == self.undisturbed(3)

    def test_as_many_in_flight_as_allowed_and_no_more(self) -> None:
        searcher = self.fresh()
        assert searcher.set_max_concurrency(3) in (True, False)
        configs = [searcher.suggest(f"t{number}") for number in range(3)]
        if searcher.set_max_concurrency(3):  # it limits itself: ConcurrencyLimiter will not
            assert sum(isinstance(config, dict) for config in configs) >= 1
            assert not isinstance(searcher.suggest("one too many"), dict)

    def test_finishes(self) -> None:
        for concurrency in CONCURRENCIES:
            searcher = self.fresh()
            assert len(self.run(searcher, concurrency=concurrency)) == self.expected_trials(self.budget)
            late: list[Any] = [searcher.suggest("late"), searcher.suggest("later")]
            assert late == [Searcher.FINISHED] * 2

    # What trials can do

    def test_nan_results(self) -> None:
        searcher = self.fresh()
        self.run(searcher, self.failing(lambda: math.nan), concurrency=2)
        assert_finite_best(searcher)

    def test_failed_trials(self) -> None:
        for concurrency in CONCURRENCIES:
            searcher = self.fresh()
            self.run(searcher, self.failing(_raise), concurrency=concurrency)
            assert_finite_best(searcher)

    def test_every_trial_fails(self) -> None:
        self.run(self.fresh(), lambda config: _raise(), concurrency=2)

    def test_completed_twice(self) -> None:
        """As a restored experiment may do."""
        searcher = self.fresh()
        complete = searcher.on_trial_complete

        def twice(trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
            complete(trial_id=trial_id, result=result, error=error)
            complete(trial_id=trial_id, error=True)

        searcher.on_trial_complete = twice  # type: ignore[method-assign]
        assert self.run(searcher) == self.undisturbed()

    def test_unknown_trial_is_ignored(self) -> None:
        searcher = self.fresh()
        searcher.suggest("known")
        searcher.on_trial_result(trial_id="unknown", result={"score": 1.0, "training_iteration": 1})
        searcher.on_trial_complete(trial_id="unknown", result={"score": 1.0, "training_iteration": 1}, error=False)
        searcher.on_trial_complete(trial_id="unknown", error=True)

    def test_early_stopped_trials(self) -> None:
        """A scheduler may stop a trial after some of its results, with or without the last one."""
        searcher = self.fresh()
        searcher.set_max_concurrency(1)
        for number in range(2 * self.budget):
            config: Any = searcher.suggest(f"t{number}")
            if not isinstance(config, dict):
                break
            result = self.result(config, iteration=1)
            if number % 3:
                searcher.on_trial_result(trial_id=f"t{number}", result=result)
            searcher.on_trial_complete(trial_id=f"t{number}", result=result if number % 2 else None)
        assert config == Searcher.FINISHED

    def test_retried_trials(self) -> None:
        """A trial that is restored reports iterations again; Tune does not announce it."""
        searcher = self.fresh()
        searcher.set_max_concurrency(1)
        configs = []
        for number in range(2 * self.budget):
            config = searcher.suggest(f"t{number}")
            if not isinstance(config, dict):
                break
            configs.append(config)
            for iteration in (1, 2, 1, 2):
                searcher.on_trial_result(trial_id=f"t{number}", result=self.result(config, iteration))
            searcher.on_trial_complete(trial_id=f"t{number}", result=self.result(config, 3))
        assert configs == self.undisturbed()

    # Metric, mode, param_space

    def test_metric_and_mode_from_tune_config_only(self) -> None:
        for mode in ("max", "min"):
            late = self.fresh(metric=None, mode=None)
            assert late.set_search_properties("score", mode, {"settings": {}})
            expected = self.undisturbed() if mode == "max" else self.run(self.fresh(mode=mode))
            assert self.run(late) == expected

    def test_without_a_metric_it_says_so(self) -> None:
        message = ""
        try:
            self.fresh(metric=None, mode=None).suggest("t")
        except Exception as error:
            message = str(error)
        assert "metric" in message

    def test_unresolved_domains_are_refused(self) -> None:
        for domain in ({"lr": tune.uniform(0, 1)}, {"lr": tune.grid_search([1, 2])}, {"a": {"b": tune.choice([1])}}):
            try:
                taken = self.fresh().set_search_properties("score", "max", domain)
            except ValueError:
                continue
            assert taken is False, "Tune itself refuses domains only if set_search_properties returns False"

    # State

    def test_saved_in_the_middle_and_restored(self, tmp_path: Path) -> None:
        for concurrency, completion_seed in ((1, None), (3, None), (3, 1)):
            options: dict[str, Any] = {"concurrency": concurrency, "completion_seed": completion_seed}
            for cut in (self.budget // 2, self.budget - 1):
                begun = self.fresh()
                first = self.run(begun, max_trials=cut, **options)
                begun.save(str(tmp_path / "state"))
                continued = self.fresh()
                continued.restore(str(tmp_path / "state"))
                assert first + self.run(continued, **options) == self.undisturbed(concurrency)

    def test_restored_searcher_knows_its_trials_in_flight(self, tmp_path: Path) -> None:
        """A restored Tuner runs them on, under their old ids."""
        begun = self.fresh()
        begun.set_max_concurrency(2)
        first = recorded(begun)
        trials = [trial for trial in ("a", "b") if isinstance(begun.suggest(trial), dict)]
        begun.save(str(tmp_path / "state"))
        continued = self.fresh()
        continued.restore(str(tmp_path / "state"))
        for trial, config in reversed(list(zip(trials, first, strict=True))):
            continued.on_trial_complete(trial_id=trial, result=self.result(config, 1))
        assert first + self.run(continued, concurrency=2) == self.undisturbed(2)

    def test_a_fresh_searcher_pickles(self) -> None:
        """Tune does that when the Tuner is made."""
        copy = ray.cloudpickle.loads(ray.cloudpickle.dumps(self.fresh()))
        assert self.run(copy) == self.undisturbed()

    # Inside

    def result(self, config: dict[str, Any], iteration: int) -> dict[str, Any]:
        """A result as Tune hands it over."""
        reported = self.evaluate()(config)
        own = dict(reported) if isinstance(reported, Mapping) else {"score": reported}
        return {**own, "training_iteration": iteration, "done": False, "trial_id": "as Tune has it"}

    def failing(self, failure: Callable[[], Any]) -> Evaluator:
        """The evaluator, with `failure()` instead of a score for about a third of the configs."""
        evaluate = self.evaluate()
        return lambda config: failure() if fraction(config) < 1 / 3 else evaluate(config)


def recorded(searcher: Searcher) -> Configs:
    """What `searcher` suggests from now on, as it does."""
    configs: Configs = []
    suggest = searcher.suggest

    def recording(trial_id: str) -> Any:
        config = suggest(trial_id)
        if isinstance(config, dict):
            configs.append(dict(config))
        return config

    searcher.suggest = recording  # type: ignore[method-assign]
    return configs


def assert_finite_best(searcher: Searcher) -> None:
    """A searcher that has `best()` must not choose a trial without a value."""
    best = searcher.best() if hasattr(searcher, "best") else None
    assert best is None or math.isfinite(best["value"])


def _raise() -> Any:
    raise RuntimeError("this trial fails")
