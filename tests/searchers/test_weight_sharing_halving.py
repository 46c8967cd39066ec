"""WeightSharingHalving: Algorithm 1 round by round, lost trials, bad input, state, and the conformance suite."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any, ClassVar

import archray_test_halving as synthetic
import numpy as np
import pytest
from ray import tune

from archray.errors import InvalidInput
from archray.searchers import WeightSharingHalving, drive
from archray.searchers.ledger import SearcherStateError
from archray.searchers.testing import ConformanceSuite, SearcherConformance, TunerConformance

NAMES = [f"c{number}" for number in range(8)]
QUALITY = {name: number / 10 for number, name in enumerate(reversed(NAMES))}  # c7 has the lowest


def search(candidates: list[Any] | None = None, **arguments: Any) -> WeightSharingHalving:
    return WeightSharingHalving(candidates or NAMES, **{"metric": "score", "mode": "min", **arguments})


def solve(config: dict[str, Any]) -> dict[str, Any]:
    """Scores without noise: the candidate's quality."""
    scores = [QUALITY[name] for name in config["candidates"]]
    return {"scores": scores, "score": float(np.mean(scores))}


NO_POINTS = {"test_points_to_evaluate": "its first trials train on all candidates"}


class HalvingSuite(ConformanceSuite):
    evaluator = "archray_test_halving:shared_solve"
    arguments: ClassVar[dict[str, Any]] = {}

    def make(self, *, budget: int = 0, **arguments: Any) -> WeightSharingHalving:
        return WeightSharingHalving(synthetic.CANDIDATES, **self.arguments, **arguments)


class TwoReplicas(HalvingSuite):
    budget = 7  # 8 candidates, 3 rounds of 2, and the standalone trial
    arguments: ClassVar = {"replicas": 2, "budget": 100, "growth": math.sqrt(2)}


class TestTwoReplicas(TwoReplicas, SearcherConformance):
    lacks: ClassVar = NO_POINTS


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
class TestInATuner(TwoReplicas, TunerConformance):
    pass


class TestOneReplica(HalvingSuite, SearcherConformance):
    lacks: ClassVar = NO_POINTS
    budget = 4


class TestThreeReplicasThatKeepMost(HalvingSuite, SearcherConformance):
    lacks: ClassVar = NO_POINTS
    budget = 19  # of 8, 6, 5, 4, 3 and 2 candidates 3 each, and the standalone trial
    arguments: ClassVar = {"replicas": 3, "keep": 0.7}


# Algorithm 1


def test_256_candidates_take_nine_solves() -> None:
    names = [f"m{number}" for number in range(256)]
    searcher = search(names, budget=1000, growth=math.sqrt(2))

    def evaluate(config: dict[str, Any]) -> dict[str, Any]:
        scores = [float(name[1:]) for name in config["candidates"]]
        return {"scores": scores, "score": float(np.mean(scores))}

    trials = drive(searcher, evaluate)
    assert searcher.expected_trials == len(trials) == 9
    assert trials["round"].tolist() == list(range(1, 10))
    assert trials["candidates"].map(len).tolist() == [256, 128, 64, 32, 16, 8, 4, 2, 1]
    assert trials["budget"].tolist() == [89, 125, 177, 250, 354, 500, 708, 1000, 1000]
    assert trials["seed"].is_unique
    assert searcher.best() == {"candidate": "m0", "value": 0.0, "number": 9, "round": 9}


@pytest.mark.parametrize(("mode", "winner"), [("min", "c7"), ("max", "c0")])
def test_the_best_scores_are_kept(mode: str, winner: str) -> None:
    searcher = search(mode=mode)
    trials = drive(searcher, solve)
    assert trials["candidates"].iloc[-1] == [winner]
    rounds = searcher.rounds()
    assert rounds.groupby("round")["kept"].sum().tolist() == [4, 2, 1, 1]
    assert rounds["failure"].isna().all()
    kept = rounds[rounds["kept"] & (rounds["round"] == 1)]["candidate"].tolist()
    assert kept == (NAMES[4:] if mode == "min" else NAMES[:4])


def test_scores_are_averaged_over_the_replicas() -> None:
    """The first replica prefers a, the others slightly prefer b, and the mean prefers a."""
    noise = [{"a": 0.0, "b": 1.0}, {"a": 0.4, "b": 0.1}, {"a": 0.4, "b": 0.1}]

    def evaluate(config: dict[str, Any]) -> dict[str, Any]:
        scores = [noise[config["replica"]][name] for name in config["candidates"]]
        return {"scores": scores, "score": float(np.mean(scores))}

    searcher = search(["a", "b"], replicas=3)
    drive(searcher, evaluate, concurrency=3)
    assert searcher.rounds()["score"].round(6).tolist() == [0.266667, 0.4, 0.0]
    assert searcher.rounds()["replicas"].tolist() == [3, 3, 1]
    assert searcher.best()["candidate"] == "a"


