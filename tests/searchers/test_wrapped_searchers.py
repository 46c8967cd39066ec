"""archray's searchers inside Tune's wrappers: ConcurrencyLimiter, Repeater, schedulers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import ray
from packaging.version import Version
from ray import tune
from ray.tune.schedulers import ASHAScheduler, HyperBandScheduler, MedianStoppingRule, TrialScheduler
from ray.tune.search import ConcurrencyLimiter, Repeater, Searcher
from ray.tune.search.repeater import TRIAL_INDEX

from archray.searchers import LocalSearch, MetricFirst, RandomSearch, RegularizedEvolution, ReinforceSearch, drive
from archray.searchers.testing import ConformanceTrainable, hashed_score

DOMAINS = {"width": tune.choice(list(range(8))), "depth": tune.randint(1, 9)}
ARGUMENTS: dict[str, Any] = {"budget": 6, "metric": "score", "mode": "max"}

Make = Callable[[], Any]


@pytest.fixture(params=["random", "evolution", "local", "reinforce", "metric first"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    pool = tmp_path / "pool.csv"
    pd.DataFrame({"architecture": list("abcdefgh"), "m": range(8)}).to_csv(pool, index=False)
    makers: dict[str, Make] = {
        "random": lambda: RandomSearch(DOMAINS, **ARGUMENTS),
        "evolution": lambda: RegularizedEvolution(DOMAINS, population=3, sample_size=2, **ARGUMENTS),
        "local": lambda: LocalSearch(DOMAINS, initial=2, **ARGUMENTS),
        "reinforce": lambda: ReinforceSearch(DOMAINS, learning_rate=0.3, **ARGUMENTS),
        "metric first": lambda: MetricFirst(pool, "m", **ARGUMENTS),
    }
    return makers[request.param]


def random_value(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in (TRIAL_INDEX, "conformance")}


def test_a_limiter_passes_its_limit_on(make: Make) -> None:
    """Within it, the search equals one with as many trials at a time."""
    searcher = make()
    limiter = ConcurrencyLimiter(searcher, max_concurrent=2)
    configs: list[dict[str, Any]] = []
    running: list[str] = []
    while True:
        config: Any = limiter.suggest(f"t{len(configs)}")
        if isinstance(config, dict):
            running.append(f"t{len(configs)}")
            configs.append(config)
            assert len(running) <= 2
        elif running:
            trial = running.pop(0)
            limiter.on_trial_complete(trial, {"score": hashed_score(configs[int(trial[1:])])})
        else:
            break
    assert config == Searcher.FINISHED
    alone = drive(make(), hashed_score, concurrency=2)
    assert configs == alone[list(configs[0])].to_dict("records")


@pytest.mark.skipif(
    Version(ray.__version__) < Version("2.60"), reason="Ray's Repeater fails on a searcher that ends before Ray 2.60"
)
def test_a_repeater_reports_the_mean(make: Make) -> None:
    """Each config runs several times, and the search equals one with single trials whose value is the mean."""
    searcher, noise = make(), (-0.1, 0.2, 0.2)
    repeater = Repeater(searcher, repeat=3)
    assert repeater.set_search_properties("score", "max", {})
    configs: list[dict[str, Any]] = []
    while isinstance(config := repeater.suggest(f"t{len(configs)}"), dict):
        configs.append(config)
        if len(configs) % 3 == 0:  # three run in parallel; the last ends first
            for number in (len(configs) - 1, len(configs) - 3, len(configs) - 2):
                value = hashed_score(random_value(configs[number])) + noise[configs[number][TRIAL_INDEX]]
                repeater.on_trial_complete(f"t{number}", result={"score": value})
    assert config == Searcher.FINISHED and len(configs) == 18
    assert [config[TRIAL_INDEX] for config in configs] == [0, 1, 2] * 6
    alone = drive(make(), lambda config: hashed_score(config) + 0.1)
    assert [random_value(config) for config in configs[::3]] == alone[list(random_value(configs[0]))].to_dict("records")
    assert searcher.history()["value"].to_numpy() == pytest.approx(alone["value"].to_numpy())


def test_a_repeater_ignores_a_failed_repeat(make: Make) -> None:
    """Tune's rule: the mean of the repeats with a value. Without any it is NaN, and the trial has failed."""
    searcher = make()
    repeater = Repeater(searcher, repeat=2, set_index=False)
    repeater.set_search_properties("score", "max", {})
    for trial in ("a", "b"):
        repeater.suggest(trial)
    repeater.on_trial_complete("a", result={"score": 0.25})
    repeater.on_trial_complete("b", result=None)
    assert searcher.history()["value"].tolist() == [0.25]


def fit(folder: Path, searcher: Searcher, scheduler: TrialScheduler | None = None, trials: int = -1) -> tune.ResultGrid:
    return tune.Tuner(
        tune.with_resources(ConformanceTrainable, {"cpu": 0.5}),
        param_space={"conformance": {"evaluator": "archray.searchers.testing:hashed_score", "meeting": None}},
        tune_config=tune.TuneConfig(
            metric="score",
            mode="max",
            search_alg=searcher,
            scheduler=scheduler,
            num_samples=trials,
            reuse_actors=scheduler is None,
        ),
        run_config=tune.RunConfig(name="run", storage_path=str(folder), verbose=0),
    ).fit()


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_a_tuner_with_a_limiter(make: Make, tmp_path: Path) -> None:
    results = fit(tmp_path, ConcurrencyLimiter(make(), max_concurrent=2))
    assert results.num_errors == 0 and len(results) == 6


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.usefixtures("ray_session")
def test_a_tuner_with_a_repeater(tmp_path: Path) -> None:
    """A limit around both counts every repeat."""
    searcher = RegularizedEvolution(DOMAINS, population=2, sample_size=2, **{**ARGUMENTS, "budget": 3})
    results = fit(tmp_path, ConcurrencyLimiter(Repeater(searcher, repeat=2), max_concurrent=2))
    assert results.num_errors == 0 and len(results) == 6
    assert searcher.history()["value"].notna().all() and len(searcher.history()) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize(
    "scheduler", [pytest.param(ASHAScheduler, marks=pytest.mark.ci), HyperBandScheduler, MedianStoppingRule]
)
def test_a_tuner_with_a_scheduler(scheduler: Any, tmp_path: Path) -> None:
    """Stopped trials have the last value that they reported."""
    searcher = LocalSearch(DOMAINS, initial=2, max_concurrent=6, **ARGUMENTS)
    options = {} if scheduler is MedianStoppingRule else {"max_t": 2}
    results = fit(tmp_path, searcher, scheduler(**options))
    assert results.num_errors == 0 and len(results) == 6
    assert searcher.history()["value"].notna().all()
