"""Tests of the trials of every trainable: their seed, exact resume, reused actors."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from archray.trainables.checkpoint import write_weights
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import get_space
from archray.trainables.supernets.networks import build_supernet
from archray.trainables.tune.feature_map_trainable import FeatureMapTrainable
from archray.trainables.tune.nasi_trainable import NASIAgreementTrainable, NASITrainable
from archray.trainables.tune.standalone_trainable import StandaloneTrainable
from archray.trainables.tune.supernet_trainable import PosteriorTrainable, SupernetTrainable
from archray.trainables.tune.trial import TrialTrainable

CELLS = [
    "|nor_conv_1x1~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|avg_pool_3x3~2|",
    "|skip_connect~0|+|nor_conv_3x3~0|nor_conv_1x1~1|+|none~0|nor_conv_3x3~1|skip_connect~2|",
]
MAPS = ["kernel=gaussian|preprocess=none|gamma=0.005", "kernel=laplace|preprocess=minmax|gamma=0.05"]
# Pools, and one edge with weights: convolutions per channel are slow on a CPU, especially in bfloat16.
GENOTYPE = get_space("darts").encode(
    ("0,1", "dil_conv_3x3", "max_pool_3x3", *("0,1", "max_pool_3x3", "skip_connect") * 3) * 2
)
NETWORK = {"channels": 2, "cells": 1}


def on_digits(training: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    """Settings of a training run with two epochs."""
    training = {"epochs": 2, "batch_size": 10, "threads": 1, **(training or {})}
    return {"data": {"name": "digits", "limit": 40}, "network": NETWORK, "training": training, **settings}


def evaluation_settings(training: dict[str, Any]) -> dict[str, Any]:
    """As in DARTS' evaluation: with an auxiliary tower and dropped paths."""
    both = on_digits({"auxiliary_weight": 0.4, "drop_path": 0.5, **training}, space="darts")
    return {**both, "network": {**NETWORK, "auxiliary": True}}


def supernet(relaxation: Any, optimizer: Any, partial: int = 1, **training: Any) -> dict[str, Any]:
    return on_digits(training, relaxation=relaxation, optimizer=optimizer, partial_channels=partial)


def posterior(**posterior: Any) -> dict[str, Any]:
    own = {"space": "nasbench201", "supernet": {"network": NETWORK}, "epochs": 2, "batch_size": 20, "threads": 1}
    return {"data": {"name": "digits", "limit": 40}, **own, "posterior": posterior}


def nasi(**settings: Any) -> dict[str, Any]:
    own = {"space": "nasbench201", "network": NETWORK, "steps": 4, "every": 2, "samples": 2, "batch_size": 6}
    return {"data": {"name": "digits", "limit": 40}, "threads": 1, **own, **settings}


def feature_map(**settings: Any) -> dict[str, Any]:
    return {"data": {"name": "digits", "limit": 150}, "dimension": 80, "threads": 1, **settings}


CROPS = {"crop": 1, "flip": True, "cutout": 3}
AUGMENTED = {"augmentation": CROPS, "label_smoothing": 0.1, "grad_clip": 5.0}
LOG_SPACE = {"name": "mirror-descent", "log_space": True}
PATHS = {"name": "path", "draws": "architectures"}
ROUND = {"candidates": CELLS, "budget": 2, "round": 1, "replica": 0, "warm_start": None}
TEXT = "tokens=words|stop_words=keep|case=lower|order=2|counts=binary|weights=sif|scale=normalize|alpha=0.01"
TEXTS = {"space": "ngrams", "data": {"name": "docstrings:numpy,torch", "limit": 60}, "dimension": 512}
# For every kind of trial the settings, and the other keys of the configuration.
TRIALS: dict[str, tuple[type[TrialTrainable], dict[str, Any], dict[str, Any]]] = {
    "network": (StandaloneTrainable, on_digits(AUGMENTED), {"architecture": CELLS[0]}),
    "amp": (StandaloneTrainable, on_digits({"amp": True, "channels_last": True}), {"architecture": CELLS[0]}),
    "tower and dropped paths": (StandaloneTrainable, evaluation_settings(AUGMENTED), {"architecture": GENOTYPE}),
    "the same, amp": (
        StandaloneTrainable,
        evaluation_settings({"amp": True, "channels_last": True}),
        {"architecture": GENOTYPE},
    ),
    "no network": (StandaloneTrainable, on_digits(), {"architecture": "|conv5x5~0|"}),
    "darts": (SupernetTrainable, supernet("softmax", "adam", blocks="random"), {}),
    "darts, second order": (SupernetTrainable, supernet("softmax", "adam", objective="bilevel-second-order"), {}),
    "gaea-pc-darts": (
        SupernetTrainable,
        supernet("simplex", "mirror-descent", 2, blocks="random", warmup_epochs=1),
        {},
    ),
    "gaea-darts": (SupernetTrainable, supernet("simplex", LOG_SPACE, objective="erm"), {}),
    "gaea-gdas": (SupernetTrainable, supernet("gumbel", "mirror-descent", augmentation=CROPS, nesterov=True), {}),
    "xnas": (SupernetTrainable, supernet("simplex", "xnas", blocks="random", warmup_epochs=1), {}),
    "enas": (SupernetTrainable, supernet("controller", "reinforce"), {}),
    "enas, phases": (SupernetTrainable, supernet("controller", "reinforce", blocks="phases"), {}),
    "fair paths": (SupernetTrainable, supernet({"name": "path", "fair": True}, "none"), {}),
    "whole architectures": (SupernetTrainable, supernet(PATHS, "none", 2), {}),
    "best response": (SupernetTrainable, supernet("posterior", "adam", architecture_data="validation"), {}),
    "divergence": (SupernetTrainable, on_digits({"lr": 1e30, "grad_clip": None}), {}),
    "halving": (SupernetTrainable, on_digits(), ROUND),
    "straight-through": (PosteriorTrainable, posterior(gumbel_temperature=0.5), {}),
    "score-function": (PosteriorTrainable, posterior(estimator="score-function", samples=2), {}),
    "nasi": (NASITrainable, nasi(mu=2.0), {}),
    "nasi without data": (NASITrainable, nasi(labels="random", inputs="random", image_size=8), {}),
    "nasi's agreement": (NASIAgreementTrainable, nasi(exact_images=2), {}),
    "feature map": (FeatureMapTrainable, feature_map(rungs=(20, 40, 90)), {"architecture": MAPS[0]}),
    "shared solve": (FeatureMapTrainable, feature_map(solve={"gram": "int8"}), {"candidates": MAPS}),
    "map of texts": (FeatureMapTrainable, feature_map(**TEXTS), {"architecture": TEXT}),
}
SLOW = (
    "nasi without data",
    "nasi's agreement",
    "darts, second order",
    "the same, amp",
    "best response",
    "enas, phases",
)
every_trial = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in TRIALS]
)


