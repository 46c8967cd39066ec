"""Networks of timm's families: equal to timm's networks, on images of any size, and with a value of each metric."""

import numpy as np
import pytest
import torch

from archray.errors import InvalidInput
from archray.trainables.costs import costs_of
from archray.trainables.nets import NetworkSettings, build, count_parameters
from archray.trainables.proxies import PROXIES, ProxySettings, score
from archray.trainables.spaces import TimmConvNeXts, TimmResNets, get_space
from archray.trainables.spaces.timm import SIZES

pytestmark = pytest.mark.extra("timm")
timm = pytest.importorskip("timm", reason="networks of timm need pip install '.[timm]'")

RESNETS, CONVNEXTS = TimmResNets(), TimmConvNeXts()
SPACES = [RESNETS, CONVNEXTS]
KNOWN = {"resnet18", "resnet26", "resnet34", "resnet50", "resnet101", *(f"convnext_{size}" for size in SIZES)}
MEMBERS = [
    pytest.param(space, member, id=member, marks=[] if member in KNOWN else pytest.mark.slow)
    for space in SPACES
    for member in space.published
]
AS_PUBLISHED = NetworkSettings(channels=16, stem="imagenet")
SMALL = NetworkSettings(channels=2)
BASIC = RESNETS.published["resnet18"]
every_space = pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)


def network_of(space, architecture, *, network=SMALL, in_channels=1, num_classes=10, seed=0, **options):
    return build(
        space,
        architecture,
        network=network,
        in_channels=in_channels,
        num_classes=num_classes,
        seed=seed,
        **options,
    )


def images(n=3, channels=1, size=8):
    return torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(0))


def network_after_mutation(space, architecture, **choices):
    names = [decision.name for decision in space.decisions]
    return tuple(choices.get(name, choice) for name, choice in zip(names, architecture, strict=True))


def test_no_strided_pointwise_convolution_is_narrow():
    """With 2 to 7 channels oneDNN's AVX2 kernel writes beyond its memory: test_strided_pointwise.py."""
    narrowest = RESNETS.decisions[[decision.name for decision in RESNETS.decisions].index("width")].choices[0]
    channels = set()
    for member in RESNETS.published.values():
        with torch.device("meta"):
            network = network_of(RESNETS, network_after_mutation(RESNETS, member, width=narrowest), network=SMALL)
        layers = [layer for layer in network.modules() if isinstance(layer, torch.nn.Conv2d)]
        channels |= {each.in_channels for each in layers if each.kernel_size == (1, 1) and max(each.stride) > 1}
    assert min(channels) >= 8


@pytest.mark.parametrize(("space", "member"), MEMBERS)
def test_a_published_member_has_the_parameters_and_the_state_of_timms(space, member):
    with torch.device("meta"):
        own = network_of(space, space.published[member], network=AS_PUBLISHED, in_channels=3, num_classes=1000)
        published = timm.create_model(member)
    assert count_parameters(own) == sum(parameter.numel() for parameter in published.parameters())
    shapes = [{n: tuple(t.shape) for n, t in model.state_dict().items()} for model in (own.model, published)]
    assert shapes[0] == shapes[1]


def member_of(name):
    return (RESNETS.published | CONVNEXTS.published)[name]


def test_known_counts():
    """Counts of He et al. 2016 in torchvision, and of Liu et al. 2022, Table 1 (tiny: 29M)."""
    counts = {"resnet18": 11_689_512, "resnet34": 21_797_672, "resnet50": 25_557_032, "convnext_tiny": 28_589_128}
    for member, count in counts.items():
        space = RESNETS if member in RESNETS.published else CONVNEXTS
        with torch.device("meta"):
            network = network_of(space, member_of(member), network=AS_PUBLISHED, in_channels=3, num_classes=1000)
        assert count_parameters(network) == count


@pytest.mark.parametrize(
    "member",
    [
        "resnet18",
        "resnet10t",
        "convnext_atto",
        "convnextv2_atto",
        *(
            pytest.param(member, marks=pytest.mark.slow)
            for member in ("resnet26", "resnet34", "resnet50d", "seresnet50t", "resnet101", "convnext_tiny")
        ),
    ],
)
def test_outputs_equal_those_of_timm(member):
    space = RESNETS if member in RESNETS.published else CONVNEXTS
    own = network_of(space, member_of(member), network=AS_PUBLISHED, in_channels=3, num_classes=7).eval()
    published = timm.create_model(member, num_classes=7).eval()
    published.load_state_dict(own.model.state_dict())
    batch = images(2, 3, 64)
    with torch.no_grad():
        assert torch.equal(own(batch), published(batch))


def test_narrow_networks_equal_timms_model_with_these_options():
    narrow = network_after_mutation(RESNETS, RESNETS.published["resnet26t"], width="2")
    own = network_of(RESNETS, narrow, network=NetworkSettings(channels=8, stem="imagenet"), in_channels=3).eval()
    widths = {"stem_width": 8, "channels": (16, 32, 64, 128)}
    published = timm.create_model("resnet26t", num_classes=10, **widths).eval()
    published.load_state_dict(own.model.state_dict())
    kernels = network_after_mutation(CONVNEXTS, CONVNEXTS.published["convnext_atto"], kernel_1="3", kernel_3="9")
    other = network_of(CONVNEXTS, kernels, network=NetworkSettings(channels=4, stem="imagenet"), in_channels=3).eval()
    options = {"dims": (10, 20, 40, 80), "kernel_sizes": (3, 7, 9, 7)}
    of_timm = timm.create_model("convnext_atto", num_classes=10, **options).eval()
    of_timm.load_state_dict(other.model.state_dict())
    with torch.no_grad():
        assert torch.equal(own(images(2, 3, 32)), published(images(2, 3, 32)))
        assert torch.equal(other(images(2, 3, 32)), of_timm(images(2, 3, 32)))


