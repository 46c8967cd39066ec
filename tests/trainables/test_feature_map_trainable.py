"""The trainable of feature-map selection: results, steps, failures, classifiers, and one Tune run."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from archray.errors import InvalidArchitecture, InvalidInput
from archray.trainables.checkpoint import read_state, write_state
from archray.trainables.data import DataSettings, load_images, load_text
from archray.trainables.feature_maps.classifier import load_classifier
from archray.trainables.feature_maps.solve_settings import SolveSettings
from archray.trainables.spaces import get_space
from archray.trainables.tune.feature_map_trainable import FeatureMapTrainable, check_memory

KEYS = {
    "scores", "score", "points", "weights", "dimension", "resource", "candidates_left", "solver_calls", "seconds",
    "seconds_featurize", "seconds_solve", "seconds_score", "validation_accuracy", "validation_loss", "test_accuracy",
    "test_loss", "failure", "done", "leader", "leader_points", "leader_validation_error", "leader_test_error",
    "leader_validation_clipped", "leader_test_clipped", "train_points", "test_points", "loss_bound", "weight_norm",
}  # fmt: skip
STANDALONE = ("validation_accuracy", "validation_loss", "test_accuracy", "test_loss")
GOOD = "kernel=gaussian|preprocess=none|gamma=0.005"
TEXT = "tokens=words|stop_words=keep|case=lower|order=2|counts=binary|weights=sif|scale=normalize|alpha=0.01"
DIGITS = {"name": "digits", "limit": 150}
TEXT_SETTINGS = {"space": "ngrams", "data": {"name": "docstrings:numpy,torch", "limit": 60}, "dimension": 512}


def sample(count: int, space: str = "fourier") -> list[str]:
    found, rng = get_space(space), np.random.default_rng(0)
    return [found.encode(found.canonical(found.sample(rng))) for _ in range(count)]


def shared(candidates: list[str] | None = None, solve: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """Returns a config as a searcher suggests it."""
    settings = {"data": DIGITS, "dimension": 80, "solve": solve or {}}
    round_keys = {"round": 1, "replica": 0, "warm_start": None, "seed": 3, "budget": 60}
    return {"settings": settings, "candidates": candidates or sample(6), **round_keys, **keys}


def standalone(architecture: str = GOOD, rungs: tuple[int, ...] = (), **keys: Any) -> dict[str, Any]:
    return {"settings": {"data": DIGITS, "dimension": 80, "rungs": rungs}, "architecture": architecture, **keys}


def comparable(result: dict[str, Any]) -> dict[str, str]:
    """Returns the result without wall-clock time and with NaN made equal to itself."""
    return {key: repr(value) for key, value in result.items() if not key.startswith("seconds")}


# Shared solves


def test_a_shared_solve_reports_a_score_per_candidate() -> None:
    result = FeatureMapTrainable(shared()).step()
    assert result.keys() == KEYS
    assert len(result["scores"]) == len(result["points"]) == result["candidates_left"] == 6
    assert result["score"] == pytest.approx(np.mean(result["scores"]))
    assert (result["dimension"], result["solver_calls"], result["done"], result["failure"]) == (60, 1, True, None)
    assert result["weights"] is None
    assert all(math.isnan(result[key]) for key in STANDALONE)
    parts = (result[f"seconds_{part}"] for part in ("featurize", "solve", "score"))
    assert result["seconds"] == pytest.approx(sum(parts)) and result["seconds"] > 0
    json.dumps(result)


def test_scores_are_losses_or_accuracies_in_the_order_of_the_candidates() -> None:
    candidates = sample(6)
    losses = FeatureMapTrainable(shared(candidates, {"validation": "all"})).step()["scores"]
    accuracies = FeatureMapTrainable(shared(candidates, {"validation": "all", "score": "accuracy"})).step()["scores"]
    assert all(0 <= accuracy <= 1 for accuracy in accuracies)
    assert np.argmin(losses) == np.argmax(accuracies)
    good = [*sample(3), GOOD]
    assert int(np.argmin(FeatureMapTrainable(shared(good, {"validation": "all"})).step()["scores"])) == 3


def test_one_candidate_is_the_standalone_solve_of_its_map() -> None:
    one = FeatureMapTrainable(shared([GOOD])).step()
    same = FeatureMapTrainable(standalone(rungs=(60,), seed=3)).step()
    assert comparable(one) == comparable(same) | {"resource": "0"}
    assert one["validation_accuracy"] > 0.7 and one["test_accuracy"] > 0.7
    assert one["scores"] == [one["validation_loss"]]


def test_ngram_maps_can_be_solved() -> None:
    config = {"settings": TEXT_SETTINGS, "candidates": [*sample(4, "ngrams"), TEXT], "seed": 0}
    result = FeatureMapTrainable(config).step()
    assert result.keys() == KEYS and all(map(math.isfinite, result["scores"]))
    one = FeatureMapTrainable({"settings": TEXT_SETTINGS, "architecture": TEXT}).step()
    assert one["validation_accuracy"] > 0.6 and math.isfinite(one["test_loss"])


# Steps of increasing dimension


def test_a_step_is_a_rung() -> None:
    trial = FeatureMapTrainable(standalone(rungs=(20, 40, 90), seed=1))
    results = [trial.step() for _ in range(3)]
    assert [result["dimension"] for result in results] == [20, 40, 90]
    assert [result["resource"] for result in results] == [1, 2, 4]
    assert [result["solver_calls"] for result in results] == [1, 2, 3]
    assert [result["done"] for result in results] == [False, False, True]
    for key in ("seconds", "seconds_featurize", "seconds_solve", "seconds_score"):
        assert 0 < results[0][key] < results[1][key] < results[2][key]
    assert all(math.isfinite(result["test_accuracy"]) for result in results)
    late = FeatureMapTrainable(standalone(rungs=(20, 40, 90), seed=1, first_rung=2)).step()
    assert (late["dimension"], late["resource"], late["done"], late["solver_calls"]) == (90, 4, True, 1)
    assert late["scores"] == results[2]["scores"]


def test_the_test_points_may_be_left_out() -> None:
    config = standalone()
    config["settings"]["evaluate_test"] = False
    result = FeatureMapTrainable(config).step()
    assert math.isnan(result["test_accuracy"]) and math.isnan(result["test_loss"])
    assert math.isfinite(result["validation_loss"])


# Checkpoints


def test_seconds_are_counted_from_the_first_step(tmp_path: Path) -> None:
    trial = FeatureMapTrainable(standalone(rungs=(20, 40, 90), seed=1))
    before = trial.step()
    trial.save_checkpoint(str(tmp_path))
    restored = FeatureMapTrainable(standalone(rungs=(20, 40, 90), seed=1))
    restored.load_checkpoint(str(tmp_path))
    assert restored.step()["seconds"] > before["seconds"]


def test_a_trial_restored_after_its_last_step_has_its_classifier(tmp_path: Path) -> None:
    trial = FeatureMapTrainable(standalone())
    trial.step()
    trial.save_checkpoint(str(tmp_path))
    restored = FeatureMapTrainable(standalone())
    restored.load_checkpoint(str(tmp_path))
    restored.save_checkpoint(str(tmp_path))
    assert load_classifier(tmp_path)


@pytest.mark.parametrize("bases", ["shared", "independent"])
def test_a_classifier_loads_and_predicts(bases: str, tmp_path: Path) -> None:
    trial = FeatureMapTrainable(shared([GOOD], {"bases": bases}))
    result = trial.step()
    trial.save_checkpoint(str(tmp_path))
    state = read_state(tmp_path)
    assert state["architecture"] == GOOD and state["result"]["dimension"] == 60
    classifier = load_classifier(tmp_path)
    test = load_images(DataSettings(**DIGITS)).test
    values = classifier(test.images)
    assert values.shape == (len(test), 10)
    accuracy = float((classifier.predict(test.images) == test.labels).double().mean())
    assert accuracy == pytest.approx(result["test_accuracy"])
    state["classifier"]["probe"] += 1
    write_state(tmp_path, state)
    with pytest.raises(InvalidInput, match="got another one"):
        load_classifier(tmp_path)


def test_a_classifier_of_texts_loads_and_predicts(tmp_path: Path) -> None:
    for weights in ("sif", "naive-bayes"):
        trial = FeatureMapTrainable({"settings": TEXT_SETTINGS, "architecture": TEXT.replace("sif", weights)})
        result = trial.step()
        trial.save_checkpoint(str(tmp_path))
        test = load_text(DataSettings(**TEXT_SETTINGS["data"])).test
        accuracy = float((load_classifier(tmp_path).predict(test.texts).numpy() == test.labels).mean())
        assert accuracy == pytest.approx(result["test_accuracy"])


def test_a_shared_solve_leaves_no_classifier(tmp_path: Path) -> None:
    trial = FeatureMapTrainable(shared())
    trial.step()
    trial.save_checkpoint(str(tmp_path))
    with pytest.raises(InvalidInput, match="got none, as its solve was for several maps"):
        load_classifier(tmp_path)


# Failures and bad input


HUGE = """
import torch
from archray.trainables.data import Dataset, Split

