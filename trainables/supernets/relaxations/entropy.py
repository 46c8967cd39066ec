"""How far edges are from a decision: the entropy of their operations. GAEA, Li et al. 2021, Figure 1."""

from __future__ import annotations

import torch
from torch import Tensor


def entropy(weights: Tensor) -> Tensor:
    """(..., operations) rows on the simplex -> (...) their entropies in nats, with 0 log 0 = 0.

    Between 0, one operation has all the weight, and log(operations), all have the same.
    """
    return torch.special.entr(weights).sum(-1)
