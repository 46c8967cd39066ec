"""Workers that train one network together: each one's part of a batch, and what they add up.

What torch.distributed does not know: batches are divided, and not the data set, so that the images of a step are the
same however many workers there are.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.nn.functional import all_reduce
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


class SynchronisedBatchNorm2d(nn.BatchNorm2d):
    """As `nn.BatchNorm2d`; in training the statistics are those of all workers' images, and so is their gradient.

    torch's own `SyncBatchNorm` needs CUDA; this one is the same on CPUs, where it can be tested against one worker.
    """

    def forward(self, x: Tensor) -> Tensor:  # (n, C, H, W)
        if not self.training:
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
            count = wide.new_full((1,), x.numel() / x.shape[1])
            mean, count = self._sums(wide.sum((0, 2, 3)), count)
            centred = wide - (mean / count)[:, None, None]
            # Of the centred values, in a second round: the difference of two large sums would lose digits.
            squares, _ = self._sums(centred.square().sum((0, 2, 3)), count.new_zeros(1))
            variance = squares / count  # (C,)
            self._track((mean / count).detach(), variance.detach() * count / (count - 1).clamp(min=1))
            out = centred * (variance + self.eps).rsqrt()[:, None, None]
            if self.weight is not None:
                out = out * self.weight[:, None, None] + self.bias[:, None, None]
        return out.to(x.dtype)

    def _sums(self, values: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """(C,) and (1,), over all workers."""
        both = all_reduce(torch.cat([values, count]))
        return both[:-1], both[-1:].detach()

    @torch.no_grad()
    def _track(self, mean: Tensor, unbiased: Tensor) -> None:
        """The running statistics: as torch does, of the unbiased variance."""
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None  # it is there with the others
        self.num_batches_tracked.add_(1)
        rate = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean), rate)
        self.running_var.lerp_(unbiased.to(self.running_var), rate)


def synchronised(network: nn.Module, team: Team) -> nn.Module:
    """The network with its batch normalisations over all workers of `team`; same parameters, same state's keys."""
    if team.size == 1:
        return network
    if isinstance(network, nn.BatchNorm2d):
        return _twin(network)
    for name, child in network.named_children():
        setattr(network, name, synchronised(child, team))
    return network


def _twin(norm: nn.BatchNorm2d) -> SynchronisedBatchNorm2d:
    twin = SynchronisedBatchNorm2d(
        norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats
    ).train(norm.training)
    twin.weight, twin.bias = norm.weight, norm.bias
    twin.running_mean, twin.running_var = norm.running_mean, norm.running_var
    twin.num_batches_tracked = norm.num_batches_tracked
    return twin