def test_the_best_is_that_of_the_latest_finished_round() -> None:
    searcher = search()
    assert searcher.best() is None
    drive(searcher, solve, max_trials=2)
    best = searcher.best()
    assert (best["round"], best["number"], best["candidate"]) == (2, 2, "c7")


def test_candidates_are_opaque() -> None:
    candidates: list[Any] = [{"b": [1, {"c": None}], "a": 0.5}, ["x"], 7, "seven", ("t", 1)]

    def evaluate(config: dict[str, Any]) -> dict[str, Any]:
        scores = np.array([float(len(str(candidate))) for candidate in config["candidates"]], dtype=np.float32)
        return {"scores": scores, "score": scores.mean()}

    searcher = search(candidates)
    trials = drive(searcher, evaluate)
    assert trials["candidates"].iloc[0] == [*candidates[:4], ["t", 1]]
    assert trials["candidates"].iloc[-1] == [7]
    assert '{"b": [1, {"c": null}], "a": 0.5}' in searcher.rounds()["candidate"].tolist()


def test_weights_of_the_round_before_are_passed_on() -> None:
    """Each replica receives its weights, or those of the first replica that stored any."""

    def evaluate(config: dict[str, Any]) -> dict[str, Any]:
        if (config["round"], config["replica"]) == (1, 0):
            raise RuntimeError("lost")
        stored = None if (config["round"], config["replica"]) == (2, 0) else f"{config['round']}/{config['replica']}"
        return {**solve(config), "weights": stored}

    trials = drive(search(replicas=3), evaluate, concurrency=3)
    expected = [None, None, None, "1/1", "1/1", "1/2", "2/1", "2/1", "2/2", "3/0"]
    assert [start if isinstance(start, str) else None for start in trials["warm_start"]] == expected


# Concurrency


