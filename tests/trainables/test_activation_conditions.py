"""Theorems 1, 4 and 7 of Roberts et al. (2022) on instances of every kind, and the forms of note U5."""

import pytest
import torch
from scipy.optimize import minimize

from archray.trainables.activations.instances import Pairs, SharedRisks, uniform_on_simplex, without
from archray.trainables.activations.two_layer import best_alpha


def teachers(number, activations, seed=0, points=40):
    """Outputs (S, n, h) of networks with something in common, and alpha (S, h)."""
    generator = torch.Generator().manual_seed(seed)
    components = torch.randn(number, points, activations, generator=generator, dtype=torch.float64)
    scales = torch.rand(number, 1, activations, generator=generator, dtype=torch.float64) + 0.2
    components = scales * (components + torch.randn(number, points, 1, generator=generator, dtype=torch.float64))
    return components, uniform_on_simplex(number, activations, generator=generator)


def mixed_outputs(components, alpha):
    return (components * alpha[:, None]).sum(-1)


def test_lemma_5_factors_alpha():
    _, alpha = teachers(20, 4)
    gamma = without(alpha)
    torch.testing.assert_close(gamma.sum(-1), torch.ones(20, 4, dtype=torch.float64))
    for i in range(4):
        assert (gamma[:, i, i] == 0).all()
        for k in {0, 1, 2, 3} - {i}:
            torch.testing.assert_close((1 - alpha[:, i]) * gamma[:, i, k], alpha[:, k])


def test_risks_and_distances_are_means_over_the_sample():
    components, alpha = teachers(3, 3)
    labels = components[:, :, 0].square()
    risks = SharedRisks.of(components, labels, alpha)
    for s in range(3):
        beta = alpha[s, 1] / (alpha[s, 1] + alpha[s, 2])  # Lemma 2
        rest = beta * components[s, :, 1] + (1 - beta) * components[s, :, 2]
        assert risks.distances[s, 0].item() == pytest.approx(((components[s, :, 0] - rest) ** 2).mean().item() / 2)
        assert risks.discrete[s, 1].item() == pytest.approx(((components[s, :, 1] - labels[s]) ** 2).mean().item() / 2)


@pytest.mark.parametrize("activations", [2, 3, 6])
def test_the_theorems_hold_for_every_teacher(activations):
    components, alpha = teachers(1000, activations)
    risks = SharedRisks.of(components, mixed_outputs(components, alpha), alpha)
    torch.testing.assert_close(risks.discrete, (1 - alpha) ** 2 * risks.distances)  # the proofs' identity
    pairs = Pairs.of(risks)
    ordered = int(pairs.ordered.sum())
    assert ordered == 1000 * activations * (activations - 1) // 2  # each pair in one order
    assert int(pairs.violations.sum()) == 0
    if activations == 2:
        assert (pairs.condition | ~pairs.ordered).all()  # Theorem 1 is Theorem 7 with a condition that always holds
        assert (pairs.conclusion == pairs.ordered).all()
    else:
        without_condition = pairs.ordered & ~pairs.condition
        kept = int((without_condition & pairs.conclusion).sum())
        assert 0 < kept < int(without_condition.sum())  # sufficient and not necessary, and not vacuous


def test_two_similar_activations_share_the_weight():
    generator = torch.Generator().manual_seed(0)
    one, other = torch.randn(2, 500, generator=generator, dtype=torch.float64)
    components = torch.stack([one, one + 1e-3 * other, other], dim=-1)[None]
    alpha = torch.tensor([[0.3, 0.29, 0.41]], dtype=torch.float64)
    risks = SharedRisks.of(components, mixed_outputs(components, alpha), alpha)
    # The best single one does not have the largest weight
    assert risks.discrete[0].argmin() < 2 and alpha[0].argmax() == 2
    pairs = Pairs.of(risks)
    assert pairs.ordered[0, 0, 2] and not pairs.condition[0, 0, 2] and not pairs.conclusion[0, 0, 2]


def unrelated_problem(number, activations, seed=1):
    components, alpha = teachers(number, activations, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    labels = 0.7 * mixed_outputs(components, alpha) + torch.randn(components.shape[:2], generator=generator).double()
    return components, labels, uniform_on_simplex(number, activations, generator=generator)


def test_without_realizability_the_theorem_fails_for_some_alpha_and_the_margin_fixes_it():
    components, labels, alpha = unrelated_problem(1000, 4)
    pairs = Pairs.of(SharedRisks.of(components, labels, alpha))
    assert pairs.violations.any()
    near = 0.9 * alpha + 0.1 * teachers(1000, 4, seed=1)[1]
    labels = mixed_outputs(components, near)  # a search that has nearly found the teacher
    pairs = Pairs.of(SharedRisks.of(components, labels, alpha))
    assert int((pairs.ordered & pairs.condition & pairs.margin).sum()) > 100
    assert int((pairs.violations & pairs.margin).sum()) == 0


@pytest.mark.parametrize("activations", [2, 5])
def test_without_realizability_the_theorem_holds_for_the_best_alpha(activations):
    components, labels, _ = unrelated_problem(1000, activations)
    alpha = best_alpha(components, labels)
    pairs = Pairs.of(SharedRisks.of(components, labels, alpha))
    either = (alpha[:, :, None] > 0) | (alpha[:, None, :] > 0)
    assert int((pairs.ordered & pairs.condition & either).sum()) > 200
    assert int((pairs.violations & either).sum()) == 0


def test_the_best_alpha_equals_that_of_a_general_solver():
    components, labels, _ = unrelated_problem(6, 4)
    best = best_alpha(components, labels)
    assert (best >= 0).all() and (best == 0).any()  # some instances have their best on the boundary
    torch.testing.assert_close(best.sum(-1), torch.ones(6, dtype=torch.float64))
    for one, label, alpha in zip(components.numpy(), labels.numpy(), best.numpy(), strict=True):
        solution = minimize(
            lambda a, one=one, label=label: ((label - one @ a) ** 2).mean(),
            [0.25] * 4,
            bounds=[(0, 1)] * 4,
            constraints={"type": "eq", "fun": lambda a: a.sum() - 1},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert ((label - one @ alpha) ** 2).mean() <= solution.fun + 1e-12
        assert alpha == pytest.approx(solution.x, abs=1e-5)


def test_the_best_alpha_of_realizable_labels_is_the_teachers():
    components, alpha = teachers(20, 5)
    torch.testing.assert_close(best_alpha(components, mixed_outputs(components, alpha)), alpha)
