"""Measures of ensembles, many ensembles at once, forward selection and agreement, compared with loops over images."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.ensembles.measures import (
    agreement,
    average,
    calibration_error,
    disagreement,
    ensemble_accuracy,
    ensemble_loss,
    measure_ensemble,
    member_accuracies,
    member_losses,
    top_agreement,
)
from archray.trainables.ensembles.scores import arrange, forward_selection, score_ensembles

AVERAGED: Any = ("probabilities", "logits")


def sample_predictions(
    members: int, images: int = 40, classes: int = 4, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Returns probabilities in float32, as networks return them, and labels."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.standard_normal((members, images, classes))
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return p.astype(np.float32), rng.integers(0, classes, images)


def certain_predictions(members: int, images: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns members that are certain of one class; averages have ties."""
    rng = np.random.default_rng(seed)
    p = np.eye(classes, dtype=np.float32)[rng.integers(0, classes, (members, images))]
    return p, rng.integers(0, classes, images)


def slow(p: np.ndarray, labels: np.ndarray, how: str) -> tuple[float, float]:
    """Computes loss and accuracy of the average, image by image."""
    loss, right = 0.0, 0
    for i, label in enumerate(labels.tolist()):
        if how == "probabilities":
            mean = [math.fsum(float(member[i, c]) for member in p) / len(p) for c in range(p.shape[2])]
        else:
            z = [math.fsum(math.log(float(member[i, c])) for member in p) / len(p) for c in range(p.shape[2])]
            total = math.fsum(math.exp(each) for each in z)
            mean = [math.exp(each) / total for each in z]
        loss -= math.log(mean[label])
        right += mean.index(max(mean)) == label
    return loss / len(labels), right / len(labels)


# One ensemble


@pytest.mark.parametrize("how", AVERAGED)
def test_loss_and_accuracy_equal_those_of_a_loop(how: Any) -> None:
    p, labels = sample_predictions(3)
    loss, accuracy = slow(p, labels, how)
    assert ensemble_loss(p, labels, how) == pytest.approx(loss, rel=1e-6)
    assert ensemble_accuracy(p, labels, how) == accuracy
    assert ensemble_loss(torch.from_numpy(p), torch.from_numpy(labels), how) == ensemble_loss(p, labels, how)


