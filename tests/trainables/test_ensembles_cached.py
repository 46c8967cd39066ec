"""Ensembles from cached predictions: one forward pass per member, in this process, in actors, and after a stop."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from archray.cluster.actor_pool import actor_map
from archray.errors import InvalidInput, RunInterrupted
from archray.files import Folder
from archray.searchers import NESBSSearch, drive
from archray.searchers.nesbs.posterior import Posterior
from archray.trainables.data import DataSettings, load_images
from archray.trainables.ensembles.evaluator import Answer, CachedEnsembles
from archray.trainables.ensembles.measures import disagreement, ensemble_accuracy, ensemble_loss, member_accuracies
from archray.trainables.spaces import get_space
from archray.trainables.tune.scorers import SharedPredictions, SupernetScorer, arrays_of
from archray.trainables.tune.supernet_trainable import SupernetTrainable

SETTINGS: dict[str, Any] = {
    "data": {"name": "digits", "limit": 40},
    "network": {"channels": 2, "cells": 1},
    "relaxation": {"name": "path"},
    "optimizer": {"name": "none"},
    "training": {"epochs": 1, "batch_size": 10, "threads": 1, "evaluation_batch": 8},
}
LABELS = np.arange(12) % 3


class Synthetic:
    """Random predictions that depend on the member's name, with a count of calls. `bad...` has none."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __call__(self, member: str) -> np.ndarray | str:
        self.calls[member] += 1
        if member.startswith("bad"):
            return f"no predictions of {member}"
        return np.random.default_rng(list(member.encode())).dirichlet(np.ones(3), len(LABELS)).astype(np.float32)


def in_process(worker: Callable[[str], np.ndarray | str]) -> Any:
    """The `predict` of `CachedEnsembles` in this process, member by member."""
    return lambda members: ([Answer(member, worker(member))] for member in members)


@pytest.fixture(scope="module")
def supernet_weights() -> SupernetTrainable:
    trainable = SupernetTrainable({"settings": SETTINGS, "seed": 3})
    trainable.step()
    return trainable


def architectures(count: int) -> list[str]:
    space, rng = get_space("nasbench201"), np.random.default_rng(0)
    return list(dict.fromkeys(space.encode(space.sample(rng)) for _ in range(2 * count)))[:count]


@pytest.mark.parametrize("how", ["probabilities", "logits"])
def test_evaluation_uses_the_predictions_of_the_members(how: Any) -> None:
    worker = Synthetic()
    row = CachedEnsembles(LABELS, in_process(worker), how=how)({"members": ["a", "b", "c"], "delta": 0.5})
    p = np.stack([np.asarray(worker(member)) for member in "abc"])
    assert row["validation_loss"] == pytest.approx(ensemble_loss(p, LABELS, how), rel=1e-5)
    assert row["validation_accuracy"] == ensemble_accuracy(p, LABELS, how)
    assert row["members_accuracy"] == pytest.approx(member_accuracies(p, LABELS).mean())
    assert row["disagreement"] == disagreement(p.argmax(2)) and row["failure"] is None


def test_no_member_is_predicted_twice() -> None:
    worker = Synthetic()
    cached = CachedEnsembles(LABELS, in_process(worker))
    alone = [cached({"members": members}) for members in (["a", "b"], ["b", "c"], ["c", "b"])]
    rows = cached.evaluate([["a", "b"], ["b", "c"], ["c", "b"], ["a", "d"], ["d"]])
    assert worker.calls == {"a": 1, "b": 1, "c": 1, "d": 1} and cached.forward_passes == 4
    assert [row["validation_loss"] for row in rows[:3]] == [row["validation_loss"] for row in alone]
    assert rows[1]["validation_loss"] == rows[2]["validation_loss"] and math.isnan(rows[4]["disagreement"])
    assert [row["architecture"] for row in cached.members()] == ["a", "b", "c", "d"]


def test_a_search_needs_one_forward_pass_per_distinct_member() -> None:
    posterior = Posterior({"first": np.zeros(3), "second": np.zeros(2)})
    worker = Synthetic()
    cached = CachedEnsembles(LABELS, in_process(worker))
    search = NESBSSearch(posterior, 3, "mc", budget=30)
    table = drive(search, cached)
    distinct = {member for members in table["members"] for member in members}
    assert cached.forward_passes == len(distinct) <= 6 < table["members"].map(len).sum()
    best = search.best()
    assert best is not None and best["value"] == table["validation_loss"].min()


