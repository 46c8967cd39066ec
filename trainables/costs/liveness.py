"""How many bytes of activations a forward pass holds at once, from the graph of its operations.

The pass of one image in evaluation mode is recorded operation by operation. An activation is a piece of memory that an
operation wrote, the image among them; views and in-place results are the memory they look at. It is alive from the
operation that writes it to the last that reads it, and while an operation runs its inputs and outputs are both alive.
The peak is the largest sum over the operations. Weights and buffers, the workspace inside a kernel, and what an
allocator keeps beside, are not in it: it is what a runtime with a perfect memory plan, and no fused operations, needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class OperationTrace(TorchDispatchMode):
    """The pieces of memory that each operation reads or writes.

    Args:
        left_out: tensors whose memory does not count.

    Attributes:
        steps: of every operation, in order, the numbers of the pieces.
        sizes: of every piece, bytes.
    """

    def __init__(self, left_out: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.steps: list[set[int]] = []
        self.sizes: list[int] = []
        self._left_out = {_address(tensor) for tensor in left_out}
        self._numbers: dict[int, int] = {}
        self._held: list[torch.UntypedStorage] = []  # so that no address is used twice

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        self.steps.append(set(self._pieces((args, kwargs, outputs))))
        return outputs

    def _pieces(self, values: Any) -> Iterator[int]:
        for tensor in tree_leaves(values):
            if isinstance(tensor, torch.Tensor) and (address := _address(tensor)) not in self._left_out:
                if address not in self._numbers:
                    self._numbers[address] = len(self.sizes)
                    self.sizes.append(tensor.untyped_storage().nbytes())
                    self._held.append(tensor.untyped_storage())
                yield self._numbers[address]


@torch.no_grad()
def peak_activation_bytes(network: nn.Module, image_shape: tuple[int, int, int]) -> int:
    """Bytes, at most, of activations alive at once for one image (C, H, W). The network is left as it was."""
    training = network.training
    network.eval()
    try:
        tensors = [*network.parameters(), *network.buffers()]
        reference = next(network.parameters())
        image = torch.zeros(1, *image_shape, device=reference.device, dtype=reference.dtype)
        with OperationTrace(tensors) as trace:
            network(image)
    finally:
        network.train(training)
    return peak_of(trace.steps, trace.sizes)


def peak_of(steps: Sequence[set[int]], sizes: Sequence[int]) -> int:
    """The largest sum of `sizes` that is alive at a step, each from the first step that holds it to the last."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, step in enumerate(steps):
        for number in step:
            first.setdefault(number, place)
            last[number] = place
    changes = [0] * (len(steps) + 1)
    for number, place in first.items():
        changes[place] += sizes[number]
        changes[last[number] + 1] -= sizes[number]
    alive = peak = 0
    for change in changes:
        alive += change
        peak = max(peak, alive)
    return peak


def _address(tensor: torch.Tensor) -> int:
    """The same of tensors that share their memory; on the meta device, which has none, too."""
    return int(tensor.untyped_storage()._cdata)
