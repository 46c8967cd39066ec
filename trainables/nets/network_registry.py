"""The standalone networks, by the name of their space."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import nn

from archray.registry import Registry
from archray.trainables.spaces.space import Architecture, Space

NetworkT = TypeVar("NetworkT", bound=nn.Module)


@dataclass(frozen=True)
class SpaceNetwork(Generic[NetworkT]):
    """A network whose class is plain PyTorch: `archray export` copies its source, and all that it uses.

    Attributes:
        network: the class. It takes `arguments`, and `channels`, `cells`, `in_channels`, `num_classes`,
            `normalisation`, and `stem` and `auxiliary` where there is a choice.
        arguments: plain data by name, from a space and an architecture. Raises: InvalidInput for another space.
    """

    network: type[NetworkT]
    arguments: Callable[[Space, Architecture], dict[str, Any]]

    def __call__(self, space: Space, architecture: Architecture, **options: Any) -> NetworkT:
        return self.network(**self.arguments(space, architecture), **options)


# A `SpaceNetwork`, or another builder(space, architecture, *, ...) with its options
NETWORKS: Registry[Callable[..., nn.Module]] = Registry("network")