def test_an_ensemble_with_a_failed_member_has_no_loss_and_gives_the_reason() -> None:
    worker = Synthetic()
    cached = CachedEnsembles(LABELS, in_process(worker))
    rows = cached.evaluate([["a", "bad"], ["a", "b"], ["bad"]])
    assert [math.isnan(row["validation_loss"]) for row in rows] == [True, False, True]
    assert rows[0]["failure"] == "the member bad has no predictions: no predictions of bad"
    assert worker.calls["bad"] == 1 and cached.members()[-1]["failure"] == "no predictions of bad"
    with pytest.raises(InvalidInput, match="one or more members"):
        cached.evaluate([[]])


def test_predictions_in_the_folder_are_not_repeated(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "predictions")
    first = Synthetic()

    def stopped(members: Sequence[str]) -> Any:
        yield from list(in_process(first)(members))[:2]

    with pytest.raises(RunInterrupted, match="2 of 3 members"):
        CachedEnsembles(LABELS, stopped, folder).add(["a", "b", "c"])
    second = Synthetic()
    resumed = CachedEnsembles(LABELS, in_process(second), folder)
    rows = resumed.evaluate([["a", "b", "c"]])
    assert second.calls == {"c": 1} and resumed.forward_passes == 1 and len(folder.files()) == 3
    third = Synthetic()
    assert (
        CachedEnsembles(LABELS, in_process(third), folder).evaluate([["c", "a", "b"]])[0]["validation_loss"]
        == (rows[0]["validation_loss"])
    )
    assert not third.calls
    with pytest.raises(InvalidInput, match="integers 0"):
        CachedEnsembles(LABELS[:5], in_process(third), folder).evaluate([["a"]])


def validation_labels() -> np.ndarray:
    labels: np.ndarray = load_images(DataSettings(**SETTINGS["data"])).validation.labels.numpy()
    return labels


def test_predictions_have_the_loss_of_scoring(supernet_weights: SupernetTrainable) -> None:
    weights = arrays_of(supernet_weights.trainer.supernet.state_dict())
    worker = SharedPredictions(SETTINGS, weights, "cpu")
    cells = architectures(4)
    cached = CachedEnsembles(validation_labels(), in_process(worker))
    cached.add(cells)
    expected = {row["architecture"]: row for row in SupernetScorer(SETTINGS, weights, "cpu")(cells)}
    for row in cached.members():
        assert row["loss"] == pytest.approx(expected[row["architecture"]]["shared_loss"], rel=1e-5)
        assert row["accuracy"] == pytest.approx(expected[row["architecture"]]["shared_accuracy"])
    assert "|no_such_operation~0|" in str(worker("|no_such_operation~0|"))


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_actors_predict(supernet_weights: SupernetTrainable, tmp_path: Path) -> None:
    weights = arrays_of(supernet_weights.trainer.supernet.state_dict())
    local = SharedPredictions(SETTINGS, weights, "cpu")
    options = {"settings": SETTINGS, "weights": ray.put(weights), "device": "cpu"}
    calls: list[str] = []

    def predict(members: Sequence[str]) -> Any:
        calls.extend(members)
        return actor_map(SharedPredictions, members, worker_kwargs=options, num_actors=1)

    cached = CachedEnsembles(validation_labels(), predict, Folder(tmp_path))
    cells = [*architectures(5), "|no_such_operation~0|"]
    rows = cached.evaluate([cells[:3], cells[1:4], cells[2:5], cells[4:]])
    assert calls == cells and cached.forward_passes == 6
    assert [row["failure"] is None for row in rows] == [True, True, True, False]
    p = np.stack([np.asarray(local(cell)) for cell in cells[:3]])
    assert rows[0]["validation_loss"] == pytest.approx(ensemble_loss(p, validation_labels()), rel=1e-5)


def test_decisions_of_a_posterior_are_members(supernet_weights: SupernetTrainable) -> None:
    space = get_space("nasbench201")
    posterior = Posterior({d.name: np.zeros(len(d.choices)) for d in space.decisions}, "nasbench201")
    worker = SharedPredictions(SETTINGS, arrays_of(supernet_weights.trainer.supernet.state_dict()), "cpu")
    cached = CachedEnsembles(validation_labels(), in_process(worker))
    table = drive(NESBSSearch(posterior, 2, "mc", budget=3), cached)
    assert table["validation_loss"].notna().all() and cached.forward_passes <= 6
