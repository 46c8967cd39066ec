"""The conformance suite of searchers, in one process: Tune's interface called as Tune calls it."""

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
from archray.searchers.drive_searcher import drive, replay
from archray.searchers.ledger import TuneTrial

Evaluator = Callable[[dict[str, Any]], Mapping[str, Any] | float]
Configs = list[dict[str, Any]]


def _expected_to_fail(test: Callable[..., None], reason: str) -> Callable[..., None]:
    import pytest  # not above: only the suite's users have it

    @functools.wraps(test)
    def expecting(*arguments: Any, **options: Any) -> None:
        try:
            test(*arguments, **options)
        except Exception:
            pytest.xfail(reason)
        raise AssertionError(f"{test.__name__} passes, and is listed in lacks: {reason}")

    return expecting


def hashed_score(config: Mapping[str, Any]) -> float:
    """A score in [0, 1) that looks random but is a function of what the searcher suggested, its seed apart."""
    return fraction({key: value for key, value in config.items() if key != "seed"})


def fraction(value: Any) -> float:
    """A number in [0, 1) from the SHA-256 of a JSON value."""
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def entries_of(reported: Mapping[str, Any] | float) -> dict[str, Any]:
    """The entries of a result, from the return value of an evaluator."""
    return dict(reported) if isinstance(reported, Mapping) else {"score": reported}


def failing(evaluate: Evaluator, failure: Callable[[], Any]) -> Evaluator:
    """`evaluate`, with `failure()` instead of a score for about a third of the configs."""
    return lambda config: failure() if fraction(config) < 1 / 3 else evaluate(config)


def fail() -> Any:
    """The evaluation of a failing trial."""
    raise RuntimeError("this trial fails")


def assert_finite_best(searcher: Searcher) -> None:
    """Checks that `best()`, if there is one, has a value."""
    best = searcher.best() if hasattr(searcher, "best") else None
    assert best is None or math.isfinite(best["value"])


@dataclass
class Suggestions:
    """The configs of a searcher's suggestions, in order, and of the trials in flight, by trial id."""

    configs: Configs = field(default_factory=list)
    in_flight: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: list[TuneTrial] = field(default_factory=list)  # suggestions and ends, as Tune saves them