@pytest.mark.parametrize(("concurrency", "at_once"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_no_more_than_one_round_runs_at_a_time(concurrency: int, at_once: int) -> None:
    searcher = search(replicas=3)
    searcher.set_max_concurrency(concurrency)
    number = 0
    for round_number in (1, 2, 3, 4):
        flying: list[tuple[str, dict[str, Any]]] = []
        for _ in range(3 if round_number < 4 else 1):
            while isinstance(config := searcher.suggest(f"t{number}"), dict):
                assert config["round"] == round_number
                flying.append((f"t{number}", config))
                number += 1
            assert len(flying) <= at_once
            trial, config = flying.pop(0)
            searcher.on_trial_complete(trial_id=trial, result=solve(config))
        assert not flying
    assert searcher.suggest("late") == searcher.FINISHED


def test_all_replicas_of_a_round_are_suggested_at_once() -> None:
    searcher = search(replicas=3)
    searcher.set_max_concurrency(3)
    configs: list[Any] = [searcher.suggest(f"t{number}") for number in range(4)]
    assert [config["replica"] for config in configs[:3]] == [0, 1, 2]
    assert len({config["seed"] for config in configs[:3]}) == 3
    assert configs[3] is None


# Losses of trials


def test_a_candidate_without_a_score_is_eliminated(caplog: pytest.LogCaptureFixture) -> None:
    """This includes the best one. If fewer candidates remain than a round would keep, rounds are skipped."""

    def evaluate(config: dict[str, Any]) -> dict[str, Any]:
        result = solve(config)
        if config["round"] == 1:
            result["scores"][2:] = [math.nan] * 6
            result["score"] = math.nan  # as the mean of such scores is
        return result

    searcher = search(budget=100, growth=2.0)
    with caplog.at_level(logging.WARNING):
        trials = drive(searcher, evaluate)
    assert trials["candidates"].tolist() == [NAMES, ["c0", "c1"], ["c1"]]
    assert trials["budget"].tolist() == [25, 100, 100]
    assert "Round 1: eliminated without a finite score: 6 (c2, c3, c4, c5, c6, ...)" in caplog.text
    first = searcher.rounds().query("round == 1")
    assert first["failure"].notna().tolist() == [False] * 2 + [True] * 6
    assert not first["kept"][2:].any()


@pytest.mark.parametrize("loss", ["error", "nan", "failure", "only nan"])
def test_a_round_continues_without_a_lost_replica(loss: str, caplog: pytest.LogCaptureFixture) -> None:
    def evaluate(config: dict[str, Any]) -> dict[str, Any]:
        if (config["round"], config["replica"]) == (2, 1):
            if loss == "error":
                raise RuntimeError("a node left")
            n = len(config["candidates"])
            return {
                "nan": {"score": math.nan, "failure": "a node left"},
                "failure": {"score": 0.1, "scores": [9.0] * n, "failure": "a node left"},
                "only nan": {"score": 0.1, "scores": [math.nan] * n},
            }[loss]
        return solve(config)

    searcher = search(replicas=3)
    with caplog.at_level(logging.WARNING):
        trials = drive(searcher, evaluate, concurrency=3)
    assert len(trials) == 10
    best = searcher.best()
    assert (best["candidate"], best["round"]) == ("c7", 4)
    assert searcher.failure is None
    assert "Round 2: replica 1 is lost" in caplog.text
    assert "2 of 3 are left" in caplog.text
    assert "a node left" in caplog.text or loss in ("error", "only nan")
    assert searcher.rounds().groupby("round")[["replicas", "lost"]].first().to_numpy().tolist() == [
        [3, 0],
        [2, 1],
        [3, 0],
        [1, 0],
    ]


def test_the_search_stops_if_every_replica_is_lost() -> None:
    searcher = search(replicas=2)
    trials = drive(searcher, lambda c: {"score": math.nan, "failure": "singular"} if c["round"] == 2 else solve(c))
    assert len(trials) == 4
    assert searcher.failure == "round 2: no replica reported: singular"
    assert searcher.best()["round"] == 1
    second = searcher.rounds().query("round == 2")
    assert second["score"].isna().all()
    assert not second["kept"].any()
    assert second["failure"].unique().tolist() == ["no replica reported: singular"]


def test_the_search_stops_if_no_candidate_has_a_score() -> None:
    """Each of two replicas scores half of them."""

    def evaluate(config: dict[str, Any]) -> dict[str, Any]:
        half = [math.nan if n % 2 == config["replica"] else 1.0 for n, _ in enumerate(config["candidates"])]
        return {"scores": half, "score": 1.0}

    searcher = search(replicas=2)
    assert len(drive(searcher, evaluate)) == 2
    assert searcher.failure == "round 1: no candidate has a finite score"
    assert searcher.best() is None


def test_a_standalone_trial_that_fails() -> None:
    searcher = search()
    drive(searcher, lambda c: {"score": math.nan, "failure": "singular"} if len(c["candidates"]) == 1 else solve(c))
    assert searcher.failure == "the standalone trial: no replica reported: singular"
    best = searcher.best()
    assert (best["candidate"], best["round"]) == ("c7", 3)


# Bad input


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        (["a", "b", "c", "b"], "got b twice"),
        ([{"x": 1, "y": 2}, {"y": 2, "x": 1}], 'got {"y": 2, "x": 1} twice'),
        ([], "two or more, got none"),
        (["a"], "got only a"),
        ("abc", "got a str"),
        ([1.0, math.nan], "got nan at position 1"),
        ([{"a"}, "b"], "at position 0"),
    ],
)
def test_bad_candidates_raise_an_error(candidates: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        WeightSharingHalving(candidates)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "argument",
    [
        {"replicas": 0},
        {"keep": 1},
        {"keep": 0},
        {"keep": "half"},
        {"budget": 0},
        {"budget": 1.5},
        {"growth": 0.9},
        {"growth": math.inf},
        {"growth": math.nan},
        {"mode": "least"},
    ],
)
def test_bad_arguments_raise_an_error(argument: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"^{next(iter(argument))}: expected"):
        search(**argument)


def test_evaluated_points_raise_an_error() -> None:
    with pytest.raises(InvalidInput, match="no external evaluation"):
        search().add_evaluated_point({"candidates": ["c0"]}, 0.5)


MISREPORTED = [
    ({}, "got no scores"),
    ({"scores": [0.1] * 7}, "got a list of 7"),
    ({"scores": dict.fromkeys(NAMES, 0.1)}, "got a dictionary with 8 entries"),
    ({"scores": 0.3}, "got 0.3"),
    ({"scores": [0.1] * 7 + ["much"]}, "got a list with 'much'"),
    ({"scores": [0.1] * 7 + [None]}, "got a list with None"),
    ({"scores": []}, "got a list of 0"),
]


