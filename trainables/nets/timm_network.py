"""Networks of timm's classes, with the sizes of a space. timm: Wightman 2019; He et al. 2016; Liu et al. 2022.

With the normalization `scoring` (note P5), batch normalizations have no running statistics, and factors that timm
initializes with zero or nearly zero start at one: the last normalization of a residual branch, and ConvNeXt's layer
scale. Weights behind a factor of zero have no gradient.
"""

from functools import partial
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.nets.network_settings import Stem
from archray.trainables.nets.registry import NETWORKS, Normalization
from archray.trainables.spaces.space import Architecture, Space
from archray.trainables.spaces.timm import STAGES, TimmConvNeXts, TimmFamily, TimmResNets

# Narrower ResNets get this width: oneDNN's gradient of a strided 1 x 1 convolution of 2 to 7 channels writes past its
# memory on CPUs with AVX2 and without AVX-512 (see `darts_network.every_second_pixel`); timm's shortcuts are such.
LEAST_WIDTH = 8
DEEP_STEMS = {"c": "deep", "d": "deep", "t": "deep_tiered"}  # variant -> timm's name of a stem with three convolutions
AVERAGING = ("d", "t")  # variants whose shortcuts average before their convolution
LINEAR_FROM = 6  # in C; from this width timm publishes ConvNeXts with linear layers, below with 1 x 1 convolutions
LAYER_SCALE = 1e-6  # of ConvNeXt, at initialization

FamilyT = TypeVar("FamilyT", bound=TimmFamily)


class TimmNetwork(nn.Module):
    """Maps images (n, in_channels, H, W) of any size, resized, through a timm model to logits (n, num_classes).

    Args:
        model: Model with the same state as timm's model of this shape.
        resolution: Side of the model's input, relative to the side of the images; 1 keeps the images.
        least: Minimum pixels per side of the model's input; smaller images are enlarged.
    """

    def __init__(self, model: nn.Module, resolution: float, least: int) -> None:
        super().__init__()
        self.model, self.resolution, self.least = model, resolution, least

    @property
    def classifier(self) -> nn.Module:
        """The last linear layer."""
        classifier: nn.Module = self.model.get_classifier()  # type: ignore[operator]  # every timm model has it
        return classifier

    def forward(self, images: Tensor) -> Tensor:
        height, width = (max(round(side * self.resolution), self.least) for side in images.shape[-2:])
        if (height, width) != tuple(images.shape[-2:]):
            images = F.interpolate(images, (height, width), mode="bilinear", align_corners=False)
        logits: Tensor = self.model(images)
        return logits


@NETWORKS.register("timm:resnet")
def timm_resnet(
    space: Space,
    architecture: Architecture,
    *,
    channels: int,
    in_channels: int,
    num_classes: int,
    stem: Stem,
    normalization: Normalization,
) -> TimmNetwork:
    """Builds a `timm.models.resnet.ResNet`.

    Args:
        channels: C; the first stage has `width` x C channels, an even number of at least 8.
        stem: `imagenet` is timm's, which shrinks the map by 4; `cifar` is a 3 x 3 convolution of stride 1, without
            pooling.

    Raises: MissingExtra without timm; InvalidInput for another space; InvalidArchitecture.
    """
    family = _of_family(space, TimmResNets)
    shape = family.shape(architecture)
    from timm.models.resnet import BasicBlock, Bottleneck, ResNet

    blocks: dict[str, Any] = {"basic": BasicBlock, "bottleneck": Bottleneck}
    width = max(LEAST_WIDTH, 2 * round(shape.width * channels / 2))
    trained = normalization == "training"
    # timm's plain stem always has 64 channels; the width of a deep stem is an option
    model: Any = ResNet(
        blocks[shape.block],
        shape.depths,
        num_classes=num_classes,
        in_chans=in_channels,
        stem_type=DEEP_STEMS.get(shape.variant, "deep"),
        stem_width=width // 2,
        avg_down=shape.variant in AVERAGING,
        channels=_widths(width),
        norm_layer=partial(nn.BatchNorm2d, track_running_stats=trained),
        zero_init_last=trained,
        block_args={} if shape.attention == "none" else {"attn_layer": shape.attention},
    )
    small = stem == "cifar"
    if shape.variant not in DEEP_STEMS:
        kernel, stride = (3, 1) if small else (7, 2)
        model.conv1 = nn.Conv2d(in_channels, width, kernel, stride, padding=kernel // 2, bias=False)
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")  # as in timm
    elif small:
        model.conv1[0].stride = (1, 1)
    if small:
        model.maxpool = nn.Identity()
    return TimmNetwork(model, shape.resolution, least=1)


@NETWORKS.register("timm:convnext")
def timm_convnext(
    space: Space,
    architecture: Architecture,
    *,
    channels: int,
    in_channels: int,
    num_classes: int,
    stem: Stem,
    normalization: Normalization,
) -> TimmNetwork:
    """Builds a `timm.models.convnext.ConvNeXt`.

    Args:
        channels: C; the first stage has `width` x C channels.
        stem: `imagenet` is timm's patches of 4 x 4; `cifar` is a 3 x 3 convolution of stride 1.

    Raises: MissingExtra without timm; InvalidInput for another space; InvalidArchitecture.
    """
    family = _of_family(space, TimmConvNeXts)
    shape = family.shape(architecture)
    from timm.models.convnext import ConvNeXt

    widths, small = _widths(max(1, round(shape.width * channels))), stem == "cifar"
    scale = LAYER_SCALE if normalization == "training" else 1.0
    model: Any = ConvNeXt(
        in_chans=in_channels,
        num_classes=num_classes,
        depths=shape.depths,
        dims=widths,
        kernel_sizes=shape.kernels,
        patch_size=1 if small else 4,
        conv_mlp=shape.width < LINEAR_FROM,
        use_grn=shape.version == 2,
        ls_init_value=scale if shape.version == 1 else None,
    )
    if small:  # for one pixel of one channel, a normalization over channels would leave only its sign
        model.stem[0] = nn.Conv2d(in_channels, widths[0], 3, padding=1)
        nn.init.trunc_normal_(model.stem[0].weight, std=0.02)  # as in timm
        nn.init.zeros_(model.stem[0].bias)
    return TimmNetwork(model, shape.resolution, least=2 ** (STAGES - 1) * (1 if small else 4))


def _widths(first: int) -> tuple[int, ...]:
    """Returns the channels of each stage."""
    return tuple(first * 2**stage for stage in range(STAGES))


def _of_family(space: Space, family: type[FamilyT]) -> FamilyT:
    """Returns `space`, checked. Raises: InvalidInput unless it is in the family; MissingExtra without timm."""
    if not isinstance(space, family):
        raise InvalidInput(f"expected the space {family.name}, got {space.name!r}")
    space.check_packages()
    return space
