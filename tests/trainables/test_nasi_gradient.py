"""The gradient of the NTK's trace norm, compared with finite differences in float64 (note N2) and with autograd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from archray.trainables.nasi.search import decisions_of, form_of, path_of
from archray.trainables.nasi.trace_norm import Approximation, differentiated, trace_gradient, trace_norm
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.supernets.networks import Supernet, build_supernet, cells
from archray.trainables.supernets.relaxations import gumbel_weights

SPACES = ("nasbench201", "darts", "nasbench1shot1-1", "nasbench1shot1-3")
# Elsewhere finite differences would cross kinks: max-pooling of the zeros that a node of NAS-Bench-1Shot1 does not
# read, or of values that another pooling has made equal. Space, seed of the sample, approximation, step of the tested
# weights.
SMOOTH: tuple[tuple[str, int, Approximation, int], ...] = (
    ("nasbench201", 3, "batch", 3),
    ("nasbench201", 3, "samples", 9),
    ("nasbench201", 3, "exact", 9),
    ("darts", 6, "batch", 16),
)
CASES = [pytest.param(*case, marks=[pytest.mark.slow] * (case[0] == "darts")) for case in SMOOTH]
STEP = 1e-6  # for finite differences: few pixels cross a kink of ReLU within it


def tiny_supernet(space: str) -> Supernet:
    """A supernet in float64 in evaluation mode, in which nothing is fused; it still normalizes by the batch."""
    network = NetworkSettings(channels=4, cells=1)
    supernet = build_supernet(space, network, 3, 4, seed=1, none=space != "darts", form=form_of(space))
    return supernet.double().eval()


def batch(size: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(size, 3, 8, 8, generator=generator, dtype=torch.float64), torch.arange(size) % 4


def sample_rows(supernet: Supernet, seed: int) -> Tensor:
    """(B, C) one-hot rows of a random architecture with connections."""
    decisions = decisions_of(supernet)
    draws = torch.rand(decisions.allowed.shape, generator=torch.Generator().manual_seed(seed))
    chosen = draws.masked_fill(~decisions.allowed, -1.0).argmax(-1)
    return F.one_hot(chosen, decisions.allowed.shape[1]).float()


def squared_gradient(
    supernet: Supernet, dense: Mapping[str, Tensor], approximation: Approximation, *, graph: bool = False
) -> Tensor:
    """R at any weights, with all operations mixed; from `trace_gradient` it uses only the differentiated function."""
    images, labels = batch()
    functions, factor = differentiated(supernet(images, dense), labels, approximation)
    squares = []
    for function in functions:
        gradients = torch.autograd.grad(
            function, list(supernet.parameters()), retain_graph=True, create_graph=graph, allow_unused=True
        )
        squares += [g.square().sum() for g in gradients if g is not None]
    return factor * torch.stack(squares).sum()


@pytest.mark.parametrize(("space", "seed", "approximation", "every"), CASES)
def test_gradient_by_weights_equals_finite_differences(
    space: str, seed: int, approximation: Approximation, every: int
) -> None:
    supernet = tiny_supernet(space)
    decisions = decisions_of(supernet)
    rows = sample_rows(supernet, seed)
    mixture, masks = decisions.mixture(rows), decisions.masks(rows)
    images, labels = batch()
    found = trace_gradient(supernet, images, labels, path_of(supernet, mixture), masks, approximation)
    dense = {name: weights.dense.double() for name, weights in mixture.items()}
    assert found.trace == pytest.approx(float(squared_gradient(supernet, dense, approximation)), rel=1e-9)
    checked = 0
    for name, weights in dense.items():
        for row, column in masks[name].nonzero().tolist()[::every]:
            sides = []
            for sign in (1.0, -1.0):
                moved = weights.clone()
                moved[row, column] += sign * STEP
                sides.append(float(squared_gradient(supernet, dense | {name: moved}, approximation)))
            difference = (sides[0] - sides[1]) / (2 * STEP)
            assert float(found.by_weights[name][row, column]) == pytest.approx(difference, rel=1e-4, abs=1e-5)
            checked += 1
    assert checked >= 3


@pytest.mark.parametrize("space", [*SPACES[:1], *(pytest.param(name, marks=pytest.mark.slow) for name in SPACES[1:])])
def test_gradient_by_weights_equals_a_double_backward_pass(space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the whole supernet, with every operation mixed.

    The supernet's sum of operations can be differentiated only once.
    """

    def plain_sum(terms: Sequence[tuple[Tensor, Tensor | None]]) -> Tensor:
        return torch.stack([tensor if weight is None else weight * tensor for tensor, weight in terms]).sum(0)

    monkeypatch.setattr(cells, "weighted_sum", plain_sum)
    supernet = tiny_supernet(space)
    decisions = decisions_of(supernet)
    for seed in range(3):
        rows = sample_rows(supernet, seed)
        mixture, masks = decisions.mixture(rows), decisions.masks(rows)
        found = trace_gradient(supernet, *batch(), path_of(supernet, mixture), masks)
        dense = {name: weights.dense.double().requires_grad_() for name, weights in mixture.items()}
        expected = torch.autograd.grad(squared_gradient(supernet, dense, "batch", graph=True), list(dense.values()))
        for (name, gradient), mask in zip(found.by_weights.items(), masks.values(), strict=True):
            by_autograd = torch.where(mask, expected[list(dense).index(name)], 0.0)
            torch.testing.assert_close(gradient.double(), by_autograd, rtol=1e-4, atol=1e-4)


