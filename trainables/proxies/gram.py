"""The Gram matrix of per-sample gradients, the empirical neural tangent kernel. Shu 2022, Eq. 7.1; notes P2, P4.

It covers the weights and biases of convolutions and linear layers, not the parameters of normalizations (P4). It is
summed layer by layer in the cheaper of two forms, so that the whole Jacobian (m, d) never exists:

- gradients: G += P P^T, where P (m, d_l) is the layer's weight gradient per sample;
- inner products: G_ij += sum_st (u_is . u_jt) (b_is . b_jt), where u are the unfolded inputs and b the gradients of the
  output at positions s, t. This is cheaper for a layer with few positions and many weights; a linear layer has one.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.conv import _ConvNd

from archray.trainables.proxies.layers import Call, WeightLayer, is_channels_last

MIB = 2**20
BLOCK_MIB = 2  # of shifted inputs in one product: the size of a CPU core's cache


def weight_gradients(
    layer: WeightLayer, inputs: Tensor, output_gradients: Tensor, *, groups: int | None = None, ordered: bool = True
) -> Tensor:
    """Computes P: (m, C_out, d_in), the weight gradient of `layer` per sample (note P2).

    P_i = sum over positions s of b_is u_is^T, where u is the unfolded input and b the output's gradient. The sum over
    i is the weight's gradient. d_in is C_in / groups times the size of the kernel.

    Args:
        inputs, output_gradients: (m, ...) of the layer, or of some of its output channels; for a grouped convolution,
            of `groups` whole groups.
        ordered: False allows any shape (m, ...) and any order of the d numbers, equal for all samples.
    """
    if isinstance(layer, nn.Linear):
        return torch.einsum("n...o,n...i->noi", output_gradients, inputs)  # the sum over all positions
    # The weight gradient of one grouped convolution, with a group per sample, needs no unfolded copy of the input.
    groups = groups or layer.groups
    m, c_out = output_gradients.shape[:2]
    inputs, padding = padded(layer, inputs)
    if all(k == 1 for k in layer.kernel_size) and groups == 1 and not any(padding):
        if any(stride > 1 for stride in layer.stride):
            steps = (slice(None), slice(None), *(slice(None, None, stride) for stride in layer.stride))
            inputs = inputs[steps]
        return torch.bmm(output_gradients.flatten(2), inputs.flatten(2).transpose(1, 2))
    if groups == 1 and is_channels_last(inputs) and all(step == 1 for step in (*layer.stride, *layer.dilation)):
        p = _by_shifts(inputs, output_gradients, padding, layer.kernel_size)  # faster than a group per sample
        return p.permute(0, 2, 4, 1, 3).reshape(m, c_out, -1) if ordered else p
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


def _by_shifts(inputs: Tensor, output_gradients: Tensor, padding: Sequence[int], kernel: Sequence[int]) -> Tensor:
    """Computes `weight_gradients` at stride 1, with a batched product of the shifted input for each kernel row.

    Args:
        inputs: (m, C_in, H, W) in channels-last layout, where the pixels under a row of the kernel are contiguous.

    Returns: (m, rows, C_out, columns, C_in).
    """
    m, c_in = inputs.shape[:2]
    c_out, height, width = output_gradients.shape[1:]
    rows, columns = kernel
    around = [padding[1]] * 2 + [padding[0]] * 2
    pixels = inputs.permute(0, 2, 3, 1)  # (m, H, W, C_in)
    b = output_gradients.permute(0, 2, 3, 1).reshape(m, height * width, c_out).transpose(1, 2)
    p = inputs.new_empty(m, rows, c_out, columns * c_in)
    per_sample = (height + rows - 1) * width * columns * c_in * inputs.element_size()
    step = max(1, BLOCK_MIB * MIB // per_sample)
    for low in range(0, m, step):
        samples = slice(low, low + step)
        part = F.pad(pixels[samples], [0, 0, *around])  # (some of m, H + padding, W + padding, C_in)
        count, whole, per_row = len(part), part.stride(0), part.stride(1)
        under = part.as_strided((count, part.shape[1], width, columns * c_in), (whole, per_row, c_in, 1)).contiguous()
        for row in range(rows):
            torch.bmm(b[samples], under[:, row : row + height].flatten(1, 2), out=p[samples, row])
    return p.view(m, rows, c_out, columns, c_in)


def padded(layer: _ConvNd, inputs: Tensor) -> tuple[Tensor, list[int]]:
    """Applies the padding that a convolution's zero padding cannot express. Returns the input and the other padding."""
    dims = len(layer.kernel_size)
    if layer.padding_mode != "zeros":
        # the module's (private) list: last dimension first, two sides each
        return F.pad(inputs, layer._reversed_padding_repeated_twice, mode=layer.padding_mode), [0] * dims
    if isinstance(layer.padding, str):
        sides = layer._reversed_padding_repeated_twice
        return (F.pad(inputs, sides) if any(sides) else inputs), [0] * dims
    return inputs, list(layer.padding)


