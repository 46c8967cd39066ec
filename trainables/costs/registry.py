"""What a cost of a network is, the ones archray knows, and the user's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from archray.errors import ArchrayError, InvalidInput
from archray.references import call_reference, is_reference, load_reference, split_reference
from archray.registry import PackageRegistry

if TYPE_CHECKING:
    from torch import nn

ImageShape = tuple[int, int, int]  # C, H, W


class CostFailed(ArchrayError):
    """A network has no such cost; the message says which network, which cost, and why."""


@dataclass(frozen=True)
class Cost:
    """A named number of a network; less is better.

    Attributes:
        name: as in the columns of a pool and in constraints.
        unit: as a table's head shows it; empty of a count.
        function: (network in evaluation mode, the shape of an image) -> the value. Of a cost that is counted the
            network may lie on the meta device.
        summed: whether the cost of a network is the sum of those of its operations, as a look-up by operation needs.
        measured: whether it is timed on a machine: twice the same network gives two values, and settings say how.
    """

    name: str
    unit: str
    function: Callable[[nn.Module, ImageShape], float]
    summed: bool = False
    measured: bool = False


def cost(
    *, unit: str = "", summed: bool = False, measured: bool = False
) -> Callable[[Callable[[nn.Module, ImageShape], float]], Cost]:
    """Makes a cost of a function of a network and the shape of an image; the options are those of `Cost`.

    A file `costs/kinds/NAME_cost.py` that holds one under the name NAME adds it to `COSTS`.
    """

    def decorate(function: Callable[[nn.Module, ImageShape], float]) -> Cost:
        return Cost(function.__name__, unit, function, summed, measured)

    return decorate


COSTS: PackageRegistry[Cost] = PackageRegistry("cost", "archray.trainables.costs.kinds", suffix="_cost")


def cost_column(name_or_reference: str) -> str:
    """What a cost's column is called: its name, of a reference the attribute's."""
    if name_or_reference in COSTS or not is_reference(name_or_reference):
        return name_or_reference
    return split_reference(name_or_reference)[1]


def get_cost(name_or_reference: str) -> Cost:
    """The cost of that name, or the user's own by reference.

    Args:
        name_or_reference: a registered name, or `module:attribute` / `path.py:attribute` naming a function of a
            network and the shape (C, H, W) of an image, or one under `@cost`.

    Raises: UnknownName if there is no such name or reference; InvalidInput if the reference is no such function.
    """
    if name_or_reference in COSTS or not is_reference(name_or_reference):
        return COSTS.get(name_or_reference)
    own, name = load_reference(name_or_reference), split_reference(name_or_reference)[1]
    if isinstance(own, Cost):
        return replace(
            own, name=name, function=partial(call_reference, name_or_reference, own.function, raises=CostFailed)
        )
    if isinstance(own, type) or not callable(own) or not _takes_two(own):
        kind = f"the class {own.__name__}" if isinstance(own, type) else type(own).__name__
        raise InvalidInput(
            f"expected {name_or_reference!r} to be a function of a network and the shape (C, H, W) of an image, got "
            f"{kind}"
        )
    return Cost(name, getattr(own, "unit", ""), partial(call_reference, name_or_reference, own, raises=CostFailed))


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a function without a signature, of a compiled module
        return True
    return True
