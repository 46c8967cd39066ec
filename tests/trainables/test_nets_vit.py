"""The vision transformer: a plain second implementation, image sizes, the effect of settings, and its metrics."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from archray.errors import InvalidInput
from archray.trainables.nets import NetworkSettings, build, count_multiply_adds, count_parameters
from archray.trainables.nets.vit_network import positions
from archray.trainables.proxies import ProxySettings, score
from archray.trainables.spaces import VisionTransformers, get_space

SPACE = VisionTransformers()
SMALL = NetworkSettings(channels=2, cells=1)


def network_of(architecture, *, in_channels=1, network=SMALL, **options):
    return build(SPACE, architecture, network=network, in_channels=in_channels, num_classes=10, seed=0, **options)


def images(n=3, channels=1, size=8):
    return torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(0))


def plain_forward(network, architecture, image):
    """The logits of one image (c, H, W), token by token and head by head, from the weights of `network`."""
    state = {name: tensor.double() for name, tensor in network.state_dict().items()}
    shape, width = SPACE.shape(architecture), 2 * SPACE.shape(architecture).width

    def linear(x, name):
        return state[f"{name}.weight"] @ x + state[f"{name}.bias"]

    def norm(x, name):
        centered = x - x.mean()
        scaled = centered / (centered.square().mean() + 1e-5).sqrt()
        return scaled * state[f"{name}.weight"] + state[f"{name}.bias"]

    def gelu(x):
        return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))

    maps = gelu(F.conv2d(image[None].double(), state["stem.0.weight"], state["stem.0.bias"], padding=1))[0]
    patch = 4
    if image.shape[-1] <= 16:
        maps = F.interpolate(maps[None], scale_factor=2, mode="nearest")[0]
    tokens = []
    for row in range(maps.shape[1] // patch):
        for column in range(maps.shape[2] // patch):
            pixels = maps[:, patch * row : patch * (row + 1), patch * column : patch * (column + 1)].flatten()
            token = norm(linear(pixels, "embedding"), "embedding_norm")
            for d in range(width):
                phase = (row, column)[d % 2] * 100.0 ** (-(d // 4) / 8)
                token[d] += math.sin(phase) if d % 4 < 2 else math.cos(phase)
            tokens.append(token)
    head = 4
    for number, (heads, _) in enumerate(shape.layers):
        name, size = f"blocks.{number}", heads * head
        qkv = [linear(norm(token, f"{name}.attention_norm"), f"{name}.qkv") for token in tokens]
        attended = [[] for _ in tokens]
        for h in range(heads):
            own = slice(h * head, (h + 1) * head)
            for t, of_t in enumerate(qkv):
                scores = torch.stack([of_t[:size][own] @ other[size : 2 * size][own] / head**0.5 for other in qkv])
                weights = scores.softmax(0)
                values = [weight * other[2 * size :][own] for weight, other in zip(weights, qkv, strict=True)]
                attended[t].append(sum(values))
        tokens = [t + linear(torch.cat(a), f"{name}.projection") for t, a in zip(tokens, attended, strict=True)]
        tokens = [
            t + linear(gelu(linear(norm(t, f"{name}.mlp_norm"), f"{name}.expansion")), f"{name}.contraction")
            for t in tokens
        ]
    return linear(sum(norm(token, "norm") for token in tokens) / len(tokens), "classifier")


@pytest.mark.parametrize("size", [8, 20])
def test_outputs_equal_a_plain_implementation(size):
    architecture = SPACE.sample(np.random.default_rng(size))
    network, batch = network_of(architecture).double(), images(2, size=size).double()
    with torch.no_grad():
        expected = torch.stack([plain_forward(network, architecture, image) for image in batch])
        torch.testing.assert_close(network(batch), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("channels", "size", "tokens"), [(1, 8, 16), (1, 7, 16), (3, 16, 64), (3, 28, 49), (3, 32, 64)]
)
def test_the_patch_depends_on_the_size_of_the_images(channels, size, tokens):
    network = network_of(SPACE.largest, in_channels=channels)
    seen = []
    network.blocks[0].register_forward_hook(lambda module, inputs, output: seen.append(tuple(output.shape)))
    assert network(images(3, channels, size)).shape == (3, 10)
    assert seen == [(3, tokens, 16)]
    assert count_parameters(network) == count_parameters(network_of(SPACE.largest, in_channels=channels))


def test_multiply_adds_include_those_of_attention():
    network, (tokens, width, head) = network_of(SPACE.largest), (16, 16, 4)
    stem, embedding = 8 * 8 * 4 * 9, tokens * 16 * 4 * width
    size = 4 * head  # numbers of all heads
    block = tokens * width * 4 * size + 2 * tokens * tokens * size + tokens * 2 * 4 * width * width
    assert count_multiply_adds(network, (1, 8, 8)) == stem + embedding + 6 * block + width * 10


def test_channels_scale_the_width_and_cells_repeat_layers():
    shape = SPACE.shape(SPACE.smallest)
    network = network_of(SPACE.smallest, network=NetworkSettings(channels=6, cells=3))
    assert len(network.blocks) == 3 * shape.depth
    assert network.embedding.out_features == 6 * shape.width
    assert network.blocks[0].qkv.out_features == 3 * 2 * 12


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stem": "imagenet"}, "expected the stem cifar, the only one of the space vit"),
        ({"auxiliary": True}, "networks of the space vit have no auxiliary classifier"),
        ({"biases": True}, "expected biases false, as networks of the space vit"),
    ],
)
def test_settings_without_an_effect_raise_an_error(settings, message):
    with pytest.raises(InvalidInput, match=message):
        network_of(SPACE.smallest, network=NetworkSettings(channels=2, cells=1, **settings))


def test_both_forms_are_equal():
    forms = [network_of(SPACE.smallest, for_scoring=scoring)(images()) for scoring in (True, False)]
    torch.testing.assert_close(*forms)


def test_positions_distinguish_tokens_and_wide_ones_start_with_those_of_a_narrow_token():
    wide = positions((8, 8), 32, torch.zeros(()))
    assert torch.equal(wide[:, :16], positions((8, 8), 16, torch.zeros(())))
    distance = torch.cdist(wide[:, :16], wide[:, :16]) + torch.eye(64) * 9
    assert distance.min() > 0.1


def test_another_space_raises_an_error():
    from archray.trainables.nets.vit_network import transformers

    with pytest.raises(InvalidInput, match="expected the space vit, got 'nasbench201'"):
        transformers(get_space("nasbench201"))


def test_metrics_without_a_value_give_the_reason():
    network = network_of(SPACE.smallest, for_scoring=True)
    scores = score(network, images(6), torch.arange(6) % 3, ["naswot", "zen", "synflow", "grasp"], ProxySettings())
    assert "nn.ReLU" in scores["naswot"].failure
    assert "layer normalizations" in scores["zen"].failure
    assert "layer normalizations" in scores["synflow"].failure
    assert scores["grasp"].failure is None


def test_grasp_equals_finite_differences():
    """-theta^T H g is the derivative of -theta^T grad L along g, with theta held constant."""
    network = network_of(SPACE.smallest, for_scoring=True).double()
    batch, labels = images(4).double(), torch.arange(4)
    layers = (torch.nn.Linear, torch.nn.Conv2d)
    weights = [module.weight for module in network.modules() if isinstance(module, layers)]
    values = [weight.detach().clone() for weight in weights]

    def gradients():
        return torch.autograd.grad(F.cross_entropy(network(batch), labels), weights)

    along, step, ends = gradients(), 1e-5, []
    for sign in (1, -1):
        with torch.no_grad():
            for weight, value, g in zip(weights, values, along, strict=True):
                weight.copy_(value + sign * step * g)
        ends.append(sum((v * g).sum() for v, g in zip(values, gradients(), strict=True)))
    with torch.no_grad():
        for weight, value in zip(weights, values, strict=True):
            weight.copy_(value)
    expected = -float(ends[0] - ends[1]) / (2 * step)
    got = score(network, batch, labels, ["grasp"], ProxySettings())["grasp"].value
    assert got == pytest.approx(expected, rel=1e-5)
