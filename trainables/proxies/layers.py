"""One forward pass with its layers recorded, and layers that are faster, or more exact, than torch's."""

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn.modules.batchnorm import _BatchNorm

# Convolution and linear layers carry the weights of all metrics (note P1).
WeightLayer = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear
WEIGHT_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@dataclass
class Call:
    """One use of a layer in the forward pass.

    Attributes:
        input, output: (m, ...) detached. They share memory with the network's tensors. The output may be changed in
            place later (see `intact`), the input may not, because autograd needs it.
        edge: Position in the autograd graph that receives the output's gradient. It stays valid if the output is
            changed in place. None for an output that depends on no parameter, such as a ReLU of the images.
        version: Version of the output when it was recorded.
    """

    layer: Any
    input: Tensor
    output: Tensor
    edge: GradientEdge | None
    version: int

    @property
    def node(self) -> Any:
        """The node of the autograd graph that produced the output, or None."""
        return None if self.edge is None else self.edge.node

    @property
    def intact(self) -> bool:
        """Whether `output` has not been changed since the call."""
        return self.output._version == self.version


@dataclass
class Record:
    """A forward pass: logits (m, K) with their graph, and the calls of each kind of layer, in order."""

    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    calls: list[Call] = field(default_factory=list)  # convolutions and linear layers
    norms: list[Call] = field(default_factory=list)
    relus: list[Call] = field(default_factory=list)

    @property
    def layers(self) -> list[WeightLayer]:
        """The weight layers that were called, without duplicates, in the order of the first call."""
        return list(dict.fromkeys(call.layer for call in self.calls))

    @property
    def weights(self) -> list[Tensor]:
        return list({id(layer.weight): layer.weight for layer in self.layers}.values())

    @property
    def edges(self) -> list[Any]:
        """The `Call.edge` of `calls`."""
        return [call.edge for call in self.calls]

    @property
    def norm_edges(self) -> list[Any]:
        """The `Call.edge` of `norms`."""
        return [call.edge for call in self.norms]


