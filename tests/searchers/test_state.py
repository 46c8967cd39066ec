"""The state of a searcher: damaged, of another search, and older or newer than Tune's state."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune import RunConfig, TuneConfig, Tuner

from archray.errors import InvalidInput
from archray.searchers import RandomSearch, drive
from archray.searchers.ledger import (
    Ledger,
    SearcherStateError,
    TuneTrial,
    read_metric,
    read_state,
    read_tune_trials,
    write_state,
)
from archray.searchers.testing import ConformanceTrainable, hashed_score

NAMES = [f"a{row}" for row in range(12)]


def search(**arguments: Any) -> RandomSearch:
    return RandomSearch(NAMES, **{"budget": 6, "metric": "score", "mode": "max", "max_concurrent": 2, **arguments})


def test_a_write_is_complete_or_has_no_effect(tmp_path: Path) -> None:
    write_state(tmp_path / "state", {"a": 1})
    with pytest.raises(TypeError):
        write_state(tmp_path / "state", {"a": object()})
    assert read_state(tmp_path / "state")["a"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 99}'])
def test_the_next_suggestion_raises_for_a_damaged_state(tmp_path: Path, content: str) -> None:
    (tmp_path / "state").write_text(content)
    searcher = search()
    searcher.restore(str(tmp_path / "state"))  # an exception here would make Tune start over silently
    for use in (lambda: searcher.suggest("t"), searcher.best, searcher.history):
        with pytest.raises(SearcherStateError, match="state"):
            use()


@pytest.mark.parametrize(
    ("other", "message"),
    [({"seed": 1}, "seed was 0, now 1"), ({"mode": "min"}, "mode was 'max', now 'min'"), ({"metric": "m"}, "metric")],
)
def test_a_state_of_another_search_raises_an_error(tmp_path: Path, other: dict[str, Any], message: str) -> None:
    first = search()
    first.save(str(tmp_path / "state"))
    searcher = search(**other)
    searcher.restore(str(tmp_path / "state"))
    with pytest.raises(SearcherStateError, match=message):
        searcher.suggest("t")


def test_an_older_state_is_used_if_the_newest_is_damaged(tmp_path: Path) -> None:
    original = search()
    original.suggest("a")
    original.save_to_dir(str(tmp_path), "2026-01-01")
    (tmp_path / "searcher-state-2026-01-02.pkl").write_text("{")
    searcher = search()
    searcher.restore_from_dir(str(tmp_path))
    assert list(searcher.in_flight()) == ["a"]


def tune_trial(searcher: RandomSearch, trial_id: str, status: str) -> TuneTrial:
    config = next(r.config for r in searcher.records() if r.trial_id == trial_id)
    result = {"score": hashed_score(config)} if status == "TERMINATED" else {}
    return TuneTrial(trial_id, {"settings": 1, **config}, status, result)


def test_a_state_newer_than_that_of_tune(tmp_path: Path) -> None:
    """A trial that Tune has not stored is suggested again: the same config, under a new id."""
    searcher = search()
    first, second = searcher.suggest("a"), searcher.suggest("b")
    searcher.ledger.reconcile([tune_trial(searcher, "a", "PENDING")], "score")
    assert searcher.suggest("c") == second
    assert searcher.in_flight() == {"a": first, "c": second}
    assert searcher.suggest("d") is None


def test_a_state_older_than_that_of_tune() -> None:
    """Trials that Tune made after the state was saved are adopted instead of run again."""
    ahead = search()
    configs = [ahead.suggest("a"), ahead.suggest("b")]
    trials = [tune_trial(ahead, "a", "TERMINATED"), tune_trial(ahead, "b", "PENDING")]
    searcher = search()
    searcher.ledger.reconcile(trials, "score")
    third = searcher.suggest("c")
    assert [record.config for record in searcher.records()] == [*configs, third]
    assert searcher.records()[0].value == hashed_score(configs[0])
    assert list(searcher.in_flight()) == ["b", "c"]


def test_trials_that_ended_after_the_state_was_saved() -> None:
    searcher = search()
    searcher.suggest("a")
    searcher.suggest("b")
    trials = [tune_trial(searcher, "a", "TERMINATED"), tune_trial(searcher, "b", "ERROR")]
    searcher.ledger.reconcile(trials, "score")
    assert not searcher.in_flight()
    assert [record.failure is None for record in searcher.records()] == [True, False]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.usefixtures("ray_session")
def test_it_reads_the_state_of_tune(tmp_path: Path) -> None:
    evaluator = "archray.searchers.testing:hashed_score"
    results = Tuner(
        ConformanceTrainable,
        param_space={"conformance": {"evaluator": evaluator, "meeting": None}},
        tune_config=TuneConfig(search_alg=search(budget=2), num_samples=-1, max_concurrent_trials=2, reuse_actors=True),
        run_config=RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    ).fit()
    trials = read_tune_trials(tmp_path / "run")
    assert {trial.trial_id for trial in trials} == {result.metrics["trial_id"] for result in results}
    assert read_tune_trials(tmp_path / "run", {trials[0].trial_id}) == trials[1:]
    assert all(trial.ended and not trial.failed and trial.config["architecture"] in NAMES for trial in trials)
    assert all(
        trial.last_result["score"] == hashed_score({"architecture": t["architecture"]})
        for trial in trials
        for t in [trial.config]
    )


def test_no_experiment_state(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_tune_trials(tmp_path) is None
    (tmp_path / "experiment_state-1.json").write_text("{")
    assert read_tune_trials(tmp_path) is None
    assert caplog.text.count("experiment_state-") >= 2, "each is logged"


@pytest.mark.parametrize("state", ['{"trials": []}', '{"trial_data": [["{}", "{}"]]}', '{"trial_data": [7]}'])
def test_the_next_suggestion_raises_for_an_experiment_state_of_another_form(tmp_path: Path, state: str) -> None:
    """A later version of Ray may write such a state. If it raised at once, Tune would start over silently."""
    original = search()
    original.suggest("a")
    original.save_to_dir(str(tmp_path), "1")
    (tmp_path / "experiment_state-1.json").write_text(state)
    searcher = search()
    searcher.restore_from_dir(str(tmp_path))
    with pytest.raises(SearcherStateError, match=r"experiment_state-1.*version of Ray"):
        searcher.suggest("b")


@pytest.mark.usefixtures("ray_session")
@pytest.mark.slow
@pytest.mark.parametrize("how", ["resume_errored", "restart_errored"])
def test_trials_that_tune_repairs(tmp_path: Path, how: str) -> None:
    evaluator = "archray_test_faults:fails_once"
    space = {"conformance": {"evaluator": evaluator, "meeting": None}, "marks": str(tmp_path)}
    Tuner(
        ConformanceTrainable,
        param_space=space,
        tune_config=TuneConfig(search_alg=search(budget=3), num_samples=-1, max_concurrent_trials=2),
        run_config=RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    ).fit()
    failed = search(budget=3)
    failed.restore_from_dir(str(tmp_path / "run"))
    assert [record.value for record in failed.records()] == [None] * 3

    restored = Tuner.restore(str(tmp_path / "run"), ConformanceTrainable, param_space=space, **{how: True}).fit()
    assert restored.num_errors == 0
    repaired = search(budget=3)
    repaired.restore_from_dir(str(tmp_path / "run"))
    values = {record.trial_id: record.value for record in repaired.records()}
    assert values == {result.metrics["trial_id"]: result.metrics["score"] for result in restored}


def test_a_repair_that_only_tune_saved(tmp_path: Path) -> None:
    searcher = search()
    configs = [searcher.suggest("a"), searcher.suggest("b")]
    for trial_id in ("a", "b"):
        searcher.on_trial_complete(trial_id=trial_id, error=True)
    trials = [
        TuneTrial(name, {"settings": 1, **c}, "TERMINATED", {"score": 1.0})
        for name, c in zip("ac", configs, strict=True)
    ]
    searcher.ledger.reconcile(trials, "score")
    assert {record.trial_id: record.value for record in searcher.records()} == {"a": 1.0, "c": 1.0}


def test_drive_stops_at_a_searcher_that_is_stuck() -> None:
    searcher = search(budget=2)
    searcher.suggest("never ended")
    stuck = Ledger()
    stuck.set_state(searcher.get_state()["ledger"])
    frame = drive(searcher, hashed_score, concurrency=1)  # trials in flight are evaluated first
    assert frame["trial_id"][0] == "never ended"
    assert len(frame) == 2


def test_drive_keeps_the_state_on_disk(tmp_path: Path) -> None:
    drive(search(), hashed_score, max_trials=3, state_path=tmp_path / "state")
    continued = search()
    continued.restore(str(tmp_path / "state"))
    drive(continued, hashed_score)
    whole = search()
    drive(whole, hashed_score)
    assert continued.history().drop(columns="trial_id").equals(whole.history().drop(columns="trial_id"))


def test_a_missing_metric_raises_an_error_with_the_code_to_write() -> None:
    for given in ({"metric": None, "mode": None}, {"mode": None}):
        with pytest.raises(InvalidInput, match=r"RandomSearch\(\.\.\., metric='accuracy', mode='max'\).*param_space"):
            search(**given).suggest("t")


def test_a_contradicting_metric_raises_an_error() -> None:
    with pytest.raises(InvalidInput, match="got metric='score' in RandomSearch and 'loss' in TuneConfig"):
        search().set_search_properties("loss", "max", {"settings": 1})


def test_domains_are_named_in_the_error() -> None:
    with pytest.raises(InvalidInput, match="optimizer/lr"):
        search().set_search_properties("score", "max", {"optimizer": {"lr": tune.loguniform(1e-4, 1)}})


def test_only_a_mode_means_tunes_default_metric() -> None:
    searcher = search(metric=None)
    frame = drive(searcher, lambda config: {"_metric": 1.0})
    assert frame["value"].eq(1.0).all()


@pytest.mark.parametrize(
    ("result", "value", "reason"),
    [
        ({"m": 1}, 1.0, None),
        ({"m": math.nan, "failure": "diverged"}, None, "diverged"),
        ({"m": math.inf}, None, "m is inf"),
        ({"m": "0.5"}, None, "not a number"),
        ({"m": None}, None, "not a number"),
        ({"n": 1, "config/x": 2}, None, "has no 'm'; it has n"),
        (None, None, "without a result"),
    ],
)
def test_reading_the_metric(result: dict[str, Any] | None, value: float | None, reason: str | None) -> None:
    found, failure = read_metric(result, "m")
    assert found == value
    assert (failure is None) == (reason is None)
    assert reason is None or reason in str(failure)
