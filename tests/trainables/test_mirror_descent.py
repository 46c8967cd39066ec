"""Mirror descent on the simplex, compared with numerical minimizers, for gradients of any size, and as an optimizer."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pydantic import ValidationError
from scipy.optimize import brentq, minimize
from torch import Tensor

from archray.errors import InvalidInput
from archray.references import load_reference
from archray.trainables.supernets.optimizers import MirrorDescent, entropic_step, project_to_simplex, projected_step
from archray.trainables.supernets.settings import GAEA_FLOOR, MirrorDescentSettings

FORMS = {
    "entropy": {"dgf": "entropy"},
    "floor": {"dgf": "entropy", "floor": GAEA_FLOOR},
    "log": {"dgf": "entropy", "log_space": True},
    "euclidean": {"dgf": "euclidean"},
}
DTYPES = (torch.float32, torch.float64)


def uniform(edges: int, operations: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.full((edges, operations), 1.0 / operations, dtype=dtype, requires_grad=True)


def random_rows(edges: int, operations: int, generator: torch.Generator) -> Tensor:
    return torch.rand((edges, operations), generator=generator, dtype=torch.float64).add(0.05).log().softmax(-1)


def assert_on_simplex(rows: Tensor, tolerance: float = 1e-6) -> None:
    rows = rows.detach()
    assert not rows.isnan().any()
    assert float(rows.min()) >= 0.0
    assert float((rows.double().sum(-1) - 1.0).abs().max()) <= tolerance


# The steps as minimizers


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lr", [0.1, 1.0])
def test_entropic_step_is_the_minimizer_of_equation_5(seed: int, lr: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    w = random_rows(1, 4, generator)[0]
    g = torch.randn(4, generator=generator, dtype=torch.float64)

    def objective(u: np.ndarray) -> float:
        return float(g.numpy() @ u + (u * (np.log(u) - np.log(w.numpy()))).sum() / lr)

    found = minimize(
        objective,
        np.full(4, 0.25),
        method="SLSQP",
        bounds=[(1e-9, 1.0)] * 4,
        constraints={"type": "eq", "fun": lambda u: u.sum() - 1.0},
        options={"ftol": 1e-15, "maxiter": 500},
    )
    assert found.success
    stepped = entropic_step(w, g, lr).numpy()
    np.testing.assert_allclose(stepped, found.x, atol=1e-5)
    assert objective(stepped) <= found.fun + 1e-10


@pytest.mark.parametrize("lr", [0.1, 3.0])
def test_projected_step_is_the_minimizer_of_equation_6(lr: float) -> None:
    generator = torch.Generator().manual_seed(1)
    w = random_rows(1, 5, generator)[0]
    g = torch.randn(5, generator=generator, dtype=torch.float64)
    found = minimize(
        lambda u: float(lr * g.numpy() @ u + 0.5 * ((u - w.numpy()) ** 2).sum()),
        np.full(5, 0.2),
        jac=lambda u: lr * g.numpy() + u - w.numpy(),
        method="SLSQP",
        bounds=[(0.0, 1.0)] * 5,
        constraints={"type": "eq", "fun": lambda u: u.sum() - 1.0},
        options={"ftol": 1e-15, "maxiter": 500},
    )
    assert found.success
    np.testing.assert_allclose(projected_step(w, g, lr).numpy(), found.x, atol=1e-6)


def projection_by_bisection(row: np.ndarray) -> np.ndarray:
    """The threshold theta at which the cut row sums to one, by bisection."""
    theta = brentq(lambda t: np.maximum(row - t, 0.0).sum() - 1.0, row.max() - 1.1, row.max(), xtol=1e-15)
    return np.maximum(row - theta, 0.0)


finite = st.floats(-50.0, 50.0, allow_nan=False)
matrices = hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=finite)


@given(matrices)
def test_projection_equals_bisection(rows: np.ndarray) -> None:
    projected = project_to_simplex(torch.from_numpy(rows))
    assert_on_simplex(projected, 1e-12)
    np.testing.assert_allclose(projected.numpy(), [projection_by_bisection(row) for row in rows], atol=1e-9)
    np.testing.assert_allclose(project_to_simplex(projected).numpy(), projected.numpy(), atol=1e-12)


def test_projection_of_many_rows_of_a_thousand_in_float32() -> None:
    rows = torch.randn((3, 2, 1000), generator=torch.Generator().manual_seed(0)) * 1e-2
    projected = project_to_simplex(rows)
    assert_on_simplex(projected)
    slow = [projection_by_bisection(row.double().numpy()) for row in rows.reshape(-1, 1000)]
    np.testing.assert_allclose(projected.reshape(-1, 1000).numpy(), slow, atol=1e-6)
    assert_on_simplex(project_to_simplex(rows * 1e30))


# Invariants


@given(matrices, st.floats(0.0, 5.0), finite, st.randoms(use_true_random=False))
def test_invariants_of_both_steps(gradient: np.ndarray, lr: float, constant: float, random) -> None:
    g = torch.from_numpy(gradient)
    edges, k = g.shape
    w = random_rows(edges, k, torch.Generator().manual_seed(random.randrange(2**31)))
    order = torch.tensor(random.sample(range(k), k))
    for step in (entropic_step, projected_step):
        u = step(w, g, lr)
        assert_on_simplex(u, 1e-9)
        # A constant added to a row of the gradient changes nothing, the order of operations is preserved, and the
        # first-order term does not increase.
        torch.testing.assert_close(step(w, g + constant, lr), u, atol=1e-9, rtol=1e-7)
        torch.testing.assert_close(step(w[:, order], g[:, order], lr), u[:, order], atol=1e-12, rtol=1e-9)
        assert bool(((g * u).sum(-1) <= (g * w).sum(-1) + 1e-9).all())
        torch.testing.assert_close(step(w, g, 0.0), w, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_a_thousand_large_random_gradients_stay_on_the_simplex(form: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    w = uniform(14, 8, dtype)
    optimizer = MirrorDescent([w], 0.1, **FORMS[form])
    for _ in range(1000):
        w.grad = 1e3 * torch.randn((14, 8), generator=generator, dtype=dtype)
        optimizer.step()
        assert_on_simplex(w)
    if form == "floor":
        assert float(w.detach().min()) >= GAEA_FLOOR / (1.0 + 8 * GAEA_FLOOR) * (1.0 - 1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lr", [0.1, 1e6])
def test_infinite_and_overflowing_gradients(form: str, dtype: torch.dtype, lr: float) -> None:
    largest = torch.finfo(dtype).max
    for row, expected in (
        ([-math.inf, 0.0, 1.0], [1.0, 0.0, 0.0]),
        ([-largest, largest, 0.0], [1.0, 0.0, 0.0]),
        ([math.inf, math.inf, 0.0], [0.0, 0.0, 1.0]),
        ([-math.inf, 0.0, -math.inf], [0.5, 0.0, 0.5]),
        ([math.inf, math.inf, math.inf], [1 / 3, 1 / 3, 1 / 3]),
        ([-largest, -largest, -largest], [1 / 3, 1 / 3, 1 / 3]),
    ):
        w = uniform(1, 3, dtype)
        optimizer = MirrorDescent([w], lr, **FORMS[form])
        w.grad = torch.tensor([row], dtype=dtype)
        for _ in range(4):
            optimizer.step()
            assert_on_simplex(w)
        torch.testing.assert_close(w.detach()[0], torch.tensor(expected, dtype=dtype), atol=1e-4, rtol=0)


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_start_in_a_corner(form: str) -> None:
    w = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.0, 0.5]], requires_grad=True)
    optimizer = MirrorDescent([w], 0.1, **FORMS[form])
    for _ in range(3):
        w.grad = torch.tensor([[1e3, -1e3, 0.0], [1e3, -1e30, 2e3]])
        optimizer.step()
        assert_on_simplex(w)
    # A factor never restores a zero; only a floor or the Euclidean step does.
    returned = bool((w.detach()[:, 1] > 0).all())
    assert returned == (form in ("floor", "euclidean"))
    if not returned:  # and the gradient of a zero does not affect the ratio of the others
        assert w.detach().tolist() == [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]


def test_log_space_restores_underflowed_values() -> None:
    back = {}
    for form in ("entropy", "log"):
        w = uniform(1, 2, torch.float32)
        optimizer = MirrorDescent([w], 1.0, **FORMS[form])
        for gradient in (300.0, -301.0):
            w.grad = torch.tensor([[gradient, 0.0]])
            optimizer.step()
        back[form] = w.detach()[0].tolist()
    assert back["entropy"] == [0.0, 1.0]
    assert back["log"] == pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))], abs=1e-4)


# As an optimizer


def quadratic(w: Tensor, target: Tensor) -> Tensor:
    return ((w - target) ** 2).sum()


@pytest.mark.parametrize("form", FORMS)
def test_it_finds_the_minimum_inside_the_simplex(form: str) -> None:
    target = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]], dtype=torch.float64)
    w = uniform(2, 3)
    optimizer = MirrorDescent([w], 0.3, **FORMS[form])
    for _ in range(301):
        optimizer.zero_grad()
        quadratic(w, target).backward()
        optimizer.step()
    assert float(quadratic(w.detach(), target)) < 1e-8


def test_parameter_groups_have_separate_options_and_a_scheduler_changes_rates() -> None:
    operations, edges, idle = uniform(3, 4), uniform(1, 2), uniform(1, 3)
    optimizer = MirrorDescent([{"params": [operations, idle]}, {"params": [edges], "lr": 0.5, "dgf": "euclidean"}], 0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0 / (1 + epoch))
    expected = [operations.detach().clone(), edges.detach().clone()]
    generator = torch.Generator().manual_seed(0)
    for epoch in range(3):
        operations.grad = torch.randn((3, 4), generator=generator, dtype=torch.float64)
        edges.grad = torch.randn((1, 2), generator=generator, dtype=torch.float64)
        expected[0] = entropic_step(expected[0], operations.grad, 0.1 / (1 + epoch))
        expected[1] = projected_step(expected[1], edges.grad, 0.5 / (1 + epoch))
        optimizer.step()
        scheduler.step()
    torch.testing.assert_close([operations.detach(), edges.detach()], expected)
    assert torch.equal(idle, uniform(1, 3))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_a_saved_optimizer_continues_identically(form: str, dtype: torch.dtype) -> None:
    def run(w: Tensor, optimizer: MirrorDescent, steps: range) -> None:
        for i in steps:
            w.grad = 200.0 * torch.randn((5, 4), generator=torch.Generator().manual_seed(i), dtype=dtype)
            optimizer.step()

    w = uniform(5, 4, dtype)
    optimizer = MirrorDescent([w], 0.1, **FORMS[form])
    run(w, optimizer, range(10))
    file = io.BytesIO()
    torch.save({"w": w.detach(), "optimizer": optimizer.state_dict()}, file)
    run(w, optimizer, range(10, 30))

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed = saved["w"].requires_grad_()
    other = MirrorDescent([resumed], 0.7)  # the rate and the form come from the state
    other.load_state_dict(saved["optimizer"])
    run(resumed, other, range(10, 30))
    assert torch.equal(resumed, w)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0.5, 0.6]], "sum 1.1"),
        ([[0.5, 0.5], [1.5, -0.5]], "row 1 with"),
        ([[math.nan, 1.0]], "nan"),
        ([[]], "at least one operation"),
        (1.0, "at least one operation"),
    ],
)
def test_parameters_off_the_simplex_raise_an_error(rows, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        MirrorDescent([torch.tensor(rows, requires_grad=True)], 0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"floor": 0.25}, "floor"),
        ({"floor": -1e-5}, "floor"),
    ],
)
def test_bad_options_raise_an_error(options: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        MirrorDescent([uniform(2, 4)], 0.1, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -0.1}, "lr"),
        ({"lr": math.nan}, "lr"),
        ({"lr": math.inf}, "lr"),
        ({"dgf": "burg"}, "burg"),
        ({"floor": 1e-5, "log_space": True}, "got both"),
        ({"floor": 1e-5, "dgf": "euclidean"}, "entropy"),
        ({"log_space": True, "dgf": "euclidean"}, "entropy"),
    ],
)
def test_bad_settings_raise_an_error(options: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MirrorDescentSettings(**options)


def test_half_precision_and_a_later_group_off_the_simplex_raise_an_error() -> None:
    with pytest.raises(InvalidInput, match="bfloat16"):
        MirrorDescent([torch.full((1, 2), 0.5, dtype=torch.bfloat16, requires_grad=True)], 0.1)
    optimizer = MirrorDescent([uniform(1, 2)], 0.1)
    with pytest.raises(InvalidInput, match="simplex"):
        optimizer.add_param_group({"params": [torch.ones((1, 2), requires_grad=True)]})
    assert len(optimizer.param_groups) == 1


def test_a_nan_gradient_raises_an_error_and_changes_nothing() -> None:
    first, second = uniform(1, 3), uniform(1, 3)
    optimizer = MirrorDescent([first, second], 0.1)
    first.grad, second.grad = torch.ones_like(first), torch.full_like(second, math.nan)
    with pytest.raises(FloatingPointError, match="diverged"):
        optimizer.step()
    assert torch.equal(first, uniform(1, 3)) and torch.equal(second, uniform(1, 3))


# The claim of section 3.1, on the objective of note G2


def test_exponentiated_gradient_is_ahead_at_theoretical_rates_on_a_linear_objective(repository: Path) -> None:
    benchmark = repository / "benchmarks" / "exponentiated_gradient.py"
    gaps, theory = (load_reference(f"{benchmark}:{name}") for name in ("gaps", "theory"))
    for seed in range(3):
        rates = {dgf: theory(dgf, 200, 300) for dgf in ("entropy", "euclidean")}
        average = {dgf: gaps(dgf, rate, 200, 300, 0.5, seed)[0] for dgf, (rate, _) in rates.items()}
        assert average["entropy"] < 0.6 * average["euclidean"]
        assert average["entropy"] <= rates["entropy"][1]
