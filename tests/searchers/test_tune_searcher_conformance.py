"""The conformance suite on three of Tune's searchers, which declare the guarantees that they lack."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, ClassVar

import pytest
import ray.cloudpickle
from ray import tune
from ray.tune.search import Searcher
from ray.tune.search.basic_variant import BasicVariantGenerator
from ray.tune.search.variant_generator import parse_spec_vars

from archray import searchers
from archray.searchers.testing import SearcherConformance

DOMAINS = {"width": tune.choice([8, 16, 32]), "depth": tune.randint(1, 9), "lr": tune.loguniform(1e-4, 1)}
RANDOM_FIRST = 3  # of the suggestions of Optuna and HyperOpt, so that the others depend on results
ENDLESS = "it has no budget: Tune's num_samples ends it"
ORDER = "it learns in the order in which trials end"


class VariantSearcher(Searcher):
    """Tune's random search, `BasicVariantGenerator`, as a searcher that suggests configs."""

    def __init__(
        self,
        budget: int,
        seed: int,
        metric: str | None,
        mode: str | None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(metric=metric, mode=mode)
        self.generator = BasicVariantGenerator(points_to_evaluate, random_state=seed)
        self.budget = budget
        self.trial_ids: dict[str, str] = {}
        self.started = False

    def _start(self) -> None:
        experiment = tune.Experiment("e", lambda config: None, config=DOMAINS, num_samples=self.budget)
        self.generator.add_configurations(experiment)
        self.started = True

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        self._metric, self._mode = metric or self._metric, mode or self._mode
        _, domains, grids = parse_spec_vars(config)
        return not domains and not grids  # its space is set

    def suggest(self, trial_id: str) -> Any:
        if not self._metric:
            raise RuntimeError("the metric is not known")
        if not self.started:
            self._start()
        trial = self.generator.next_trial()
        if trial is None:
            return Searcher.FINISHED
        self.trial_ids[trial_id] = trial.trial_id
        return trial.config

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.generator.on_trial_complete(self.trial_ids.get(trial_id, ""))

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).write_bytes(
            ray.cloudpickle.dumps((self.started, self.trial_ids, self.generator.get_state()))
        )

    def restore(self, checkpoint_path: str) -> None:
        self.started, self.trial_ids, state = ray.cloudpickle.loads(Path(checkpoint_path).read_bytes())
        self.generator.set_state(state)


class TestRandomOfTune(SearcherConformance):
    def make(self, **arguments: Any) -> VariantSearcher:
        return VariantSearcher(**arguments)


class OfAnotherPackage(SearcherConformance):
    """A searcher of another package that learns its space, metric and mode from the Tuner."""

    def make_late(self) -> tuple[Searcher, dict[str, Any]]:
        return self.searcher(None, seed=0, metric=None, mode=None), DOMAINS

    def make(
        self, *, seed: int = 0, budget: int = 7, metric: str | None = "score", mode: str | None = "max"
    ) -> Searcher:
        return self.searcher(DOMAINS, seed=seed, metric=metric, mode=mode)

    def searcher(self, space: dict[str, Any] | None, *, seed: int, **options: Any) -> Searcher:
        raise NotImplementedError


@pytest.mark.extra("tune-searchers")
class TestOptuna(OfAnotherPackage):
    lacks: ClassVar[dict[str, str]] = {
        "test_finishes": ENDLESS,
        "test_order_of_completion_changes_nothing": ORDER,
        "test_saved_in_the_middle_of_another_order": ORDER,
        "test_unknown_trial_is_ignored": "it raises KeyError",
        "test_repaired_trials": "it raises KeyError for a trial that Tune restarts under a new id",
    }

    def searcher(self, space: dict[str, Any] | None, *, seed: int, **options: Any) -> Searcher:
        from optuna.samplers import TPESampler
        from ray.tune.search.optuna import OptunaSearch

        return OptunaSearch(space, sampler=TPESampler(n_startup_trials=RANDOM_FIRST, seed=seed), **options)


@pytest.mark.extra("tune-searchers")
class TestHyperOpt(OfAnotherPackage):
    lacks: ClassVar[dict[str, str]] = {
        "test_finishes": ENDLESS,
        "test_order_of_completion_changes_nothing": ORDER,
        "test_saved_in_the_middle_of_another_order": ORDER,
    }

    def searcher(self, space: dict[str, Any] | None, *, seed: int, **options: Any) -> Searcher:
        from ray.tune.search.hyperopt import HyperOptSearch

        return HyperOptSearch(space, n_initial_points=RANDOM_FIRST, random_state_seed=seed, **options)


# The suite itself


def test_a_lacking_guarantee_must_be_one_of_the_suite() -> None:
    with pytest.raises(TypeError, match="got 'test_color'"):
        type("Wrong", (TestRandomOfTune,), {"lacks": {"test_color": "none"}})


def test_a_fulfilled_guarantee_must_not_be_listed() -> None:
    modest = type("Modest", (TestRandomOfTune,), {"lacks": {"test_suggestions_are_json": "a reason"}})
    with pytest.raises(AssertionError, match=r"is listed in lacks \(a reason\)"):
        modest().test_suggestions_are_json()


def test_every_searcher_of_archray_runs_the_suite(repository: Path) -> None:
    """Each has a subclass of the suite whose annotated `make` returns the searcher."""
    files = (repository / "tests" / "searchers").glob("test_*.py")
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    of_tune = [getattr(searchers, name) for name in searchers.__all__]
    classes = [
        c for c in of_tune if inspect.isclass(c) and issubclass(c, Searcher) and c is not searchers.ArchraySearcher
    ]
    assert len(classes) >= 8
    assert [c.__name__ for c in classes if f"**arguments: Any) -> {c.__name__}:" not in text] == []
