"""Training-free metrics: the registry, and custom metrics. Shu 2022, sec. 7.2.2 and appendix D."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from archray.errors import ArchrayError, InvalidInput
from archray.references import call_reference, is_reference, split_reference
from archray.registry import Registry, load_function, takes

if TYPE_CHECKING:
    from archray.trainables.proxies.shared_pass import SharedPass, Target

Direction = Literal["max", "min"]  # "max": larger values predict better architectures
Reads = Literal["images and labels", "images", "nothing"]  # of the batch


class NoScore(ArchrayError):
    """A metric is undefined on a network; the message is the reason."""


@dataclass(frozen=True)
class Proxy:
    """A training-free metric.

    Attributes:
        name: Name in the columns of a pool.
        direction: Whether larger or smaller values predict better architectures.
        function: Function from a `SharedPass` of a network to the metric's value; raises `NoScore`.
        summary: One line, without a period.
        source: Papers, and notes on their interpretation.
        reads: Parts of the batch on which it depends, in addition to the shape.
        gradients_by: Targets of the loss gradients. One shared backward pass computes the gradients of all metrics.
        copies_outputs: Whether the metric reads outputs of layers, which a network may change in place later.
        shares_pass: False for a plain custom function of network, images and labels, which receives copies.

    Raises: InvalidInput for another direction.
    """

    name: str
    direction: Direction
    function: Callable[..., Any]
    summary: str = ""
    source: str = ""
    reads: Reads = "images and labels"
    gradients_by: Callable[[SharedPass], Sequence[Target]] | None = None
    copies_outputs: bool = False
    shares_pass: bool = True

    def __post_init__(self) -> None:
        if self.direction not in get_args(Direction):
            raise InvalidInput(f"expected max or min as direction of the metric {self.name!r}, got {self.direction!r}")


PROXIES: Registry[Proxy] = Registry("proxy")


def proxy(
    *,
    direction: Direction,
    summary: str = "",
    source: str = "",
    reads: Reads = "images and labels",
    gradients_by: Callable[[SharedPass], Sequence[Target]] | None = None,
    copies_outputs: bool = False,
) -> Callable[[Callable[[SharedPass], float]], Proxy]:
    """Turns a function of a `SharedPass` into a training-free metric. The options are as in `Proxy`.

    `@PROXIES.register(name)` above it adds the metric to archray. Raises: InvalidInput for other arguments.
    """

    def decorate(function: Callable[[SharedPass], float]) -> Proxy:
        if not takes(function, 1):
            raise InvalidInput(
                f"expected {function.__name__!r} under @proxy as a function of the shared pass only (which has "
                "network, "
                f"images and labels), got {function.__name__}{inspect.signature(function)}. Remove @proxy from a "
                "function of network, images and labels"
            )
        return Proxy(function.__name__, direction, function, summary, source, reads, gradients_by, copies_outputs)

    return decorate


def get_proxy(name_or_reference: str) -> Proxy:
    """Returns the metric with a registered name, or a custom metric by reference.

    Args:
        name_or_reference: A name, or `module:attribute` / `path.py:attribute` of a function of network, images and
            labels (its attribute `direction` is `max` or `min`; default: `max`), or of a function of a `SharedPass`
            under `@proxy`.

    Raises: UnknownName for an unknown name or reference; InvalidInput if the reference is not such a function.
    """
    if name_or_reference in PROXIES or not is_reference(name_or_reference):
        return PROXIES.get(name_or_reference)
    loaded = load_function(name_or_reference, Proxy, 3, "network, images and labels")
    name, shared = split_reference(name_or_reference)[1], isinstance(loaded, Proxy)
    function = partial(call_reference, name_or_reference, loaded.function if shared else loaded, raises=NoScore)
    if shared:
        return replace(loaded, name=name, function=function)
    return Proxy(name, getattr(loaded, "direction", "max"), function, shares_pass=False)


def low_is_good(name: str) -> bool:
    """Whether smaller values of the registered metric predict better architectures; False for other names."""
    return name in PROXIES and PROXIES.get(name).direction == "min"


@dataclass(frozen=True)
class Score:
    """The value of one metric on one network. If the metric failed, the value is NaN and `failure` is the reason."""

    value: float
    direction: Direction
    failure: str | None = None
