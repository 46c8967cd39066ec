"""The NAS-Bench-201 network: published sizes, a plain second implementation, forms, dead edges, and tests of all
spaces' networks.
"""

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from archray.errors import InvalidArchitecture
from archray.trainables.nets import NetworkSettings, build, count_multiply_adds, count_parameters
from archray.trainables.nets.nasbench201_network import OPERATIONS as MODULES
from archray.trainables.nets.nasbench201_network import live_edges
from archray.trainables.nets.registry import NETWORKS
from archray.trainables.proxies import PROXIES, ProxySettings, score
from archray.trainables.spaces import NASBench201, get_space
from archray.trainables.spaces.nasbench201 import EDGES, OPERATIONS

SPACE = NASBench201()
SMALL = NetworkSettings(channels=4, cells=1)
RICH = "|nor_conv_3x3~0|+|skip_connect~0|nor_conv_1x1~1|+|avg_pool_3x3~0|nor_conv_3x3~1|nor_conv_1x1~2|"
cells = st.tuples(*[st.sampled_from(OPERATIONS)] * 6)


def small_network(architecture, *, seed=0, in_channels=1, **options):
    return build(SPACE, architecture, network=SMALL, in_channels=in_channels, num_classes=10, seed=seed, **options)


def images(n=4, channels=1, size=8):
    return torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(0))


def test_parameters_and_flops_equal_those_of_the_benchmark(benchmark_data):
    table = pd.read_csv(benchmark_data / "nasbench201.csv.gz")
    whole = table[[len(live_edges(EDGES, SPACE.decode(a))) == 6 - a.count("none") for a in table["arch"]]]
    for row in whole.sample(12, random_state=0).itertuples():
        network = build(SPACE, row.arch, network=NetworkSettings(), in_channels=3, num_classes=10, seed=0)
        assert count_parameters(network) / 1e6 == pytest.approx(row.params_m_cifar10, abs=5e-7)
        # The table also counts the classifier's ten additions, and has seven digits.
        assert count_multiply_adds(network, (3, 32, 32)) / 1e6 == pytest.approx(row.flops_m_cifar10, rel=1e-6, abs=2e-5)


