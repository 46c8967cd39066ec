"""The conformance suite for searchers in one process, which calls a searcher as Tune does."""

import functools
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import ray.cloudpickle
from ray import tune
from ray.tune.search import Searcher
from ray.tune.utils import flatten_dict

from archray.references import load_reference
from archray.searchers.base import ArchraySearcher
from archray.searchers.drive_searcher import drive

Evaluator = Callable[[dict[str, Any]], Mapping[str, Any] | float]
Configs = list[dict[str, Any]]


def _expected_to_fail(test: Callable[..., None], reason: str) -> Callable[..., None]:
    import pytest  # imported here: only users of the suite have it

    @functools.wraps(test)
    def expecting(*arguments: Any, **options: Any) -> None:
        try:
            test(*arguments, **options)
        except Exception:
            pytest.xfail(reason)
        raise AssertionError(f"Expected {test.__name__} to fail, since it is listed in lacks ({reason}), but it passed")

    return expecting


def hashed_score(config: Mapping[str, Any]) -> float:
    """Returns a pseudorandom score in [0, 1), a function of the suggested config without its seed.

    Args:
        config: the suggested config.

    Example:
        ```python
        assert hashed_score({"width": 8, "seed": 1}) == hashed_score({"width": 8, "seed": 2})
        ```
    """
    return fraction({key: value for key, value in config.items() if key != "seed"})


def fraction(value: Any) -> float:
    """Returns a number in [0, 1) from the SHA-256 of a JSON value."""
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def entries_of(reported: Mapping[str, Any] | float) -> dict[str, Any]:
    """Returns the entries of a result from the return value of an evaluator."""
    return dict(reported) if isinstance(reported, Mapping) else {"score": reported}


def failing(evaluate: Evaluator, failure: Callable[[], Any]) -> Evaluator:
    """Returns `evaluate` with `failure()` instead of a score for about a third of the configs."""
    return lambda config: failure() if fraction(config) < 1 / 3 else evaluate(config)


def fail() -> Any:
    """Raises the error of a failing trial."""
    raise RuntimeError("This trial fails on purpose")


def assert_finite_best(searcher: Searcher) -> None:
    """Checks that the value of `best()`, if it exists, is finite."""
    best = searcher.best() if hasattr(searcher, "best") else None
    assert best is None or math.isfinite(best["value"])


@dataclass
class Suggestions:
    """A record of a searcher's suggestions: configs in order, trials in flight by trial id, and events."""

    configs: Configs = field(default_factory=list)
    in_flight: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # names and arguments, in order


