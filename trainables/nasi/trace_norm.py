"""The trace norm of the neural tangent kernel, its two approximations, and their gradient. Shu 2022, Eq. 6.4-6.7.

R(z) = sum_k ||grad_theta F_k||^2 for a supernet in which every choice is a row of weights z, at a path: rows of 0 and
1. Straight-through estimators need dR/dz there. As R = ||g||^2 with g = grad_theta F,

    dR/dz = 2 g^T d(grad_theta F)/dz = 2 d/de dF/dz (theta + e g) at e = 0,

and dF/dz_o = <b, o(x)>, where o is the operation that z_o weights, x its input and b the gradient of F by the node to
which it would be added. The derivative along g is therefore

    dR/dz_o = 2 (<b', o(x)> + <b, o'>),

where o' is the tangent of o(x) as theta moves along g, which for an operation off the path depends on x only, and b' is
the tangent of b, which is grad_u (g^T grad_theta F) for u added to the node. This needs two passes:

1. Along the path only, a forward pass and a double backward pass: g, b and b'.
2. A forward pass with tangents in which each offered operation is evaluated, used, and dropped.

No graph contains an operation off the path, which a double backward pass through the supernet would differentiate
twice, and the memory is that of the path.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.proxies.tangents import inner_product, squared_norm
from archray.trainables.supernets.networks import Supernet
from archray.trainables.supernets.networks.supernet import Offer, Rows

Approximation = Literal["exact", "samples", "batch"]
Path = Mapping[str, Rows]  # group -> weights of 0 and 1, without probes


def differentiated(logits: Tensor, labels: Tensor, approximation: Approximation) -> tuple[list[Tensor], float]:
    """Returns the functions F_k of the weights, (), and the factor of the sum of their squared gradient norms.

    The norms are per image, so that the three can be compared; m / gamma of Eq. 6.7 is equal for all architectures.

    - `exact`: b^-1 sum_x ||grad f(x)||_F^2, Eq. 6.4, a function for every image and class.
    - `samples`: b^-1 sum_x ||grad L_x||^2, the first bound of Eq. 6.6.
    - `batch`: ||b^-1 sum_x grad L_x||^2, Eq. 6.7.

    L is the cross-entropy. logits: (b, n). labels: (b,).
    """
    if approximation == "exact":
        return list(logits.flatten().unbind()), 1.0 / len(logits)
    losses = F.cross_entropy(logits, labels, reduction="none")
    if approximation == "samples":
        return list(losses.unbind()), 1.0 / len(logits)
    return [losses.mean()], 1.0


def trace_norm(logits: Tensor, labels: Tensor, parameters: Sequence[Tensor], approximation: Approximation) -> float:
    """Computes the (approximated) trace norm per image, from a forward pass with a graph to the parameters."""
    functions, factor = differentiated(logits, labels, approximation)
    total = torch.zeros((), dtype=torch.float64, device=logits.device)
    for number, function in enumerate(functions, 1):
        keep = number < len(functions)
        total += squared_norm(torch.autograd.grad(function, parameters, retain_graph=keep, allow_unused=True))
    return factor * float(total)


class TraceGradient(NamedTuple):
    """The trace norm of a path, and its gradient by the weights of each group, (edges, operations)."""

    trace: float
    by_weights: dict[str, Tensor]


def trace_gradient(
    supernet: Supernet,
    images: Tensor,
    labels: Tensor,
    path: Path,
    masks: Mapping[str, Tensor],
    approximation: Approximation = "batch",
) -> TraceGradient:
    """Computes the trace norm of a path through a supernet without partial channels, and its gradient by the choices.

    `samples` costs b times as much as `batch`, and `exact` b n times.

    Args:
        images: (b, C, H, W), on the supernet's device.
        labels: (b,).
        masks: group -> (edges, operations) bool; the gradient is zero where it is False, as it is for `none`.

    Raises: InvalidInput for a supernet without probes.
    """
    images = images.contiguous(memory_format=torch.channels_last)
    nodes: list[Tensor] = []

    def moved(value: Tensor, offers: Sequence[Offer]) -> Tensor:
        nodes.append(torch.zeros_like(value, requires_grad=True))
        return value + nodes[-1]

    names, parameters = zip(*supernet.named_parameters(), strict=True)
    with torch.enable_grad():
        logits = supernet.logits(images, {name: Rows(rows.dense, rows.chosen, moved) for name, rows in path.items()})
        functions, factor = differentiated(logits, labels, approximation)
    if not nodes:
        raise InvalidInput(
            f"expected a supernet with probes (see Rows.probe), got the supernet of {supernet.space.name}"
        )
    trace, by_weights = 0.0, {name: torch.zeros_like(rows.dense, device=images.device) for name, rows in path.items()}
    for number, function in enumerate(functions, 1):
        gradients = torch.autograd.grad(function, [*parameters, *nodes], create_graph=True, allow_unused=True)
        reached = {name: g for name, g in zip(names, gradients, strict=False) if g is not None}
        tangents = {name: g.detach() for name, g in reached.items()}
        along = torch.stack([(g * tangents[name]).sum() for name, g in reached.items()]).sum()
        trace += factor * float(along.detach())
        by_nodes = _or_zeros(gradients[len(parameters) :], nodes)
        moving = torch.autograd.grad(along, nodes, retain_graph=number < len(functions), allow_unused=True)
        _add_gradient(
            by_weights, supernet, images, path, tangents, by_nodes, _or_zeros(moving, nodes), masks, 2.0 * factor
        )
    return TraceGradient(trace, by_weights)


@torch.no_grad()
def _add_gradient(
    by_weights: dict[str, Tensor],
    supernet: Supernet,
    images: Tensor,
    path: Path,
    tangents: Mapping[str, Tensor],
    by_nodes: Sequence[Tensor],
    moving: Sequence[Tensor],
    masks: Mapping[str, Tensor],
    factor: float,
) -> None:
    """Makes the second pass. tangents: g. by_nodes, moving: b and b' of each node, in the order of computation."""
    of_nodes: Iterator[tuple[Tensor, Tensor]] = iter(zip(by_nodes, moving, strict=True))

    def measure(group: str, value: Tensor, offers: Sequence[Offer]) -> Tensor:
        b, b_moving = next(of_nodes)
        for row, column, operation in offers:
            if masks[group][row, column]:
                out, tangent = forward_ad.unpack_dual(operation())
                change = inner_product(b_moving, out)
                if tangent is not None:
                    change = change + inner_product(b, tangent)
                by_weights[group][row, column] += factor * change
        return value

    with forward_ad.dual_level():
        parameters = dict(supernet.named_parameters())
        duals = {f"supernet.{n}": forward_ad.make_dual(parameters[n].detach(), g) for n, g in tangents.items()}
        rows = {name: Rows(row.dense, row.chosen, partial(measure, name)) for name, row in path.items()}
        functional_call(_Logits(supernet), duals, (images, rows))


class _Logits(nn.Module):
    """`Supernet.logits` as a module's forward pass."""

    def __init__(self, supernet: Supernet) -> None:
        super().__init__()
        self.supernet = supernet

    def forward(self, images: Tensor, rows: Path) -> Tensor:
        return self.supernet.logits(images, rows)


def _or_zeros(gradients: Sequence[Tensor | None], like: Sequence[Tensor]) -> list[Tensor]:
    return [
        torch.zeros_like(tensor) if gradient is None else gradient.detach()
        for gradient, tensor in zip(gradients, like, strict=True)
    ]
