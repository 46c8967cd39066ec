"""The text of a vision transformer of the space vit."""

from __future__ import annotations

import inspect

from archray.platform.models.source.network_source import SOURCES, Described
from archray.trainables.nets import vit_network
from archray.trainables.nets.vit_network import transformers

CONSTANTS = ("PATCH", "SMALL", "SLOWEST", "FREQUENCIES")  # what the functions below use
FUNCTIONS = (vit_network.patches, vit_network.positions, vit_network.attention)  # plain torch as they are

_TEXT = '''
class BlockSUFFIX(nn.Module):
    """Attention, then an MLP, each behind a layer normalisation and added to what comes in: (n, T, width).

    heads: of `head` numbers each. ratio: the MLP's hidden units, in widths.
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
        x = x + self.projection(attentionSUFFIX(self.qkv(self.attention_norm(x)), self.heads))
        return x + self.contraction(self.activation(self.expansion(self.mlp_norm(x))))


class NetworkSUFFIX(nn.Module):
    """Images (n, in_channels, H, W) of any size to logits (n, num_classes).

    SPELT
    """

    def __init__(self, ARGUMENTS) -> None:
        super().__init__()
        width = WIDTH * channels
        self.stem = nn.Sequential(nn.Conv2d(in_channels, STEM * channels, 3, padding=1), nn.GELU())
        self.embedding = nn.Linear(PATCH**2 * STEM * channels, width)
        self.embedding_norm = nn.LayerNorm(width)
        layers = LAYERS  # heads and ratio
        self.blocks = nn.ModuleList(
            BlockSUFFIX(width, heads, ratio, HEAD * channels) for heads, ratio in layers for _ in range(cells)
        )
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        tokens, grid = patchesSUFFIX(self.stem(images))
        x = self.embedding_norm(self.embedding(tokens))
        x = x + positionsSUFFIX(grid, x.shape[-1], x)  # (n, T, width)
        for block in self.blocks:
            x = block(x)
        return self.classifier(self.norm(x).mean(1))
'''


@SOURCES.register("vit")
def vit_source(described: Described, suffix: str) -> str:
    """Its functions, `Block` and `Network`."""
    shape = transformers(described.space).shape(described.architecture)
    functions = "\n\n".join(inspect.getsource(function) for function in FUNCTIONS).replace("F.", "functional.")
    for function in FUNCTIONS:
        functions = functions.replace(f"def {function.__name__}(", f"def {function.__name__}{suffix}(")
    text = (
        _TEXT.replace("LAYERS", str([(layer.heads, layer.ratio) for layer in shape.layers]))
        .replace("WIDTH", str(shape.width))
        .replace("STEM", str(vit_network.STEM))
        .replace("HEAD", str(vit_network.HEAD))
        .replace("SPELT", described.spelt)
        .replace("ARGUMENTS", described.arguments)
        .replace("SUFFIX", suffix)
    )
    whole = f"{functions.strip()}\n\n\n{text.strip()}"
    for name in CONSTANTS:
        whole = whole.replace(name, str(getattr(vit_network, name)))
    return whole
