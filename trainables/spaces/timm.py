"""The spaces of the timm families `convnext` (Liu et al. 2022) and `resnet` (He et al. 2016)."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from archray.trainables.spaces.space import SPACES, Architecture, Decision, Space

# Side of the network's input, relative to the side of the image.
RESOLUTIONS = ("0.5", "0.75", "1", "1.25")
STAGES = 4


class TimmFamily(Space):
    """Base class of families of timm networks: four stages of blocks, each half as large and twice as wide as before.

    Widths refer to the first stage, in channels C; timm's models have C = 16. The space itself does not need timm, but
    its networks do.
    """

    package: ClassVar[str | None] = "timm"
    published: ClassVar[Mapping[str, Architecture]]  # timm's name -> the architecture at C = 16


# `convnext`: version, width, resolution, depths, kernels.


VERSIONS = ("1", "2")
CONVNEXT_WIDTHS = ("1", "1.5", "2", "2.5", "3", "4", "5", "6")  # in channels C
CONVNEXT_DEPTHS = (("1", "2", "3"), ("1", "2", "3"), ("2", "4", "6", "8", "9", "12"), ("1", "2", "3"))
KERNELS = ("3", "5", "7", "9")


class ConvNeXtShape(NamedTuple):
    """The sizes of a network. width: channels of the first stage, in C. depths, kernels: per stage."""

    version: int
    width: float
    resolution: float
    depths: tuple[int, ...]
    kernels: tuple[int, ...]


def _convnext_member(version: str, width: str, depths: str) -> Architecture:
    """Returns a published architecture, with kernels of size 7. depths: `3-3-9-3`."""
    return (version, width, "1", *depths.split("-"), *("7",) * STAGES)


SIZES = {
    "atto": ("2.5", "2-2-6-2"),
    "femto": ("3", "2-2-6-2"),
    "pico": ("4", "2-2-6-2"),
    "nano": ("5", "2-2-8-2"),
    "tiny": ("6", "3-3-9-3"),
}


@SPACES.register("timm:convnext")
class TimmConvNeXts(TimmFamily):
    """ConvNeXts of timm: 2,654,208 networks, including atto to tiny of both versions.

    Strings are `version=1|width=2.5|resolution=1|depth_1=2|...|depth_4=2|kernel_1=7|...|kernel_4=7`, which is ConvNeXt
    atto. `published` contains timm's models by name.
    """

    name: ClassVar[str] = "timm:convnext"
    defaults: ClassVar[Mapping[str, Any]] = {"proxy": "snip"}  # synflow is undefined on it
    decisions = (
        Decision("version", VERSIONS),
        Decision("width", CONVNEXT_WIDTHS),
        Decision("resolution", RESOLUTIONS),
        *(Decision(f"depth_{stage}", CONVNEXT_DEPTHS[stage - 1]) for stage in range(1, STAGES + 1)),
        *(Decision(f"kernel_{stage}", KERNELS) for stage in range(1, STAGES + 1)),
    )
    published: ClassVar = {
        **{f"convnext_{size}": _convnext_member("1", *shape) for size, shape in SIZES.items()},
        **{f"convnextv2_{size}": _convnext_member("2", *shape) for size, shape in SIZES.items()},
    }

    def shape(self, architecture: Architecture) -> ConvNeXtShape:
        """Returns the sizes of an architecture. Raises: InvalidArchitecture."""
        self.check(architecture)
        version, width, resolution, *stages = architecture
        depths, kernels = tuple(map(int, stages[:STAGES])), tuple(map(int, stages[STAGES:]))
        return ConvNeXtShape(int(version), float(width), float(resolution), depths, kernels)


# `resnet`: block, stem, attention, width, resolution, depths.


BLOCKS = ("basic", "bottleneck")
VARIANTS = ("b", "c", "d", "t")  # timm's letters: plain; deep stem; also averaging shortcuts; also a tiered stem
ATTENTIONS = ("none", "se")
RESNET_WIDTHS = ("1", "1.5", "2", "3", "4")  # in channels C
RESNET_DEPTHS = (("1", "2", "3"), ("1", "2", "3", "4"), ("1", "2", "3", "4", "6", "9", "14", "23"), ("1", "2", "3"))


class ResNetShape(NamedTuple):
    """The sizes of a network. width: channels of the first stage, in C. depths: blocks per stage."""

    block: str
    variant: str
    attention: str
    width: float
    resolution: float
    depths: tuple[int, ...]


def _resnet_member(block: str, depths: str, variant: str = "b", attention: str = "none") -> Architecture:
    """Returns a published architecture, with 4 C = 64 channels. depths: `3-4-6-3`."""
    return (block, variant, attention, "4", "1", *depths.split("-"))


@SPACES.register("timm:resnet")
class TimmResNets(TimmFamily):
    """ResNets of timm: 92,160 networks, including ResNet-10-T to 101, ResNet-D and SE-ResNet.

    Strings are `block=basic|variant=b|attention=none|width=4|resolution=1|depth_1=2|depth_2=2|depth_3=2|depth_4=2`,
    which is ResNet-18. `published` contains timm's models by name.
    """

    name: ClassVar[str] = "timm:resnet"
    decisions = (
        Decision("block", BLOCKS),
        Decision("variant", VARIANTS),
        Decision("attention", ATTENTIONS),
        Decision("width", RESNET_WIDTHS),
        Decision("resolution", RESOLUTIONS),
        *(Decision(f"depth_{stage}", RESNET_DEPTHS[stage - 1]) for stage in range(1, STAGES + 1)),
    )
    published: ClassVar = {
        "resnet10t": _resnet_member("basic", "1-1-1-1", "t"),
        "resnet14t": _resnet_member("bottleneck", "1-1-1-1", "t"),
        "resnet18": _resnet_member("basic", "2-2-2-2"),
        "resnet18d": _resnet_member("basic", "2-2-2-2", "d"),
        "resnet26": _resnet_member("bottleneck", "2-2-2-2"),
        "resnet26d": _resnet_member("bottleneck", "2-2-2-2", "d"),
        "resnet26t": _resnet_member("bottleneck", "2-2-2-2", "t"),
        "resnet34": _resnet_member("basic", "3-4-6-3"),
        "resnet34d": _resnet_member("basic", "3-4-6-3", "d"),
        "resnet50": _resnet_member("bottleneck", "3-4-6-3"),
        "resnet50c": _resnet_member("bottleneck", "3-4-6-3", "c"),
        "resnet50d": _resnet_member("bottleneck", "3-4-6-3", "d"),
        "resnet50t": _resnet_member("bottleneck", "3-4-6-3", "t"),
        "resnet101": _resnet_member("bottleneck", "3-4-23-3"),
        "resnet101c": _resnet_member("bottleneck", "3-4-23-3", "c"),
        "resnet101d": _resnet_member("bottleneck", "3-4-23-3", "d"),
        "seresnet18": _resnet_member("basic", "2-2-2-2", attention="se"),
        "seresnet34": _resnet_member("basic", "3-4-6-3", attention="se"),
        "seresnet50": _resnet_member("bottleneck", "3-4-6-3", attention="se"),
        "seresnet50t": _resnet_member("bottleneck", "3-4-6-3", "t", "se"),
        "seresnet101": _resnet_member("bottleneck", "3-4-23-3", attention="se"),
    }

    def shape(self, architecture: Architecture) -> ResNetShape:
        """Returns the sizes of an architecture. Raises: InvalidArchitecture."""
        self.check(architecture)
        block, variant, attention, width, resolution, *depths = architecture
        return ResNetShape(block, variant, attention, float(width), float(resolution), tuple(map(int, depths)))
