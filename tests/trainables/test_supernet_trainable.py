"""The supernet trainable: results, failures, rounds of halving, with a driver and with Tune. test_trials.py: exact
resume.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from ray.tune import RunConfig, TuneConfig, Tuner

from archray.errors import InvalidInput, UnknownName
from archray.searchers import WeightSharingHalving, drive
from archray.trainables.checkpoint import read_weights
from archray.trainables.spaces import get_space
from archray.trainables.tune.supernet_trainable import SupernetTrainable

EVERY = {"train_loss", "train_accuracy", "shared_loss", "shared_accuracy", "epoch", "epochs", "lr"}
EVERY |= {"parameters", "seconds_epoch", "gpu_memory_peak", "failure", "done"}
SEARCH = EVERY | {"architecture", "mixture_loss", "mixture_accuracy", "discretization_drop", "entropy"}
HALVING = EVERY | {"scores", "score", "weights", "candidates_left"}
CELLS = (
    "|nor_conv_1x1~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|avg_pool_3x3~2|",
    "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|nor_conv_1x1~2|",
    "|skip_connect~0|+|nor_conv_3x3~0|nor_conv_1x1~1|+|none~0|nor_conv_3x3~1|skip_connect~2|",
    "|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|",
)


def make_config(seed: int = 5, training: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    """A tiny supernet on 40 digits."""
    return {
        "settings": {
            "data": {"name": "digits", "limit": 40},
            "network": {"channels": 2, "cells": 1},
            "training": {"epochs": 2, "batch_size": 10, "threads": 1, **(training or {})},
            **settings,
        },
        "seed": seed,
    }


def make_round(candidates: tuple[str, ...] = CELLS[:2], **config: Any) -> dict[str, Any]:
    settings = config.pop("settings", {})
    questions = {"candidates": list(candidates), "budget": 1, "round": 1, "replica": 0, "warm_start": None}
    return make_config(**settings) | questions | config


def run(config: dict[str, Any]) -> list[dict[str, Any]]:
    trainable = SupernetTrainable(config)
    results = [trainable.step()]
    while not results[-1]["done"]:
        results.append(trainable.step())
    return results


# A search by gradients


@pytest.mark.parametrize("space", ["nasbench201", "darts"])
def test_results_of_a_search(space: str) -> None:
    training = {"epochs": 1, "batch_size": 20} if space == "darts" else {}
    results = run(make_config(training=training, space=space, partial_channels=2))
    last = results[-1]
    groups = {name.removeprefix("entropies_") for name in last if name.startswith("entropies_")}
    assert ({"edges", "inputs_2"} if space == "nasbench201" else {"normal", "reduce", "reduce_inputs_3"}) <= groups
    for result in results:
        assert set(result) == SEARCH | {f"{key}_{group}" for key in ("entropy", "entropies") for group in groups}
    get_space(space).decode(last["architecture"])
    assert last["discretization_drop"] == last["mixture_accuracy"] - last["shared_accuracy"]
    assert (last["failure"], last["lr"]) == (None, pytest.approx(0.001))
    assert all(math.isfinite(last[key]) for key in EVERY - {"failure", "gpu_memory_peak"})
    operations = [each for group in groups if "inputs" not in group for each in last[f"entropies_{group}"]]
    assert last["entropy"] == pytest.approx(sum(operations) / len(operations))
    assert 0 < last["entropy"] < math.log(5 if space == "nasbench201" else 8)
    json.dumps(results)


def test_uniform_paths_are_not_discretized() -> None:
    last = run(make_config(relaxation={"name": "path"}, optimizer={"name": "none"}))[-1]
    assert last["architecture"] is None and last["failure"] is None
    assert math.isnan(last["discretization_drop"]) and math.isfinite(last["mixture_loss"])


# Failures


def test_divergence_is_a_result() -> None:
    trainable = SupernetTrainable(make_config(training={"lr": 1e30, "grad_clip": None}))
    result = trainable.step()
    assert result["done"] and "epoch 1" in result["failure"]
    assert set(result) == set(run(make_config())[-1])
    assert math.isnan(result["mixture_accuracy"]) and result["architecture"] is None
    assert len(result["entropies_edges"]) == 6
    with pytest.raises(RuntimeError, match="see `failure`"):
        _ = trainable.trainer


def test_wrong_input_raises_an_error() -> None:
    for config, reason in (
        (make_config(color="red"), "color"),
        (make_config(relaxation={"name": "softmax"}), "expected the relaxation simplex or gumbel"),
        (make_config(relaxation={"name": "path", "start": 1.0}), "start"),
        (make_config(partial_channels=3), "partial_channels"),
        (make_round(candidates=()), "one architecture or more"),
        (make_round(budget=0), "budget"),
        (make_round(warm_start=3), "warm_start"),
        (make_config(seed=-1), "seed"),
    ):
        with pytest.raises(InvalidInput, match=reason):
            SupernetTrainable(config).step()
    with pytest.raises(UnknownName):
        SupernetTrainable(make_config(space="fourier"))


def test_an_invalid_candidate_fails_the_trial() -> None:
    [result] = run(make_round(("|conv5x5~0|", CELLS[0])))
    assert "conv5x5" in result["failure"]
    assert all(map(math.isnan, result["scores"])) and len(result["scores"]) == 2


# Halving


def test_a_round_trains_scores_and_stores_the_weights(tmp_path: Path) -> None:
    place = {"weights_dir": str(tmp_path / "weights")}
    results = run(make_round(CELLS, budget=2, settings=place))
    assert all(set(result) == HALVING for result in results)
    first, last = results
    assert (first["weights"], first["scores"], math.isnan(first["score"])) == (None, [], True)
    assert (last["epochs"], last["done"], last["candidates_left"]) == (2, True, 4)
    assert last["score"] == pytest.approx(sum(last["scores"]) / 4) == pytest.approx(last["shared_loss"])
    assert [each.as_uri() for each in (tmp_path / "weights").iterdir()] == [last["weights"]]
    by_accuracy = run(make_round(CELLS, budget=2, settings=place | {"score": "accuracy"}))[-1]
    assert by_accuracy["score"] == pytest.approx(last["shared_accuracy"])
    assert by_accuracy["score"] == pytest.approx(sum(by_accuracy["scores"]) / 4)
    json.dumps(results)


def test_a_warm_start_starts_from_the_stored_weights(tmp_path: Path) -> None:
    place = {"weights_dir": str(tmp_path)}
    stored = run(make_round(settings=place))[-1]["weights"]
    still = {"training": {"lr": 1e-12, "lr_min": 0.0}}  # trains almost nothing
    trainable = SupernetTrainable(make_round(warm_start=stored, round=2, settings=still | {"seed": 9}))
    trainable.step()
    assert trainable.trainer.epochs_done == 1
    for name, each in trainable.trainer.supernet.named_parameters():
        torch.testing.assert_close(each.detach(), read_weights(stored)["supernet"][name], rtol=0, atol=1e-9)
    another = make_round(warm_start=stored, settings={"network": {"channels": 4, "cells": 1}})
    with pytest.raises(InvalidInput, match=r"to belong to a supernet with these settings' .* Leave warm_start out"):
        SupernetTrainable(another).step()
    with pytest.raises(FileNotFoundError):  # Tune retries, then the round continues without this replica
        SupernetTrainable(make_round(warm_start=f"{stored}-gone")).step()


def make_searcher() -> WeightSharingHalving:
    return WeightSharingHalving(list(CELLS), replicas=2, budget=2, growth=2.0, metric="score", mode="min", seed=0)


@pytest.mark.slow
@pytest.mark.ci
def test_halving_with_a_driver_and_with_tune_finds_the_same(tmp_path: Path, ray_session: None) -> None:
    def settings_in(folder: str) -> dict[str, Any]:
        return make_config(weights_dir=str(tmp_path / folder))["settings"]

    driven = make_searcher()
    settings = settings_in("driven")
    table = drive(driven, lambda config: run(config | {"settings": settings})[-1], concurrency=2)
    assert list(table["round"]) == [1, 1, 2, 2, 3]
    assert table["failure"].isna().all()
    before = dict(zip(zip(table["round"], table["replica"], strict=True), table["weights"], strict=True))
    started = table[table["round"] > 1]
    assert list(started["warm_start"]) == [before[key] for key in ((1, 0), (1, 1), (2, 0))]
    best = driven.best()
    assert best is not None and best["candidate"] in CELLS

    tuned = make_searcher()
    results = Tuner(
        SupernetTrainable,
        param_space={"settings": settings_in("tuned")},
        tune_config=TuneConfig(search_alg=tuned, num_samples=-1, max_concurrent_trials=2, reuse_actors=True),
        run_config=RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    ).fit()
    assert results.num_errors == 0
    found = tuned.best()
    assert (found["candidate"], found["value"]) == (best["candidate"], pytest.approx(best["value"], rel=1e-4))
    assert len(list((tmp_path / "tuned").iterdir())) == 5
