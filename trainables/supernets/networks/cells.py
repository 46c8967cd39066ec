"""Cells with all operations: mixed edges, partial channels, and a fast evaluation of DARTS' edges on a CPU.

Partial channels (PC-DARTS, Xu et al. 2020, sec. 3): operations process 1/K of a node's channels, the others bypass
them, and the two parts are shuffled together. Each node also has weights for its inputs, which multiply the weights of
the operations (section 3.3).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from archray.errors import InvalidInput
from archray.plurals import count
from archray.trainables.supernets.networks.supernet import LEFT_OUT, NONE, EdgesGroup, MixtureWeights, Offer, Rows

EPS = 1e-5  # of torch's BatchNorm2d
POOLS = ("max_pool_3x3", "avg_pool_3x3")
SKIP = "skip_connect"
SEPARABLE = {"sep_conv_3x3": 3, "sep_conv_5x5": 5}  # kernels
DILATED = {"dil_conv_3x3": 3, "dil_conv_5x5": 5}
LANES = 16  # numbers in a vector register; narrower tensors waste part of it
CACHE = 2**19  # numbers in a tensor of 2 MB; for smaller tensors the overhead of a kernel dominates

Term = tuple[Tensor, Tensor | None]  # a tensor and its weight, () or (1,); None for 1
# x (n, C/K, H, W), the modules of its outgoing edges, their weights (edges, operations), stride -> terms per edge
Fused = Callable[[Tensor, Sequence[nn.ModuleDict], Tensor, int], list[list[Term]]]


class Edge(NamedTuple):
    """An edge of a cell's graph; nodes are numbered, inputs first."""

    target: int
    source: int
    stride: int = 1

    @property
    def key(self) -> str:
        """Name of the edge in standalone cells: `4<-1`."""
        return f"{self.target}<-{self.source}"


def operation_width(channels: int, partial: int) -> int:
    """Returns C/K, how many of C channels the operations process. Raises: InvalidInput if K does not divide C."""
    if channels % partial:
        raise InvalidInput(
            f"expected partial_channels that divides the cells' {count(channels, 'channel')}, "
            f"got {partial}. Choose a divisor"
        )
    return channels // partial


