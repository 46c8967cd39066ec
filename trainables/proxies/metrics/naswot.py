"""Log determinant of the kernel of ReLU states. Mellor et al. 2021, sec. 4: how far apart they tell samples."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from archray.trainables.proxies.proxy_registry import NoScore, proxy
from archray.trainables.proxies.shared_pass import SharedPass


def log_determinant(states: Sequence[Tensor]) -> float:
    """log |det K|, K_ij the number of ReLU units in the same state for samples i and j.

    states: for each ReLU module (m, units) whether its units are on. -inf for a singular K (equal samples).
    Raises: NoScore without any states.
    """
    if not states:
        raise NoScore("the network has no nn.ReLU module whose states could be counted")
    m = len(states[0])
    kernel = torch.zeros(m, m, dtype=torch.float64, device=states[0].device)
    for state in states:
        on = state.float()  # counts are exact in float32 up to 2^24 units
        both = on @ on.T
        count = both.diagonal()
        kernel += (state.shape[1] - count[:, None] - count[None, :] + 2 * both).double()
    return float(torch.linalg.slogdet(kernel)[1])


@proxy(direction="max")
def naswot(shared: SharedPass) -> float:
    return log_determinant([(call.output > 0).flatten(1) for call in shared.record.relus])