def plain_forward(network, cell, x):
    """The network by functional calls, on batch statistics, from the weights of `network`, without shared code."""
    state = network.state_dict()

    def norm(x, prefix):
        return F.batch_norm(
            x, None, None, state.get(f"{prefix}.weight"), state.get(f"{prefix}.bias"), training=True, eps=1e-5
        )

    def relu_conv_norm(x, prefix, stride=1):
        weight = state[f"{prefix}.1.weight"]
        return norm(F.conv2d(x.clamp(min=0), weight, stride=stride, padding=weight.shape[-1] // 2), f"{prefix}.2")

    def run_cell(x, prefix):
        nodes = [x, torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)]
        for (target, source), op in zip(EDGES, cell, strict=True):
            name = f"{prefix}.edges.{target}<-{source}"
            if op == "skip_connect":
                nodes[target] = nodes[target] + nodes[source]
            elif op == "avg_pool_3x3":
                ones = F.conv2d(torch.ones_like(x[:1, :1]), torch.ones(1, 1, 3, 3, dtype=x.dtype), padding=1)
                kernel = torch.ones(x.shape[1], 1, 3, 3, dtype=x.dtype)
                nodes[target] = nodes[target] + F.conv2d(nodes[source], kernel, padding=1, groups=x.shape[1]) / ones
            elif op != "none" and f"{name}.1.weight" in state:
                nodes[target] = nodes[target] + relu_conv_norm(nodes[source], name)
        return nodes[3]

    x = norm(F.conv2d(x, state["stem.0.weight"], padding=1), "stem.1")
    x = run_cell(x, "stages.0")
    for number in (1, 3):
        residual = relu_conv_norm(x, f"stages.{number}.residual.0", stride=2)
        residual = relu_conv_norm(residual, f"stages.{number}.residual.1")
        pooled = x.unflatten(-1, (-1, 2)).unflatten(-3, (-1, 2)).mean(dim=(-1, -3))
        x = F.conv2d(pooled, state[f"stages.{number}.shortcut.1.weight"]) + residual
        x = run_cell(x, f"stages.{number + 1}")
    x = norm(x, "head.0").clamp(min=0).mean(dim=(2, 3))
    return x @ state["classifier.weight"].T + state["classifier.bias"]


@settings(max_examples=15)
@given(cells, st.booleans())
def test_outputs_equal_a_plain_implementation(cell, for_scoring):
    network = small_network(cell, for_scoring=for_scoring).double()
    x = images().double()
    torch.testing.assert_close(network(x), plain_forward(network, cell, x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_keeps_the_shape(operation):
    module = MODULES[operation](6, "training")
    x = torch.randn(2, 6, 5, 5)
    assert module(x).shape == x.shape
    assert (module(x) == 0).all() == (operation == "none")


@pytest.mark.parametrize(("channels", "size"), [(1, 8), (3, 32), (3, 16), (1, 7), (2, 4)])
def test_input_sizes(channels, size):
    network = small_network(RICH, in_channels=channels)
    assert network(images(4, channels, size)).shape == (4, 10)


def test_normalization_of_the_two_forms():
    trained, scored = small_network(RICH), small_network(RICH, for_scoring=True)
    assert trained.training
    assert scored.training
    for network, running, affine_in_cells in ((trained, True, True), (scored, False, False)):
        for name, layer in network.named_modules():
            if isinstance(layer, nn.BatchNorm2d):
                assert layer.track_running_stats is running
                assert layer.affine is (affine_in_cells if ".edges." in name else True)
    chosen = NetworkSettings(channels=4, cells=1, normalization="training")
    forced = build(SPACE, RICH, network=chosen, in_channels=1, num_classes=10, seed=0, for_scoring=True)
    assert count_parameters(forced) == count_parameters(trained) > count_parameters(scored)


def test_biases_of_the_authors_program_change_gradients_of_samples_only():
    of_program = NetworkSettings(channels=4, cells=1, biases=True)
    shape = {"in_channels": 1, "num_classes": 10, "seed": 0, "for_scoring": True}
    biased = build(SPACE, RICH, network=of_program, **shape).double()
    plain = small_network(RICH, for_scoring=True).double()
    plain.load_state_dict({name: biased.state_dict()[name] for name in plain.state_dict()})
    added = set(biased.state_dict()) - set(plain.state_dict())
    assert added and all(".edges." in name and name.endswith(".1.bias") for name in added)
    x, labels = images(8).double(), torch.arange(8)
    torch.testing.assert_close(biased(x), plain(x))
    for_program, for_ours = (
        score(network, x, labels, ["ntk_trace"], ProxySettings())["ntk_trace"] for network in (biased, plain)
    )
    assert for_program.value > 1.001 * for_ours.value


@given(cells)
def test_live_edges_are_those_on_a_path(cell):
    def paths(node):
        if node == 3:
            yield []
        for number, (target, source) in enumerate(EDGES):
            if source == node and cell[number] != "none":
                for rest in paths(target):
                    yield [number, *rest]

    assert live_edges(EDGES, cell) == sorted({number for path in paths(0) for number in path})


def test_a_cell_without_a_path_returns_constant_logits():
    network = small_network(("nor_conv_3x3", "none", "none", "none", "none", "nor_conv_3x3"))
    logits = network(images())
    assert torch.equal(logits, logits[:1].expand_as(logits))
    assert all(not module.edges for module in network.modules() if hasattr(module, "live"))


def test_invalid_architectures_raise_an_error():
    with pytest.raises(InvalidArchitecture, match="no choice 'conv5x5'"):
        small_network(RICH.replace("nor_conv_1x1", "conv5x5"))
    with pytest.raises(InvalidArchitecture, match="6 choices"):
        small_network(("none",) * 4)


# The networks of every space


def network_of(name, *, seed=0, num_classes=10, for_scoring=False):
    space = get_space(name)
    drawn = space.sample(np.random.default_rng(1))
    return build(
        space, drawn, network=SMALL, in_channels=1, num_classes=num_classes, seed=seed, for_scoring=for_scoring
    )


def spaces(*fast):
    """Returns every space. Spaces that are not `fast`, if any, are in slow tests."""
    return [
        pytest.param(
            name,
            marks=[pytest.mark.extra("timm")] * name.startswith("timm:")
            + [pytest.mark.slow] * (bool(fast) and name not in fast),
        )
        for name in NETWORKS
    ]


every_space = pytest.mark.parametrize("name", spaces())


@every_space
def test_the_seed_determines_the_weights_and_every_parameter_gets_a_gradient(name):
    before = torch.random.get_rng_state()
    one, same, other = (network_of(name, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.classifier.weight, other.classifier.weight)
    network_of(name, seed=None)
    assert not torch.equal(before, torch.random.get_rng_state())
    F.cross_entropy(one(images()), torch.arange(4)).backward()
    assert all(parameter.grad is not None for parameter in one.parameters())


@every_space
def test_a_network_for_scoring_has_every_metric_and_changes_no_state(name):
    network = network_of(name, num_classes=3, for_scoring=True)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    network(images())
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    # these need batch normalization and ReLUs, which some networks do not have (test_nets_vit.py, test_nets_timm.py)
    without = ("naswot", "synflow", "zen") if name in ("vit", "timm:convnext") else ()
    metrics = [metric for metric in PROXIES if metric not in without]
    scores = score(network, images(6), torch.arange(6) % 3, metrics, ProxySettings())
    assert {name: one.failure for name, one in scores.items()} == dict.fromkeys(metrics)


@pytest.mark.parametrize("name", spaces("nasbench201", "vit"))
def test_exports(name, tmp_path):
    network = network_of(name).eval()
    program = torch.export.export(network, (images(),), dynamic_shapes=({0: torch.export.Dim("n", min=1)},))
    torch.export.save(program, tmp_path / "program.pt2")
    loaded = torch.export.load(tmp_path / "program.pt2").module()
    torch.testing.assert_close(loaded(images(7)), network(images(7)))
