"""The text of a network of NAS-Bench-1Shot1, in NAS-Bench-101's form for evaluation."""

from __future__ import annotations

from archray.platform.models.source.network_source import SOURCES, Described, module_table
from archray.trainables.nets.nasbench1shot1_network import STACKS, vertex_channels
from archray.trainables.spaces.nasbench1shot1 import NASBench1Shot1

OPERATIONS = {
    "conv1x1-bn-relu": "ConvBNReLU({width}, {width}, 1)",
    "conv3x3-bn-relu": "ConvBNReLU({width}, {width}, 3)",
    "maxpool3x3": "nn.MaxPool2d(3, stride=1, padding=1)",
}

_TEXT = '''
class CellSUFFIX(nn.Module):
    """The found cell, (n, in_channels, H, W) -> (n, channels, H, W).

    SPELT

    Nodes that lead nowhere are left out, and the others numbered anew. The output's parents share its channels.
    """

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        WIDTHS
        self.projections = nn.ModuleDict(PROJECTIONS)
        self.operations = nn.ModuleDict(OPERATIONS)

    def forward(self, x: Tensor) -> Tensor:
        FORWARD


class NetworkSUFFIX(nn.Module):
    """Images (n, in_channels, H, W) to logits (n, num_classes).

    A stem, three stacks of cells with C, 2C and 4C channels, max-pooling between two stacks, mean pooling and a linear
    layer.
    """

    def __init__(self, ARGUMENTS) -> None:
        super().__init__()
        self.stem = ConvBNReLU(in_channels, channels, 3)
        layers: list[nn.Module] = []
        given = channels
        for stack in range(3):
            if stack > 0:
                layers.append(nn.MaxPool2d(2, ceil_mode=True))
                channels *= 2
            for _ in range(cells):
                layers.append(CellSUFFIX(given, channels))
                given = channels
        self.stacks = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.stacks(self.stem(images)).mean(dim=(2, 3)))
'''


@SOURCES.register("nasbench1shot1-1")
@SOURCES.register("nasbench1shot1-2")
@SOURCES.register("nasbench1shot1-3")
def nasbench1shot1_source(described: Described, suffix: str) -> str:
    """`Cell` and `Network`."""
    assert isinstance(described.space, NASBench1Shot1)  # as it is registered
    matrix, operations = described.space.to_nasbench101(described.architecture, pad=False)
    last = len(matrix) - 1
    parents = [[v for v in range(1, fed) if matrix[v][fed]] for fed in range(last + 1)]
    feeds = [[fed for fed in range(v + 1, last) if matrix[v][fed]] for v in range(last + 1)]
    sizes = [vertex_channels(matrix, described.network.channels * 2**stack) for stack in range(STACKS)]
    narrower = {fed for fed in range(1, last) for v in parents[fed] if any(size[v] != size[fed] for size in sizes)}

    def width(vertex: int) -> str:
        if vertex == last:
            return "channels"
        return f"self.width_{vertex}" if vertex in narrower else f"width_{vertex}"

    widths = []
    for vertex in range(last - 1, 0, -1):
        if vertex in parents[last]:
            rest = len(parents[last]) - 1 - parents[last].index(vertex)
            more = f"(channels + {rest})" if rest else "channels"
            value = f"{more} // {len(parents[last])}" if len(parents[last]) > 1 else "channels"
        else:
            fed = [width(other) for other in feeds[vertex]]
            value = f"max({', '.join(fed)})" if len(fed) > 1 else fed[0]
        widths.append(f"{width(vertex)} = {value}")
    projected = [vertex for vertex in range(1, last + 1) if matrix[0][vertex]]
    lines = []
    for vertex in range(1, last):
        terms = [f'self.projections["{vertex}"](x)'] if vertex in projected else []
        terms += [f"node_{v}[:, : {width(vertex)}]" if vertex in narrower else f"node_{v}" for v in parents[vertex]]
        lines.append(f'node_{vertex} = self.operations["{vertex}"]({" + ".join(terms)})')
    out = f"torch.cat([{', '.join(f'node_{v}' for v in parents[last])}], dim=1)"
    lines.append(f'return {out} + self.projections["{last}"](x)' if last in projected else f"return {out}")
    made = {str(v): OPERATIONS[operations[v]].format(width=width(v)) for v in range(1, last)}
    return (
        _TEXT.replace("WIDTHS", "\n        ".join(widths))
        .replace("(PROJECTIONS)", module_table({str(v): f"ConvBNReLU(in_channels, {width(v)}, 1)" for v in projected}))
        .replace("(OPERATIONS)", module_table(made))
        .replace("FORWARD", "\n        ".join(lines))
        .replace("SPELT", described.spelt)
        .replace("ARGUMENTS", described.arguments)
        .replace("SUFFIX", suffix)
    )
