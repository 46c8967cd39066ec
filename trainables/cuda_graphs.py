"""Forward and backward passes as CUDA graphs, which launch all kernels of a pass at once."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from archray.errors import InvalidInput


class GraphedPasses:
    """Calls a module like the module itself, with one CUDA graph for each shape of its inputs.

    The kernels of small networks take less time than their launches from Python: a step of DARTS' supernet launches
    tens of thousands. If an input needs a gradient, a backward pass computes the gradients of the inputs only,
    otherwise those of the module's parameters. They are valid until the next backward pass.

    Args:
        module: Module on a GPU, in train mode. Its parameters and buffers may change in place only, and which kernels
            it launches may depend on nothing but the shapes of the inputs.
        amp: Whether the passes run in bfloat16.

    Raises: InvalidInput for a module that is not on a GPU.
    """

    def __init__(self, module: nn.Module, *, amp: bool) -> None:
        device = next(module.parameters()).device
        if device.type != "cuda":
            raise InvalidInput(f"expected a CUDA device with cuda_graphs, got {device.type}. Set cuda_graphs to false")
        self._module, self._device, self._amp = module, device, amp
        self._graphs: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *inputs: Any) -> Any:
        """inputs: Tensors, or lists and dicts of tensors."""
        tensors, structure = tree_flatten(inputs)
        key = structure, tuple((tensor.shape, tensor.dtype, tensor.requires_grad) for tensor in tensors)
        if key not in self._graphs:
            self._graphs[key] = self._captured(tensors, structure)
        return self._graphs[key](*tensors)

    def _captured(self, tensors: Sequence[Tensor], structure: TreeSpec) -> Callable[..., Any]:
        samples = tuple(tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in tensors)
        passes = _Pass(self._module, structure, self._amp, of_inputs=any(t.requires_grad for t in tensors))
        buffers = [(buffer, buffer.clone()) for buffer in self._module.buffers()]
        exact = torch.autocast("cuda", enabled=False)  # `_Pass` has its own, without a cache
        with torch.random.fork_rng(devices=[self._device]), torch.enable_grad(), exact:
            graphed: Callable[..., Any] = torch.cuda.make_graphed_callables(passes, samples, allow_unused_input=True)
        with torch.no_grad():  # the passes before the capture have changed running statistics
            for buffer, value in buffers:
                buffer.copy_(value)
        return graphed


class _Pass(nn.Module):
    def __init__(self, module: nn.Module, structure: TreeSpec, amp: bool, *, of_inputs: bool) -> None:
        super().__init__()
        self._structure, self._amp = structure, amp
        if of_inputs:
            self.__dict__["module"] = module  # not registered, so that no gradient by its parameters is computed
        else:
            self.module = module

    def forward(self, *tensors: Tensor) -> Any:
        with torch.autocast("cuda", torch.bfloat16, enabled=self._amp, cache_enabled=False):
            return self.module(*tree_unflatten(tensors, self._structure))
