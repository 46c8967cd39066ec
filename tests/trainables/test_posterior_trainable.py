"""The posterior's trainable: results, failures, frozen weights, the best-response posterior. test_trials.py: resume."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from archray.errors import InvalidInput
from archray.searchers.nesbs.posterior import Posterior
from archray.trainables.checkpoint import write_weights
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import get_space
from archray.trainables.supernets.networks import build_supernet
from archray.trainables.tune.settings import PosteriorSettings, SupernetOptions
from archray.trainables.tune.supernet_trainable import PosteriorTrainable, SupernetTrainable

KEYS = {"elbo", "kl", "expected_loss", "scale", "entropy", "entropies", "posterior", "architecture", "epoch", "epochs"}
KEYS |= {"lr", "parameters", "seconds_epoch", "gpu_memory_peak", "failure", "done"}
DATA = {"name": "digits", "limit": 40, "validation_fraction": 0.3}
NETWORK = {"channels": 2, "cells": 1}
BEST_RESPONSE = {
    "relaxation": {"name": "posterior", "kl": False},
    "optimizer": {"name": "adam", "lr": 0.01, "betas": [0.9, 0.999], "weight_decay": 3e-4},
}


def make_config(folder: Path, space: str = "nasbench201", seed: int = 5, **settings: Any) -> dict[str, Any]:
    """Random weights of a tiny supernet with partial channels, and 40 digits for learning."""
    supernet = build_supernet(space, NetworkSettings(**NETWORK), 1, 10, seed=0, partial_channels=2)
    weights = write_weights(str(folder), f"{space}.pt", supernet.state_dict())
    return {
        "settings": {
            "space": space,
            "data": DATA,
            "supernet": {"network": NETWORK, "partial_channels": 2},
            "weights": weights,
            "epochs": 3,
            "batch_size": 20,
            "threads": 1,
            **settings,
        },
        "seed": seed,
    }


def run(config: dict[str, Any]) -> list[dict[str, Any]]:
    trainable = PosteriorTrainable(config)
    results = [trainable.step()]
    while not results[-1]["done"]:
        results.append(trainable.step())
    return results


def comparable(results: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Returns results without wall-clock time and with NaN made equal to itself."""
    return [{key: repr(value) for key, value in result.items() if key != "seconds_epoch"} for result in results]


@pytest.mark.parametrize("space", ["nasbench201", "darts"])
def test_results(tmp_path: Path, space: str) -> None:
    results = run(make_config(tmp_path, space, epochs=1 if space == "darts" else 2, batch_size=40))
    assert all(set(result) == KEYS for result in results)
    first, last = results[0], results[-1]
    decisions = get_space(space).posterior_decisions
    assert list(json.loads(last["posterior"])) == [decision.name for decision in decisions]
    Posterior(json.loads(last["posterior"]), space)
    get_space(space).decode(last["architecture"])
    assert (first["kl"], last["failure"], last["done"]) == (pytest.approx(0, abs=1e-5), None, True)
    for result in results:
        assert result["elbo"] == pytest.approx(-result["expected_loss"] - result["kl"])
    free = [entropy for entropy, each in zip(last["entropies"], decisions, strict=True) if len(each.choices) > 1]
    assert last["entropy"] == pytest.approx(sum(free) / len(free)) and all(entropy > 0 for entropy in free)
    json.dumps(results)


def test_the_scale_of_bayes_is_the_number_of_images(tmp_path: Path) -> None:
    config = make_config(tmp_path, epochs=1, posterior={"scale": "data"})
    [result] = run(config)
    assert result["scale"] == 40
    assert result["elbo"] == pytest.approx(-40 * result["expected_loss"] - result["kl"])


def test_the_weights_do_not_change(tmp_path: Path) -> None:
    trainable = PosteriorTrainable(make_config(tmp_path, "darts", epochs=1, batch_size=40))
    before = {name: each.clone() for name, each in trainable.trainer.supernet.state_dict().items()}
    trainable.step()
    after = trainable.trainer.supernet.state_dict()
    assert all(torch.equal(after[name], each) for name, each in before.items())


def test_permanent_failures_are_results(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    supernet = build_supernet("nasbench201", NetworkSettings(**NETWORK), 1, 10, seed=0, partial_channels=2)
    state = {name: torch.full_like(each, math.nan) for name, each in supernet.state_dict().items()}
    config["settings"]["weights"] = write_weights(str(tmp_path), "nan.pt", state)
    trainable = PosteriorTrainable(config)
    failed = trainable.step()
    assert set(failed) == KEYS and failed["done"]
    assert failed["failure"].startswith("expected a finite loss of drawn architectures, got nan in epoch 1")
    assert (failed["posterior"], failed["architecture"]) == (None, None) and math.isnan(failed["elbo"])
    trainable.save_checkpoint(str(tmp_path))
    restored = PosteriorTrainable(config)
    restored.load_checkpoint(str(tmp_path))
    assert comparable([restored.step()]) == comparable([failed])


def test_wrong_input_raises_an_error(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    settings = config["settings"]
    with pytest.raises(InvalidInput, match="to belong to a supernet with these settings' space, network and data"):
        PosteriorTrainable({"settings": {**settings, "supernet": {"network": {"channels": 4, "cells": 1}}}}).step()
    with pytest.raises(FileNotFoundError):
        PosteriorTrainable({"settings": {**settings, "weights": str(tmp_path / "missing.pt")}}).step()
    for wrong, message in (
        ({"scale": 0}, "expected a scale above 0"),
        ({"estimator": "score-function"}, "Set samples to 2"),
    ):
        with pytest.raises(ValidationError, match=message):
            PosteriorSettings.model_validate({**settings, "posterior": wrong})
    for options, message in (
        ({"relaxation": {"name": "posterior"}}, "expected an optimizer of logits with the relaxation posterior"),
        ({**BEST_RESPONSE, "relaxation": {"name": "posterior", "scale": "data"}}, "expected a number as the scale"),
        ({"training": {"objective": "erm", "architecture_data": "validation"}}, "Choose bilevel"),
    ):
        with pytest.raises(ValidationError, match=message):
            SupernetOptions.model_validate(options)


# Best-response posterior


def best_response(space: str, epochs: int = 2, **training: Any) -> SupernetTrainable:
    training = {"epochs": epochs, "batch_size": 20, "threads": 1, "architecture_data": "validation", **training}
    settings = {"space": space, "data": DATA, "network": NETWORK, "partial_channels": 2, "training": training}
    return SupernetTrainable({"settings": {**settings, **BEST_RESPONSE}, "seed": 5})


@pytest.mark.parametrize("space", ["nasbench201", "darts"])
def test_the_best_response_posterior_learns_with_the_weights(space: str) -> None:
    epochs = 2 if space == "nasbench201" else 1
    trainable = best_response(space, epochs)
    results = [trainable.step() for _ in range(epochs)]
    last = results[-1]
    assert last["failure"] is None and last["architecture"] == trainable.trainer.mixing.derive(lambda _: [], 0)
    posterior = Posterior(json.loads(last["posterior"]), space)
    assert posterior.count() == math.prod(len(each.choices) for each in get_space(space).posterior_decisions)
    table = json.loads(last["updates"])
    assert table["steps"][0] == 2 * epochs and set(table["chance"]) == {None}


def test_the_weights_train_on_all_training_images_if_the_posterior_has_the_validation_data() -> None:
    trainer = best_response("nasbench201").trainer
    assert len(trainer.weight_images) == len(trainer.dataset.train)
    assert len(trainer.architecture_images) == len(trainer.dataset.validation)