Make = Callable[..., TrialTrainable]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes the trial of a name, with additional keys. A posterior is over a supernet with random weights."""
    supernet = build_supernet("nasbench201", NetworkSettings(**NETWORK), 1, 10, seed=0)
    weights = write_weights(str(tmp_path_factory.mktemp("weights")), "weights.pt", supernet.state_dict())

    def trial(name: str, **keys: Any) -> TrialTrainable:
        trainable, settings, own = TRIALS[name]
        more = {"weights": weights} if trainable is PosteriorTrainable else {}
        return trainable({"settings": {"seed": 5, **settings, **more}, **own, **keys})

    return trial


@pytest.fixture(scope="module")
def fresh_results(make: Make) -> Callable[[str], list[dict[str, Any]]]:
    """Returns the results of an uninterrupted trial by its name, made once."""
    return cache(lambda name: run(make(name)))


def run(trial: TrialTrainable) -> list[dict[str, Any]]:
    results = [trial.step()]
    while not results[-1]["done"]:
        results.append(trial.step())
    return results


def comparable(results: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Returns the result without seconds and paths, and with NaN made equal to itself."""
    return [
        {key: repr(value) for key, value in result.items() if not key.startswith("seconds") and key != "weights"}
        for result in results
    ]


@every_trial
def test_results_depend_on_the_seed_and_not_on_other_keys(
    name: str, make: Make, fresh_results: Callable[..., Any]
) -> None:
    expected = fresh_results(name)
    torch.manual_seed(123)
    state = torch.get_rng_state()
    assert comparable(run(make(name, seed=5, mu=0.3, anything=[1]))) == comparable(expected)
    assert torch.equal(torch.get_rng_state(), state)
    if expected[-1]["failure"] is None:
        assert comparable(run(make(name, seed=6))) != comparable(expected)
    assert all(set(result) == set(expected[0]) for result in expected)
    json.dumps(expected)


@every_trial
def test_a_restored_trial_resumes_bit_for_bit(
    name: str, make: Make, fresh_results: Callable[..., Any], tmp_path: Path
) -> None:
    """It uses Tune's `save` and `restore`. After its last step it does no work, and reports again."""
    interrupted, restored, ended = make(name), make(name), make(name)
    interrupted.train()
    restored.restore(interrupted.save(str(tmp_path / "interrupted")))
    torch.manual_seed(1)
    assert comparable(run(restored)) == comparable(fresh_results(name)[1:] or fresh_results(name))
    ended.restore(restored.save(str(tmp_path / "ended")))
    assert comparable([ended.step(), ended.step()]) == comparable(fresh_results(name)[-1:] * 2)


@pytest.mark.parametrize("name", {trainable: name for name, (trainable, _, _) in reversed(TRIALS.items())}.values())
def test_nothing_is_built_before_the_first_step(
    name: str, make: Make, fresh_results: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tune does not retry a trial whose process dies while an actor is reset for it. A checkpoint may be requested."""
    trial, restored = make(name), make(name)
    built: list[TrialTrainable] = []
    build = type(trial)._build
    monkeypatch.setattr(type(trial), "_build", lambda self: built.append(self) or build(self))
    trial.reset_config(trial.config)
    assert built == []
    restored.restore(trial.save(str(tmp_path)))
    assert comparable(run(restored)) == comparable(run(trial)) == comparable(fresh_results(name))
    assert built.count(trial) == 1


@every_trial
def test_a_reused_actor_gives_the_same_results_as_a_new_one(
    name: str, make: Make, fresh_results: Callable[..., Any]
) -> None:
    own_kind = [other for other, (kind, _, _) in TRIALS.items() if kind is TRIALS[name][0]]
    reused = make(own_kind[own_kind.index(name) - 1], seed=1)
    reused.step()
    assert reused.reset_config(make(name).config)
    assert comparable(run(reused)) == comparable(fresh_results(name))
