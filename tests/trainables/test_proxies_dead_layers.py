"""The metrics that count layers without an effect, which the network of NAS-Bench-201 has and archray's leaves out."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from archray.trainables.data import DataSettings, load_images
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.nets.nasbench201_network import OPERATIONS, Cell
from archray.trainables.nets.registry import edge_name
from archray.trainables.proxies import PROXIES, ProxySettings, score
from archray.trainables.spaces import get_space
from archray.trainables.spaces.nasbench201 import EDGES

CHANNELS = 4
COUNTING = ("naswot", "l2_norm", "parameters", "multiply_adds", "zen")  # metrics that count layers, including dead ones
SPACE = get_space("nasbench201")
CELLS = {  # for each, the number of dead convolutions, and whether naswot counts them
    "|nor_conv_3x3~0|+|none~0|nor_conv_1x1~1|+|skip_connect~0|none~1|nor_conv_3x3~2|": (0, False),
    "|nor_conv_3x3~0|+|nor_conv_1x1~0|none~1|+|nor_conv_3x3~0|none~1|none~2|": (2, True),
    # Readers of an empty node have ReLUs that are off for every image, which adds the same number to all of naswot's
    # counts.
    "|none~0|+|none~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_1x1~1|skip_connect~2|": (2, True),
    "|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|avg_pool_3x3~1|none~2|": (1, True),
}


class WholeCell(nn.Module):
    """A cell as in the benchmark: every edge is made and called. Live edges are those of archray's cell."""

    def __init__(self, cell: Cell, operations: tuple[str, ...], channels: int) -> None:
        super().__init__()
        names = [edge_name(*edge) for edge in EDGES]
        made = {n: OPERATIONS[op](channels, "scoring") for n, op in zip(names, operations, strict=True)}
        self.edges = nn.ModuleDict({n: cell.edges[n] if n in cell.edges else made[n] for n in names})

    def forward(self, x: Tensor) -> Tensor:
        nodes = {0: x}
        for target, source in EDGES:
            term = self.edges[edge_name(target, source)](nodes[source])
            nodes[target] = nodes[target] + term if target in nodes else term
        return nodes[3]


def whole(network: nn.Module, architecture: str) -> nn.Module:
    """The benchmark's network with the weights of archray's."""
    network = copy.deepcopy(network)
    stages = network.get_submodule("stages")
    assert isinstance(stages, nn.Sequential)
    width = CHANNELS
    for number, stage in enumerate(stages):
        if isinstance(stage, Cell):
            stages[number] = WholeCell(stage, SPACE.decode(architecture), width)
        else:
            width *= 2
    return network


@pytest.mark.parametrize(("architecture", "dead", "seen"), [(name, *values) for name, values in CELLS.items()])
def test_metrics_that_count_layers_count_dead_ones(architecture: str, dead: int, seen: bool) -> None:
    settings = NetworkSettings(channels=CHANNELS, cells=1)
    data = load_images(DataSettings(name="digits", limit=64)).train
    images, labels = data.images[:16].double(), data.labels[:16]
    network = build(
        "nasbench201", architecture, network=settings, in_channels=1, num_classes=10, seed=0, for_scoring=True
    )
    full = whole(network, architecture)
    convolutions = [sum(isinstance(layer, nn.Conv2d) for layer in net.modules()) for net in (network, full)]
    assert convolutions[1] - convolutions[0] == 3 * dead
    ours, theirs = (
        {
            name: result.value
            for name, result in score(net.double(), images, labels, PROXIES.names(), ProxySettings()).items()
        }
        for net in (network, full)
    )
    assert all(torch.isfinite(torch.tensor(value)) for value in ours.values())
    others = [name for name in ours if name not in COUNTING]
    assert [ours[name] for name in others] == pytest.approx([theirs[name] for name in others], rel=1e-9)
    for name in COUNTING:
        # zen has no value for a normalization of an empty node
        assert (ours[name] != pytest.approx(theirs[name], rel=1e-9, nan_ok=True)) == seen