@contextmanager
def recorded(searcher: Searcher) -> Iterator[Suggestions]:
    """The suggestions within the block. Afterwards the searcher has its methods back: some searchers are pickled."""
    suggestions = Suggestions()
    suggest, complete = searcher.suggest, searcher.on_trial_complete

    def suggesting(trial_id: str) -> Any:
        config = suggest(trial_id)
        if isinstance(config, dict):
            suggestions.configs.append(dict(config))
            suggestions.in_flight[trial_id] = dict(config)
            suggestions.events.append(TuneTrial(trial_id, {"settings": {}, **config}, "PENDING", {}))
        return config

    def completing(trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        suggestions.in_flight.pop(trial_id, None)
        complete(trial_id=trial_id, result=result, error=error)
        suggestions.events.append(TuneTrial(trial_id, {}, "ERROR" if error else "TERMINATED", result or {}))

    before = dict(vars(searcher))
    vars(searcher).update(suggest=suggesting, on_trial_complete=completing)
    try:
        yield suggestions
    finally:
        for name in ("suggest", "on_trial_complete"):
            vars(searcher).pop(name)
            if name in before:
                vars(searcher)[name] = before[name]


COMPLETION_SEEDS = (1, 2)  # orders in which trials in flight end
CONCURRENCIES = (1, 3)


class ConformanceSuite:
    """The searcher under test, and its searches: the base of the suites with tests.

    Attributes:
        evaluator: reference (`module:attribute`) of a function config -> score, or -> a result dictionary with
            `score`. It must be deterministic, and importable in Ray's workers for `TunerConformance`.
        budget: a number of trials that shows the behavior of the searcher.
        lacks: by the name of a test, the reason why the searcher does not pass it. pytest reports it as an expected
            failure (XFAIL) with that reason; a test that is listed and passes is an error. `test_finishes` means that
            the searcher never finishes: the other tests stop it after `budget` trials, as Tune's `num_samples` does.
    """

    evaluator: str = "archray.searchers.testing:hashed_score"
    budget: int = 7
    lacks: ClassVar[Mapping[str, str]] = {}
    _undisturbed: ClassVar[dict[int, Configs]]

    def make(
        self, *, seed: int = 0, budget: int = 7, metric: str | None = "score", mode: str | None = "max"
    ) -> Searcher:
        """A new searcher; the same arguments give an equal one. A searcher without a budget ignores it."""
        raise NotImplementedError("define make in your subclass")

    def make_late(self) -> tuple[Searcher, dict[str, Any]]:
        """A new searcher that takes metric and mode from `TuneConfig`, and the `param_space` that it needs."""
        return self.fresh(metric=None, mode=None), {"settings": {}}

    def expected_trials(self, budget: int) -> int:
        """How many trials a search with `budget` makes."""
        return budget

    def evaluate(self) -> Evaluator:
        return load_reference(self.evaluator)

    def run(self, searcher: Searcher, evaluate: Evaluator | None = None, **options: Any) -> Configs:
        """Runs a search through `drive`, to its end. Returns its suggestions in order."""
        return self.suggestions(searcher, evaluate, **options).configs

    def suggestions(self, searcher: Searcher, evaluate: Evaluator | None = None, **options: Any) -> Suggestions:
        """As `run`, with the trials in flight when it stopped."""
        with recorded(searcher) as suggestions:
            drive(searcher, evaluate or self.evaluate(), **{**self._limit(self.budget), **options})
        return suggestions

    def _limit(self, trials: int) -> dict[str, Any]:
        """The option of `drive` that stops a searcher which never finishes."""
        return {"max_trials": trials} if "test_finishes" in self.lacks else {}

    def fresh(self, **changes: Any) -> Searcher:
        return self.make(**{"seed": 0, "budget": self.budget, "metric": "score", "mode": "max", **changes})

    def undisturbed(self, concurrency: int = 1) -> Configs:
        """The suggestions of an undisturbed search."""
        if concurrency not in self._undisturbed:
            self._undisturbed[concurrency] = self.run(self.fresh(), concurrency=concurrency)
        return self._undisturbed[concurrency]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._undisturbed = {}
        for name, reason in vars(cls).get("lacks", {}).items():
            if not name.startswith("test_") or not hasattr(cls, name):
                raise TypeError(f"{cls.__name__}.lacks: the conformance suite has no test {name!r}")
            setattr(cls, name, _expected_to_fail(getattr(cls, name), reason))

    def result(self, config: Mapping[str, Any], iteration: int) -> dict[str, Any]:
        """A result in the form in which Tune passes it on."""
        entries = entries_of(self.evaluate()(dict(config)))
        return {**entries, "training_iteration": iteration, "done": False, "trial_id": "of Tune"}


class SearcherConformance(ConformanceSuite):
    """Subclass it in a test file and define `make`; pytest collects the rest."""

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
        if searcher.set_max_concurrency(3):  # it keeps the limit, instead of ConcurrencyLimiter
            assert sum(isinstance(config, dict) for config in configs) >= 1
            assert not isinstance(searcher.suggest("one too many"), dict)

    def test_finishes(self) -> None:
        for concurrency in CONCURRENCIES:
            searcher = self.fresh()
            assert len(self.run(searcher, concurrency=concurrency)) == self.expected_trials(self.budget)
            late: list[Any] = [searcher.suggest("late"), searcher.suggest("later")]
            assert late == [Searcher.FINISHED] * 2

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
        assert config == Searcher.FINISHED or "test_finishes" in self.lacks

    def test_retried_trials(self) -> None:
        """A trial that is restored reports iterations again; Tune does not announce it."""
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
        """Tune runs an errored trial again, with `restart_errored` under a new id, and its result replaces the error.

        Other trials may have been suggested after the failure.
        """
        for trial_id, gone_on in (("a", False), ("a", True), ("another id", True)):
            searcher: Any = self.fresh()
            searcher.set_max_concurrency(1)
            repaired: Any = searcher.suggest("a")
            searcher.on_trial_complete(trial_id="a", error=True)
            if gone_on and isinstance(following := searcher.suggest("b"), dict):
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
            assert taken is False, "Tune itself refuses domains only if set_search_properties returns False"

    # State

    def test_saved_in_the_middle_and_restored(self, tmp_path: Path) -> None:
        for concurrency in CONCURRENCIES:
            self.check_saved_in_the_middle(tmp_path, concurrency)

    def test_saved_in_the_middle_of_another_order(self, tmp_path: Path) -> None:
        self.check_saved_in_the_middle(tmp_path, concurrency=3, completion_seed=1)

    def check_saved_in_the_middle(self, folder: Path, concurrency: int, completion_seed: int | None = None) -> None:
        options: dict[str, Any] = {"concurrency": concurrency, "completion_seed": completion_seed}
        for cut in (self.budget // 2, self.budget - 1):
            begun = self.fresh()
            before = self.suggestions(begun, max_trials=cut, **options)
            begun.save(str(folder / "state"))
            continued = self.fresh()
            continued.restore(str(folder / "state"))
            after = self.run(continued, in_flight=before.in_flight, **options, **self._limit(self.budget - cut))
            assert before.configs + after == self.undisturbed(concurrency)

    def test_restored_searcher_knows_its_trials_in_flight(self, tmp_path: Path) -> None:
        """A restored Tuner continues them under their old ids."""
        begun = self.fresh()
        begun.set_max_concurrency(2)
        with recorded(begun) as before:
            for trial in ("a", "b"):
                begun.suggest(trial)
        begun.save(str(tmp_path / "state"))
        continued = self.fresh()
        continued.restore(str(tmp_path / "state"))
        for trial, config in reversed(before.in_flight.items()):
            continued.on_trial_complete(trial_id=trial, result=self.result(config, 1))
        rest = self._limit(self.budget - len(before.configs))
        assert before.configs + self.run(continued, concurrency=2, **rest) == self.undisturbed(2)

    def test_a_fresh_searcher_pickles(self) -> None:
        """Tune pickles the searcher when the Tuner is created."""
        copy = ray.cloudpickle.loads(ray.cloudpickle.dumps(self.fresh()))
        assert self.run(copy) == self.undisturbed()

    def test_replayed_from_an_earlier_state(self, tmp_path: Path) -> None:
        """With the later events, a state saved in the middle becomes the state at which the driver was killed."""
        searcher = self.fresh()
        if not isinstance(searcher, ArchraySearcher):
            return  # `replay` is for archray's searchers
        options: dict[str, Any] = {"concurrency": 2, "completion_seed": 1}
        with recorded(searcher) as suggestions:
            drive(searcher, self.evaluate(), max_trials=max(1, self.budget // 2), **options)
            searcher.save(str(tmp_path / "state"))
            before = len(suggestions.events)
            drive(searcher, self.evaluate(), max_trials=self.budget // 4 + 1, **options)
        restored: Any = self.fresh()
        restored.restore(str(tmp_path / "state"))
        replay(restored, suggestions.events[before - 1 :])  # with one event that is in the state already
        assert restored.get_state() == searcher.get_state()