def bias_gradients(layer: WeightLayer, output_gradients: Tensor) -> Tensor:
    """Computes (m, C_out), the bias gradient of `layer` per sample."""
    if isinstance(layer, nn.Linear):
        return output_gradients.flatten(1, -2).sum(1) if output_gradients.ndim > 2 else output_gradients
    return output_gradients.flatten(2).sum(2)


def gram_matrix(calls: Sequence[Call], output_gradients: Sequence[Tensor | None], memory_mib: float) -> Tensor:
    """Computes G: (m, m) float64, where G_ij is the inner product of the gradients of samples i and j (note P2).

    Args:
        calls: The recorded forward pass.
        output_gradients: (m, ...) for each call, the gradient of the scalar output, summed over samples, with respect
            to the call's output; None if the scalar does not depend on it.
        memory_mib: Upper bound on the memory of per-sample gradients. A larger layer is split by output channels.
    """
    weights: dict[int, list[tuple[Call, Tensor]]] = {}  # a layer called twice has one gradient per sample
    biases: dict[int, list[Tensor]] = {}
    for call, gradient in zip(calls, output_gradients, strict=True):
        if gradient is None:
            continue
        weights.setdefault(id(call.layer.weight), []).append((call, gradient))
        if call.layer.bias is not None:
            biases.setdefault(id(call.layer.bias), []).append(bias_gradients(call.layer, gradient))
    m = len(calls[0].input)
    gram = torch.zeros(m, m, dtype=torch.float64, device=calls[0].input.device)
    for uses in weights.values():
        gram += _layer_gram(uses, memory_mib)
    for parts in biases.values():
        bias = torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]  # (m, C_out)
        gram += bias @ bias.T
    return gram


def _layer_gram(uses: Sequence[tuple[Call, Tensor]], memory_mib: float) -> Tensor:
    call, gradient = uses[0]
    if len(uses) == 1 and _inner_products_are_cheaper(call, gradient, memory_mib):
        return inner_product_gram(call.layer, call.input, gradient)
    gram: Tensor | None = None
    once = len(uses) == 1  # otherwise the gradients of several calls are added in order
    chunks = (channel_chunks(call.layer, call.input, b, memory_mib, ordered=not once) for call, b in uses)
    for parts in zip(*chunks, strict=True):
        p = parts[0] if once else torch.stack(parts).sum(0)  # (m, c, d_in)
        flat = p.flatten(1)
        gram = flat @ flat.T if gram is None else gram + flat @ flat.T
    assert gram is not None
    return gram


