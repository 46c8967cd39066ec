"""The activation of the hidden layer of a two-layer network. Roberts et al. 2022, section 3."""

from collections.abc import Sequence
from typing import ClassVar

from archray.errors import InvalidInput
from archray.trainables.spaces.space import SPACES, Decision, Space

ACTIVATION_NAMES = (
    "relu",
    "leaky-relu",
    "elu",
    "softplus",
    "gelu",
    "silu",
    "sigmoid",
    "tanh",
    "erf",
    "sin",
    "cos",
    "quadratic",
    "identity",
)


@SPACES.register("activations")
class Activations(Space):
    """Two-layer networks v^T sigma(W x), which differ in sigma alone: the one decision of the space.

    Attributes:
        names: the h activations that can be chosen, in their order; all that archray has unless given.

    Raises: InvalidInput for fewer than two, or for one twice.
    """

    name: ClassVar[str] = "activations"
    kind: ClassVar[str] = "activation"

    def __init__(self, names: Sequence[str] = ACTIVATION_NAMES) -> None:
        if len(names) < 2 or len(set(names)) < len(names):
            raise InvalidInput(
                f"expected two activations or more, none of them twice, got {', '.join(names) or 'none'}"
            )
        self.decisions = (Decision("activation", tuple(names)),)
