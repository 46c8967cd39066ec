"""Costs of networks: counted by hand, of spaces, of tables and of the user, and names that raise an error."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from archray.errors import UnknownName
from archray.trainables.costs import COSTS, CostFailed, NetworkCosts, costs_of, get_cost
from archray.trainables.costs.measures import peak_activation_bytes, peak_of
from archray.trainables.nets import NetworkSettings, build, count_multiply_adds, count_parameters
from archray.trainables.spaces import Decision, Space, TableSpace, get_space

SMALL = NetworkSettings(channels=4, cells=1)


# Liveness


def test_the_peak_of_steps() -> None:
    # 0 lives through steps 0 to 2, next to 1 and then 2, which is alone with 3 in the end.
    assert peak_of([{0, 1}, {1, 0, 2}, {0, 2}, {2, 3}], [10, 1, 5, 20]) == 25
    assert peak_of([{0, 1}, {1, 2}, {0, 2}], [10, 1, 5]) == 16
    assert peak_of([], []) == 0


def test_a_chain_by_hand() -> None:
    # An image of 3 x 8 x 8 becomes 16 x 8 x 8, and its ReLU the same size: the largest pair is 16 + 16 maps.
    chain = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 2, 1))
    assert peak_activation_bytes(chain, (3, 8, 8)) == 4 * 64 * (16 + 16)
    # In place nothing new is written: the largest pair is 3 + 16, or 16 + 2.
    chain[1] = nn.ReLU(inplace=True)
    assert peak_activation_bytes(chain, (3, 8, 8)) == 4 * 64 * (3 + 16)


class Residual(nn.Module):
    """Reads its input again at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.second(self.first(images))
        return torch.flatten(hidden + images, 1)  # flat is a view


def test_values_that_are_read_again_stay_alive() -> None:
    network = Residual().train()
    assert peak_activation_bytes(network, (8, 4, 4)) == 4 * 16 * (8 + 8 + 8)
    assert network.training


@pytest.mark.parametrize("space", ["nasbench201", "darts"])
def test_with_and_without_weights_the_peak_is_the_same(space: str) -> None:
    architecture = get_space(space).sample(np.random.default_rng(0))
    network = build(space, architecture, network=SMALL, in_channels=3, num_classes=10, seed=0)
    with torch.device("meta"):
        bare = build(space, architecture, network=SMALL, in_channels=3, num_classes=10, seed=None)
    peak = peak_activation_bytes(network, (3, 16, 16))
    assert peak == peak_activation_bytes(bare, (3, 16, 16)) > 4 * 3 * 16 * 16


# Costs of a space


def test_the_counts_are_those_of_the_network() -> None:
    space = get_space("nasbench201")
    rng = np.random.default_rng(1)
    architectures = [space.sample(rng) for _ in range(3)]
    frame = costs_of(space, architectures, ("parameters", "flops"), network=SMALL, image_size=16)
    assert list(frame.columns) == ["architecture", "parameters", "flops"]
    for choices, row in zip(architectures, frame.to_dict("records"), strict=True):
        network = build(space, choices, network=SMALL, in_channels=3, num_classes=10, seed=0)
        assert row["architecture"] == space.encode(choices)
        assert row["parameters"] == count_parameters(network)
        assert row["flops"] == 2 * count_multiply_adds(network, (3, 16, 16))


def test_costs_of_a_large_image_need_no_computation() -> None:
    architecture = "|nor_conv_3x3~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|"
    small, large = (
        costs_of("nasbench201", [architecture], ("flops", "peak_memory"), network=SMALL, image_size=size).iloc[0]
        for size in (32, 2048)
    )
    assert large["peak_memory"] == small["peak_memory"] * 64**2
    assert large["flops"] == pytest.approx(small["flops"] * 64**2, rel=1e-3)  # except for the classifier