def test_gradient_by_alpha_is_the_softmax_jacobian_of_that_by_weights() -> None:
    """Straight-through is one-hot in the forward pass, and the softmax of the perturbed logits in the backward pass
    (note N2).
    """
    supernet = tiny_supernet("nasbench201")
    decisions = decisions_of(supernet)
    noise = torch.randn(decisions.allowed.shape, generator=torch.Generator().manual_seed(4))
    alpha = torch.zeros_like(noise, requires_grad=True)
    rows = gumbel_weights(alpha, noise, 1.0, hard=True).dense
    mixture = decisions.mixture(rows)
    images, labels = batch()
    found = trace_gradient(supernet, images, labels, path_of(supernet, mixture), decisions.masks(rows.detach()))
    by_weights = found.by_weights["edges"]
    torch.autograd.backward([mixture["edges"].dense], [by_weights])
    p = noise.softmax(-1)  # (B, C)
    jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    expected = (jacobian @ by_weights[:, :, None])[:, :, 0]
    assert alpha.grad is not None
    torch.testing.assert_close(alpha.grad, expected)
    assert float(expected.abs().max()) > 0


def test_trace_norms_are_ordered_by_their_bounds() -> None:
    """Eq.

    6.5 and 6.6: that of the batch is at most that of the samples, which is at most gamma^2 (2) times the exact one.
    """
    supernet = tiny_supernet("nasbench201")
    images, labels = batch(6)
    parameters = list(supernet.parameters())
    for seed in range(5):
        path = path_of(supernet, decisions_of(supernet).mixture(sample_rows(supernet, seed)))
        traces = [
            trace_norm(supernet.logits(images, path), labels, parameters, name)
            for name in ("batch", "samples", "exact")
        ]
        assert traces[0] <= traces[1] * (1 + 1e-9) and traces[1] <= 2 * traces[2] * (1 + 1e-9)


def test_weights_for_two_choices_raise_an_error() -> None:
    """For DARTS: the chosen input's operations and the chosen operation on every input both have a gradient."""
    supernet = tiny_supernet("darts")
    decisions = decisions_of(supernet)
    rows = sample_rows(supernet, seed=5)
    leaf = rows.clone().requires_grad_()
    dense = decisions.mixture(leaf)["normal"].dense
    mask = decisions.masks(rows)["normal"]
    torch.autograd.backward([dense], [torch.where(mask, 0.0, 1.0)])
    assert leaf.grad is not None and float(leaf.grad.abs().max()) == 0
    assert int(mask.sum()) == sum(7 + node - 1 for node in (2, 3, 4, 5))
