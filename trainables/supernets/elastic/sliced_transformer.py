"""The elastic supernet of vision transformers: depth, width, heads and MLPs are slices. Chen et al. 2021, sec. 3.2."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn import functional as F

from archray.trainables.nets.vit_network import Block, VisionTransformer, attention, patches, positions, transformers
from archray.trainables.spaces.space import Architecture, Space
from archray.trainables.spaces.vit import TransformerLayer
from archray.trainables.supernets.elastic.slices import SLICED_SUPERNETS, SlicedSupernet

QKV = 3  # queries, keys and values lie one after the other


@SLICED_SUPERNETS.register("vit")
class SlicedTransformer(SlicedSupernet):
    """The first layers, of each token the first numbers, of each layer the first heads and hidden units.

    All networks share the convolution before the patches. `network` is the `VisionTransformer` of the largest.
    """

    network: VisionTransformer

    @classmethod
    def extremes(cls, space: Space) -> tuple[Architecture, Architecture]:
        known = transformers(space)
        return known.smallest, known.largest

    def forward(self, images: Tensor, architecture: Architecture) -> Tensor:
        network = self.network
        width, blocks = self._sliced(architecture)
        tokens, grid = patches(network.stem(images))
        x = F.linear(tokens, network.embedding.weight[:width], network.embedding.bias[:width])
        x = _norm(x, network.embedding_norm)
        x = x + positions(grid, width, x)  # (n, T, width)
        for block, layer in blocks:
            x = _block(x, block, layer)
        x = _norm(x, network.norm).mean(1)
        return F.linear(x, network.classifier.weight[:, :width], network.classifier.bias)

    def weights_of(self, architecture: Architecture) -> dict[str, Tensor]:
        network = self.network
        width, blocks = self._sliced(architecture)
        state = {f"stem.{name}": tensor for name, tensor in network.stem.state_dict().items()}
        state |= {
            "embedding.weight": network.embedding.weight[:width],
            "embedding.bias": network.embedding.bias[:width],
            "classifier.weight": network.classifier.weight[:, :width],
            "classifier.bias": network.classifier.bias,
        }
        norms = {"embedding_norm": network.embedding_norm, "norm": network.norm}
        for number, (block, layer) in enumerate(blocks):
            name, size, hidden = f"blocks.{number}", layer.heads * _head(block), layer.ratio * width
            norms |= {f"{name}.attention_norm": block.attention_norm, f"{name}.mlp_norm": block.mlp_norm}
            state |= {
                f"{name}.qkv.weight": _of_heads(block.qkv.weight, layer, block)[..., :width],
                f"{name}.qkv.bias": _of_heads(block.qkv.bias, layer, block),
                f"{name}.projection.weight": block.projection.weight[:width, :size],
                f"{name}.projection.bias": block.projection.bias[:width],
                f"{name}.expansion.weight": block.expansion.weight[:hidden, :width],
                f"{name}.expansion.bias": block.expansion.bias[:hidden],
                f"{name}.contraction.weight": block.contraction.weight[:width, :hidden],
                f"{name}.contraction.bias": block.contraction.bias[:width],
            }
        for name, norm in norms.items():
            state |= {f"{name}.weight": norm.weight[:width], f"{name}.bias": norm.bias[:width]}
        return state

    def _sliced(self, architecture: Architecture) -> tuple[int, list[tuple[Block, TransformerLayer]]]:
        """The numbers of a token, and the blocks that are used, each with its layer."""
        shape = transformers(self.space).shape(architecture)
        _, largest = self.extremes(self.space)
        most = transformers(self.space).shape(largest)
        unit, repeated = self.network.embedding.out_features // most.width, len(self.network.blocks) // most.depth
        layers = [layer for layer in shape.layers for _ in range(repeated)]
        return shape.width * unit, list(zip(self._blocks(), layers, strict=False))

    def _blocks(self) -> Iterator[Block]:
        for block in self.network.blocks:
            assert isinstance(block, Block)
            yield block


def _block(x: Tensor, block: Block, layer: TransformerLayer) -> Tensor:
    """What `Block` computes, with the heads and hidden units of `layer`."""
    width, size, hidden = x.shape[-1], layer.heads * _head(block), layer.ratio * x.shape[-1]
    qkv_weight, qkv_bias = (_of_heads(tensor, layer, block) for tensor in (block.qkv.weight, block.qkv.bias))
    qkv = F.linear(_norm(x, block.attention_norm), qkv_weight[:, :width], qkv_bias)
    attended = attention(qkv, layer.heads)
    x = x + F.linear(attended, block.projection.weight[:width, :size], block.projection.bias[:width])
    inner = F.linear(_norm(x, block.mlp_norm), block.expansion.weight[:hidden, :width], block.expansion.bias[:hidden])
    inner = block.activation(inner)
    return x + F.linear(inner, block.contraction.weight[:width, :hidden], block.contraction.bias[:width])


def _norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    width = x.shape[-1]
    return F.layer_norm(x, (width,), norm.weight[:width], norm.bias[:width], norm.eps)


def _head(block: Block) -> int:
    """Numbers of a head."""
    return block.projection.in_features // block.heads


def _of_heads(tensor: Tensor, layer: TransformerLayer, block: Block) -> Tensor:
    """The rows of the first heads, of queries, keys and values each: (3 H d, ...) -> (3 heads d, ...)."""
    parts = tensor.unflatten(0, (QKV, block.heads, _head(block)))[:, : layer.heads]
    return parts.flatten(0, 2)