class Counted(Space):
    """Counts the builds of networks; `wide` cannot be built."""

    name = "counted"
    decisions = (Decision("width", ("narrow", "small", "wide")),)
    builds = 0

    def canonical(self, architecture: tuple[str, ...]) -> tuple[str, ...]:
        return ("small",) if architecture == ("narrow",) else architecture

    def build(self, architecture: tuple[str, ...], *, in_channels: int, num_classes: int) -> nn.Module:
        type(self).builds += 1
        if architecture == ("wide",):
            raise RuntimeError("too wide")
        return nn.Sequential(nn.Flatten(), nn.Linear(in_channels * 64, num_classes))


def test_each_canonical_form_is_computed_once() -> None:
    costs = NetworkCosts(Counted(), ("parameters",), network=SMALL, image_size=8)
    Counted.builds = 0
    assert costs("width=small") == costs("width=narrow") == {"parameters": 64 * 3 * 10 + 10}
    assert Counted.builds == 1


def test_a_network_that_cannot_be_built_has_no_costs() -> None:
    costs = NetworkCosts(Counted(), ("flops",), network=SMALL, image_size=8)
    with pytest.raises(CostFailed, match=r"cannot compute flops of width=wide: .*RuntimeError: too wide"):
        costs("width=wide")
    frame = costs.frame(["width=wide", "width=small"])
    assert np.isnan(frame["flops"][0])
    assert frame["flops"][1] == 2 * 64 * 3 * 10


def test_a_copy_starts_with_an_empty_cache() -> None:
    costs = NetworkCosts("nasbench201", ("parameters",), network=SMALL)
    costs("|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|")
    size = len(pickle.dumps(costs))
    assert size == len(pickle.dumps(NetworkCosts("nasbench201", ("parameters",), network=SMALL)))


# Costs of a table, and of the user


CELLS = [
    "|none~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|",
    "|none~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|",
]


def table(folder: Path, **columns: list[float]) -> TableSpace:
    pd.DataFrame({"arch": CELLS, **columns}).to_csv(folder / "costs.csv", index=False)
    space = get_space(f"table:{folder / 'costs.csv'}")
    assert isinstance(space, TableSpace)
    return space


def test_the_costs_of_a_table(tmp_path: Path) -> None:
    space = table(tmp_path, board_latency_ms=[1.5, 2.5])
    frame = costs_of(space, reversed(CELLS), ("board_latency_ms", "flops"), network=SMALL)
    assert frame["board_latency_ms"].tolist() == [2.5, 1.5]
    assert (frame["flops"] > 0).all()  # counted for the networks of the base
    table_costs = costs_of("nasbench201", CELLS, ("board_latency_ms",), network=SMALL, table=space)
    assert table_costs["board_latency_ms"].tolist() == [1.5, 2.5]


def test_unknown_cost_names_raise_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"there is no cost 'speed'\. Choose one of flops"):
        NetworkCosts("nasbench201", ("speed",), network=SMALL)
    space = table(tmp_path, board_latency_ms=[1.5, 2.5])
    with pytest.raises(UnknownName, match="Choose one of board_latency_ms, flops"):
        NetworkCosts(space, ("raspi_latency_ms",), network=SMALL)
    with pytest.raises(UnknownName, match="there is no cost 'flips'; did you mean 'flops'"):
        get_cost("flips")


USER_COST = '''
def layers(network, image_shape):
    """How many modules there are."""
    return len(list(network.modules()))

layers.unit = "modules"
lonely = lambda network: 1
'''


def test_a_cost_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "own_cost.py").write_text(USER_COST)
    name = f"{tmp_path / 'own_cost.py'}:layers"
    assert get_cost(name).unit == "modules"
    frame = costs_of(Counted(), ["width=small"], (name,), network=SMALL, image_size=8)
    assert frame["layers"].tolist() == [3.0]
    with pytest.raises(ValueError, match="to be a function of a network and the shape"):
        get_cost(f"{tmp_path / 'own_cost.py'}:lonely")


def test_available_costs() -> None:
    assert {"parameters", "flops", "peak_memory"} <= set(COSTS.names())
    assert all(COSTS.get(name).summary for name in COSTS)
    assert {name: COSTS.get(name).unit for name in ("parameters", "flops", "peak_memory")} == {
        "parameters": "",
        "flops": "",
        "peak_memory": "bytes",
    }
