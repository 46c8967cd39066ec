"""Batch normalization with pairwise sums, compared with torch in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archray.trainables.proxies.layers import PairwiseBatchNorm, norm_backward, norm_statistics, pairwise_sums

CHANNELS_LAST = torch.channels_last  # (m, H, W, C) in memory


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("mean", [0.0, 3.0, 300.0])
@pytest.mark.parametrize("affine", [True, False])
def test_outputs_and_gradients_equal_those_in_float64(mean: float, affine: bool) -> None:
    x = (mean + normal(16, 4, 12, 12)).contiguous(memory_format=CHANNELS_LAST).requires_grad_()
    gamma, beta = (normal(4, seed=1).requires_grad_(), normal(4, seed=2).requires_grad_()) if affine else (None, None)
    gradient = normal(16, 4, 12, 12, seed=3).contiguous(memory_format=CHANNELS_LAST)
    y = PairwiseBatchNorm.apply(x, gamma, beta, 1e-5)
    found = torch.autograd.grad(y, [t for t in (x, gamma, beta) if t is not None], gradient)
    exact = [t.detach().double().requires_grad_() if t is not None else None for t in (x, gamma, beta)]
    expected_y = F.batch_norm(exact[0], None, None, exact[1], exact[2], True, 0.0, 1e-5)
    expected = torch.autograd.grad(expected_y, [t for t in exact if t is not None], gradient.double())
    # float32 represents x with an error of up to 300 * 6e-8
    close = {"rtol": 1e-4, "atol": 1e-5 if mean < 10 else 1e-3}
    torch.testing.assert_close(y.double(), expected_y, **close)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, **close)


@pytest.mark.parametrize("channels", [2, 4, 7, 8])
@pytest.mark.parametrize("mean", [0.0, 300.0])
def test_rows_of_pixels_equal_single_pixels(channels: int, mean: float) -> None:
    """With few channels a row of pixels is normalized at a time: the same numbers, in the same layout, in float64."""
    x = (mean + normal(6, channels, 5, 9).double()).contiguous(memory_format=CHANNELS_LAST)
    b = normal(6, channels, 5, 9, seed=1).double().contiguous(memory_format=CHANNELS_LAST)
    gamma, beta = normal(channels, seed=2).double(), normal(channels, seed=3).double()
    var, center = torch.var_mean(x, (0, 2, 3), unbiased=False)
    r = (var + 1e-5).rsqrt()
    found = norm_backward(b, x, gamma, center, r, 1e-5)
    expected = torch.ops.aten.native_batch_norm_backward(b, x, gamma, None, None, center, r, True, 1e-5, [True] * 3)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
        assert ours.stride() == theirs.stride()
    y = PairwiseBatchNorm.apply(x, gamma, beta, 1e-5)
    torch.testing.assert_close(y, F.batch_norm(x, None, None, gamma, beta, True, 0.0, 1e-5), rtol=1e-9, atol=1e-9)
    assert y.stride() == x.stride()


@pytest.mark.parametrize("channels", [4, 8])
def test_its_output_may_be_changed_in_place(channels: int) -> None:
    x = normal(6, channels, 5, 9).contiguous(memory_format=CHANNELS_LAST).requires_grad_()
    in_place = PairwiseBatchNorm.apply(x, None, None, 1e-5).relu_().sum()
    apart = PairwiseBatchNorm.apply(x, None, None, 1e-5).relu().sum()
    assert torch.equal(*(torch.autograd.grad(y, x)[0] for y in (in_place, apart)))


def test_a_constant_channel_is_zero() -> None:
    x = torch.full((4, 2, 8, 8), 7.3).contiguous(memory_format=CHANNELS_LAST)
    y = PairwiseBatchNorm.apply(x, None, None, 1e-5)
    assert float(y.abs().max()) < 1e-3


def test_statistics_have_the_precision_of_float32() -> None:
    """torch's channels-last kernel has an error of about 6e-6 here."""
    x = normal(64, 16, 32, 32).contiguous(memory_format=CHANNELS_LAST).requires_grad_()
    y = PairwiseBatchNorm.apply(x, None, None, 1e-5)  # held: its node's tensors go with it in torch 2.6
    found = norm_statistics(y.grad_fn)
    var, mean = torch.var_mean(x.detach().double(), (0, 2, 3), unbiased=False)
    torch.testing.assert_close(found[1].double(), (var + 1e-5).rsqrt(), rtol=3e-7, atol=0)
    torch.testing.assert_close(found[0].double(), mean, rtol=0, atol=3e-7)


def test_modules_use_it_only_where_it_applies() -> None:
    network = nn.Sequential(nn.BatchNorm2d(4)).train()
    last = normal(4, 4, 6, 6).contiguous(memory_format=CHANNELS_LAST)
    with pairwise_sums(network):
        names = [type(network(x).grad_fn).__name__ for x in (last, last.contiguous())]
    with pairwise_sums(network.double()):
        names += [type(network(x.double()).grad_fn).__name__ for x in (last, last.contiguous())]
    assert names == ["PairwiseBatchNormBackward", "NativeBatchNormBackward0"] * 2
    assert "forward" not in vars(network[0])
    frozen = nn.BatchNorm2d(4).eval()
    with pairwise_sums(frozen):
        assert norm_statistics(frozen(last.detach().requires_grad_()).grad_fn) is None