@contextmanager
def recorded(searcher: Searcher) -> Iterator[Suggestions]:
    """Records the suggestions inside the block, then restores the searcher's methods so that it can be pickled."""
    suggestions = Suggestions()
    suggest, complete = searcher.suggest, searcher.on_trial_complete

    def suggesting(trial_id: str) -> Any:
        config = suggest(trial_id)
        if isinstance(config, dict):
            suggestions.configs.append(dict(config))
            suggestions.in_flight[trial_id] = dict(config)
        suggestions.calls.append(("suggest", {"trial_id": trial_id}))
        return config

    def completing(trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        suggestions.in_flight.pop(trial_id, None)
        complete(trial_id=trial_id, result=result, error=error)
        suggestions.calls.append(("on_trial_complete", {"trial_id": trial_id, "result": result, "error": error}))

    before = dict(vars(searcher))
    vars(searcher).update(suggest=suggesting, on_trial_complete=completing)
    try:
        yield suggestions
    finally:
        for name in ("suggest", "on_trial_complete"):
            vars(searcher).pop(name)
            if name in before:
                vars(searcher)[name] = before[name]


COMPLETION_SEEDS = (1, 2)  # seeds of the order in which trials in flight end
CONCURRENCIES = (1, 3)


class ConformanceSuite:
    """Base class of the conformance suites: makes the searcher under test and runs its searches.

    Attributes:
        evaluator: reference (`module:attribute`) of a function from a config to a score, or to a result dictionary with
            `score`. It must be deterministic and, for `TunerConformance`, importable in Ray's workers.
        budget: a number of trials that is large enough to show the searcher's behavior.
        lacks: a dictionary from the name of a test that the searcher does not pass to the reason. pytest reports such a
            test as an expected failure (XFAIL); if it passes, that is an error. `test_finishes` means that the searcher
            never finishes. The other tests then stop it after `budget` trials, as Tune's `num_samples` does.

    Example:
        ```python
        class TestRandomSearch(SearcherConformance, TunerConformance):
            def make(self, *, seed=0, budget=7, metric="score", mode="max"):
                return RandomSearch("nasbench201", budget, seed=seed, metric=metric, mode=mode)
        ```
    """

    evaluator: str = "archray.searchers.testing:hashed_score"
    budget: int = 7
    lacks: ClassVar[Mapping[str, str]] = {}
    _undisturbed: ClassVar[dict[int, Configs]]

    def make(
        self, *, seed: int = 0, budget: int = 7, metric: str | None = "score", mode: str | None = "max"
    ) -> Searcher:
        """Returns a new searcher; equal arguments must give equal searchers. A searcher may ignore the budget."""
        raise NotImplementedError("Define make in your subclass")

    def make_late(self) -> tuple[Searcher, dict[str, Any]]:
        """Returns a new searcher that takes metric and mode from `TuneConfig`, and the `param_space` that it needs."""
        return self.fresh(metric=None, mode=None), {"settings": {}}

    def expected_trials(self, budget: int) -> int:
        """Returns the number of trials of a search with `budget`."""
        return budget

    def evaluate(self) -> Evaluator:
        return load_reference(self.evaluator)

    def run(self, searcher: Searcher, evaluate: Evaluator | None = None, **options: Any) -> Configs:
        """Runs a search by `drive` to its end; returns its suggestions in order."""
        return self.suggestions(searcher, evaluate, **options).configs

    def suggestions(self, searcher: Searcher, evaluate: Evaluator | None = None, **options: Any) -> Suggestions:
        """Runs a search as `run` does; returns also the trials in flight when it stopped."""
        with recorded(searcher) as suggestions:
            drive(searcher, evaluate or self.evaluate(), **{**self._limit(self.budget), **options})
        return suggestions

    def _limit(self, trials: int) -> dict[str, Any]:
        """Returns the options of `drive` that stop a searcher which never finishes."""
        return {"max_trials": trials} if "test_finishes" in self.lacks else {}

    def fresh(self, **changes: Any) -> Searcher:
        return self.make(**{"seed": 0, "budget": self.budget, "metric": "score", "mode": "max", **changes})

    def undisturbed(self, concurrency: int = 1) -> Configs:
        """Returns the suggestions of an uninterrupted search."""
        if concurrency not in self._undisturbed:
            self._undisturbed[concurrency] = self.run(self.fresh(), concurrency=concurrency)
        return self._undisturbed[concurrency]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._undisturbed = {}
        for name, reason in vars(cls).get("lacks", {}).items():
            if not name.startswith("test_") or not hasattr(cls, name):
                raise TypeError(f"{cls.__name__}.lacks: expected tests of the conformance suite, got {name!r}")
            setattr(cls, name, _expected_to_fail(getattr(cls, name), reason))

    def result(self, config: Mapping[str, Any], iteration: int) -> dict[str, Any]:
        """Returns a result in the form in which Tune passes it to searchers."""
        entries = entries_of(self.evaluate()(dict(config)))
        return {**entries, "training_iteration": iteration, "done": False, "trial_id": "of Tune"}


class SearcherConformance(ConformanceSuite):
    """The conformance tests of a searcher. Subclass it in a test file and define `make`; pytest collects the tests.

    Example:
        ```python
        class TestRandomSearch(SearcherConformance):
            def make(self, *, seed=0, budget=7, metric="score", mode="max"):
                return RandomSearch("nasbench201", budget, seed=seed, metric=metric, mode=mode)
        ```
    """

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
        if searcher.set_max_concurrency(3):  # the searcher enforces the limit, not ConcurrencyLimiter
            assert sum(isinstance(config, dict) for config in configs) >= 1
            assert not isinstance(searcher.suggest("one too many"), dict)

    def test_finishes(self) -> None:
        for concurrency in CONCURRENCIES:
            searcher = self.fresh()
            assert len(self.run(searcher, concurrency=concurrency)) == self.expected_trials(self.budget)
            late: list[Any] = [searcher.suggest("late"), searcher.suggest("later")]
            assert late == [Searcher.FINISHED] * 2

    def test_points_to_evaluate(self) -> None:
        """The searcher suggests the points of its argument `points_to_evaluate` first."""
        point = {key: value for key, value in self.undisturbed()[-1].items() if key != "seed"}
        searcher_class: Any = type(self.fresh())
        plain = searcher_class.__init__

        def with_points(searcher: Searcher, *arguments: Any, **options: Any) -> None:
            plain(searcher, *arguments, **{**options, "points_to_evaluate": [point]})

        searcher_class.__init__ = with_points
        try:
            searcher = self.fresh()
        finally:
            searcher_class.__init__ = plain
        first: Any = searcher.suggest("first")
        shared = point.keys() & first.keys()  # a searcher may suggest more for its own architectures
        assert shared and all(first[key] == point[key] for key in shared)

    # Events of trials

    def test_nan_results(self) -> None:
        searcher = self.fresh()
        self.run(searcher, failing(self.evaluate(), lambda: math.nan), concurrency=2)
        assert_finite_best(searcher)

    def test_failed_trials(self) -> None:
        for concurrency in CONCURRENCIES:
            searcher = self.fresh()
            self.run(searcher, failing(self.evaluate(), fail), concurrency=concurrency)
            assert_finite_best(searcher)

    def test_every_trial_fails(self) -> None:
        self.run(self.fresh(), lambda config: fail(), concurrency=2)

    def test_completed_twice(self) -> None:
        """Completes every trial twice, as a restored experiment may do."""
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
        """Stops trials after some of their results, as a scheduler does, with or without a last result."""
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
        assert config == Searcher.FINISHED or "test_finishes" in self.lacks

    def test_retried_trials(self) -> None:
        """Reports iterations again, as a restored trial does without notice by Tune."""
        searcher = self.fresh()
        searcher.set_max_concurrency(1)
        configs: Configs = []
        while len(configs) < len(self.undisturbed()):
            trial, config = f"t{len(configs)}", searcher.suggest(f"t{len(configs)}")
            assert isinstance(config, dict)
            configs.append(config)
            for iteration in (1, 2, 1, 2):
                searcher.on_trial_result(trial_id=trial, result=self.result(config, iteration))
            searcher.on_trial_complete(trial_id=trial, result=self.result(config, 3))
        assert configs == self.undisturbed()

    def test_repaired_trials(self, tmp_path: Path) -> None:
        """Runs a failed trial again, so that its result replaces the error.

        Tune does so, with `restart_errored` under a new id. Other trials may have been suggested after the failure.
        """
        for trial_id, resumed in (("a", False), ("a", True), ("another id", True)):
            searcher: Any = self.fresh()
            searcher.set_max_concurrency(1)
            repaired: Any = searcher.suggest("a")
            searcher.on_trial_complete(trial_id="a", error=True)
            if resumed and isinstance(following := searcher.suggest("b"), dict):
                searcher.on_trial_complete(trial_id="b", result=self.result(following, iteration=1))
            result = {**self.result(repaired, iteration=1), "config": {"settings": {}, **repaired}}
            searcher.on_trial_complete(trial_id=trial_id, result=flatten_dict(result))
            searcher.save(str(tmp_path / "state"))
            if isinstance(searcher, ArchraySearcher):
                first = searcher.records()[0]
                assert first.value is not None and first.failure is None and first.trial_id == trial_id
                restored: Any = self.fresh()
                restored.restore(str(tmp_path / "state"))
                assert self.run(restored) == self.run(searcher)
            else:
                self.run(searcher)
            assert_finite_best(searcher)

    # Metric, mode, param_space

    def test_metric_and_mode_from_tune_config_only(self) -> None:
        for mode in ("max", "min"):
            late, param_space = self.make_late()
            assert late.set_search_properties("score", mode, param_space)
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
            assert taken is False, "Expected set_search_properties to return False, so that Tune rejects the domains"

    # State

    def test_saved_in_the_middle_and_restored(self, tmp_path: Path) -> None:
        for concurrency in CONCURRENCIES:
            self.check_saved_in_the_middle(tmp_path, concurrency)

    def test_saved_in_the_middle_of_another_order(self, tmp_path: Path) -> None:
        self.check_saved_in_the_middle(tmp_path, concurrency=3, completion_seed=1)

    def check_saved_in_the_middle(self, folder: Path, concurrency: int, completion_seed: int | None = None) -> None:
        options: dict[str, Any] = {"concurrency": concurrency, "completion_seed": completion_seed}
        for cut in (self.budget // 2, self.budget - 1):
            interrupted = self.fresh()
            before = self.suggestions(interrupted, max_trials=cut, **options)
            interrupted.save(str(folder / "state"))
            continued = self.fresh()
            continued.restore(str(folder / "state"))
            after = self.run(continued, in_flight=before.in_flight, **options, **self._limit(self.budget - cut))
            assert before.configs + after == self.undisturbed(concurrency)

    def test_restored_searcher_knows_its_trials_in_flight(self, tmp_path: Path) -> None:
        """Ends trials under their old ids after a restore, as a restored Tuner does."""
        interrupted = self.fresh()
        interrupted.set_max_concurrency(2)
        with recorded(interrupted) as before:
            for trial in ("a", "b"):
                interrupted.suggest(trial)
        interrupted.save(str(tmp_path / "state"))
        continued = self.fresh()
        continued.restore(str(tmp_path / "state"))
        for trial, config in reversed(before.in_flight.items()):
            continued.on_trial_complete(trial_id=trial, result=self.result(config, 1))
        rest = self._limit(self.budget - len(before.configs))
        assert before.configs + self.run(continued, concurrency=2, **rest) == self.undisturbed(2)

    def test_a_fresh_searcher_pickles(self) -> None:
        """Pickles the searcher, as Tune does when a Tuner is created."""
        copy = ray.cloudpickle.loads(ray.cloudpickle.dumps(self.fresh()))
        assert self.run(copy) == self.undisturbed()

    def test_replayed_from_a_log(self) -> None:
        """Repeats the calls of an interrupted search on a new searcher, and gets the same suggestions and state."""
        searcher = self.fresh()
        options: dict[str, Any] = {"concurrency": 2, "completion_seed": 1}
        with recorded(searcher) as suggestions:
            drive(searcher, self.evaluate(), max_trials=max(1, 3 * self.budget // 4), **options)
        replayed = self.fresh()
        if replayed.metric:
            replayed.set_search_properties(None, None, {})
        replayed.set_max_concurrency(2)
        with recorded(replayed) as again:
            for name, arguments in json.loads(json.dumps(suggestions.calls)):
                getattr(replayed, name)(**arguments)
        assert again.configs == suggestions.configs
        if isinstance(searcher, ArchraySearcher) and isinstance(replayed, ArchraySearcher):
            assert replayed.get_state() == searcher.get_state()