@pytest.mark.parametrize(("report", "message"), MISREPORTED)
def test_a_trainable_that_reports_no_usable_scores_raises_an_error(report: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        drive(search(replicas=2), lambda config: {"score": 0.5, **report}, concurrency=2)
    assert f"report 'scores', a list of 8 numbers, {message}" in str(raised.value)


def test_weights_must_be_named() -> None:
    with pytest.raises(InvalidInput, match="'weights' as a URI or None, got a list"):
        drive(search(), lambda config: {**solve(config), "weights": np.zeros(3)})


class FinishedTrials(tune.Callback):
    """Collects the trials whose end the driver has noticed; their files reach the storage some time later."""

    def __init__(self) -> None:
        self.trials: list[str] = []

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.trials.append(trial.trial_id)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize(("report", "message"), [MISREPORTED[0], MISREPORTED[2]])
def test_a_tuner_stops_with_that_error(tmp_path: Path, report: dict[str, Any], message: str) -> None:
    """It stops at the first trial and shows the reason to the user."""
    ended = FinishedTrials()
    tuner = tune.Tuner(
        synthetic.Misreporting,
        param_space={"report": report},
        tune_config=tune.TuneConfig(
            metric="score", mode="min", search_alg=WeightSharingHalving(NAMES), num_samples=-1, max_concurrent_trials=2
        ),
        run_config=tune.RunConfig(
            name="run",
            storage_path=str(tmp_path),
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=2),
            callbacks=[ended],
        ),
    )
    with pytest.raises(InvalidInput) as raised:
        tuner.fit()
    assert message in str(raised.value)
    assert len(ended.trials) == 1


# State


@pytest.mark.parametrize("ended_before", [1, 2])
def test_a_search_killed_in_the_middle_of_a_round_resumes(tmp_path: Path, ended_before: int) -> None:
    """Three replicas. The driver is killed when some trials of round 2 have ended, not those suggested first."""
    undisturbed = drive(search(synthetic.CANDIDATES, replicas=3), synthetic.shared_solve, concurrency=3)
    original = search(synthetic.CANDIDATES, replicas=3)
    original.set_max_concurrency(3)
    for trial in range(3):
        original.suggest(f"t{trial}")
    for trial, config in original.in_flight().items():
        original.on_trial_complete(trial_id=trial, result=synthetic.shared_solve(config))
    flying: dict[str, Any] = {f"t{number}": original.suggest(f"t{number}") for number in (3, 4, 5)}
    for trial in ("t5", "t3")[:ended_before]:
        original.on_trial_complete(trial_id=trial, result=synthetic.shared_solve(flying.pop(trial)))
    original.save(str(tmp_path / "state"))

    continued = search(synthetic.CANDIDATES, replicas=3)
    continued.restore(str(tmp_path / "state"))
    assert continued.in_flight() == flying
    assert continued.suggest("too early") is None
    rest = drive(continued, synthetic.shared_solve, concurrency=3)
    assert rest["round"].tolist()[3 - ended_before :] == [3, 3, 3, 4]
    for column in ("round", "candidates", "replica", "budget", "warm_start", "seed"):
        assert rest[column].tolist()[3 - ended_before :] == undisturbed[column].tolist()[6:]
    whole = search(synthetic.CANDIDATES, replicas=3)
    drive(whole, synthetic.shared_solve)
    assert continued.best() == whole.best()
    assert continued.rounds().equals(whole.rounds())


def test_a_state_of_other_candidates_raises_an_error(tmp_path: Path) -> None:
    original = search()
    drive(original, solve, max_trials=1)
    original.save(str(tmp_path / "state"))
    other = search([*NAMES[:7], "another"])
    other.restore(str(tmp_path / "state"))
    with pytest.raises(SearcherStateError, match="candidates was '8 of SHA-256"):
        other.suggest("t")


def test_losses_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    original = search(replicas=2)
    drive(original, lambda c: {"score": math.nan} if c["replica"] else solve(c), max_trials=2)
    original.save(str(tmp_path / "state"))
    assert "Round 1: replica 1 is lost" in caplog.text
    caplog.clear()
    continued = search(replicas=2)
    continued.restore(str(tmp_path / "state"))
    assert continued.rounds()["lost"].eq(1).all()
    assert "lost" not in caplog.text


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.usefixtures("ray_session")
def test_a_tuner_continues_without_a_lost_worker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Tune runs a replica whose process dies in each attempt, and a candidate without a score."""
    searcher = WeightSharingHalving(synthetic.CANDIDATES, replicas=2, seed=0)
    with caplog.at_level(logging.WARNING):
        results = tune.Tuner(
            tune.with_resources(synthetic.Losing, {"cpu": 0.5}),
            tune_config=tune.TuneConfig(
                metric="score", mode="max", search_alg=searcher, num_samples=-1, max_concurrent_trials=2
            ),
            param_space={"settings": {}},
            run_config=tune.RunConfig(
                name="run", storage_path=str(tmp_path), verbose=0, failure_config=tune.FailureConfig(max_failures=1)
            ),
        ).fit()
    assert (len(results), results.num_errors) == (7, 1)
    assert "Round 2: replica 1 is lost" in caplog.text
    second = searcher.rounds().query("round == 2")
    assert second["failure"].notna().tolist() == [True, False, False, False]
    assert second[["replicas", "lost"]].to_numpy().tolist() == [[1, 1]] * 4
    assert searcher.best()["round"] == 4
