"""The text of a network of NAS-Bench-201."""

from __future__ import annotations

from archray.platform.models.source.network_source import SOURCES, Described, module_table
from archray.trainables.nets.nasbench201_network import live_edges
from archray.trainables.nets.operations import edge_name
from archray.trainables.spaces.nasbench201 import EDGES

OPERATIONS = {
    "skip_connect": "nn.Identity()",
    "nor_conv_1x1": "ReLUConvBN(channels, channels, 1)",
    "nor_conv_3x3": "ReLUConvBN(channels, channels, 3)",
    "avg_pool_3x3": "nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)",
}

_TEXT = '''
class CellSUFFIX(nn.Module):
    """The found cell, (n, C, H, W) -> (n, C, H, W): its edges that lead from the input to the output.

    SPELT
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.edges = nn.ModuleDict(EDGES)

    def forward(self, x: Tensor) -> Tensor:
        FORWARD


class NetworkSUFFIX(nn.Module):
    """Images (n, in_channels, H, W) to logits (n, num_classes).

    A stem, three stages of cells with C, 2C and 4C channels, a residual block of stride 2 between two stages, mean
    pooling and a linear layer.
    """

    def __init__(self, ARGUMENTS) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(in_channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))
        stages: list[nn.Module] = []
        for stage in range(3):
            if stage > 0:
                stages.append(Reduction(channels, 2 * channels))
                channels *= 2
            stages += [CellSUFFIX(channels) for _ in range(cells)]
        self.stages = nn.Sequential(*stages)
        self.head = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.head(self.stages(self.stem(images))))
'''


@SOURCES.register("nasbench201")
def nasbench201_source(described: Described, suffix: str) -> str:
    """`Cell` and `Network`."""
    edges, nodes = dict[str, str](), dict[int, list[str]]()
    for number in live_edges(EDGES, described.architecture):
        target, source = EDGES[number]
        name = edge_name(target, source)
        edges[name] = OPERATIONS[described.architecture[number]]
        value = "x" if source == 0 else f"node_{source}"
        nodes.setdefault(target, []).append(f'self.edges["{name}"]({value})')
    last = max(target for target, _ in EDGES)
    lines = [f"node_{node} = {' + '.join(terms)}" for node, terms in nodes.items() if node != last]
    lines.append(f"return {' + '.join(nodes[last])}" if last in nodes else "return torch.zeros_like(x)")
    return (
        _TEXT.replace("(EDGES)", module_table(edges))
        .replace("FORWARD", "\n        ".join(lines))
        .replace("SPELT", described.spelt)
        .replace("ARGUMENTS", described.arguments)
        .replace("SUFFIX", suffix)
    )
