"""The text of a network of DARTS, or of NASNet's space."""

from __future__ import annotations

from archray.platform.models.source.network_source import SOURCES, Described, module_table
from archray.trainables.nets.darts_network import cell_terms
from archray.trainables.spaces.genotypes import INPUTS, CellEdges, GenotypeSpace

# operation -> its text, of stride 1 and of stride 2
OPERATIONS = {
    "none": ("Zero()", "Zero(stride=2)"),
    "max_pool_3x3": ("nn.MaxPool2d(3, stride=1, padding=1)", "nn.MaxPool2d(3, stride=2, padding=1)"),
    "avg_pool_3x3": (
        "nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)",
        "nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False)",
    ),
    "skip_connect": ("nn.Identity()", "FactorizedReduce(channels, channels)"),
    "sep_conv_3x3": ("SepConv(channels, 3)", "SepConv(channels, 3, stride=2)"),
    "sep_conv_5x5": ("SepConv(channels, 5)", "SepConv(channels, 5, stride=2)"),
    "dil_conv_3x3": ("DilConv(channels, 3)", "DilConv(channels, 3, stride=2)"),
    "dil_conv_5x5": ("DilConv(channels, 5)", "DilConv(channels, 5, stride=2)"),
    "sep_conv_7x7": ("SepConv(channels, 7)", "SepConv(channels, 7, stride=2)"),
    "conv_7x1_1x7": ("FactorizedConv(channels, 7)", "FactorizedConv(channels, 7, stride=2)"),
}

_CELL = '''
class NAME(nn.Module):
    """DOC, (n, before, H', W') and (n, last, H, W) -> SHAPE.

    before, last: channels of the outputs of the cell before the last and of the last cell. after_reduction: whether
    the last cell was a reduction cell, whose input is twice as large as its output.
    """

    def __init__(self, before: int, last: int, channels: int, after_reduction: bool) -> None:
        super().__init__()
        self.preprocess_0 = FactorizedReduce(before, channels) if after_reduction else ReLUConvBN(before, channels, 1)
        self.preprocess_1 = ReLUConvBN(last, channels, 1)
        self.edges = nn.ModuleDict(EDGES)

    def forward(self, before: Tensor, last: Tensor) -> Tensor:
        node_0, node_1 = self.preprocess_0(before), self.preprocess_1(last)
        FORWARD
        return torch.cat([OUTPUTS], dim=1)
'''

_NETWORK = '''
class NetworkSUFFIX(nn.Module):
    """Images (n, in_channels, H, W) to logits (n, num_classes); in train mode without the original's drop path.

    SPELT
    """

    def __init__(self, ARGUMENTS) -> None:
        super().__init__()
        depth = 3 * cells + 2
        self.stem = STEM(in_channels, channels)
        self.cells = nn.ModuleList()
        (before, last), after_reduction = self.stem.widths, AFTER
        for number in range(depth):
            reduction = number in (depth // 3, 2 * depth // 3)
            if reduction:
                channels *= 2
            cell = ReductionCellSUFFIX if reduction else NormalCellSUFFIX
            self.cells.append(cell(before, last, channels, after_reduction))
            before, last, after_reduction = last, OUTPUTS * channels, reductionAUXILIARY_MADE
        self.classifier = nn.Linear(last, num_classes)

    def forward(self, images: Tensor) -> RETURNS:
        before, last = self.stem(images)
        for number, cell in enumerate(self.cells):
            before, last = last, cell(before, last)AUXILIARY_USED
        logits = self.classifier(last.mean(dim=(2, 3)))
        return LOGITS
'''

_AUXILIARY_MADE = """
            if number == 2 * depth // 3:
                self.auxiliary = Auxiliary(last, num_classes, ARGUMENTS_OF_TOWER)"""
_AUXILIARY_USED = """
            if self.training and number == 2 * len(self.cells) // 3:
                auxiliary = self.auxiliary(last)"""
TOWERS = {
    "cifar": "size=8, stride=3, normalised=True",
    "imagenet": "size=7, stride=2, normalised=False",
}
STEMS = {"cifar": "CIFARStem", "imagenet": "ImageNetStem"}


def _cell(name: str, doc: str, edges: CellEdges, outputs: tuple[int, ...], *, reduction: bool) -> str:
    made, nodes = dict[str, str](), dict[int, list[str]]()
    for (key, target, source), (operation, _) in zip(cell_terms(edges), edges, strict=True):
        made[key] = OPERATIONS[operation][reduction and source < INPUTS]
        nodes.setdefault(target, []).append(f'self.edges["{key}"](node_{source})')
    lines = [f"node_{node} = {' + '.join(terms)}" for node, terms in nodes.items()]
    return (
        _CELL.replace("NAME", name)
        .replace("DOC", doc)
        .replace("SHAPE", f"(n, {len(outputs)}C, H/2, W/2)" if reduction else f"(n, {len(outputs)}C, H, W)")
        .replace("(EDGES)", module_table(made))
        .replace("FORWARD", "\n        ".join(lines))
        .replace("OUTPUTS", ", ".join(f"node_{node}" for node in outputs))
    )


@SOURCES.register("darts")
@SOURCES.register("darts-none")
@SOURCES.register("nasnet")
def darts_source(described: Described, suffix: str) -> str:
    """`NormalCell`, `ReductionCell` and `Network`."""
    assert isinstance(described.space, GenotypeSpace)  # as it is registered
    normal, reduce = described.space.genotype(described.architecture)
    outputs = [described.space.outputs(edges) for edges in (normal, reduce)]
    normal_width, reduce_width = (str(len(nodes)) for nodes in outputs)
    width = normal_width if normal_width == reduce_width else f"({reduce_width} if reduction else {normal_width})"
    stem, tower = described.network.stem, described.network.auxiliary
    network = (
        _NETWORK.replace("AUXILIARY_MADE", _AUXILIARY_MADE if tower else "")
        .replace("AUXILIARY_USED", _AUXILIARY_USED if tower else "")
        .replace("ARGUMENTS_OF_TOWER", TOWERS[stem])
        .replace("ARGUMENTS", described.arguments)
        .replace("OUTPUTS", width)
        .replace("SPELT", described.spelt)
        .replace("STEM", STEMS[stem])
        .replace("AFTER", str(stem == "imagenet"))
        .replace("RETURNS", "Tensor | tuple[Tensor, Tensor]" if tower else "Tensor")
        .replace("LOGITS", "(logits, auxiliary) if self.training else logits" if tower else "logits")
        .replace("SUFFIX", suffix)
    )
    if not tower:
        network = network.replace("for number, cell in enumerate(self.cells):", "for cell in self.cells:")
    return "\n\n\n".join(
        text.strip()
        for text in [
            _cell(f"NormalCell{suffix}", "The found normal cell", normal, outputs[0], reduction=False),
            _cell(
                f"ReductionCell{suffix}", "The found reduction cell, of stride 2", reduce, outputs[1], reduction=True
            ),
            network,
        ]
    )
