"""XNAS compared with its rounds in plain Python, and the guarantee of wipe-out against the worst opponent."""

from __future__ import annotations

import io
import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from archray.errors import InvalidInput
from archray.trainables.supernets.optimizers import XNAS, point_gradients
from archray.trainables.supernets.settings import XNASSettings


def uniform(edges: int, operations: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.full((edges, operations), 1.0 / operations, dtype=dtype, requires_grad=True)


def gradients(seed: int, points: int, edges: int, operations: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """(points, E, O): operation 0 is the best overall, the last the worst."""
    drift = torch.linspace(-0.5, 0.5, operations, dtype=dtype)
    return drift + torch.randn((points, edges, operations), generator=torch.Generator().manual_seed(seed), dtype=dtype)


def reference(row_gradients: list[list[list[float]]], rounds: int, clip: float, operations: int) -> list[float]:
    """One row, point by point: v <- v exp(eta reward), and at the end of each batch the lowest values are removed."""
    eta = math.sqrt(2.0 * math.log(operations) / rounds) / clip
    v = dict.fromkeys(range(operations), 1.0)
    seen = 0
    for batch in row_gradients:
        for point in batch:
            for o in v:
                reward = min(max(-point[o], -clip), clip)
                v[o] *= math.exp(eta * reward)
            seen += 1
        threshold = max(v.values()) * math.exp(-2.0 * eta * clip * (rounds - seen))
        v = {o: value for o, value in v.items() if value >= threshold}
    return [v.get(o, 0.0) / sum(v.values()) for o in range(operations)]


@pytest.mark.parametrize("clip", [0.5, 2.0])
def test_it_equals_single_rounds(clip: float) -> None:
    rounds, batch, edges, operations = 96, 8, 3, 5
    w = uniform(edges, operations)
    optimizer = XNAS([w], rounds, clip)
    batches: list[Tensor] = []
    support = []
    for step in range(rounds // batch):
        batches.append(gradients(step, batch, edges, operations))
        optimizer.add_points([batches[-1]])
        optimizer.step()
        for edge in range(edges):
            expected = reference([each[:, edge].tolist() for each in batches], rounds, clip, operations)
            assert w.detach()[edge].tolist() == pytest.approx(expected, abs=1e-12)
            assert [each == 0.0 for each in w.detach()[edge].tolist()] == [each == 0.0 for each in expected]
        support.append(int((w.detach() > 0).sum()))
    assert support == sorted(support, reverse=True) and edges < support[-2] < edges * operations
    # After the last round nothing can change: one operation is left on each edge.
    assert bool((w.detach().sort(-1).values == torch.tensor([0.0] * 4 + [1.0])).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_only_operations_that_could_not_have_won_are_wiped_out(dtype: torch.dtype) -> None:
    """In a copy that never wipes out, the opponent gives a wiped operation the largest reward from then on."""
    rounds, batch, operations, clip = 60, 4, 4, 1.0
    w = uniform(1, operations, dtype)
    optimizer = XNAS([w], rounds, clip)
    total = torch.zeros(operations, dtype=torch.float64)
    found = 0
    for step in range(rounds // batch):
        given = gradients(step, batch, 1, operations, dtype)
        optimizer.add_points([given])
        total += given[:, 0].double().clamp(-clip, clip).sum(0)
        wiped_before = w.detach()[0] == 0
        optimizer.step()
        left = rounds - (step + 1) * batch
        best = total.min()
        for o in ((w.detach()[0] == 0) & ~wiped_before).nonzero().flatten().tolist():
            found += 1
            assert total[o] - clip * left > best + clip * left - 1e-4
        for o in (w.detach()[0] > 0).nonzero().flatten().tolist():
            assert total[o] - clip * left <= best + clip * left + 1e-4
    assert found == operations - 1


def test_points_are_clipped_one_by_one_and_may_arrive_in_pieces() -> None:
    given = gradients(0, 6, 2, 3)
    whole, pieces = uniform(2, 3), uniform(2, 3)
    first, second = XNAS([whole], 100), XNAS([pieces], 100)
    first.add_points([given])
    first.step()
    second.add_points([given[:4]])
    second.add_points([given[4:]])
    second.step()
    assert torch.equal(whole, pieces)
    # A point with a huge gradient counts no more than one at the limit.
    huge, limit = uniform(1, 2), uniform(1, 2)
    for w, scale in ((huge, 1e6), (limit, 1.0)):
        optimizer = XNAS([w], 100)
        optimizer.add_points([torch.tensor([[[-scale, 0.0]], [[0.5, 0.0]]], dtype=torch.float64)])
        optimizer.step()
    assert torch.equal(huge, limit)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_never_leave_the_simplex(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    w = uniform(6, 5, dtype)
    optimizer = XNAS([w], 1000, clip=10.0, lr=5.0)
    for _ in range(500):
        optimizer.add_points([1e3 * torch.randn((2, 6, 5), generator=generator, dtype=dtype)])
        optimizer.step()
        assert float(w.detach().min()) >= 0.0
        assert float((w.detach().double().sum(-1) - 1.0).abs().max()) <= 1e-6


def test_point_gradients_equal_those_of_the_loss_of_each_point() -> None:
    torch.manual_seed(0)
    a, b = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    x = torch.randn((5, 3), dtype=torch.float64)
    network = nn.BatchNorm1d(3).double()

    def losses() -> Tensor:
        return (network(x * a) * b).sin().sum(-1)

    found = point_gradients(losses(), [a, b])
    for i in range(5):
        for parameter, each in zip((a, b), found, strict=True):
            assert each.shape == (5, 3)
            torch.testing.assert_close(each[i], torch.autograd.grad(losses()[i], parameter)[0])


def test_points_of_linear_losses_equal_the_data() -> None:
    w = uniform(1, 3)
    optimizer = XNAS([w], 10)
    data = gradients(3, 4, 1, 3)
    optimizer.add_points(point_gradients((data * w).sum((1, 2)), [w]))
    optimizer.step()
    other = uniform(1, 3)
    again = XNAS([other], 10)
    again.add_points([data])
    again.step()
    torch.testing.assert_close(w, other)


def test_a_saved_optimizer_continues_identically() -> None:
    def run(params: list[Tensor], optimizer: XNAS, steps: range) -> None:
        for i in steps:
            optimizer.add_points([gradients(i, 3, 2, 4, torch.float32), gradients(i, 3, 1, 2, torch.float32)])
            if i % 2:  # the state is taken between points and step
                optimizer.step()

    params = [uniform(2, 4, torch.float32), uniform(1, 2, torch.float32)]
    optimizer = XNAS([{"params": params[:1]}, {"params": params[1:], "clip": 0.3}], 120)
    run(params, optimizer, range(9))
    file = io.BytesIO()
    torch.save({"params": [each.detach() for each in params], "optimizer": optimizer.state_dict()}, file)
    run(params, optimizer, range(9, 20))

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed = [each.requires_grad_() for each in saved["params"]]
    other = XNAS([{"params": resumed[:1]}, {"params": resumed[1:]}], 1)
    other.load_state_dict(saved["optimizer"])
    run(resumed, other, range(9, 20))
    assert all(torch.equal(a, b) for a, b in zip(resumed, params, strict=True))


def test_bad_options_raise_an_error() -> None:
    w = uniform(2, 3)
    for option, wrong in (("clip", 0.0), ("clip", math.inf), ("lr", -1.0), ("lr", math.nan)):
        with pytest.raises(ValidationError, match=option):
            XNASSettings(**{option: wrong})
    with pytest.raises(InvalidInput, match="simplex"):
        XNAS([torch.ones((2, 3), requires_grad=True)], 10)
    optimizer = XNAS([w], 4)
    w.grad = torch.ones_like(w)
    with pytest.raises(InvalidInput, match="add_points"):
        optimizer.step()
    with pytest.raises(FloatingPointError, match="diverged"):
        optimizer.add_points([torch.full((1, 2, 3), math.nan)])
    optimizer.add_points([torch.ones((3, 2, 3))])
    with pytest.raises(InvalidInput, match="at most 4 data points, got 5"):
        optimizer.add_points([torch.ones((2, 2, 3))])
    optimizer.step()
    assert torch.equal(w, uniform(2, 3))
