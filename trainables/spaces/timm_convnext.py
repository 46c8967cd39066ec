"""Convolutional networks of timm's family `convnext`: version, width, resolution, depths, kernels. Liu et al. 2022.

Version 2, with global response normalisation in the place of layer scale, is that of Woo et al. 2023.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from archray.trainables.spaces.space import SPACES, Architecture, Decision
from archray.trainables.spaces.timm_family import RESOLUTIONS, STAGES, TimmFamily

VERSIONS = ("1", "2")
WIDTHS = ("1", "1.5", "2", "2.5", "3", "4", "5", "6")  # in channels C
DEPTHS = (("1", "2", "3"), ("1", "2", "3"), ("2", "4", "6", "8", "9", "12"), ("1", "2", "3"))
KERNELS = ("3", "5", "7", "9")


class ConvNeXtShape(NamedTuple):
    """What an architecture describes. width: channels of the first stage, in C. depths, kernels: of each stage."""

    version: int
    width: float
    resolution: float
    depths: tuple[int, ...]
    kernels: tuple[int, ...]


def _member(version: str, width: str, depths: str) -> Architecture:
    """A published one: kernels of 7. depths: `3-3-9-3`."""
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
    """ConvNeXts of timm's: 2,654,208 networks, atto to tiny of both versions among them.

    Strings are `version=1|width=2.5|resolution=1|depth_1=2|...|depth_4=2|kernel_1=7|...|kernel_4=7`, which is ConvNeXt
    atto. `published` has timm's members by name.
    """

    name: ClassVar[str] = "timm:convnext"
    decisions = (
        Decision("version", VERSIONS),
        Decision("width", WIDTHS),
        Decision("resolution", RESOLUTIONS),
        *(Decision(f"depth_{stage}", DEPTHS[stage - 1]) for stage in range(1, STAGES + 1)),
        *(Decision(f"kernel_{stage}", KERNELS) for stage in range(1, STAGES + 1)),
    )
    published: ClassVar = {
        **{f"convnext_{size}": _member("1", *shape) for size, shape in SIZES.items()},
        **{f"convnextv2_{size}": _member("2", *shape) for size, shape in SIZES.items()},
    }

    def shape(self, architecture: Architecture) -> ConvNeXtShape:
        """Raises: InvalidArchitecture."""
        chosen = self.chosen(architecture)
        return ConvNeXtShape(
            int(chosen["version"]),
            float(chosen["width"]),
            float(chosen["resolution"]),
            tuple(int(chosen[f"depth_{stage}"]) for stage in range(1, STAGES + 1)),
            tuple(int(chosen[f"kernel_{stage}"]) for stage in range(1, STAGES + 1)),
        )