def channel_chunks(
    layer: WeightLayer, inputs: Tensor, output_gradients: Tensor, memory_mib: float, *, ordered: bool = True
) -> Iterator[Tensor]:
    """Yields `weight_gradients` (m, c, d_in) for consecutive runs of c output channels that fit in `memory_mib`."""
    m = len(inputs)
    groups = 1 if isinstance(layer, nn.Linear) else layer.groups
    c_out, per_channel = layer.weight.shape[0], layer.weight[0].numel() * m * inputs.element_size()
    channels = max(1, int(memory_mib * MIB // per_channel))
    if channels >= c_out:
        yield weight_gradients(layer, inputs, output_gradients, ordered=ordered)
        return
    if groups == 1:
        axis = -1 if isinstance(layer, nn.Linear) else 1
        for part in output_gradients.split(channels, axis):
            yield weight_gradients(layer, inputs, part, ordered=ordered)
        return
    step = max(1, channels * groups // c_out)  # whole groups
    group_inputs, group_outputs = inputs.shape[1] // groups, c_out // groups
    for low in range(0, groups, step):
        high = min(low + step, groups)
        x = inputs[:, low * group_inputs : high * group_inputs]
        b = output_gradients[:, low * group_outputs : high * group_outputs]
        yield weight_gradients(layer, x, b, groups=high - low)


def inner_product_gram(layer: WeightLayer, inputs: Tensor, output_gradients: Tensor) -> Tensor:
    """Computes (m, m), the weight's part of the Gram matrix from inner products (see the module's formula).

    For linear layers and two-dimensional convolutions with one group.
    """
    m = len(inputs)
    if isinstance(layer, nn.Linear):
        u, b = inputs.reshape(m, -1, inputs.shape[-1]), output_gradients.reshape(m, -1, output_gradients.shape[-1])
    else:
        inputs, padding = padded(layer, inputs)
        u = F.unfold(inputs, layer.kernel_size, layer.dilation, tuple(padding), layer.stride)
        u, b = u.transpose(1, 2), output_gradients.flatten(2).transpose(1, 2)  # (m, S, d_in), (m, S, C_out)
    s = u.shape[1]
    u, b = u.reshape(m * s, -1), b.reshape(m * s, -1)
    return ((u @ u.T) * (b @ b.T)).reshape(m, s, m, s).sum((1, 3))


def _inner_products_are_cheaper(call: Call, output_gradients: Tensor, memory_mib: float) -> bool:
    """Whether the form by inner products applies, fits, and needs fewer multiplications than the other form."""
    layer, m = call.layer, len(call.input)
    if not isinstance(layer, nn.Linear) and (not isinstance(layer, nn.Conv2d) or layer.groups > 1):
        return False
    positions = math.prod(output_gradients.shape[1:-1] if isinstance(layer, nn.Linear) else output_gradients.shape[2:])
    rows = m * positions
    if 3 * rows * rows * call.input.element_size() > memory_mib * MIB:  # two products and their product
        return False
    d = layer.weight.numel()
    return rows * rows * (layer.weight[0].numel() + layer.weight.shape[0] + 1) < rows * d + m * m * d


def exact_gram_matrix(outputs: Tensor, parameters: Sequence[Tensor], memory_mib: float) -> Tensor:
    """Computes Theta: (m, m) float64 from the rows of the Jacobian, Eq. 7.1: row i is the gradient of outputs[i].

    Under batch normalization a row includes the paths through all samples of the batch, unlike the per-sample gradients
    of note P2. It takes one backward pass per sample and block of parameters.

    Args:
        outputs: (m,) scalars with a graph.
        parameters: Tensors of the graph.
        memory_mib: Upper bound on the memory of rows. Parameters are split into blocks that fit, or that contain a
            single larger parameter.
    """
    m = len(outputs)
    gram = torch.zeros(m, m, dtype=torch.float64, device=outputs.device)
    for block in _blocks(parameters, int(memory_mib * MIB) // m):
        jacobian = outputs.new_empty(m, sum(parameter.numel() for parameter in block))
        for i in range(m):
            row = torch.autograd.grad(outputs[i], block, retain_graph=True, allow_unused=True, materialize_grads=True)
            jacobian[i] = torch.cat([part.flatten() for part in row])
        gram += jacobian @ jacobian.T
    return gram


def _blocks(parameters: Sequence[Tensor], row_bytes: int) -> list[list[Tensor]]:
    blocks: list[list[Tensor]] = []
    free = 0
    for parameter in parameters:
        size = parameter.numel() * parameter.element_size()
        if not blocks or size > free:
            blocks.append([])
            free = row_bytes
        blocks[-1].append(parameter)
        free -= size
    return blocks