def test_averaged_logits_are_the_softmax_of_their_mean() -> None:
    logits = torch.randn(3, 20, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = logits.mean(0).softmax(-1)
    np.testing.assert_allclose(average(logits.softmax(-1), "logits"), expected, rtol=1e-12)


def test_members_are_measured_one_by_one() -> None:
    p, labels = sample_predictions(3)
    alone = [slow(member[None], labels, "probabilities") for member in p]
    np.testing.assert_allclose(member_losses(p, labels), [loss for loss, _ in alone], rtol=1e-5)
    assert member_accuracies(p, labels).tolist() == [accuracy for _, accuracy in alone]


def test_the_loss_of_the_average_is_at_most_the_mean_loss_of_the_members() -> None:
    p, labels = sample_predictions(5)  # Jensen's inequality
    assert ensemble_loss(p, labels) < member_losses(p, labels).mean()


def test_disagreement_counts_pairs_and_images() -> None:
    classes = [[0, 1, 2, 0], [0, 1, 1, 1], [0, 2, 2, 1]]
    counts = [sum(a != b for a, b in zip(x, y, strict=True)) for x, y in itertools.combinations(classes, 2)]
    assert disagreement(classes) == pytest.approx(sum(counts) / 3 / 4)
    assert math.isnan(disagreement(classes[:1]))


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_calibration_error_equals_that_of_a_loop(bins: int) -> None:
    p, labels = sample_predictions(1, images=300)
    total = 0.0
    for m in range(1, bins + 1):
        inside = [i for i, row in enumerate(p[0]) if (m - 1) / bins < row.max() <= m / bins]
        if inside:
            accuracy = sum(p[0][i].argmax() == labels[i] for i in inside) / len(inside)
            confidence = sum(float(p[0][i].max()) for i in inside) / len(inside)
            total += len(inside) / len(labels) * abs(accuracy - confidence)
    assert calibration_error(p[0], labels, bins) == pytest.approx(total, abs=1e-6)


def test_certain_and_correct_predictions_are_perfectly_calibrated() -> None:
    labels = np.arange(6) % 3
    assert calibration_error(np.eye(3)[labels], labels) == 0
    assert calibration_error(np.eye(3)[(labels + 1) % 3], labels) == 1


def test_all_measures_of_an_ensemble() -> None:
    p, labels = sample_predictions(3)
    found = measure_ensemble(p, labels)
    assert found["loss"] == ensemble_loss(p, labels) and found["accuracy"] == ensemble_accuracy(p, labels)
    assert found["average_accuracy"] == pytest.approx(member_accuracies(p, labels).mean())
    assert found["disagreement"] == disagreement(p.argmax(2))
    assert found["calibration_error"] == calibration_error(average(p), labels)
    assert [len(found[f"member_{name}"]) for name in ("losses", "accuracies", "calibration_errors")] == [3, 3, 3]
    assert measure_ensemble(p[:1], labels)["disagreement"] is None


@given(st.permutations(range(4)), st.sampled_from(AVERAGED))
def test_the_order_of_members_does_not_matter(order: list[int], how: Any) -> None:
    p, labels = sample_predictions(4)
    before, after = measure_ensemble(p, labels, how), measure_ensemble(p[order], labels, how)
    assert after["member_losses"] == [before["member_losses"][each] for each in order]
    for name in ("loss", "accuracy", "average_accuracy", "disagreement", "calibration_error"):
        assert after[name] == pytest.approx(before[name], rel=1e-12)


def test_a_probability_of_zero_has_a_finite_loss() -> None:
    p, labels = np.array([[[1.0, 0.0]]]), [1]
    assert ensemble_loss(p, labels) == member_losses(p, labels)[0] == pytest.approx(87.34, abs=0.01)
    assert score_ensembles([arrange(p[0], labels)], labels, [[0]])[0][0] == pytest.approx(87.34, abs=0.01)


@pytest.mark.parametrize(
    ("p", "labels"),
    [
        (np.full((3, 4), 0.25), [0, 0, 0]),
        (np.full((1, 3, 2), np.nan), [0, 0, 0]),
        (np.full((1, 3, 2), 2.0), [0, 0, 0]),
        (np.full((1, 3, 2), 0.5), [0, 0]),
        (np.full((1, 3, 2), 0.5), [0, 0, 2]),
        (np.full((1, 3, 2), 0.5), [0.0, 0.0, 1.0]),
    ],
)
def test_invalid_predictions_raise_an_error(p: Any, labels: Any) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        ensemble_loss(p, labels)


# Many ensembles


@pytest.mark.parametrize("how", AVERAGED)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_scores_of_many_ensembles_equal_separate_scores(how: Any, size: int) -> None:
    p, labels = sample_predictions(8)
    rng = np.random.default_rng(1)
    ensembles = np.stack([rng.permutation(8)[:size] for _ in range(20)])
    losses, accuracies = score_ensembles([arrange(each, labels, how) for each in p], labels, ensembles, how)
    for row, loss, accuracy in zip(ensembles, losses, accuracies, strict=True):
        expected = slow(p[row], labels, how)
        assert loss == pytest.approx(expected[0], rel=1e-5) and accuracy == expected[1]


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 1000))
def test_ties_go_to_the_first_class(members: int, classes: int, seed: int) -> None:
    p, labels = certain_predictions(members, 30, classes, seed)
    arranged = [arrange(each, labels) for each in p]
    _, accuracies = score_ensembles(arranged, labels, [range(members)])
    assert accuracies[0] == ensemble_accuracy(p, labels)