def operation_channels(node: Tensor, partial: int) -> Tensor:
    """(n, C, H, W) -> (n, C/K, H, W), the channels that operations process."""
    return node if partial == 1 else _channels_last(node[:, : node.shape[1] // partial])


def bypass_channels(node: Tensor, partial: int, stride: int) -> Tensor:
    """(n, C, H, W) -> (n, C - C/K, H/stride, W/stride), the channels that bypass the operations."""
    rest = _channels_last(node[:, node.shape[1] // partial :])
    return rest if stride == 1 else functional.max_pool2d(rest, stride, stride, ceil_mode=True)


def shuffle(mixed: Tensor, rest: Tensor) -> Tensor:
    """(n, C/K, H, W) and (n, C - C/K, H, W) -> (n, C, H, W): channel k C/K + c of both moves to c K + k."""
    parts = [part.permute(0, 2, 3, 1) for part in (mixed, *rest.split(mixed.shape[1], dim=1))]
    return torch.stack(parts, dim=-1).flatten(-2).permute(0, 3, 1, 2)


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def input_groups(edges: Sequence[Edge], prefix: str = "") -> list[EdgesGroup]:
    """Returns a group of one row, `inputs_2`, for each node with incoming edges, with a column for each source.

    Args:
        prefix: Prefix of the names of groups, and of the space's decisions on the edges.
    """
    groups = []
    for target, into in _by_target(edges).items():
        sources, keys = tuple(str(edge.source) for edge in into), tuple(f"{prefix}{edge.key}" for edge in into)
        groups.append(EdgesGroup(f"{prefix}inputs_{target}", 1, sources, keys))
    return groups


def input_weights(edges: Sequence[Edge], rows: Mapping[str, Tensor], prefix: str = "") -> Tensor:
    """Returns (edges,): the weight of each edge, from the rows of `input_groups`; ones without rows."""
    names = [f"{prefix}inputs_{target}" for target in _by_target(edges)]
    weights = [rows[name][0] for name in names if name in rows]
    return torch.cat(weights) if weights else torch.ones(len(edges))


def input_path(edges: Sequence[Edge], kept: Sequence[bool], prefix: str = "") -> dict[str, MixtureWeights]:
    """Returns the weights of `input_groups`: 1 for the edges that are kept, 0 for the others."""
    mask = dict(zip(edges, kept, strict=True))
    return {
        f"{prefix}inputs_{target}": MixtureWeights(torch.tensor([[float(mask[edge]) for edge in into]]))
        for target, into in _by_target(edges).items()
    }


def _by_target(edges: Sequence[Edge]) -> dict[int, list[Edge]]:
    targets: dict[int, list[Edge]] = {}
    for edge in edges:
        targets.setdefault(edge.target, []).append(edge)
    return targets


def weighted_sum(terms: Sequence[Term]) -> Tensor:
    """Computes sum_t w_t x_t, for tensors of one shape. It can be differentiated once; without weights repeatedly.

    On a CPU the products are added one by one; a GPU would synchronize at each weight.
    """
    tensors = [tensor for tensor, _ in terms]
    if all(weight is None for _, weight in terms):
        return reduce(torch.add, tensors)
    if tensors[0].device.type != "cpu":
        products = [tensor if weight is None else weight * tensor for tensor, weight in terms]
        return torch.stack(products).sum(0)
    factors = [weight for _, weight in terms if weight is not None]
    weights = torch.cat([weight.reshape(1) for weight in factors]) if factors else tensors[0].new_empty(0)
    return _WeightedSum.apply(tuple(weight is not None for _, weight in terms), weights, *tensors)


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weighted: tuple[bool, ...], weights: Tensor, *tensors: Tensor) -> Tensor:
        factors = iter(weights.tolist())
        ctx.factors = [next(factors) if has_weight else None for has_weight in weighted]
        ctx.save_for_backward(*(tensor for tensor, has_weight in zip(tensors, weighted, strict=True) if has_weight))
        first = ctx.factors[0]
        out = tensors[0].clone() if first is None else tensors[0] * first
        for tensor, factor in zip(tensors[1:], ctx.factors[1:], strict=True):
            out.add_(tensor, alpha=1.0 if factor is None else factor)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        flat = _flat(grad)
        dots = [torch.dot(flat, _flat(tensor)) for tensor in ctx.saved_tensors]
        by_weights = torch.stack(dots) if dots else None
        return None, by_weights, *(grad if factor is None else grad * factor for factor in ctx.factors)


def _flat(x: Tensor) -> Tensor:
    """Returns all numbers, a view for images in channels-last layout."""
    return (x.permute(0, 2, 3, 1) if x.ndim == 4 else x).flatten()


def normalized_sum(inputs: Sequence[Tensor], mixture: Tensor | None = None, *, relu: bool = False) -> Tensor:
    """Computes sum_t w_t BN(y_t), or its ReLU; BN with the batch's statistics and without affine parameters.

    With mean m and standard deviation s of each channel, sum_t w_t (y_t - m_t) / s_t = sum_t a_t y_t + b, where
    a_t = w_t / s_t and b = -sum_t a_t m_t: one pass over the y_t for the statistics and one for the sum. The gradient
    of y_t has the same form, a_t g + c_t y_t + d_t.

    Args:
        inputs: T tensors y_t (n, C, H, W); fast in channels-last layout.
        mixture: (T, C), the w_t, one weight per term and channel (default: ones).

    Returns: (n, C, H, W). It can be differentiated once.
    """
    if mixture is None:
        mixture = inputs[0].new_ones(len(inputs), inputs[0].shape[1])
    summed: Tensor = _NormalizedSum.apply(relu, mixture, *inputs)
    return summed


class _NormalizedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, relu: bool, mixture: Tensor, *inputs: Tensor) -> Tensor:
        flat = [_pixels(y) for y in inputs]  # (N, C), N = n H W
        mean = torch.stack([y.mean(0) for y in flat])  # (T, C)
        square = torch.stack([(y * y).mean(0) for y in flat])
        variance = (square - mean * mean).clamp_(min=0)  # rounding may go below zero
        scale = (variance + EPS).rsqrt()
        factors = mixture * scale
        out = torch.addcmul(-(factors * mean).sum(0), flat[0], factors[0])
        for y, factor in zip(flat[1:], factors[1:], strict=True):
            out.addcmul_(y, factor)
        if relu:
            out.relu_()
        ctx.save_for_backward(mean, scale, factors, out if relu else None, *inputs)
        return _image(out, inputs[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        mean, scale, factors, out, *inputs = ctx.saved_tensors
        g = _pixels(grad)
        if out is not None:
            g = torch.ops.aten.threshold_backward(g, out, 0)
        total = g.sum(0)  # (C,)
        # <g, (y - m) / s>: the gradient of the mixture, and the part that normalization removes from y's gradient.
        along = (torch.stack([(g * _pixels(y)).sum(0) for y in inputs]) - total * mean) * scale  # (T, C)
        slopes = -factors * scale * along / len(g)
        shifts = -factors * total / len(g) - slopes * mean
        by_inputs = [
            _image(torch.addcmul(shift, g, factor).addcmul_(_pixels(y), slope), y)
            for y, factor, slope, shift in zip(inputs, factors, slopes, shifts, strict=True)
        ]
        return None, along, *by_inputs


def _pixels(x: Tensor) -> Tensor:
    """(n, C, H, W) -> (n H W, C), a view if x is in channels-last layout."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def _image(flat: Tensor, like: Tensor) -> Tensor:
    """(n H W, C) -> (n, C, H, W) in channels-last layout, with the n, H and W of `like`."""
    n, _, height, width = like.shape
    return flat.view(n, height, width, -1).permute(0, 3, 1, 2)


class MixedCell(nn.Module):
    """The nodes of a cell, with C channels each, computed from its input nodes. Liu et al. 2019, Eq. 2.

    With partial channels each node is shuffled once, after the sum over its edges, which equals a shuffle per edge.

    Args:
        edges: Edges in the order of the rows of weights. Nodes are numbered in the order of computation, inputs first.
            All edges from one node have the same stride.
        inputs: Number of input nodes.
        make: Function of (operation, channels, stride) that returns its module, (n, C', H, W) -> (n, C', H/stride,
            W/stride).
        channels, partial: C and K; K is 1 for all channels.
        fused: A faster evaluation of all edges from a node, in train mode on a CPU, with the same outputs.

    Raises: InvalidInput if K does not divide C.
    """

    def __init__(
        self,
        edges: Sequence[Edge],
        inputs: int,
        operations: Sequence[str],
        make: Callable[[str, int, int], nn.Module],
        channels: int,
        partial: int = 1,
        fused: Fused | None = None,
    ) -> None:
        super().__init__()
        width = operation_width(channels, partial)
        self.graph, self.inputs, self.operations = tuple(edges), inputs, tuple(operations)
        self.partial, self.fused = partial, fused
        self.edges = nn.ModuleDict(
            {
                edge.key: nn.ModuleDict({name: make(name, width, edge.stride) for name in operations if name != NONE})
                for edge in edges
            }
        )

    def forward(self, inputs: Sequence[Tensor], rows: Rows, edge_weights: Tensor) -> list[Tensor]:
        """Computes the nodes after the inputs, (n, C, H/s, W/s).

        Args:
            inputs: (n, C, H, W) each.
            rows: One per edge; a probe needs whole channels.
            edge_weights: (edges,), factors of the rows with partial channels.
        """
        operations = rows.dense if self.partial == 1 else rows.dense * edge_weights[:, None]
        entries = [row.unbind() for row in operations.unbind()]  # one gradient per row, not one per entry
        nodes = list(inputs)
        arriving: dict[int, list[Term]] = {edge.target: [] for edge in self.graph}
        bypass: dict[int, list[Term]] = {target: [] for target in arriving}
        offers: dict[int, list[Offer]] = {target: [] for target in arriving}
        for source in range(self.inputs + len(arriving)):
            if source >= self.inputs:
                node = self._node(source, nodes, arriving[source], bypass[source])
                nodes.append(node if rows.probe is None else rows.probe(node, offers[source]))
            leaving = [number for number, edge in enumerate(self.graph) if edge.source == source]
            if not leaving:
                continue
            terms = self._terms(operation_channels(nodes[source], self.partial), leaving, operations, entries, rows)
            for number, edge_terms in zip(leaving, terms, strict=True):
                arriving[self.graph[number].target] += edge_terms
                if rows.probe is not None:
                    offers[self.graph[number].target] += self._offers(nodes[source], number)
            if self.partial > 1:
                rest = bypass_channels(nodes[source], self.partial, self.graph[leaving[0]].stride)
                for number in leaving:
                    bypass[self.graph[number].target].append((rest, edge_weights[number]))
        return nodes[self.inputs :]

    def _terms(
        self, x: Tensor, leaving: Sequence[int], weights: Tensor, entries: Sequence[Sequence[Tensor]], rows: Rows
    ) -> list[list[Term]]:
        """Returns, for each of the edges `leaving` a node x, the terms of the edge's target. entries: of weights."""
        chosen = rows.chosen
        modules: list[Any] = [self.edges[self.graph[number].key] for number in leaving]
        training_on_cpu = self.training and x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
        if chosen is None and self.fused is not None and training_on_cpu:
            return self.fused(x, modules, weights[leaving], self.graph[leaving[0]].stride)
        terms: list[list[Term]] = []
        for number, edge in zip(leaving, modules, strict=True):
            candidates = range(len(self.operations)) if chosen is None else (chosen[number],)
            columns = [column for column in candidates if column != LEFT_OUT and self.operations[column] != NONE]
            factors = [entries[number][column] if rows.probe is None else None for column in columns]
            outputs = [edge[self.operations[column]](x) for column in columns]
            terms.append(list(zip(outputs, factors, strict=True)))
        return terms

    def _offers(self, x: Tensor, number: int) -> list[Offer]:
        edge: Any = self.edges[self.graph[number].key]
        names = enumerate(self.operations)
        return [(number, column, partial(edge[name], x)) for column, name in names if name != NONE]

    def _node(self, target: int, nodes: Sequence[Tensor], arriving: list[Term], bypass: list[Term]) -> Tensor:
        if arriving:
            node = weighted_sum(arriving)
        else:  # `none` on every edge
            edge = next(edge for edge in self.graph if edge.target == target)
            x = operation_channels(nodes[edge.source], self.partial)
            node = torch.zeros_like(x[..., :: edge.stride, :: edge.stride])
        return node if self.partial == 1 else shuffle(node, weighted_sum(bypass))


def depthwise(x: Tensor, weight: Tensor, stride: int = 1, dilation: int = 1) -> Tensor:
    """(n, C, H, W) -> (n, C, H/stride, W/stride), rounded up; padded to keep the size at stride 1.

    Args:
        weight: (C, 1, k, k), k 3 or 5.
        dilation: 1 or 2; 1 if the stride is not 1.

    It can be differentiated once. oneDNN's kernels for the gradients are fast only up to three columns without
    dilation; the others take up to 25 times as long. Here fast kernels compute both gradients.
    """
    return _Depthwise.apply(x, weight, stride, dilation)


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int, dilation: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.dilation = stride, dilation
        return _same(x, weight, stride, dilation)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight = ctx.needs_input_grad[:2]
        if ctx.stride > 1:
            padding = weight.shape[-1] // 2
            mask = (needs_x, needs_weight, False)
            return (*_gradients(x, weight, grad, ctx.stride, (padding, padding), mask), None, None)
        grad_x = _same(grad, weight.flip(2, 3), 1, ctx.dilation) if needs_x else None
        grad_weight = _weight_gradient(x, grad, weight.shape[-1], ctx.dilation) if needs_weight else None
        return grad_x, grad_weight, None, None


def _same(x: Tensor, weight: Tensor, stride: int, dilation: int) -> Tensor:
    padding = dilation * (weight.shape[-1] // 2)
    return functional.conv2d(x, weight, None, stride, padding, dilation, groups=len(weight))


def _weight_gradient(x: Tensor, grad: Tensor, kernel: int, dilation: int) -> Tensor:
    """Computes (C, 1, k, k), the gradient of the weight at stride 1, by kernels of three columns without dilation.

    Taps that are s columns apart are neighbors if columns with equal remainder mod s are channels, which is a view. One
    call with s = dilation computes the three inner columns of taps, a second one with s = 2 dilation the two outer ones
    of k = 5. Dilated rows are every second row of a higher kernel.
    """
    rows = dilation * (kernel - 1) + 1
    step = dilation if kernel == 3 else 2 * dilation
    # oneDNN has no fast kernel higher than the image. Zeros on the right and at the bottom change nothing.
    extra = (0, -x.shape[3] % step, 0, max(0, rows - x.shape[2]))
    if any(extra):
        x, grad = functional.pad(x, extra), functional.pad(grad, extra)

    def taps(apart: int) -> Tensor:  # (C, 1, k, 3)
        u, g = _columns_as_channels(x, apart), _columns_as_channels(grad, apart)
        weight = u.new_empty(u.shape[1], 1, rows, 3)
        _, gradient, _ = _gradients(u, weight, g, 1, (rows // 2, 1), (False, True, False))
        return gradient.unflatten(0, (apart, -1)).sum(0)[:, :, ::dilation]

    inner = taps(dilation)
    if kernel == 3:
        return inner
    outer = taps(2 * dilation)
    return torch.cat([outer[..., :1], inner, outer[..., 2:]], dim=-1)


def _columns_as_channels(x: Tensor, step: int) -> Tensor:
    """(n, C, H, W) -> (n, step C, H, W/step), a view if x is in channels-last layout."""
    n, _, height, width = x.shape
    return x.permute(0, 2, 3, 1).reshape(n, height, width // step, -1).permute(0, 3, 1, 2)


def _gradients(
    x: Tensor, weight: Tensor, grad: Tensor, stride: int, padding: tuple[int, int], mask: tuple[bool, bool, bool]
) -> tuple[Any, Any, Any]:
    return torch.ops.aten.convolution_backward(
        grad, x, weight, None, (stride, stride), padding, (1, 1), False, (0, 0), len(weight), mask
    )


class FusedEdges:
    """All operations of all edges from a node of a DARTS cell: a `Fused`, for training on a CPU.

    Outputs and gradients equal those of the single modules. A node's ReLU and its pools are computed once, not per
    edge; depthwise convolutions have the fast gradients of `depthwise`; normalizations, weights and the sum are one
    pass (`normalized_sum`); small edges are evaluated together.
    """

    def __init__(self, operations: Sequence[str]) -> None:
        self.column = {name: column for column, name in enumerate(operations)}

    def __call__(self, x: Tensor, edges: Sequence[nn.ModuleDict], rows: Tensor, stride: int) -> list[list[Term]]:
        """x: (n, C, H, W); edges: the modules of E edges; rows: (E, operations) -> the terms of each edge's target."""
        terms = self._convolutions(x, edges, rows, stride)
        first: Any = edges[0]  # the edges share their pools
        pools = [normalized_sum([first[name][0](x)]) for name in POOLS]
        weights = rows[:, [self.column[name] for name in (*POOLS, SKIP)]].flatten().split(1)
        for number, (edge_terms, edge) in enumerate(zip(terms, edges, strict=True)):
            edge_terms += zip((*pools, edge[SKIP](x)), weights[3 * number : 3 * number + 3], strict=True)
        return terms

    def _convolutions(self, x: Tensor, edges: Sequence[nn.ModuleDict], rows: Tensor, stride: int) -> list[list[Term]]:
        """Returns one term per edge: the weighted sum of its four convolutions."""
        channels, together = x.shape[1], _together(x)
        active = x.relu()
        # A dilation of 2 at stride 2 reads only every second pixel; on these pixels it is no dilation.
        halved, dilation = (active, 2) if stride == 1 else (active[..., ::2, ::2], 1)
        columns = [self.column[name] for name in (*SEPARABLE, *DILATED)]
        mixture = rows[:, columns].T.repeat_interleave(channels, dim=1).split(together * channels, dim=1)  # (4, E C)
        terms: list[list[Term]] = []
        for part, at in zip(mixture, range(0, len(edges), together), strict=True):
            some = edges[at : at + together]
            modules: dict[str, list[Any]] = {name: [edge[name] for edge in some] for name in (*SEPARABLE, *DILATED)}
            u, v = (_repeated(source, len(some)) for source in (active, halved))
            outs = []
            for name in SEPARABLE:
                first = _pointwise(depthwise(u, _weights(modules[name], 1), stride), modules[name], 2)
                middle = normalized_sum([first], relu=True)
                outs.append(_pointwise(depthwise(middle, _weights(modules[name], 5)), modules[name], 6))
            for name in DILATED:
                outs.append(_pointwise(depthwise(v, _weights(modules[name], 1), 1, dilation), modules[name], 2))
            out = normalized_sum(outs, part)
            terms += [[(summed, None)] for summed in (out.split(channels, dim=1) if len(some) > 1 else (out,))]
        return terms


def _together(x: Tensor) -> int:
    """Returns the number of edges from x that are evaluated as one, side by side in channels."""
    lanes, cache = LANES // x.shape[1], CACHE // x.numel()
    return max(1, lanes if x.shape[1] < LANES else cache)


def _weights(modules: Sequence[Any], layer: int) -> Tensor:
    """Returns the weights of a convolution of each of E modules, (E C, ...)."""
    return torch.cat([module[layer].weight for module in modules])


def _pointwise(x: Tensor, modules: Sequence[Any], layer: int) -> Tensor:
    """Applies a 1 x 1 convolution of each of E modules: (n, E C, H, W) -> (n, E C, H, W)."""
    weights, edges = _weights(modules, layer), len(modules)
    channels = weights.shape[1]
    if edges > 1 and channels < LANES:  # as one convolution without groups, which is faster than with groups
        blocks = weights.view(edges, channels, 1, channels) * torch.eye(edges, dtype=x.dtype)[:, None, :, None]
        weights, edges = blocks.view(edges * channels, -1, 1, 1), 1
    return functional.conv2d(x, weights, groups=edges)


def _repeated(x: Tensor, times: int) -> Tensor:
    """(n, C, H, W) -> (n, times C, H, W) in channels-last layout."""
    x = x.permute(0, 2, 3, 1)
    return (x.repeat(1, 1, 1, times) if times > 1 else x.contiguous()).permute(0, 3, 1, 2)
