"""Vision transformers for small images. Dosovitskiy et al. 2021, sec. 3.1; Beyer et al. 2022; Chen et al. 2021.

Pre-norm blocks. As in the plain baseline of Beyer et al., positions are sines and cosines, not learned, and tokens are
averaged without a class token, so that no weight depends on the image size. A convolution before the patches
(after Xiao et al. 2021) and a normalization after their embedding gained 30 percentage points on digits in 10 epochs.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.nets.registry import NETWORKS, SpaceNetwork
from archray.trainables.spaces.space import Architecture, Space
from archray.trainables.spaces.vit import VisionTransformers

PATCH = 4  # pixels per side
SMALL = 16  # pixels; maps up to this size are enlarged by 2, so that patches are 2 x 2: digits give 16 tokens, not 4
STEM, HEAD = 2, 2  # channels C of the convolution, and of a head
SLOWEST = 100.0  # ratio of a position's longest to its shortest wave: 8 x 8 tokens do not need the usual 10,000
FREQUENCIES = 8  # number of frequencies over this range


def patches(maps: Tensor) -> tuple[Tensor, tuple[int, int]]:
    """Splits maps (n, c, H, W) into patches (n, T, 16 c) in rows. Returns them and the numbers of rows and columns.

    Sides that 4 (in small maps 2) does not divide are padded with zeros at the bottom and on the right.
    """
    if max(maps.shape[-2:]) <= SMALL:
        maps = maps.repeat_interleave(2, -1).repeat_interleave(2, -2)
    height, width = maps.shape[-2:]
    if height % PATCH or width % PATCH:
        maps = F.pad(maps, (0, -width % PATCH, 0, -height % PATCH))
    cut = F.pixel_unshuffle(maps.contiguous(), PATCH)  # (n, 16 c, rows, columns)
    return cut.flatten(2).transpose(1, 2), (cut.shape[2], cut.shape[3])


def positions(grid: tuple[int, int], width: int, like: Tensor) -> Tensor:
    """Computes (T, width): sines and cosines of a token's row and column, alternating, with decreasing frequencies.

    A wide token's position starts with the position of a narrow token, so that a supernet can slice it.
    """
    rows, columns = grid
    number = torch.arange(width, device=like.device)
    pace = (number // 4).to(like.dtype).mul(-math.log(SLOWEST) / FREQUENCIES).exp()  # (width,)
    row = torch.arange(rows, device=like.device).repeat_interleave(columns)[:, None]  # (T, 1)
    column = torch.arange(columns, device=like.device).repeat(rows)[:, None]
    phase = torch.where(number % 2 == 0, row, column).to(like.dtype) * pace
    return torch.where(number % 4 < 2, phase.sin(), phase.cos())


def attention(qkv: Tensor, heads: int) -> Tensor:
    """Scaled dot products of (n, T, 3 heads d), all heads' queries first, then keys, then values: (n, T, heads d)."""
    q, k, v = qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)  # each (n, heads, T, d)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class Block(nn.Module):
    """Attention, then an MLP, each after a layer normalization and with a residual connection: (n, T, width).

    Args:
        ratio: Hidden units of the MLP, relative to the width.
        head: Numbers per head.
    """

    def __init__(self, width: int, heads: int, ratio: int, head: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * heads * head)
        self.projection = nn.Linear(heads * head, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.expansion = nn.Linear(width, ratio * width)
        self.activation = nn.GELU()
        self.contraction = nn.Linear(ratio * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.projection(attention(self.qkv(self.attention_norm(x)), self.heads))
        out: Tensor = x + self.contraction(self.activation(self.expansion(self.mlp_norm(x))))
        return out


class VisionTransformer(nn.Module):
    """Maps images (n, in_channels, H, W) of any size to logits (n, num_classes).

    Args:
        width: Numbers of a token, in channels.
        layers: Heads and ratio of each layer.
        channels: C: a token has `width` x C numbers, a head 2 C, at any width (like AutoFormer's heads with 64).
        cells: N: each layer of the architecture is N blocks with its heads and ratio.

    Linear layers are initialized as in Glorot and Bengio (2010), as usual in transformers. Layer normalization is
    independent of the batch, so the forms `training` and `scoring` are equal.
    """

    def __init__(
        self,
        width: int,
        layers: Sequence[tuple[int, int]],
        *,
        channels: int,
        cells: int,
        in_channels: int,
        num_classes: int,
    ) -> None:
        super().__init__()
        width *= channels
        self.stem = nn.Sequential(nn.Conv2d(in_channels, STEM * channels, 3, padding=1), nn.GELU())
        self.embedding = nn.Linear(PATCH**2 * STEM * channels, width)
        self.embedding_norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(
            Block(width, heads, ratio, HEAD * channels) for heads, ratio in layers for _ in range(cells)
        )
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        tokens, grid = patches(self.stem(images))
        x = self.embedding_norm(self.embedding(tokens))
        x = x + positions(grid, x.shape[-1], x)  # (n, T, width)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.classifier(self.norm(x).mean(1))  # (n, K)
        return logits


def transformers(space: Space) -> VisionTransformers:
    """Returns `space`, checked. Raises: InvalidInput unless it is a space of vision transformers."""
    if not isinstance(space, VisionTransformers):
        raise InvalidInput(f"expected the space vit, got {space.name!r}")
    return space


def _arguments(space: Space, architecture: Architecture) -> dict[str, Any]:
    shape = transformers(space).shape(architecture)
    return {"width": shape.width, "layers": tuple((layer.heads, layer.ratio) for layer in shape.layers)}


NETWORKS.register("vit", SpaceNetwork(VisionTransformer, _arguments))