def make(settings):
    part = Split(torch.full((40, 1, 4, 4), 3e38), torch.arange(40) % 2)
    return Dataset("huge", part, part, part, 2, 1, 4)
"""


def test_nonfinite_numbers_are_a_failed_result(tmp_path: Path) -> None:
    """The inputs are so large that their projections overflow."""
    (tmp_path / "huge.py").write_text(HUGE)
    config = {
        "settings": {"data": {"name": f"{tmp_path / 'huge.py'}:make"}, "dimension": 20},
        "architecture": "kernel=laplace|preprocess=none|gamma=10",
    }
    trial = FeatureMapTrainable(config)
    result = trial.step()
    assert result.keys() == KEYS
    assert result["done"] and "Cholesky" in result["failure"]
    assert all(map(math.isnan, result["scores"])) and math.isnan(result["score"]) and math.isnan(result["seconds"])
    (tmp_path / "checkpoint").mkdir()
    trial.save_checkpoint(str(tmp_path / "checkpoint"))
    with pytest.raises(InvalidInput, match=r"its solve failed: .*Cholesky"):
        load_classifier(tmp_path / "checkpoint")
    restored = FeatureMapTrainable(config)
    restored.load_checkpoint(str(tmp_path / "checkpoint"))
    assert repr(restored.step()) == repr(result)


LIMITED_MEMORY = """
import math, resource, sys
from archray.trainables.tune.feature_map_trainable import FeatureMapTrainable
settings = {"dimension": 100, "data": {"name": "digits", "limit": 100}, "threads": 1, "solve": {"memory_gib": 1000.0}}
candidates = ["kernel=gaussian|preprocess=none|gamma=0.005"]
config = {"settings": settings, "candidates": candidates, "budget": 100}
assert FeatureMapTrainable(config).step()["failure"] is None
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
result = FeatureMapTrainable({**config, "budget": 20_000_000}).step()
print(result["done"], math.isnan(result["score"]), result["failure"])
"""


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_running_out_of_memory_is_a_failed_result() -> None:
    round_keys = subprocess.run(
        [sys.executable, "-c", LIMITED_MEMORY], capture_output=True, text=True, check=True
    ).stdout
    assert round_keys.startswith("True True out of memory: ")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (shared(["kernel=cubic|preprocess=none|gamma=1"]), "cubic"),
        (shared([GOOD, "nonsense"]), "expected kernel"),
        ({**shared(), "candidates": []}, "or more as `candidates`"),
        ({**shared(), "candidates": "nonsense"}, "strings of the space"),
        (shared(budget=0), "an integer of 1 or more as `budget` in the config, got 0"),
        (shared(budget=64.0), "an integer of 1 or more as `budget`"),
        (shared(seed=-1), "`seed`"),
        (standalone("kernel=gaussian|preprocess=none|gamma=100"), "gamma"),
        (standalone(rungs=(10, 20), first_rung=2), "below 2, the number of rungs"),
        ({"settings": {}}, "expected `candidates` or `architecture`"),
        ({"settings": {"solver": 1}, "architecture": GOOD}, "solver"),
        ({"settings": {"solve": {"lam": 0}}, "architecture": GOOD}, "lam"),
        ({"settings": {"rungs": [20, 10]}, "architecture": GOOD}, "increasing"),
        ({"settings": {"space": "nasbench201"}, "architecture": GOOD}, "space of feature maps, got 'nasbench201'"),
        ({"settings": {"space": "ngrams"}, "architecture": TEXT}, "expected text for the space ngrams"),
        ({"settings": {"data": TEXT_SETTINGS["data"]}, "architecture": GOOD}, "expected images for the space fourier"),
        ({"settings": {**TEXT_SETTINGS, "data": {"name": "docstrings", "limit": 60}},
          "architecture": TEXT.replace("sif", "naive-bayes")}, "two classes"),
        (shared(solve={"memory_gib": 1e-4}), r"150 points .*60 features.*, got 0.0001"),
    ],
)  # fmt: skip
def test_bad_input_raises_before_any_solve(config: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        FeatureMapTrainable(config).step()


def test_an_unknown_map_is_an_invalid_architecture() -> None:
    with pytest.raises(InvalidArchitecture):
        FeatureMapTrainable(standalone("kernel=cubic|preprocess=none|gamma=1"))


def test_memory_is_checked_without_a_trial() -> None:
    data = DataSettings(name="digits")
    check_memory(SolveSettings(), data=data, space="fourier", dimension=10**5)  # the 1,078 x 1,078 side
    with pytest.raises(InvalidInput, match=r"1,078 points and 5,000 features, with all features at once"):
        check_memory(SolveSettings(loss="svm", memory_gib=0.05), data=data, space="fourier", dimension=5000)
    with pytest.raises(InvalidInput, match=r"Gram matrix of 1,078 x 1,078, got 0\.005"):
        check_memory(SolveSettings(memory_gib=0.005), data=data, space="fourier", dimension=5000)
    words = DataSettings(**TEXT_SETTINGS["data"])
    check_memory(SolveSettings(memory_gib=0.1), data=words, space="ngrams", dimension=2**20)
    with pytest.raises(InvalidInput, match="weights of"):
        check_memory(SolveSettings(memory_gib=0.1), data=words, space="ngrams", dimension=2**24)
    with pytest.raises(InvalidInput, match="space of feature maps"):
        check_memory(SolveSettings(), data=data, space="nasbench201", dimension=10)


# Tune


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_a_run_of_tune_with_reused_actors(tmp_path: Path) -> None:
    from ray import tune

    settings = {"data": DIGITS, "dimension": 40, "threads": 1}
    candidates = [sample(4), sample(2), [GOOD]]
    results = tune.Tuner(
        FeatureMapTrainable,
        param_space={"settings": settings, "candidates": tune.grid_search(candidates), "seed": 1},
        tune_config=tune.TuneConfig(max_concurrent_trials=1, reuse_actors=True),
        run_config=tune.RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    ).fit()
    assert not results.errors and len(results) == 3
    for result in results:
        expected = FeatureMapTrainable({**result.config}).step()
        np.testing.assert_allclose(result.metrics["scores"], expected["scores"], rtol=1e-6)
    (final,) = (result for result in results if len(result.config["candidates"]) == 1)
    classifier = load_classifier(final.checkpoint.path)
    images = load_images(DataSettings(**DIGITS)).validation
    accuracy = float((classifier.predict(images.images) == images.labels).double().mean())
    assert accuracy == pytest.approx(final.metrics["validation_accuracy"])
