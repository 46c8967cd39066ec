"""A layer's weight gradient split by sample (note P2): what flows through each sample's own activations."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.conv import _ConvNd

from archray.trainables.proxies.layers import WeightLayer


def weight_gradients(
    layer: WeightLayer, inputs: Tensor, output_gradients: Tensor, *, groups: int | None = None
) -> Tensor:
    """P: (m, C_out, d_in) the weight gradient of `layer`, split by sample.

    P_i = sum over positions s of b_is u_is^T, with u the unfolded input and b the output's gradient; summed over i
    it is the weight's gradient. d_in = C_in / groups times the kernel's size.

    inputs, output_gradients: (m, ...) of the layer; or, for some of its output channels, the gradients of these
    channels. For a grouped convolution these are whole groups, `groups` of them, with their input channels.
    """
    if isinstance(layer, nn.Linear):
        # (m, ..., C_in), (m, ..., C_out): every position between is summed over.
        return torch.einsum("n...o,n...i->noi", output_gradients, inputs)
    return _convolution_gradients(layer, inputs, output_gradients, groups or layer.groups)


def _convolution_gradients(layer: _ConvNd, inputs: Tensor, output_gradients: Tensor, groups: int) -> Tensor:
    """One grouped convolution's weight gradient, a group per sample: no unfolded copy of the input is made."""
    m, c_out = output_gradients.shape[:2]
    inputs, padding = padded(layer, inputs)
    if all(k == 1 for k in layer.kernel_size) and groups == 1 and not any(padding):
        if any(stride > 1 for stride in layer.stride):
            steps = (slice(None), slice(None), *(slice(None, None, stride) for stride in layer.stride))
            inputs = inputs[steps]
        return torch.bmm(output_gradients.flatten(2), inputs.flatten(2).transpose(1, 2))
    size = inputs.shape[2:]
    kernel_shape = (m * c_out, inputs.shape[1] // groups, *layer.kernel_size)
    _, gradient, _ = torch.ops.aten.convolution_backward(
        output_gradients.reshape(1, m * c_out, *output_gradients.shape[2:]),
        inputs.reshape(1, m * inputs.shape[1], *size),
        layer.weight.new_empty(1).expand(kernel_shape),
        None,
        layer.stride,
        padding,
        layer.dilation,
        False,
        [0] * len(size),
        m * groups,
        [False, True, False],
    )
    return gradient.reshape(m, c_out, -1)


def padded(layer: _ConvNd, inputs: Tensor) -> tuple[Tensor, list[int]]:
    """The input with what the convolution's own zero padding cannot express laid around it, and that padding."""
    dims = len(layer.kernel_size)
    if layer.padding_mode != "zeros":
        # the module's own (private) list: last dimension first, two sides each
        return F.pad(inputs, layer._reversed_padding_repeated_twice, mode=layer.padding_mode), [0] * dims
    if isinstance(layer.padding, str):
        sides = layer._reversed_padding_repeated_twice
        return (F.pad(inputs, sides) if any(sides) else inputs), [0] * dims
    return inputs, list(layer.padding)


def bias_gradients(layer: WeightLayer, output_gradients: Tensor) -> Tensor:
    """(m, C_out): the bias gradient of `layer`, split by sample."""
    if isinstance(layer, nn.Linear):
        return output_gradients.flatten(1, -2).sum(1) if output_gradients.ndim > 2 else output_gradients
    return output_gradients.flatten(2).sum(2)
