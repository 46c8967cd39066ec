"""Workers that train one network together: each one's part of a batch, and what they add up.

What torch.distributed does not know: batches are divided, and not the data set, so that the images of a step are the
same however many workers there are.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Team:
    """One of `size` workers, or one alone. Of more than one the default process group must have been joined.

    Raises: ValueError for a rank that is none of theirs.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"expected a rank of 0 to {size - 1}, got {rank}")
        self.rank, self.size = rank, size

    def part(self, count: int) -> slice:
        """This worker's part of `count` things; parts are equal to within one, in the order of ranks."""
        return slice(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def shared(self, network: nn.Module) -> nn.Module:
        """`network`, such that a backward pass leaves the mean of the workers' gradients."""
        if self.size == 1:
            return network
        # Some architectures have operations whose output is not used; their weights stay without a gradient.
        return DistributedDataParallel(network, broadcast_buffers=False, find_unused_parameters=True)

    def apart(self, network: Any) -> AbstractContextManager[Any]:
        """While it is open, passes of a `shared` network add to this worker's gradient alone."""
        return nullcontext() if self.size == 1 else network.no_sync()

    def total(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Each tensor summed over the workers; they are changed in place."""
        for tensor in tensors if self.size > 1 else ():
            dist.all_reduce(tensor)
        return tensors

    @torch.no_grad()
    def average_buffers(self, network: nn.Module) -> None:
        """Gives all workers the mean of their running statistics."""
        for buffer in network.buffers() if self.size > 1 else ():
            if buffer.is_floating_point():
                dist.all_reduce(buffer)
                buffer.div_(self.size)


ALONE = Team()
