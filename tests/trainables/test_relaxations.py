"""Relaxations: their weights, gradients and samples, compared with independent ones, and their state."""

from __future__ import annotations

import copy
import io
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pydantic import ValidationError
from scipy import stats
from torch import Tensor

from archray.errors import InvalidInput, UnknownName
from archray.trainables.supernets.networks import MixtureWeights
from archray.trainables.supernets.optimizers import MirrorDescent
from archray.trainables.supernets.relaxations import (
    Path,
    Relaxation,
    WholeMixture,
    entropy,
    gumbel_noise,
    gumbel_weights,
)
from archray.trainables.supernets.settings import (
    GAEA_FLOOR,
    RELAXATIONS,
    TAU_MIN,
    GumbelSettings,
    PathSettings,
    RelaxationSettings,
)

GROUPS = {"normal": (14, 8), "reduce": (14, 8), "parents_3": (1, 3)}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def start(relaxation: Relaxation, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    return {group: relaxation.initial(*shape, dtype=dtype).requires_grad_() for group, shape in GROUPS.items()}


def make_all(seed: int) -> dict[str, Relaxation]:
    """Makes all relaxations that depend on parameters, in each domain and each form."""
    every: list[RelaxationSettings] = [RELAXATIONS.get(name)() for name in RELAXATIONS]
    every += [GumbelSettings(hard=False), PathSettings(fair=True)]
    return {
        f"{settings!r} of {domain}": settings.make(seeded(seed), domain)
        for settings in every
        for domain in settings.domains
    }


EVERY = tuple(make_all(0))


# All relaxations


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", EVERY)
def test_weights_are_on_the_simplex_and_one_hot_where_chosen(name: str, dtype: torch.dtype) -> None:
    relaxation = make_all(3)[name]
    parameters = start(relaxation, dtype)
    for progress in (0.0, 0.5, 1.0):
        weights = relaxation.weights(parameters, progress)
        assert list(weights) == list(GROUPS)
        for group, each in weights.items():
            assert each.dense.shape == GROUPS[group] and each.dense.dtype == dtype
            assert float(each.dense.detach().min()) >= 0.0
            torch.testing.assert_close(each.dense.detach().sum(-1), torch.ones(GROUPS[group][0], dtype=dtype))
            draws_one = name.startswith(("PathSettings", "GumbelSettings")) and "hard=False" not in name
            assert (each.chosen is not None) == draws_one
            if each.chosen is not None:
                assert torch.equal(each.dense, torch.eye(GROUPS[group][1], dtype=dtype)[each.chosen])


@pytest.mark.parametrize("name", EVERY)
def test_a_seed_gives_the_same_weights_for_any_global_generator(name: str) -> None:
    found = []
    for state in (1, 2):
        torch.manual_seed(state)
        relaxation = make_all(5)[name]
        parameters = start(relaxation)
        found.append([each.dense for _ in range(4) for each in relaxation.weights(parameters, 0.3).values()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    before = torch.get_rng_state()
    relaxation.weights(parameters)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", EVERY)
def test_a_saved_relaxation_continues_identically(name: str) -> None:
    relaxation = make_all(1)[name]
    parameters = start(relaxation)
    for _ in range(5):
        relaxation.weights(parameters)
    file = io.BytesIO()
    torch.save(relaxation.state_dict(), file)
    file.seek(0)
    other = make_all(2)[name]
    other.load_state_dict(torch.load(file, weights_only=True))
    for _ in range(12):
        a, b = relaxation.weights(parameters), other.weights(parameters)
        assert all(torch.equal(a[group].dense, b[group].dense) for group in GROUPS)


@pytest.mark.parametrize("name", EVERY)
def test_the_start_is_nearly_uniform(name: str) -> None:
    relaxation = make_all(0)[name]
    initial = relaxation.initial(6, 5)
    probabilities = relaxation.probabilities(initial)
    torch.testing.assert_close(probabilities, torch.full((6, 5), 0.2), atol=2e-3, rtol=0)
    torch.testing.assert_close(entropy(probabilities), torch.full((6,), math.log(5)))
    if relaxation.domain == "simplex":
        assert bool((initial == 0.2).all())
        MirrorDescent([initial.requires_grad_()], 0.1, floor=GAEA_FLOOR)
    else:
        assert len(initial.unique()) == 30


def test_softmax_and_simplex() -> None:
    parameters = torch.randn((4, 3), generator=seeded())
    soft = WholeMixture(seeded(), "logits").weights({"g": parameters})["g"].dense
    torch.testing.assert_close(soft, parameters.exp() / parameters.exp().sum(-1, keepdim=True))
    rows = soft.detach().requires_grad_()
    weights = WholeMixture(seeded(), "simplex").weights({"g": rows})["g"].dense
    cost = torch.randn((4, 3), generator=seeded(1))
    (weights * cost).sum().backward()
    assert torch.equal(weights, rows) and torch.equal(rows.grad, cost)


# Entropy


@given(hnp.arrays(np.float64, (3, 4), elements=st.floats(0.0, 1.0)))
def test_entropy_equals_a_loop(rows: np.ndarray) -> None:
    rows[:, 0] += 0.1
    rows /= rows.sum(-1, keepdims=True)
    slow = [-sum(p * math.log(p) for p in row if p > 0.0) for row in rows.tolist()]
    np.testing.assert_allclose(entropy(torch.from_numpy(rows)).numpy(), slow, atol=1e-12)


def test_entropy_at_its_extremes() -> None:
    ends = torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    assert entropy(ends).tolist() == pytest.approx([0.0, math.log(4)])


# Gumbel


@pytest.mark.parametrize("domain", ["logits", "simplex"])
@pytest.mark.parametrize("tau", [10.0, 1.0, 0.1])
def test_straight_through_gradient_is_the_softmax_jacobian(domain: str, tau: float) -> None:
    relaxation = GumbelSettings(start=tau, end=tau).make(seeded(7), domain)
    parameters = torch.rand((5, 4), generator=seeded(1), dtype=torch.float64).add(0.1).log().softmax(-1)
    if domain == "logits":
        parameters = parameters.log()
    parameters.requires_grad_()
    twin = copy.deepcopy(relaxation)
    weights = relaxation.weights({"g": parameters})["g"]
    cost = torch.randn((5, 4), generator=seeded(2), dtype=torch.float64)
    (weights.dense * cost).sum().backward()

    noise = gumbel_noise(parameters, twin.generator).numpy()
    logits = parameters.detach().numpy() if domain == "logits" else np.log(parameters.detach().numpy())
    for e in range(5):
        z = (logits[e] + noise[e]) / tau
        p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        jacobian = (np.diag(p) - np.outer(p, p)) / tau  # d softmax(z)_i / d logit_j
        gradient = jacobian.T @ cost[e].numpy()
        if domain == "simplex":
            gradient = gradient / parameters.detach().numpy()[e]
        np.testing.assert_allclose(parameters.grad[e].numpy(), gradient, rtol=1e-8, atol=1e-12)
        assert int(weights.chosen[e]) == int(np.argmax(logits[e] + noise[e]))


def test_concrete_gradient_equals_finite_differences() -> None:
    noise = gumbel_noise(torch.zeros((3, 4), dtype=torch.float64), seeded())
    logits = torch.randn((3, 4), generator=seeded(1), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: gumbel_weights(x, noise, 0.7, hard=False).dense, logits)


@pytest.mark.parametrize("domain", ["logits", "simplex"])
@pytest.mark.parametrize("progress", [0.0, 1.0])
def test_operations_are_sampled_with_their_probabilities(domain: str, progress: float) -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    draws = 20_000  # as many edges in one step
    parameters = (probabilities if domain == "simplex" else probabilities.log() + 3.0).expand(draws, 4)
    chosen = GumbelSettings().make(seeded(0), domain).weights({"g": parameters}, progress)["g"].chosen
    counts = torch.bincount(chosen, minlength=4).numpy()
    assert stats.chisquare(counts, draws * probabilities.numpy()).pvalue > 1e-3


def test_noise_is_gumbel_and_finite() -> None:
    noise = gumbel_noise(torch.zeros(50_000), seeded())
    assert bool(noise.isfinite().all())
    assert stats.kstest(noise.numpy(), "gumbel_r").pvalue > 1e-3


def test_a_zero_on_the_simplex_is_never_sampled_and_has_no_gradient() -> None:
    rows = torch.tensor([0.0, 0.6, 0.4]).repeat(200, 1).requires_grad_()
    weights = GumbelSettings().make(seeded(), "simplex").weights({"g": rows})["g"]
    (weights.dense * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert int(weights.chosen.min()) == 1
    assert bool(rows.grad.isfinite().all()) and bool((rows.grad[:, 0] == 0.0).all())


def test_temperatures() -> None:
    linear, exponential = GumbelSettings(), GumbelSettings(start=1.0, end=0.03, form="exponential")
    assert [linear.temperature(t) for t in (0.0, 0.5, 1.0)] == pytest.approx([10.0, 5.05, TAU_MIN])
    assert [exponential.temperature(t) for t in (0.0, 0.5, 1.0)] == pytest.approx([1.0, math.sqrt(0.03), 0.03])


def test_the_documented_properties_of_the_smallest_temperature() -> None:
    """Two equal operations: mean of p (1 - p) / tau, its variance, and the share of samples that carry it."""
    noise = gumbel_noise(torch.zeros((200_000, 2), dtype=torch.float64), seeded())
    for tau in (TAU_MIN, 0.03):
        p = torch.sigmoid((noise[:, 0] - noise[:, 1]) / tau)
        slope = p * (1 - p)
        assert float((slope / tau).mean()) == pytest.approx(0.25, rel=0.05)
        assert float((slope / tau).var()) == pytest.approx(1 / (24 * tau), rel=0.2)
        assert float((slope > 0.01).double().mean()) == pytest.approx(2.3 * tau, rel=0.05)


# Path


def test_paths_are_uniform_and_edges_independent() -> None:
    relaxation = Path(seeded(0))
    parameters = {"g": torch.full((2, 4), 0.25)}
    pairs = np.zeros((4, 4))
    for _ in range(4000):
        chosen = relaxation.weights(parameters)["g"].chosen
        pairs[int(chosen[0]), int(chosen[1])] += 1
    assert stats.chisquare(pairs.flatten()).pvalue > 1e-3  # all 16 pairs equally often


def test_strict_fairness_counts_are_exact() -> None:
    relaxation = Path(seeded(0), fair=True)
    parameters = start(relaxation)
    steps = 24  # three rounds of 8, eight of 3
    chosen = [{group: each.chosen for group, each in relaxation.weights(parameters).items()} for _ in range(steps)]
    for group, (edges, operations) in GROUPS.items():
        table = torch.stack([each[group] for each in chosen])  # (steps, E)
        for first in range(0, steps, operations):
            for edge in range(edges):
                assert sorted(table[first : first + operations, edge].tolist()) == list(range(operations))


def test_orders_of_strict_fairness_are_uniform() -> None:
    relaxation = Path(seeded(1), fair=True)
    parameters = {"g": torch.full((1000, 3), 1 / 3)}
    orders = torch.stack([relaxation.weights(parameters)["g"].chosen for _ in range(6)])  # two rounds, 1,000 edges
    counts: dict[tuple[int, ...], int] = {}
    for first in (0, 3):
        for order in orders[first : first + 3].T.tolist():
            counts[tuple(order)] = counts.get(tuple(order), 0) + 1
    assert len(counts) == 6
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", EVERY)
def test_a_generator_on_the_cpu_samples_the_same_for_a_gpu(name: str) -> None:
    here, there = make_all(4)[name], make_all(4)[name]
    parameters = start(here)
    start(there)
    moved = {group: each.detach().cuda() for group, each in parameters.items()}
    for _ in range(4):
        a, b = here.weights(parameters, 0.5), there.weights(moved, 0.5)
        for group in GROUPS:
            assert b[group].dense.is_cuda
            torch.testing.assert_close(b[group].dense.cpu(), a[group].dense.detach())


# Errors


def test_unsupported_relaxations_raise_an_error() -> None:
    with pytest.raises(UnknownName, match="choose one of controller, gumbel, path, posterior, simplex, softmax"):
        RELAXATIONS.get("entmax")
    with pytest.raises(InvalidInput, match="'sphere'"):
        GumbelSettings().make(seeded(), "sphere")
    for options, message in (({"end": 0.0}, "end"), ({"start": math.inf}, "start"), ({"form": "cosine"}, "'cosine'")):
        with pytest.raises(ValidationError, match=message):
            GumbelSettings(**options)
    with pytest.raises(InvalidInput, match=r"\(edges, operations\)"):
        MixtureWeights(torch.ones(3))
    with pytest.raises(InvalidInput, match="2 edges"):
        MixtureWeights(torch.ones((2, 3)), torch.zeros(3, dtype=torch.int64))
