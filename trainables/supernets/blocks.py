"""In which order an epoch's steps train the weights and the architecture."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

Order = Literal["alternating", "random", "phases"]


class Block(NamedTuple):
    """One step: whether it trains the architecture, else the weights, and the number that rates and progress go by."""

    architecture: bool
    step: int


def weight_blocks(steps: int) -> list[Block]:
    return [Block(False, step) for step in range(steps)]


def both_blocks(order: Order, steps: int, seed: int) -> list[Block]:
    """Twice as many blocks as steps; half of them are the architecture's, under `random` on average.

    Args:
        order: `alternating`, the architecture first (DARTS); `random`, each with equal chances (GAEA, Algorithm 1);
            `phases`, first all of the weights (ENAS, section 2.2).
        seed: of `random`.
    """
    if order == "phases":
        return [Block(architecture, step) for architecture in (False, True) for step in range(steps)]
    if order == "alternating":
        return [Block(architecture, step) for step in range(steps) for architecture in (True, False)]
    drawn = torch.randint(2, (2 * steps,), generator=torch.Generator().manual_seed(seed)).bool().tolist()
    return [Block(architecture, number // 2) for number, architecture in enumerate(drawn)]
