"""Inner products in parts equal those of the whole, in either layout."""

from __future__ import annotations

import pytest
import torch

from archray.trainables.proxies import tangents
from archray.trainables.proxies.tangents import channel_products, inner_product


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("channels", [3, 16])
@pytest.mark.parametrize("block", [1, 1000, 2**18])
def test_parts_add_up(layout: torch.memory_format, channels: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tangents, "BLOCK", block)
    generator = torch.Generator().manual_seed(0)
    a, b = (
        torch.randn(7, channels, 5, 6, generator=generator, dtype=torch.float64).contiguous(memory_format=layout)
        for _ in range(2)
    )
    torch.testing.assert_close(channel_products(a, b), torch.einsum("nchw,nchw->c", a, b), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(inner_product(a, b), (a * b).sum(), rtol=1e-11, atol=1e-11)
