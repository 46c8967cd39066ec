"""What a training-free metric is, the ones archray knows, and the user's own. Shu 2022, sec. 7.2.2 and appendix D."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from archray.errors import ArchrayError, InvalidInput
from archray.references import call_reference, is_reference, load_reference, split_reference
from archray.registry import PackageRegistry

if TYPE_CHECKING:
    from archray.trainables.proxies.shared_pass import SharedPass, Target

Direction = Literal["max", "min"]  # "max": a larger value promises a better architecture


MIN = re.compile(r'^@proxy\(\s*direction="min"', re.MULTILINE)  # in the file of a metric of archray's


class NoScore(ArchrayError):
    """A metric has no value on a network; the message is the reason."""


@dataclass(frozen=True)
class Proxy:
    """A training-free metric.

    Attributes:
        name: as in the columns of a pool.
        direction: whether a larger or a smaller value promises a better architecture.
        function: given the `SharedPass` of a network it returns the metric's value, or raises `NoScore`.
        gradients_by: what the metric wants the loss differentiated by. The shared pass makes one backward pass to
            what all the chosen metrics want.
        copies_outputs: whether the metric reads what came out of layers, which a network may change in place later.
        shares_pass: False for a plain function of the user's: it is given network, images and labels, all copies.

    Raises: InvalidInput for another direction.
    """

    name: str
    direction: Direction
    function: Callable[..., Any]
    gradients_by: Callable[[SharedPass], Sequence[Target]] | None = None
    copies_outputs: bool = False
    shares_pass: bool = True

    def __post_init__(self) -> None:
        if self.direction not in get_args(Direction):
            raise InvalidInput(f"expected the direction of {self.name!r} to be max or min, got {self.direction!r}")


def proxy(
    *,
    direction: Direction,
    gradients_by: Callable[[SharedPass], Sequence[Target]] | None = None,
    copies_outputs: bool = False,
) -> Callable[[Callable[[SharedPass], float]], Proxy]:
    """Makes a training-free metric of a function of a `SharedPass`; the options are those of `Proxy`.

    A file in `proxies/metrics/` that holds one under its own name adds it to `PROXIES`. Raises: InvalidInput for
    a function of something else.
    """

    def decorate(function: Callable[[SharedPass], float]) -> Proxy:
        if not _takes(function, 1):
            raise InvalidInput(
                f"expected {function.__name__!r} under @proxy to take the shared pass alone (which has network, "
                f"images and labels), got {function.__name__}{inspect.signature(function)}; leave @proxy out for a "
                "function of network, images and labels"
            )
        return Proxy(function.__name__, direction, function, gradients_by, copies_outputs)

    return decorate


PROXIES: PackageRegistry[Proxy] = PackageRegistry("proxy", "archray.trainables.proxies.metrics")


def get_proxy(name_or_reference: str) -> Proxy:
    """The metric of that name, or the user's own by reference.

    Args:
        name_or_reference: a registered name, or `module:attribute` / `path.py:attribute` naming a function of network,
            images and labels, or one of a `SharedPass` under `@proxy`. Its attribute `direction`, if any, says whether
            a larger value (`max`, the default) or a smaller one promises a better architecture.

    Raises: UnknownName if there is no such name or reference; InvalidInput if the reference is no such function.
    """
    if name_or_reference in PROXIES or not is_reference(name_or_reference):
        return PROXIES.get(name_or_reference)
    own = load_reference(name_or_reference)
    _, name = split_reference(name_or_reference)
    if isinstance(own, Proxy):
        return replace(
            own, name=name, function=partial(call_reference, name_or_reference, own.function, raises=NoScore)
        )
    if isinstance(own, type) or not callable(own):
        kind = f"the class {own.__name__}" if isinstance(own, type) else type(own).__name__
        raise InvalidInput(f"expected {name_or_reference!r} to be a function of network, images and labels, got {kind}")
    if not _takes(own, 3):
        raise InvalidInput(
            f"expected {name_or_reference!r} to be a function of network, images and labels, got "
            f"{name}{inspect.signature(own)}"
        )
    function = partial(call_reference, name_or_reference, own, raises=NoScore)
    return Proxy(name, getattr(own, "direction", "max"), function, shares_pass=False)


def low_is_good(name: str) -> bool:
    """Whether a smaller value of the registered metric promises a better architecture; False of other names.

    Read off the metric's file: importing it would load torch, which whoever orders a table has no need of.
    """
    if name not in PROXIES:
        return False
    source = PROXIES.source(name)
    return MIN.search(source) is not None if source else PROXIES.get(name).direction == "min"


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether `function` can be called with so many arguments by position."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a function without a signature, of a compiled module
        return True
    return True


@dataclass(frozen=True)
class Score:
    """The value of one metric on one network. A failed metric has the value NaN and says why."""

    value: float
    direction: Direction
    failure: str | None = None