@every_space
@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
@pytest.mark.parametrize("size", [7, 8, 32])
def test_images_of_any_size(space, stem, size):
    rng = np.random.default_rng(size)
    for architecture in (space.sample(rng), network_after_mutation(space, space.sample(rng), resolution="0.5")):
        network = network_of(space, architecture, network=NetworkSettings(channels=2, stem=stem))
        assert network(images(size=size)).shape == (3, 10)


def test_the_stem_for_small_images_keeps_their_size():
    for space, module, member in [(RESNETS, "layer1", "resnet18"), (CONVNEXTS, "stages.0", "convnext_atto")]:
        for stem, side in (("cifar", 16), ("imagenet", 4)):
            network = network_of(space, space.published[member], network=NetworkSettings(channels=4, stem=stem))
            seen = []
            network.model.get_submodule(module).register_forward_hook(lambda m, i, o, seen=seen: seen.append(o.shape))
            least = network.least
            network(images(2, size=16))
            assert seen[0][-1] == max(side, least // {"cifar": 1, "imagenet": 4}[stem])


@pytest.mark.parametrize(("resolution", "side"), [("0.5", 16), ("0.75", 24), ("1", 32), ("1.25", 40)])
def test_resolution_is_that_of_the_model_input(resolution, side):
    network = network_of(RESNETS, network_after_mutation(RESNETS, BASIC, resolution=resolution))
    seen = []
    network.model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    batch = images(2, size=32)
    network(batch)
    assert seen[0].shape[-2:] == (side, side)
    assert (seen[0] is batch) == (resolution == "1")
    if resolution == "0.5":  # two by two pixels are averaged
        torch.testing.assert_close(seen[0], torch.nn.functional.avg_pool2d(batch, 2))


def test_metrics_of_a_resnet_equal_those_with_relus_that_do_not_work_in_place():
    options = {"in_channels": 3, "num_classes": 3, "for_scoring": True}
    networks = [network_of(RESNETS, RESNETS.published["seresnet50t"], **options) for _ in range(2)]
    for module in networks[1].modules():
        if isinstance(module, torch.nn.ReLU):
            module.inplace = False
    own, apart = (
        score(network, images(6, 3, 16), torch.arange(6) % 3, list(PROXIES), ProxySettings()) for network in networks
    )
    assert {name: one.failure for name, one in own.items()} == dict.fromkeys(PROXIES)
    assert {n: one.value for n, one in own.items()} == pytest.approx({n: one.value for n, one in apart.items()})


@pytest.mark.parametrize("member", ["convnext_pico", "convnextv2_tiny"])
def test_metrics_of_a_convnext(member):
    network = network_of(CONVNEXTS, CONVNEXTS.published[member], num_classes=3, for_scoring=True)
    scores = score(network, images(6), torch.arange(6) % 3, list(PROXIES), ProxySettings())
    failures = {name: one.failure for name, one in scores.items() if one.failure}
    assert sorted(failures) == ["naswot", "synflow", "zen"]
    assert "nn.ReLU" in failures["naswot"]
    assert "layer normalizations" in failures["zen"] and "layer normalizations" in failures["synflow"]


@every_space
def test_no_branch_is_closed_for_scoring(space):
    """timm initializes some weights with zeros, or nearly zeros.

    The weights before them would have no gradient for metrics.
    """
    member = next(iter(space.published))
    least = []
    for for_scoring in (True, False):
        network = network_of(space, space.published[member], for_scoring=for_scoring)
        network(images()).square().sum().backward()
        weights = [m.weight for m in network.modules() if isinstance(m, torch.nn.Conv2d) and m.kernel_size == (3, 3)]
        # Except those of the stem
        weights = weights[1:] or [stage.blocks[0].conv_dw.weight for stage in network.model.stages]
        least.append(min(float((w.grad.norm() * w.norm()).detach()) for w in weights))
    assert least[0] > 1e3 * least[1]


@every_space
def test_costs(space):
    names = ["parameters", "flops", "peak_memory"]
    texts = [
        space.encode(network_after_mutation(space, space.sample(np.random.default_rng(0)), width=width))
        for width in ("2", "4")
    ]
    costs = costs_of(space, texts, names, network=NetworkSettings(channels=4), in_channels=1, image_size=8)
    assert (costs[names].to_numpy() > 0).all() and (costs[names].diff().iloc[1] > 0).all()


def test_another_space_raises_an_error():
    from archray.trainables.nets.timm_network import timm_resnet

    vit, options = get_space("vit"), {"channels": 2, "in_channels": 1, "num_classes": 2}
    with pytest.raises(InvalidInput, match="expected the space timm:resnet, got 'vit'"):
        timm_resnet(vit, vit.smallest, stem="cifar", normalization="training", **options)
