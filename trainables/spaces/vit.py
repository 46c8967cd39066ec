"""Vision transformers for small images: depth, width, and heads and MLP ratio per layer. Chen et al. 2021, sec. 3."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from archray.trainables.spaces.space import SPACES, Architecture, Decision, Space

DEPTHS = ("3", "4", "5", "6")
WIDTHS = ("4", "6", "8")  # in channels C: a token has width x C numbers
HEADS = ("2", "3", "4")  # with 2 C numbers each, for any width
RATIOS = ("1", "2", "4")  # hidden units of the MLP, relative to the width

LAYERS = int(DEPTHS[-1])
SHARED = 2  # decisions of the whole network, before the layers' decisions
PER_LAYER = 2


class TransformerLayer(NamedTuple):
    """One layer: the number of attention heads, and the hidden units of its MLP per number of a token."""

    heads: int
    ratio: int


class TransformerShape(NamedTuple):
    """The sizes of a network: numbers of a token in channels C, and its layers."""

    width: int
    layers: tuple[TransformerLayer, ...]

    @property
    def depth(self) -> int:
        return len(self.layers)


@SPACES.register("vit")
class VisionTransformers(Space):
    """Vision transformers for images of 8 to 32 pixels per side: 6.4 million choices, 1,793,340 networks.

    As in AutoFormer (Chen et al. 2021, Table 1), depth and width belong to the whole network, heads and MLP ratio to
    each layer, and a head has the same size at any width. The choices are smaller than AutoFormer's, which are for
    images of 224 pixels and depths of 12 and more. Strings are
    `depth=3|width=4|heads_1=2|ratio_1=1|...|heads_6=2|ratio_6=1`. Choices for layers beyond the depth have no effect;
    the canonical form has the first choices there.
    """

    name: ClassVar[str] = "vit"
    supernets: ClassVar[tuple[str, ...]] = ("sliced",)
    # At 0.1, the learning rate of convolutional networks, a transformer without clipping learned nothing on digits, and
    # synflow is undefined on it.
    defaults: ClassVar[Mapping[str, Any]] = {"training": {"grad_clip": 1.0}, "proxy": "snip"}
    decisions = (
        Decision("depth", DEPTHS),
        Decision("width", WIDTHS),
        *(
            decision
            for layer in range(1, LAYERS + 1)
            for decision in (Decision(f"heads_{layer}", HEADS), Decision(f"ratio_{layer}", RATIOS))
        ),
    )

    def shape(self, architecture: Architecture) -> TransformerShape:
        """Returns the network's width and its layers. Raises: InvalidArchitecture."""
        self.check(architecture)
        depth, width, *choices = map(int, architecture)
        layers = zip(choices[::PER_LAYER], choices[1::PER_LAYER], strict=True)
        return TransformerShape(width, tuple(TransformerLayer(*layer) for layer in layers)[:depth])

    def canonical(self, architecture: Architecture) -> Architecture:
        """Sets the layers beyond the depth to their first choices."""
        used = SHARED + PER_LAYER * self.shape(architecture).depth
        return (*architecture[:used], *(decision.choices[0] for decision in self.decisions[used:]))

    def condition(self, decision: str) -> tuple[str, tuple[str, ...]] | None:
        """The heads and the ratio of a layer matter if the depth includes the layer."""
        _, _, layer = decision.partition("_")
        if not layer or layer <= DEPTHS[0]:
            return None
        return "depth", tuple(depth for depth in DEPTHS if int(depth) >= int(layer))

    @property
    def smallest(self) -> Architecture:
        """The architecture with the first choice of every decision, canonical."""
        return tuple(decision.choices[0] for decision in self.decisions)

    @property
    def largest(self) -> Architecture:
        """The architecture with the last choice of every decision."""
        return tuple(decision.choices[-1] for decision in self.decisions)
