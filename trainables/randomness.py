"""torch's global generators, seeded for a block and put back after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def own_randomness(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Lets what draws from torch's global generators (dropout, initial weights) draw from `seed` alone.

    device: whose generator is seeded beside the CPU's, where it is a GPU; the only ones that are put back.
    """
    cuda = [device.index] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        # Not torch.manual_seed: that would seed every GPU of the process, and fork_rng puts back only these.
        for generator in (torch.default_generator, *(torch.cuda.default_generators[index] for index in cuda)):
            generator.manual_seed(seed)
        yield
