"""Architectures together with training decisions: one string, and the interface of a space."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archray.errors import InvalidArchitecture, InvalidInput
from archray.searchers import BOHBSearch, LocalSearch, RandomSearch, RegularizedEvolution, ReinforceSearch, drive
from archray.trainables.spaces import SPACES, ConstrainedSpace, Decision, Space, get_space
from archray.trainables.spaces.joint_space import JointSpace, split_training
from archray.trainables.tune.standalone_trainable import StandaloneSettings

RATES = Decision("train.lr", ("0.01", "0.05", "0.1"))
DECAYS = Decision("train.weight_decay", ("0.0", "5e-05"))
NETWORKS = [name for name in SPACES if SPACES.get(name).kind == "network"]

seeds = st.integers(0, 2**32 - 1)


class Semicolons(Space):
    """A space whose own strings look like those of a joint space."""

    name = "semicolons"
    decisions = (Decision("a", (";train.lr=9", "=;")), Decision("b", ("x;train.weight_decay=1", "y")))


class Single(Space):
    name = "single"
    decisions = (Decision("a", ("x",)),)


def joint(space: Space) -> JointSpace:
    return JointSpace(space, [RATES, DECAYS])


@pytest.mark.parametrize("space", [*map(get_space, NETWORKS), Semicolons()], ids=lambda space: space.name)
@given(seeds)
def test_strings_round_trip_and_a_mutation_changes_one_decision(space: Space, seed: int) -> None:
    both, rng = joint(space), np.random.default_rng(seed)
    drawn = both.sample(rng)
    name = both.encode(drawn)
    assert both.decode(name) == drawn
    alone, choices = split_training(name, [RATES.name, DECAYS.name])
    assert space.decode(alone) == drawn[:-2] and tuple(choices.values()) == drawn[-2:]
    mutant = both.mutate(drawn, rng)
    both.check(mutant)
    assert sum(a != b for a, b in zip(drawn, mutant, strict=True)) == 1
    form = both.canonical(drawn)
    assert form == (*space.canonical(drawn[:-2]), *drawn[-2:]) == both.canonical(form)
    assert both.rank(drawn) == (*space.rank(drawn[:-2]), *(RATES.choices.index(drawn[-2]), int(drawn[-1] != "0.0")))


def test_enumeration_contains_every_combination_in_the_order_of_ranks() -> None:
    both = joint(Semicolons())
    members = list(both.enumerate())
    assert len(set(members)) == len(members) == both.size == 4 * 6
    assert sorted(members, key=both.rank) == members


def test_mutations_are_all_single_changes_and_uniform_over_decisions() -> None:
    both, rng = joint(get_space("nasbench201")), np.random.default_rng(0)
    parent = both.sample(rng)
    mutations = both.mutations(parent)
    assert mutations is not None
    listed = list(mutations)
    assert len(set(listed)) == len(listed) == 6 * 4 + 2 + 1
    drawn = [both.mutate(parent, rng) for _ in range(4000)]
    assert set(drawn) == set(listed)
    changed = Counter(next(i for i, (a, b) in enumerate(zip(parent, child, strict=True)) if a != b) for child in drawn)
    assert np.allclose([changed[i] / 4000 for i in range(8)], 1 / 8, atol=0.03)


def test_a_space_with_one_architecture_can_be_mutated() -> None:
    both, rng = joint(Single()), np.random.default_rng(0)
    both.check_mutable()
    assert {both.mutate(("x", "0.01", "0.0"), rng)[0] for _ in range(20)} == {"x"}


def test_constraints_see_the_architecture_alone() -> None:
    space = get_space("nasbench201")
    strings: list[str] = []

    def violation(name: str) -> float:
        strings.append(name)
        return float("none" in name)

    both, rng = joint(ConstrainedSpace(space, violation, "no none")), np.random.default_rng(0)
    for _ in range(20):
        child = both.mutate(both.sample(rng), rng)
        assert "none" not in child
    assert all(space.decode(name) for name in strings)


@pytest.mark.parametrize(
    ("name", "decision"),
    [
        ("lr", Decision("train.lr", ("0.1",))),
        ("coincides", Decision("a", ("0.1", "0.2"))),
        ("separator", Decision("train.lr", ("0;1", "0.2"))),
    ],
)
def test_decisions_without_unambiguous_strings_raise_an_error(name: str, decision: Decision) -> None:
    with pytest.raises(InvalidInput):
        JointSpace(Semicolons(), [decision])


@pytest.mark.parametrize("text", ["", "a=b", "a=;train.lr=0.01", "a=x;train.weight_decay=0.0;train.lr=0.01"])
def test_other_strings_raise_an_error(text: str) -> None:
    with pytest.raises(InvalidArchitecture):
        joint(Single()).decode(text)
    with pytest.raises(InvalidArchitecture, match=r"expected one of 0\.01, 0\.05, 0\.1 for train\.lr"):
        joint(Single()).decode("a=x;train.lr=1;train.weight_decay=0.0")


def score(config: dict[str, str]) -> float:
    """The sum of correct decisions: one operation, and one learning rate."""
    _, choices = split_training(config["architecture"], [RATES.name, DECAYS.name])
    return config["architecture"].count("nor_conv_3x3") + 3.0 * (choices["train.lr"] == "0.05")


@pytest.mark.parametrize(
    "searcher",
    [
        RandomSearch,
        RegularizedEvolution,
        LocalSearch,
        ReinforceSearch,
        pytest.param(BOHBSearch, marks=pytest.mark.extra("bohb")),
    ],
)
def test_searchers_decide_the_training_too(searcher: type) -> None:
    options = {"population": 10, "sample_size": 5} if searcher is RegularizedEvolution else {}
    if searcher is ReinforceSearch:
        options = {"learning_rate": 0.1}
    search = searcher(joint(get_space("nasbench201")), budget=80, metric="score", mode="max", seed=0, **options)
    drive(search, score)
    trained = [record.config["architecture"] for record in search.records()]
    assert len(trained) == 80 and {name.rpartition(";train.weight_decay=")[2] for name in trained} == set(
        DECAYS.choices
    )
    assert ";train.lr=0.05;" in search.best()["architecture"]


def test_a_trial_trains_with_the_decided_values() -> None:
    settings = StandaloneSettings(
        training={"epochs": 3, "momentum": 0.5, "augmentation": None},
        decided=("train.augmentation.cutout", "train.grad_clip", "train.lr"),
    )
    cell, trained = settings.of_trial("a;b;train.augmentation.cutout=2;train.grad_clip=null;train.lr=0.05")
    training = trained.training
    assert cell == "a;b" and trained.decided == ()
    assert (training.lr, training.grad_clip, training.epochs, training.momentum) == (0.05, None, 3, 0.5)
    assert training.augmentation is not None and training.augmentation.cutout == 2
    assert StandaloneSettings().of_trial("a;train.lr=1") == ("a;train.lr=1", StandaloneSettings())