@given(st.permutations(range(5)), st.sampled_from(AVERAGED))
def test_the_order_in_an_ensemble_changes_no_bit(order: list[int], how: Any) -> None:
    p, labels = sample_predictions(5)
    arranged = [arrange(each, labels, how) for each in p]
    first, again = score_ensembles(arranged, labels, [range(5), order], how)
    assert first[0] == first[1] and again[0] == again[1]


def test_arranged_predictions_start_with_the_true_class() -> None:
    p, labels = sample_predictions(1)
    assert arrange(p[0], labels)[0].tolist() == p[0][np.arange(len(labels)), labels].tolist()


def test_scoring_does_not_change_predictions_and_rejects_unknown_members() -> None:
    p, labels = sample_predictions(2)
    arranged = [arrange(each, labels) for each in p]
    for each in arranged:
        each.flags.writeable = False  # as in the object store
    score_ensembles(arranged, labels, [[0, 1], [1]])
    for wrong in ([2], [-1], []):
        with pytest.raises(InvalidInput, match=r"indices 0\.\.1"):
            score_ensembles(arranged, labels, [wrong])


# Selection


def test_forward_selection_takes_the_best_next_member() -> None:
    p, labels = sample_predictions(7)
    found = forward_selection(p, labels, 4)
    chosen: list[int] = []
    for _ in range(4):
        losses = {m: slow(p[[*chosen, m]], labels, "probabilities")[0] for m in range(7) if m not in chosen}
        chosen.append(min(losses, key=lambda m: losses[m]))
    assert found.members == chosen
    assert found.losses == pytest.approx([slow(p[chosen[:n]], labels, "probabilities")[0] for n in range(1, 5)])


@given(st.permutations(range(6)))
def test_forward_selection_does_not_depend_on_the_order_of_the_pool(order: list[int]) -> None:
    p, labels = sample_predictions(6)
    members = forward_selection(p, labels, 3).members
    assert [order[each] for each in forward_selection(p[order], labels, 3).members] == members


def test_forward_selection_repeats_no_member_and_needs_a_pool() -> None:
    p, labels = sample_predictions(3)
    same = np.stack([p[0]] * 3)
    assert forward_selection(same, labels, 3).members == [0, 1, 2]
    with pytest.raises(InvalidInput, match="a size of 1 to 3"):
        forward_selection(p, labels, 4)
    with pytest.raises(InvalidInput, match="finite"):
        forward_selection(np.full_like(p, np.nan), labels, 1)


# Estimates


def test_agreement_with_measured_values() -> None:
    rng = np.random.default_rng(0)
    true = rng.standard_normal(20).round(1)  # some are equal
    estimated = true + rng.standard_normal(20)
    found = agreement([*estimated, math.nan], [*true, 0.0])
    assert found["spearman"] == pytest.approx(spearmanr(estimated, true)[0])
    assert found["pearson"] == pytest.approx(pearsonr(estimated, true)[0])
    assert found["chance"] == 0.3 and found["count"] == 20
    best = [sorted(range(20), key=lambda i: -values[i])[:6] for values in (estimated, true)]
    assert found["agreement"] == len(set(best[0]) & set(best[1])) / 6


def test_agreement_of_equal_and_of_opposite_orders() -> None:
    true = np.arange(10.0)
    assert top_agreement(true, true) == 1 and top_agreement(-true, true) == 0
    nothing = agreement([], [])
    assert nothing["count"] == 0 and all(math.isnan(nothing[name]) for name in ("spearman", "agreement", "chance"))
    assert math.isnan(agreement([1.0, 1.0, 1.0], [1.0, 2.0, 3.0])["pearson"])
    with pytest.raises(InvalidInput, match="an estimate for each"):
        agreement([1.0], [1.0, 2.0])


def test_the_loss_equals_that_of_torch() -> None:
    p, labels = sample_predictions(1)
    expected = F.nll_loss(torch.from_numpy(p[0]).double().log(), torch.from_numpy(labels))
    assert ensemble_loss(p, labels) == pytest.approx(expected.item(), rel=1e-6)
