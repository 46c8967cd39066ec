"""Costs of networks: the registry, archray's costs, and custom costs. To add a cost, add a function at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from archray.errors import ArchrayError
from archray.references import call_reference, is_reference, split_reference
from archray.registry import LazyModule, Registry, load_function
from archray.trainables.costs.settings import LatencySettings

if TYPE_CHECKING:
    from torch import nn

    from archray.trainables.costs import measures
    from archray.trainables.nets import build_network as counts
else:  # names and units are available without torch
    measures = LazyModule("archray.trainables.costs.measures")
    counts = LazyModule("archray.trainables.nets.build_network")

ImageShape = tuple[int, int, int]  # C, H, W
CostFunction = Callable[["nn.Module", ImageShape], float]


class CostFailed(ArchrayError):
    """A network does not have this cost. The message contains the network, the cost and the reason."""


@dataclass(frozen=True)
class Cost:
    """A named number of a network; lower is better.

    Attributes:
        name: Name in the columns of a pool and in constraints.
        unit: Unit in a table's header; empty for a count.
        function: Function of (network in evaluation mode, shape of an image). Unless `measured`, the network may be on
            the meta device.
        summary: One line, without a period.
        measured: Whether it is timed on a machine, so that it varies and has settings.
    """

    name: str
    unit: str
    function: CostFunction
    summary: str = ""
    measured: bool = False


COSTS: Registry[Cost] = Registry("cost")


def cost(*, unit: str = "", summary: str = "", measured: bool = False) -> Callable[[CostFunction], Cost]:
    """Turns a function of a network and the shape of an image into a cost. The options are as in `Cost`.

    `@COSTS.register(name)` above it adds the cost to archray.
    """
    return lambda function: Cost(function.__name__, unit, function, summary, measured)


def cost_column(name_or_reference: str) -> str:
    """Returns the column of a cost: its name, or the attribute of a reference."""
    if name_or_reference in COSTS or not is_reference(name_or_reference):
        return name_or_reference
    return split_reference(name_or_reference)[1]


def get_cost(name_or_reference: str) -> Cost:
    """Returns the cost with a registered name, or a custom cost by reference.

    Args:
        name_or_reference: A name, or `module:attribute` / `path.py:attribute` of a function of a network and the shape
            (C, H, W) of an image, with or without `@cost`.

    Raises: UnknownName for an unknown name or reference; InvalidInput if the reference is not such a function.
    """
    if name_or_reference in COSTS or not is_reference(name_or_reference):
        return COSTS.get(name_or_reference)
    loaded = load_function(name_or_reference, Cost, 2, "a network and the shape (C, H, W) of an image")
    entry = loaded if isinstance(loaded, Cost) else Cost("", getattr(loaded, "unit", ""), loaded)
    function = partial(call_reference, name_or_reference, entry.function, raises=CostFailed)
    return replace(entry, name=split_reference(name_or_reference)[1], function=function)


@COSTS.register("parameters")
@cost(summary="Number of trainable parameters, without an auxiliary classifier")
def parameters(network: nn.Module, image_shape: ImageShape) -> float:
    return float(counts.count_parameters(network))


@COSTS.register("flops")
@cost(
    summary="Floating-point operations for one image, by torch's counter: convolutions and matrix products; a "
    "multiply-add counts twice",
)
def flops(network: nn.Module, image_shape: ImageShape) -> float:
    """Counts convolutions and matrix products, but not normalization, pooling, activations and sums.

    FLOPs in many papers are multiply-adds, half of this number.
    """
    return 2.0 * counts.count_multiply_adds(network, image_shape)


@COSTS.register("peak_memory")
@cost(
    unit="bytes",
    summary="Largest sum of simultaneously alive activations for one image, from the graph of operations; without "
    "weights, kernel workspaces and allocator overhead",
)
def peak_memory(network: nn.Module, image_shape: ImageShape) -> float:
    return float(measures.peak_activation_bytes(network, image_shape))


@COSTS.register("latency_ms")
@cost(
    unit="ms",
    measured=True,
    summary="Measured latency of a batch: the median of repeated passes; the spread is in `latency_ms_iqr`",
)
def latency_ms(network: nn.Module, image_shape: ImageShape) -> float:
    """Uses the default settings; the settings of `NetworkCosts` may differ."""
    return measures.network_latency(network, image_shape, LatencySettings()).median
