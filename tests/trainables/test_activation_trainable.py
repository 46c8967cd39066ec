"""The trainable of activations: its results, restored and in a reused actor, and bad input."""

import math

import pytest

from archray.errors import InvalidInput
from archray.trainables.activations.instances import make_instances
from archray.trainables.activations.settings import ActivationSettings
from archray.trainables.tune import activation_trainable
from archray.trainables.tune.activation_trainable import ActivationTrainable, works

SETTINGS = {
    "activations": ("relu", "tanh", "quadratic"),
    "width": 6,
    "dimension": 3,
    "samples": 16,
    "validation": 16,
    "risk_samples": 50,
    "steps": 12,
    "seeds": 2,
}
CONFIG = {"settings": SETTINGS, "labels": "realizable", "first": 0, "seed": 1}


def run_to_end(trial):
    results = []
    while not results or not results[-1]["done"]:
        results.append(trial.step())
    return results


def plain(results):
    return [{k: repr(v) for k, v in result.items() if not k.startswith("seconds")} for result in results]


def test_the_results_of_a_trial():
    results = run_to_end(ActivationTrainable(CONFIG))
    assert [r["epoch"] for r in results] == list(range(1, len(results) + 1)) and results[0]["epochs"] == len(results)
    search = [r for r in results if r["phase"] == "search"]
    assert search[-1]["search_steps"] == 12 and len(search) == 12
    one, other = [r for r in results if r["phase"] == "instance"]
    assert (one["number"], other["number"]) == (0, 1)
    for outcome in (one, other):
        assert sum(outcome[f"alpha_{name}"] for name in SETTINGS["activations"]) == pytest.approx(1.0)
        assert outcome["best_risk"] <= outcome["mixture_risk"] + 1e-12
        assert not any(math.isnan(v) for k, v in outcome.items() if isinstance(v, float))
    assert one["alpha_relu"] == search[-1]["alpha_relu"] != other["alpha_relu"]
    assert one["standalone_tanh"] != one["initial_tanh"] and one["standalone_relu"] < one["initial_relu"]
    assert sum(work.steps for work in works(ActivationSettings(**SETTINGS), 2)) == 12 * 5


def test_instances_are_the_same_in_trials_of_any_size():
    last = run_to_end(ActivationTrainable(CONFIG))[-1]
    alone = run_to_end(ActivationTrainable({**CONFIG, "first": 1, "settings": {**SETTINGS, "seeds": 1}}))[-1]
    assert last["number"] == alone["number"] == 1
    for key, value in alone.items():
        if key.startswith(("alpha_", "shared_", "standalone_")):
            assert last[key] == pytest.approx(value, rel=1e-9), key


@pytest.mark.parametrize("at", [3, 12, 14, 25])
def test_a_trial_resumes_from_a_checkpoint(tmp_path, at):
    undisturbed = run_to_end(ActivationTrainable(CONFIG))
    first, second = ActivationTrainable(CONFIG), ActivationTrainable(CONFIG)
    before = [first.step() for _ in range(at)]
    first.save_checkpoint(str(tmp_path))
    second.load_checkpoint(str(tmp_path))
    assert plain(before + run_to_end(second)) == plain(undisturbed)


def test_a_reused_actor_starts_over():
    trial = ActivationTrainable({**CONFIG, "labels": "noisy", "seed": 7})
    trial.step()
    assert trial.reset_config(CONFIG)
    assert plain(run_to_end(trial)) == plain(run_to_end(ActivationTrainable(CONFIG)))


def test_nonfinite_numbers_are_a_failed_result(monkeypatch):
    made = make_instances

    def nonfinite(*arguments):
        instances = made(*arguments)
        instances.training.labels[0, 0] = math.nan
        return instances

    monkeypatch.setattr(activation_trainable, "make_instances", nonfinite)
    trial = ActivationTrainable(CONFIG)
    result = trial.step()
    assert result["done"] and "finite inputs and labels" in result["failure"] and math.isnan(result["alpha_relu"])
    assert trial.step()["failure"] == result["failure"]


def test_unknown_labels_and_numbers_of_instances_raise_an_error():
    with pytest.raises(InvalidInput, match="expected `first` below 2 in the config, got 2"):
        ActivationTrainable({**CONFIG, "first": 2, "settings": {**SETTINGS, "instances": 2}})
    with pytest.raises(InvalidInput, match="as `labels` in the config, got 'true'"):
        ActivationTrainable({**CONFIG, "labels": "true"})
