"""The report of searches for ensembles: its numbers, its sections, and its texts where data are missing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from archray_test_ensemble_report import (
    CELLS,
    SPACE,
    ensemble_documents,
    ensemble_run,
    posterior_curves,
    repeated_ensemble_run,
    sampled_trials,
)
from archray_test_report import HOSTILE, MISSING_NUMBER, Documents, Tables, rendered, words

from archray.platform.methods.ensembles.figures import (
    best_so_far,
    common_decisions,
    delta_effect_section,
    ensemble_delta_section,
    ensembles_section,
    estimated_true_section,
    grouped_decisions,
    member_agreement,
    member_cells_section,
    member_measures,
    posterior_section,
    swept_delta,
)
from archray.platform.methods.ensembles.report import SECTIONS, diversity_section, ensemble_diversity, headline
from archray.platform.methods.ensembles.tables import (
    chosen_ensemble,
    estimates,
    found_members,
    names_of,
    sampled_ensembles,
)
from archray.platform.report.cell import Decided, decided
from archray.platform.report.figures import NothingToDraw
from archray.platform.report.page import header
from archray.platform.run.run import Run
from archray.searchers.nesbs.posterior import Posterior

TRIALS, MEMBERS = ("search", "trials.parquet"), ("search", "members.parquet")
FOUND, MEASURES = ("search", "architecture.json"), ("final", "ensemble.json")

NewRun = Callable[..., Run[Any]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run[Any]:
    return ensemble_run(tmp_path_factory.mktemp("run"))


@pytest.fixture
def new_run(tmp_path_factory: pytest.TempPathFactory) -> NewRun:
    """Makes an `ensemble_run` in a new folder."""
    return lambda *content: ensemble_run(tmp_path_factory.mktemp("run"), *content)


@pytest.fixture(scope="module")
def repeated_run(tmp_path_factory: pytest.TempPathFactory) -> Run[Any]:
    return repeated_ensemble_run(tmp_path_factory.mktemp("run"))


# Page


def test_no_result_one_member_and_an_untrained_ensemble(new_run: NewRun) -> None:
    def lead(run: Run[Any]) -> str:
        return words(header(run, headline(run)))

    nothing = new_run({}, {FOUND: None, MEASURES: None, ("", "architecture.json"): None})
    assert "The run found no ensemble" in lead(nothing)
    alone = ensemble_documents(tuple(CELLS[:1]))
    trained = {("final", "trials.parquet"): pd.DataFrame({"parameters": [3.2e6, 3.4e6]})}
    one = lead(new_run(trained, alone))
    assert "Network 3.300 M parameters" in one
    assert "selected the architecture below. After the final training its test accuracy is 95.00 %." in one
    assert "best member" not in one
    assert "There is no test accuracy" in lead(new_run({}, {MEASURES: None}))


@pytest.mark.slow
def test_everything_is_escaped(new_run: NewRun) -> None:
    hostile: Tables = {
        TRIALS: sampled_trials().assign(
            sampler=HOSTILE, failure=HOSTILE, members=[[HOSTILE, f"{i}{HOSTILE}"] for i in range(16)]
        ),
        ("posterior", "curves.parquet"): posterior_curves().assign(decision=HOSTILE),
    }
    shown = [part for part in SECTIONS if part not in (member_cells_section, delta_effect_section)]
    text = rendered(new_run(hostile, ensemble_documents((HOSTILE, HOSTILE + "2"))), shown)
    assert "<script>alert" not in text and "&lt;script&gt;" in text


@pytest.mark.parametrize("column", ["delta", "temperature", "shared_loss", "shared_accuracy", "failure"])
def test_a_column_of_the_samples_may_be_missing(new_run: NewRun, column: str) -> None:
    made = rendered(
        new_run({TRIALS: sampled_trials().drop(columns=column)}), [ensembles_section, ensemble_delta_section]
    )
    assert not MISSING_NUMBER.search(words(made))


# Sampled ensembles


def test_best_so_far_is_the_accuracy_at_the_lowest_loss(new_run: NewRun) -> None:
    frame = pd.DataFrame(
        {
            "sampler": "mc",
            "members": [["a", "b"]] * 4,
            "shared_loss": [math.nan, 2.0, 3.0, 1.0],
            "shared_accuracy": [0.9, 0.8, 0.9, 0.7],
            "failure": ["broken", None, None, None],
        }
    )
    sampled = sampled_ensembles(new_run({TRIALS: frame}))
    loss, accuracy = (best_so_far(sampled, name) for name in ("shared_loss", "shared_accuracy"))
    np.testing.assert_array_equal(loss, [[math.nan, 2, 2, 1], [math.nan] * 4])
    np.testing.assert_array_equal(accuracy[0], [math.nan, 0.8, 0.8, 0.7])


def test_repeats_are_averaged_and_the_shorter_keeps_its_last_value(repeated_run: Run[Any]) -> None:
    mean, deviation = best_so_far(sampled_ensembles(repeated_run), "shared_loss")
    ends = [part["shared_loss"].min() for part in (sampled_trials(0), sampled_trials(5, number=12))]
    assert mean[-1] == pytest.approx(np.mean(ends))
    assert deviation[-1] == pytest.approx(abs(ends[0] - ends[1]) / 2**0.5)
    assert mean.shape == (16,)


def test_the_chosen_ensemble_is_marked_in_any_order_of_its_members(run: Run[Any], new_run: NewRun) -> None:
    turned = new_run({}, ensemble_documents(tuple(reversed(found_members(run)))))
    sampled = sampled_ensembles(turned)
    assert chosen_ensemble(turned, sampled) == int(sampled_trials()["shared_loss"].idxmin())
    assert chosen_ensemble(new_run({}, ensemble_documents(tuple(CELLS[:1]))), sampled) is None
    section = ensembles_section(turned)
    assert section.body.count('<tr class="marked">') == 2  # among the best, and among all
    names = names_of(turned)
    assert [str(name) for name in names.all_of(found_members(turned))] == ["A1", "A2", "A3"]
    assert set(names.by_string) == {member for row in sampled["members"] for member in row}


def test_deltas_are_compared_by_their_means(run: Run[Any], new_run: NewRun) -> None:
    rows, means, best = swept_delta(run)
    assert len(rows) == 15 and len(means) == 8  # one failed
    trials = sampled_trials()
    by_loop = {delta: trials[trials["delta"] == delta]["shared_loss"].mean() for delta in set(trials["delta"])}
    assert best == min(by_loop, key=by_loop.__getitem__)
    with pytest.raises(NothingToDraw, match="fewer than two deltas"):
        ensemble_delta_section(new_run({TRIALS: trials.assign(delta=0.5)}))


def test_the_effect_of_delta_uses_the_members_of_the_run(run: Run[Any], new_run: NewRun) -> None:
    measures, trials = member_measures(run), sampled_trials()
    alone = dict(zip(CELLS, 0.8 - 0.02 * np.arange(len(CELLS)), strict=True))
    for (_, row), members in zip(measures.iterrows(), trials["members"], strict=True):
        a, b, c = (SPACE.decode(member) for member in members)
        differ = [sum(x != y for x, y in zip(*pair, strict=True)) / 6 for pair in ((a, b), (a, c), (b, c))]
        assert row["difference"] == pytest.approx(sum(differ) / 3)
        assert row["shared_accuracy"] == pytest.approx(sum(alone[member] for member in members) / 3)
    for none in (trials.assign(delta=math.nan), trials.assign(members=[[CELLS[0]]] * len(trials))):
        with pytest.raises(NothingToDraw, match="no ensemble with a delta"):
            delta_effect_section(new_run({TRIALS: none}))


def test_estimates_of_members_are_shown_next_to_measured_values(run: Run[Any], new_run: NewRun) -> None:
    members = estimates(run)
    assert list(members["name"]) == found_members(run)
    _, measures = member_agreement(run)
    assert measures["spearman"] == pytest.approx(
        members["shared_accuracy"].corr(members["test_accuracy"], method="spearman")
    )
    assert measures["pearson"] == pytest.approx(members["shared_accuracy"].corr(members["test_accuracy"]))
    assert "3 members" in str(estimated_true_section(run))
    with pytest.raises(NothingToDraw, match="3 or more members"):
        estimated_true_section(new_run({}, ensemble_documents(tuple(CELLS[:2]))))
    assert estimates(new_run({MEMBERS: pd.DataFrame()})).empty


# Members and posterior


def test_members_are_drawn_side_by_side(run: Run[Any], new_run: NewRun) -> None:
    section = member_cells_section(run)
    assert section is not None and section.body.count('<svg class="cell"') == 6  # each has a wide and a narrow form
    same = common_decisions([decided(SPACE, member) for member in found_members(run)])
    assert f"The 3 members agree in {same} of 6 decisions." in words(section)
    assert (
        common_decisions([(Decided("width", width, ("8", "16")), Decided("depth", "2", ("2",))) for width in "ab"]) == 1
    )
    assert member_cells_section(new_run({}, ensemble_documents(tuple(CELLS[:1])))) is None
    equal = member_cells_section(new_run({}, ensemble_documents((CELLS[0],) * 3)))
    assert "All 3 members have the same architecture." in words(equal)


def test_posterior_tables_by_choices_and_entropy(run: Run[Any], new_run: NewRun) -> None:
    names = [decision.name for decision in SPACE.decisions]
    uniform = Posterior({**dict.fromkeys(["a", "b"], np.zeros(3)), "only": [0.0], "c": np.zeros(2)})
    three, two = grouped_decisions(uniform).values()
    assert (list(three), list(two)) == (["a", "b"], ["c"])
    np.testing.assert_allclose(three["a"], np.full(3, 1 / 3))
    ruled_out = {("posterior", "posterior.json"): {name: [None, 0.0, 0.0, 0.0, 0.0] for name in names}}
    assert "mean entropy is 1.39 nats (1.39 for a uniform posterior)" in words(
        posterior_section(new_run({}, ruled_out))
    )
    certain = {("posterior", "posterior.json"): {name: [None, 0.0, None, None, None] for name in names}}
    assert "mean entropy is 0.00 nats (" in words(posterior_section(new_run({}, certain)))


def test_a_posterior_without_curves_and_curves_without_a_posterior(new_run: NewRun) -> None:
    no_curves: Tables = {("posterior", "curves.parquet"): pd.DataFrame()}
    no_posterior: Documents = {("posterior", "posterior.json"): None}
    table, curves = posterior_section(new_run(no_curves)), posterior_section(new_run({}, no_posterior))
    assert "<svg" not in str(table) and "<table" in str(table)
    assert "<svg" in str(curves) and "<table" not in str(curves)
    assert posterior_section(new_run(no_curves, no_posterior)) is None
    for name in ("elbo", "decision"):
        lost = new_run({("posterior", "curves.parquet"): posterior_curves().drop(columns=name)})
        assert not MISSING_NUMBER.search(words(posterior_section(lost)))


def test_repeats_are_compared_by_their_members_and_diversity(run: Run[Any], repeated_run: Run[Any]) -> None:
    once, several = diversity_section(run), diversity_section(repeated_run)
    assert "Repeats" not in words(once) and "±" not in words(once) and "<svg" not in once.body
    assert "Repeats" in words(several) and "94.10 ± 0.71" in words(several) and "<svg" in several.body
    with pytest.raises(NothingToDraw, match="--repeats"):
        ensemble_diversity(run)
