"""DARTS' networks: published sizes, a plain second implementation, the forms, drop path and the auxiliary tower."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from archray.errors import InvalidArchitecture, InvalidInput
from archray.trainables.nets import NetworkSettings, build, count_multiply_adds, count_parameters
from archray.trainables.nets.darts_network import OPERATIONS as MODULES
from archray.trainables.nets.darts_network import Cell, FactorizedReduce, darts_network, drop_path, reductions
from archray.trainables.spaces import DARTS, DARTSWithNone, NASBench201
from archray.trainables.spaces.darts import OPERATIONS

SPACE, WITH_NONE = DARTS(), DARTSWithNone()
FORMS = ("search", "training", "scoring")
SMALL = NetworkSettings(channels=4, cells=1)
DARTS_V2 = (  # Liu et al. 2019
    "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1), "
    "('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), ('dil_conv_3x3', 2)], normal_concat=range(2, 6), "
    "reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2), ('max_pool_3x3', 1), ('max_pool_3x3', 0), "
    "('skip_connect', 2), ('skip_connect', 2), ('max_pool_3x3', 1)], reduce_concat=range(2, 6))"
)
members = st.tuples(*[st.sampled_from(decision.choices) for decision in WITH_NONE.decisions])


def network_of(architecture=None, *, form="training", channels=4, cells=1, in_channels=1, num_classes=10, **options):
    torch.manual_seed(0)
    return darts_network(
        WITH_NONE,
        architecture or WITH_NONE.decode(DARTS_V2),
        channels=channels,
        cells=cells,
        in_channels=in_channels,
        num_classes=num_classes,
        normalization=form,
        **options,
    )


def images(n=4, channels=1, size=8):
    return torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(0))


def test_published_sizes():
    evaluation = NetworkSettings(channels=36, cells=6)
    network = build("darts", DARTS_V2, network=evaluation, in_channels=3, num_classes=10, seed=0)
    assert len(network.cells) == 20
    assert count_parameters(network) == 3_349_342  # 3.3 M in the paper, 3.349342 MB in the authors' log
    for_imagenet = NetworkSettings(channels=48, cells=4, stem="imagenet", auxiliary=True)
    large = build("darts", DARTS_V2, network=for_imagenet, in_channels=3, num_classes=1000, seed=0).to("meta")
    assert len(large.cells) == 14
    assert count_parameters(large) == 4_718_752  # 4.7 M in the paper
    # 574 M in the paper, which does not define its count.
    assert count_multiply_adds(large, (3, 224, 224)) == pytest.approx(530e6, rel=1e-3)


def test_reductions_are_at_one_and_two_thirds():
    assert [reductions(cells) for cells in (3, 5, 8, 14, 20)] == [(1, 2), (1, 3), (2, 5), (4, 9), (6, 13)]
    network = network_of(cells=2)
    reduced = [
        any(isinstance(edge, FactorizedReduce | nn.MaxPool2d) for edge in cell.edges.values()) for cell in network.cells
    ]  # the reduction cell of DARTS_V2 has pools, the normal one none
    assert [number for number, found in enumerate(reduced) if found] == [2, 5]


def plain_forward(network, genotype, x, form):
    """The network by functional calls, on batch statistics, from the weights of `network`, without shared code."""
    state = network.state_dict()

    def norm(x, name):
        return F.batch_norm(x, None, None, state.get(f"{name}.weight"), state.get(f"{name}.bias"), True, eps=1e-5)

    def conv(x, name, **options):
        return F.conv2d(x, state[f"{name}.weight"], **options)

    def factorized(x, name):
        x = x.clamp(min=0)
        even, odd = conv(x[..., ::2, ::2], f"{name}.conv_1"), conv(x[..., 1::2, 1::2], f"{name}.conv_2")
        return norm(torch.cat([even, odd], 1), f"{name}.bn")

    def pooled(x, name, kind, stride):
        fill = -torch.inf if kind == "max_pool_3x3" else torch.nan
        windows = F.pad(x, (1, 1, 1, 1), value=fill).unfold(2, 3, stride).unfold(3, 3, stride).flatten(4)
        x = windows.amax(-1) if kind == "max_pool_3x3" else windows.nanmean(-1)
        return norm(x, f"{name}.1") if form == "search" else x

    def depthwise_separable(x, name, first, **options):
        x = conv(x.clamp(min=0), f"{name}.{first}", groups=x.shape[1], **options)
        return norm(conv(x, f"{name}.{first + 1}"), f"{name}.{first + 2}")

    def operation(x, name, kind, stride):
        if kind == "none":
            return 0 * x[..., ::stride, ::stride]
        if kind == "skip_connect":
            return x if stride == 1 else factorized(x, name)
        if "pool" in kind:
            return pooled(x, name, kind, stride)
        kernel = int(kind[-1])
        if kind.startswith("dil"):
            return depthwise_separable(x, name, 1, stride=stride, padding=kernel - 1, dilation=2)
        x = depthwise_separable(x, name, 1, stride=stride, padding=kernel // 2)
        return depthwise_separable(x, name, 5, padding=kernel // 2)

    def preprocessed(x, name):
        if f"{name}.conv_1.weight" in state:
            return factorized(x, name)
        return norm(conv(x.clamp(min=0), f"{name}.1"), f"{name}.2")

    x = norm(conv(x, "stem.first.0", padding=1), "stem.first.1")
    before, last = x, x
    for number in range(len(network.cells)):
        reduction = number in (len(network.cells) // 3, 2 * len(network.cells) // 3)
        edges = genotype.reduce if reduction else genotype.normal
        name = f"cells.{number}"
        nodes = [preprocessed(before, f"{name}.preprocess_0"), preprocessed(last, f"{name}.preprocess_1")]
        for node in range(2, 6):
            terms = [
                operation(nodes[s], f"{name}.edges.{node}<-{s}", kind, 2 if reduction and s < 2 else 1)
                for kind, s in edges[2 * node - 4 : 2 * node - 2]
            ]
            nodes.append(terms[0] + terms[1])
        before, last = last, torch.cat(nodes[2:], 1)
    return last.mean(dim=(2, 3)) @ state["classifier.weight"].T + state["classifier.bias"]


@settings(max_examples=5)
@given(members, st.sampled_from(FORMS))
def test_outputs_equal_a_plain_implementation(architecture, form):
    network = network_of(architecture, form=form).double()
    x = images().double()
    expected = plain_forward(network, WITH_NONE.genotype(architecture), x, form)
    torch.testing.assert_close(network(x), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("form", FORMS)
def test_an_operation_keeps_or_halves_the_size(form):
    x = torch.randn(2, 6, 7, 8)
    for operation, stride, size in ((o, *s) for o in OPERATIONS for s in ((1, (7, 8)), (2, (4, 4)))):
        out = MODULES[operation](6, stride, form)(x)
        assert out.shape == (2, 6, *size), operation
        assert (out == 0).all() == (operation == "none"), operation
    assert tuple(MODULES)[: len(OPERATIONS)] == OPERATIONS


def test_normalization_of_the_forms():
    pooling = DARTS_V2.replace("dil_conv_3x3", "avg_pool_3x3")
    for form, running, affine, after_pools in (
        ("search", False, False, True),
        ("training", True, True, False),
        ("scoring", False, False, False),
    ):
        network = network_of(WITH_NONE.decode(pooling), form=form)
        for name, layer in network.named_modules():
            if isinstance(layer, nn.BatchNorm2d):
                assert layer.track_running_stats is running
                assert layer.affine is (affine if name.startswith("cells") else True)
        for cell in network.cells:
            for edge in cell.edges.values():
                assert not isinstance(edge, nn.MaxPool2d | nn.AvgPool2d) or not after_pools


@pytest.mark.parametrize(("channels", "size"), [(1, 8), (3, 32), (3, 15), (2, 4)])
@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
def test_input_sizes(channels, size, stem):
    network = network_of(in_channels=channels, stem=stem, auxiliary=True)
    assert [logits.shape for logits in network(images(4, channels, size))] == [(4, 10), (4, 10)]


def test_the_auxiliary_tower():
    network, bare = network_of(auxiliary=True, cells=2), network_of(cells=2)
    tower = 16 * 4 * 128 + 2 * 128 + 128 * 768 * 4 + 2 * 768 + 768 * 10 + 10
    assert count_parameters(network.auxiliary) == tower
    assert count_parameters(network) == count_parameters(bare)
    assert count_multiply_adds(network, (1, 32, 32)) == count_multiply_adds(bare, (1, 32, 32))
    logits, second = network(images(size=32))
    assert network.auxiliary.pool(torch.zeros(1, 64, 8, 8)).shape[-2:] == (2, 2)
    assert not torch.equal(logits, second)
    gradients = torch.autograd.grad(second.sum(), list(network.cells.parameters()), allow_unused=True)
    used = {name for (name, _), g in zip(network.cells.named_parameters(), gradients, strict=True) if g is not None}
    assert {int(name.split(".")[0]) for name in used} == set(range(6))  # the tower reads cell 5 of 8, the 2nd reduction
    assert network.eval()(images(size=32)).shape == (4, 10)
    assert isinstance(bare(images(size=32)), torch.Tensor)


def test_drop_path_drops_whole_samples_and_keeps_the_mean():
    x = torch.rand(4000, 2, 2, 2) + 1
    torch.manual_seed(0)
    dropped = drop_path(x, 0.3)
    zero = (dropped == 0).flatten(1)
    assert (zero.all(1) == zero.any(1)).all()
    torch.testing.assert_close(dropped[~zero.any(1)], x[~zero.any(1)] / 0.7)
    # Binomial(4000, 0.3): within five standard deviations of 29.
    assert abs(int(zero.all(1).sum()) - 1200) < 145


def test_drop_path_acts_in_train_mode_except_on_identities():
    identities = ("0,1", "skip_connect", "skip_connect") * 8
    network, x = network_of(identities), images()
    normal = network.cells[0]
    assert all(isinstance(edge, nn.Identity) for edge in normal.edges.values())
    first, second = (torch.randn(2, 12, 4, 4) for _ in range(2))
    torch.testing.assert_close(normal(first, second, 0.99), normal(first, second, 0.0))

    network = network_of().eval()
    plain = network(x)
    network.drop_path = 0.5
    assert torch.equal(network(x), plain)
    network.train()
    torch.manual_seed(1)
    assert not torch.allclose(network(x), network(x))
    network.drop_path = 0.0
    assert torch.equal(network(x), network(x))


def test_a_cell_sums_two_edges_per_node_and_concatenates_the_nodes():
    edges = WITH_NONE.genotype(("0,1", "none", "skip_connect") * 8).normal
    cell = Cell(edges, 3, 5, 4, reduction=False, after_reduction=False, form="search")
    before, last = torch.randn(2, 3, 6, 6), torch.randn(2, 5, 6, 6)
    torch.testing.assert_close(cell(before, last), cell.preprocess_1(last).repeat(1, 4, 1, 1))


def test_multiply_adds_of_an_operation_by_hand():
    # A depthwise 3 x 3 and a 1 x 1 convolution.
    separable = MODULES["dil_conv_3x3"](6, 1, "training")
    assert count_multiply_adds(separable, (6, 5, 5)) == 25 * (6 * 9 + 6 * 6)


def test_invalid_networks_raise_an_error():
    with pytest.raises(InvalidArchitecture, match="no choice 'none'"):
        build(SPACE, DARTS_V2.replace("dil_conv_3x3", "none"), network=SMALL, in_channels=1, num_classes=2, seed=0)
    with pytest.raises(InvalidInput, match="at least 2 channels and 1 cell per stage"):
        network_of(channels=1)
    with pytest.raises(InvalidInput, match="at least 2 channels and 1 cell per stage"):
        network_of(cells=0)
    with pytest.raises(InvalidInput, match="expected a space of genotypes, got 'nasbench201'"):
        darts_network(
            NASBench201(),
            ("none",) * 6,
            channels=4,
            cells=1,
            in_channels=1,
            num_classes=2,
            normalization="training",
        )
