"""Residual networks of timm's family `resnet`: block, stem, attention, width, resolution, depths. He et al. 2016.

The stems and shortcuts of the variants are those of He et al. 2019, the attention is that of Hu et al. 2018.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from archray.trainables.spaces.space import SPACES, Architecture, Decision
from archray.trainables.spaces.timm_family import RESOLUTIONS, STAGES, TimmFamily

BLOCKS = ("basic", "bottleneck")
VARIANTS = ("b", "c", "d", "t")  # timm's letters: plain; deep stem; and averaging shortcuts; and a tiered stem
ATTENTIONS = ("none", "se")
WIDTHS = ("1", "1.5", "2", "3", "4")  # in channels C
DEPTHS = (("1", "2", "3"), ("1", "2", "3", "4"), ("1", "2", "3", "4", "6", "9", "14", "23"), ("1", "2", "3"))


class ResNetShape(NamedTuple):
    """What an architecture describes. width: channels of the first stage, in C. depths: blocks of each stage."""

    block: str
    variant: str
    attention: str
    width: float
    resolution: float
    depths: tuple[int, ...]


def _member(block: str, depths: str, variant: str = "b", attention: str = "none") -> Architecture:
    """A published one, of 4 C = 64 channels. depths: `3-4-6-3`."""
    return (block, variant, attention, "4", "1", *depths.split("-"))


@SPACES.register("timm:resnet")
class TimmResNets(TimmFamily):
    """ResNets of timm's: 92,160 networks, ResNet-10-T to 101, ResNet-D and SE-ResNet among them.

    Strings are `block=basic|variant=b|attention=none|width=4|resolution=1|depth_1=2|depth_2=2|depth_3=2|depth_4=2`,
    which is ResNet-18. `published` has timm's members by name.
    """

    name: ClassVar[str] = "timm:resnet"
    decisions = (
        Decision("block", BLOCKS),
        Decision("variant", VARIANTS),
        Decision("attention", ATTENTIONS),
        Decision("width", WIDTHS),
        Decision("resolution", RESOLUTIONS),
        *(Decision(f"depth_{stage}", DEPTHS[stage - 1]) for stage in range(1, STAGES + 1)),
    )
    published: ClassVar = {
        "resnet10t": _member("basic", "1-1-1-1", "t"),
        "resnet14t": _member("bottleneck", "1-1-1-1", "t"),
        "resnet18": _member("basic", "2-2-2-2"),
        "resnet18d": _member("basic", "2-2-2-2", "d"),
        "resnet26": _member("bottleneck", "2-2-2-2"),
        "resnet26d": _member("bottleneck", "2-2-2-2", "d"),
        "resnet26t": _member("bottleneck", "2-2-2-2", "t"),
        "resnet34": _member("basic", "3-4-6-3"),
        "resnet34d": _member("basic", "3-4-6-3", "d"),
        "resnet50": _member("bottleneck", "3-4-6-3"),
        "resnet50c": _member("bottleneck", "3-4-6-3", "c"),
        "resnet50d": _member("bottleneck", "3-4-6-3", "d"),
        "resnet50t": _member("bottleneck", "3-4-6-3", "t"),
        "resnet101": _member("bottleneck", "3-4-23-3"),
        "resnet101c": _member("bottleneck", "3-4-23-3", "c"),
        "resnet101d": _member("bottleneck", "3-4-23-3", "d"),
        "seresnet18": _member("basic", "2-2-2-2", attention="se"),
        "seresnet34": _member("basic", "3-4-6-3", attention="se"),
        "seresnet50": _member("bottleneck", "3-4-6-3", attention="se"),
        "seresnet50t": _member("bottleneck", "3-4-6-3", "t", "se"),
        "seresnet101": _member("bottleneck", "3-4-23-3", attention="se"),
    }

    def shape(self, architecture: Architecture) -> ResNetShape:
        """Raises: InvalidArchitecture."""
        chosen = self.chosen(architecture)
        return ResNetShape(
            chosen["block"],
            chosen["variant"],
            chosen["attention"],
            float(chosen["width"]),
            float(chosen["resolution"]),
            tuple(int(chosen[f"depth_{stage}"]) for stage in range(1, STAGES + 1)),
        )