def forward(network: nn.Module, images: Tensor, *, copy_outputs: bool = False) -> Record:
    """Runs `network` on `images` (m, C, H, W), in its current mode, and records its layers.

    Its graph can be differentiated once.

    Args:
        copy_outputs: Whether to record copies of the outputs, which nothing changes in place.
    """
    record = Record()

    def record_call(calls: list[Call], layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        kept = output.detach().clone() if copy_outputs else output.detach()
        edge = get_gradient_edge(output) if output.requires_grad else None
        calls.append(Call(layer, inputs[0].detach(), kept, edge, kept._version))

    kinds: list[tuple[Any, list[Call]]]
    kinds = [(WEIGHT_LAYERS, record.calls), (BATCH_NORMS, record.norms), (nn.ReLU, record.relus)]
    handles = [
        module.register_forward_hook(partial(record_call, calls))
        for module in network.modules()
        for kind, calls in kinds
        if isinstance(module, kind)
    ]
    try:
        with torch.enable_grad(), pairwise_sums(network), shifted_sums(network), shared_relus(network):
            record.logits = network(images)
    finally:
        for handle in handles:
            handle.remove()
    return record


@contextmanager
def batch_statistics(network: nn.Module) -> Iterator[None]:
    """Puts `network` in train mode, with gradients for all parameters; restores modes and buffers afterwards.

    Batch normalization then uses the statistics of the batch.
    """
    modes = [(module, module.training) for module in network.modules()]
    frozen = [parameter for parameter in network.parameters() if not parameter.requires_grad]
    buffers = [(buffer, buffer.clone()) for buffer in network.buffers()]
    network.train()
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        for parameter in frozen:
            parameter.requires_grad_(False)
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


@contextmanager
def replaced_forwards(forwards: Mapping[nn.Module, Callable[[Tensor], Any]]) -> Iterator[None]:
    """Replaces the `forward` of each module by its function within the context."""
    for module, forward in forwards.items():
        module.forward = forward
    try:
        yield
    finally:
        for module in forwards:
            del module.forward


# Batch normalization -------------------------------------------------------------------------------------------------

# Ratio of mean square to variance above which E[x^2] - E[x]^2 loses digits of float32.
FAR = 16.0

VECTOR_CHANNELS = 8  # channels below which a row of pixels is one vector

NORM_NODES = {"NativeBatchNormBackward0", "CudnnBatchNormBackward0", "PairwiseBatchNormBackward"}


class PairwiseBatchNorm(torch.autograd.Function):
    """y = gamma (x - mean) r + beta with r = (var + eps)^-1/2, over (m, C, H, W) in channels-last layout.

    torch's kernel for channels last on the CPU adds each channel in float32, value by value. At 64 x 32 x 32 values the
    standard deviation has an error of 6e-6 instead of 6e-8. This switches ten times as many ReLU units whose input is
    nearly zero, and changes the metrics by up to 5e-4. Here the two sums are pairwise. With few channels, torch's
    kernels are also slow, because they work pixel by pixel: at 64 x 4 x 32 x 32 values the backward pass takes 1.1 ms.
    Here a row of pixels is one long vector, which takes 0.5 ms.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, gamma: Tensor | None, beta: Tensor | None, eps: float) -> Tensor:
        count = x.numel() // x.shape[1]
        mean = channel_sum(x).double() / count  # (C,)
        var = channel_sum(x * x).double() / count - mean.square()
        if bool((mean.square() > FAR * var).any()):  # the difference of two large numbers: center first
            var = channel_sum((x - mean.to(x.dtype).view(1, -1, 1, 1)).square()).double() / count
        r = (var + eps).rsqrt()
        ctx.save_for_backward(x, gamma, mean.to(x.dtype), r.to(x.dtype))
        ctx.eps = eps
        if not _in_rows(x):
            mean, var = mean.to(x.dtype), var.to(x.dtype)
            y: Tensor = torch.native_batch_norm(x, gamma, beta, mean, var, False, 0.0, eps)[0]
            return y
        scale = r if gamma is None else r * gamma
        shift = -mean * scale if beta is None else beta - mean * scale
        y = torch.empty_like(x)  # a ReLU cannot change a view in place
        torch.addcmul(_repeated(shift, x), _rows(x), _repeated(scale, x), out=_rows(y))
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, gamma, mean, r = ctx.saved_tensors
        mask = [True, ctx.needs_input_grad[1], ctx.needs_input_grad[2]]
        by_x, by_gamma, by_beta = norm_backward(gradient, x, gamma, mean, r, ctx.eps)
        return by_x, by_gamma if mask[1] else None, by_beta if mask[2] else None, None


def norm_backward(
    gradient: Tensor, x: Tensor, gamma: Tensor | None, mean: Tensor, r: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes the gradients by x (m, C, ...), gamma and beta (C,); the last two are sum(b yhat) and sum(b).

    By x: gamma r (b - mean(b) - yhat mean(b yhat)), where b is the gradient and yhat = (x - mean) r. mean, r: (C,).
    """
    if not (_in_rows(x) and _in_rows(gradient)) or bool((mean.square() * r.square() > FAR).any()):
        # CUDA's kernel computes no gradient by gamma and beta without a gamma, and asks for both.
        by_x, by_gamma, by_beta = torch.ops.aten.native_batch_norm_backward(
            gradient, x, torch.ones_like(r) if gamma is None else gamma, None, None, mean, r, True, eps, [True] * 3
        )
        return by_x, by_gamma, by_beta
    rows, b = _rows(x), _rows(gradient)
    count = x.numel() // x.shape[1]
    mean, r = mean.double(), r.double()
    by_beta = _sum_of_rows(b, x)
    by_gamma = r * (_sum_of_rows(b * rows, x) - mean * by_beta)
    scale = r if gamma is None else r * gamma
    slope = -scale * r * by_gamma / count
    offset = -scale * by_beta / count - slope * mean
    by_x = torch.addcmul(_repeated(offset, x), b, _repeated(scale, x)).addcmul_(rows, _repeated(slope, x))
    return _of_rows(by_x, x), by_gamma.to(x.dtype), by_beta.to(x.dtype)


def _in_rows(x: Tensor) -> bool:
    return x.shape[1] < VECTOR_CHANNELS and is_channels_last(x)


def is_channels_last(x: Tensor) -> bool:
    """Whether x (m, C, H, W) is on the CPU in channels-last layout, and not contiguous."""
    return (
        x.ndim == 4
        and x.device.type == "cpu"
        and not x.is_contiguous()
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def _rows(x: Tensor) -> Tensor:
    """Returns (m H, W C), a view of x in channels-last layout."""
    m, c, height, width = x.shape
    return x.permute(0, 2, 3, 1).view(m * height, width * c)


def _of_rows(rows: Tensor, x: Tensor) -> Tensor:
    """Returns the rows as a tensor with the shape and the layout of x."""
    m, c, height, width = x.shape
    return rows.view(m, height, width, c).permute(0, 3, 1, 2)


def _repeated(values: Tensor, x: Tensor) -> Tensor:
    """Repeats (C,) values of the channels for a row: (W C,)."""
    return values.to(x.dtype).expand(x.shape[3], -1).flatten()


def channel_sum(x: Tensor) -> Tensor:
    """Sums (m, C, ...) to (C,); in float64 if a row of pixels is one vector."""
    return _sum_of_rows(_rows(x), x) if _in_rows(x) else x.sum([0, *range(2, x.ndim)])


def _sum_of_rows(rows: Tensor, x: Tensor) -> Tensor:
    """Sums rows of x to (C,) float64."""
    return rows.sum(0).double().view(x.shape[3], x.shape[1]).sum(0)


def norm_statistics(node: Any) -> tuple[Tensor, Tensor] | None:
    """Returns mean and r = (var + eps)^-1/2, (C,) each, of a batch normalization; None for other statistics."""
    if type(node).__name__ == "PairwiseBatchNormBackward":
        _, _, mean, r = node.saved_tensors
        return mean, r
    if type(node).__name__ in NORM_NODES and node._saved_training:
        return node._saved_result1, node._saved_result2
    return None


def pairwise_sums(network: nn.Module) -> AbstractContextManager[None]:
    """Makes batch normalizations in train mode use `PairwiseBatchNorm` where it applies, within the context."""
    return replaced_forwards(
        {
            module: partial(_normalized, module)
            for module in network.modules()
            # The forward of a subclass may do something else.
            if isinstance(module, nn.BatchNorm2d) and type(module).forward is _BatchNorm.forward and module.training
        }
    )


def _normalized(module: nn.BatchNorm2d, x: Tensor) -> Any:
    if is_channels_last(x) and x.dtype in (torch.float32, torch.float64):
        return PairwiseBatchNorm.apply(x, module.weight, module.bias, module.eps)
    return type(module).forward(module, x)


# Average pooling of 3 x 3 pixels at stride 1 -------------------------------------------------------------------------


POOL_CHANNELS = 16  # number of channels below which shifted sums are faster than torch's kernel


class ShiftedAveragePool(torch.autograd.Function):
    """The mean over each pixel and its neighbors inside the image, (m, C, H, W) in channels-last layout.

    torch's kernel on the CPU takes 2.3 ms at 64 x 4 x 32 x 32 values, forward and backward; shifted sums of whole rows
    take 0.5 ms. Training keeps torch's kernel, because its batches are not in channels-last layout.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _neighbors(x).div_(_counts(x))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _neighbors(gradient / _counts(gradient))


def _neighbors(x: Tensor) -> Tensor:
    """Sums over each pixel and its neighbors, in columns and then in rows."""
    for axis in (3, 2):
        total, size = x.clone(), x.shape[axis]
        if size > 1:
            total.narrow(axis, 1, size - 1).add_(x.narrow(axis, 0, size - 1))
            total.narrow(axis, 0, size - 1).add_(x.narrow(axis, 1, size - 1))
        x = total
    return x


def _counts(x: Tensor) -> Tensor:
    """Returns (1, C, H, W) in the layout of x: the number of pixels in each sum."""
    return _neighbors(torch.ones_like(x[:1]))


def shifted_sums(network: nn.Module) -> AbstractContextManager[None]:
    """Makes average pools use `ShiftedAveragePool` where it is equal and faster, within the context."""
    return replaced_forwards({module: partial(_pooled, module) for module in network.modules() if _is_pool(module)})


def _is_pool(module: nn.Module) -> bool:
    return (
        type(module) is nn.AvgPool2d
        and (module.kernel_size, module.stride, module.padding) == (3, 1, 1)
        and not (module.count_include_pad or module.ceil_mode or module.divisor_override)
    )


def _pooled(module: Any, x: Tensor) -> Any:
    if is_channels_last(x) and x.shape[1] < POOL_CHANNELS:
        return ShiftedAveragePool.apply(x)
    return nn.AvgPool2d.forward(module, x)


# ReLU ----------------------------------------------------------------------------------------------------------------


def shared_relus(network: nn.Module) -> AbstractContextManager[None]:
    """Makes all ReLUs of one unchanged tensor share one output, within the context.

    In NAS-Bench-201 each edge from a node starts with a ReLU. The graph then has one ReLU for all of them, which adds
    their gradients before it masks them. A shared output cannot be changed in place, like any output of a ReLU, because
    autograd needs it.
    """
    outputs: dict[int, tuple[weakref.ref[Tensor], int, Tensor]] = {}  # by the input's id: input, its version, output

    def shared(module: nn.ReLU, x: Tensor) -> Tensor:
        reader, version, output = outputs.get(id(x), (None, 0, x))
        if reader is not None and reader() is x and version == x._version:
            return output
        output = nn.ReLU.forward(module, x)
        if output.requires_grad:  # otherwise a change in place raises no error
            outputs[id(x)] = (weakref.ref(x), x._version, output)
        return output

    return replaced_forwards(
        {
            module: partial(shared, module)
            for module in network.modules()
            if type(module) is nn.ReLU and not module.inplace and "forward" not in vars(module)
        }
    )
