"""Supernets of models with choices: paths, masks and slices equal standalone networks; NAS-Bench-201 both ways."""

import copy
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from archray import Choice, Edges, ModelSpace, Repeat, Width
from archray.errors import InvalidInput
from archray.trainables.data import DataSettings, load_images
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.nets.build_network import count_parameters
from archray.trainables.spaces import get_space
from archray.trainables.supernets.elastic import build_sliced
from archray.trainables.supernets.mixing import as_leaves
from archray.trainables.supernets.networks import build_supernet, copy_weights, discretize
from archray.trainables.supernets.networks.supernet import MixtureWeights, Rows
from archray.trainables.supernets.posterior import RelaxedDecisions
from archray.trainables.supernets.settings import (
    MirrorDescentSettings,
    SimplexSettings,
    SupernetTrainingSettings,
    build_mixing,
)
from archray.trainables.supernets.trainer import SupernetTrainer

EXAMPLES = Path(__file__).parents[2] / "examples"
SHAPE = {"in_channels": 1, "num_classes": 10}
SMALL = NetworkSettings(channels=4, cells=1)


class Attention(nn.Module):
    """A transformer block whose heads and hidden features are decisions, with a normalization of the hidden ones."""

    def __init__(self, number):
        super().__init__()
        self.heads = Width([1, 2, 3], name=f"heads{number}")
        inner, hidden = self.heads * 4, Width([8, 16], name=f"hidden{number}")
        self.qkv, self.projection = nn.Linear(12, 3 * inner), nn.Linear(inner, 12)
        self.expansion, self.norm, self.contraction = nn.Linear(12, hidden), nn.LayerNorm(hidden), nn.Linear(hidden, 12)

    def forward(self, x):
        n, tokens, _ = x.shape
        q, k, v = self.qkv(x).reshape(n, tokens, 3, self.heads, 4).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, -1)
        x = x + self.projection(attended)
        return x + self.contraction(functional.gelu(self.norm(self.expansion(x))))


class Tokens(nn.Module):
    def forward(self, x):
        return x.flatten(2).transpose(1, 2)


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


def transformer(in_channels, num_classes):
    blocks = [Choice({"block": Attention(n), "skip": nn.Identity()}, name=f"block{n}") for n in range(2)]
    return nn.Sequential(nn.Conv2d(in_channels, 12, 4, 4), Tokens(), *blocks, Mean(), nn.Linear(12, num_classes))


class Cell(nn.Module):
    """A cell as in DARTS: two nodes, each with two of the earlier outputs, and an operation on each edge."""

    def __init__(self, channels):
        super().__init__()
        operations = {
            "conv": lambda c: nn.Conv2d(c, c, 3, padding=1),
            "pool": lambda c: nn.AvgPool2d(3, 1, 1),
            "none": lambda c: nn.Threshold(torch.inf, 0.0),
        }
        self.nodes = nn.ModuleList(
            Edges(
                [Choice(operations, name=f"{node}<-{source}", channels=channels) for source in range(node)],
                k=2,
                name=f"inputs{node}",
            )
            for node in (3, 4)
        )

    def forward(self, x):
        states = [x, x.relu(), x.abs()]
        for node in self.nodes:
            states.append(node(states))
        return torch.cat(states[3:], dim=1)


def cells(in_channels, num_classes):
    layers = [nn.Conv2d(in_channels, 8, 3, padding=1), Cell(8), nn.BatchNorm2d(16), Cell(16)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, num_classes))


def convolutional(in_channels, num_classes):
    """Depthwise and grouped-by-width layers, a width twice, and depth."""
    width = Width([4, 6, 8], name="width")

    def block(number):
        depthwise = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, groups=width), nn.BatchNorm2d(width))
        wide = nn.Sequential(nn.Conv2d(width, 2 * width, 1), nn.ReLU(), nn.Conv2d(2 * width, width, 1))
        return Choice({"depthwise": depthwise, "wide": wide, "skip": nn.Identity()}, name=f"block{number}")

    body = Repeat(block, (1, 3), name="depth")
    return nn.Sequential(
        nn.Conv2d(in_channels, width, 3), nn.BatchNorm2d(width), body, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(width, num_classes),
    )  # fmt: skip


MODELS = {
    "convolutional": ModelSpace(convolutional),
    "transformer": ModelSpace(transformer),
    "cells": ModelSpace(cells),
    "own model": get_space(f"{EXAMPLES}/own_model.py:network"),
    "resnet18": get_space(f"{EXAMPLES}/existing_models.py:resnet18"),
}
SEARCHED = list(MODELS)[:4]


def images(n=4, size=8, seed=1):
    return torch.randn(n, 1, size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def supernet_of(space, **options):
    """A supernet in float64 whose normalizations have different weights."""
    supernet = build_supernet(space, SMALL, **SHAPE, seed=0, **options).double()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in supernet.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) / 10)
    return supernet


def standalone_of(space, architecture):
    network = SMALL.model_copy(update={"normalization": "scoring"})
    return build(space, architecture, network=network, **SHAPE, seed=3).double()


def in_double(mixture, chosen=True):
    return {
        name: MixtureWeights(rows.dense.double(), rows.chosen if chosen else None) for name, rows in mixture.items()
    }


def compare_paths(space, count):
    supernet, sliced = supernet_of(space), build_sliced(space, SMALL, **SHAPE, seed=0).double()
    x, rng = images(), np.random.default_rng(0)
    with torch.no_grad():
        for _ in range(count):
            architecture = space.sample(rng)
            standalone = standalone_of(space, architecture)
            copy_weights(supernet, architecture, standalone)
            expected, path = standalone(x), supernet.path(architecture)
            torch.testing.assert_close(supernet(x, in_double(path)), expected, rtol=1e-10, atol=1e-10)
            masked = supernet(x, in_double(path, chosen=False))  # weights of 0 and 1, all choices computed
            torch.testing.assert_close(masked, expected, rtol=1e-10, atol=1e-10)
            standalone.load_state_dict(sliced.weights_of(architecture))
            torch.testing.assert_close(sliced(x, architecture), standalone(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", SEARCHED)
def test_paths_masks_and_slices_equal_standalone_networks(name):
    compare_paths(MODELS[name], 8)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_paths_masks_and_slices_of_200_architectures_equal_standalone_networks(name):
    compare_paths(MODELS[name], 200)


def test_a_slice_equals_a_narrower_module_with_the_sliced_weights():
    space, x = MODELS["convolutional"], images()
    supernet = supernet_of(space)
    path = in_double(supernet.path(("4", "1", "wide", "skip", "skip")))
    model = supernet.network.model
    stem, norm, wide, classifier = model[0], model[1], model[2].blocks[0].alternatives["wide"], model[5]
    rows = [0, 1, 2, 3, 8, 9, 10, 11]  # 2 * width: the first 4 channels of both parts
    out = functional.conv2d(x, stem.weight[:4], stem.bias[:4])
    out = functional.batch_norm(out, None, None, norm.weight[:4], norm.bias[:4], training=True)
    out = functional.conv2d(out, wide[0].weight[rows, :4], wide[0].bias[rows]).relu()
    out = functional.conv2d(out, wide[2].weight[:4][:, rows], wide[2].bias[:4]).mean((2, 3))
    expected = functional.linear(out, classifier.weight[:, :4], classifier.bias)
    torch.testing.assert_close(supernet(x, path), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", SEARCHED)
def test_the_gradient_of_the_mixture_equals_finite_differences(name):
    supernet, x, labels = supernet_of(MODELS[name]), images(), torch.arange(4)
    generator = torch.Generator().manual_seed(0)
    mixture = {
        group.name: MixtureWeights(torch.rand(group.shape, generator=generator, dtype=torch.float64) + 0.1)
        for group in supernet.groups
    }
    leaves = as_leaves(mixture)
    functional.cross_entropy(supernet(x, leaves), labels).backward()
    for name_, rows in leaves.items():
        for column in range(rows.dense.shape[1]):
            losses = []
            for step in (1e-6, -1e-6):
                moved = {other: weights.dense.detach().clone() for other, weights in leaves.items()}
                moved[name_][0, column] += step
                with torch.no_grad():
                    losses.append(functional.cross_entropy(supernet(x, moved), labels).item())
            difference = (losses[0] - losses[1]) / 2e-6
            gradient = 0.0 if rows.dense.grad is None else rows.dense.grad[0, column].item()
            assert gradient == pytest.approx(difference, rel=1e-5, abs=1e-7), (name_, column)


@pytest.mark.parametrize("name", SEARCHED)
def test_a_drawn_choice_has_the_gradient_of_its_weight_in_the_mixture(name):
    """Straight-through relaxations (GDAS) evaluate only the drawn choices, and need the gradients of their weights."""
    space, x, labels = MODELS[name], images(), torch.arange(4)
    supernet, rng = supernet_of(space), np.random.default_rng(3)
    for _ in range(3):
        path = supernet.path(space.sample(rng))
        gradients = []
        for chosen in (True, False):
            leaves = as_leaves(in_double(path, chosen))
            functional.cross_entropy(supernet(x, leaves), labels).backward()
            gradients.append({group: rows.dense.grad for group, rows in leaves.items()})
        drawn, mixed = gradients
        for group, rows in path.items():
            taken = rows.dense[0] != 0
            if mixed[group] is not None and taken.any():
                torch.testing.assert_close(drawn[group][0, taken], mixed[group][0, taken], rtol=1e-8, atol=1e-12)
        assert any(gradient is not None and (gradient != 0).any() for gradient in drawn.values())


@pytest.mark.parametrize("name", SEARCHED)
def test_the_strongest_weights_are_the_architecture(name):
    space = MODELS[name]
    supernet, rng = supernet_of(space), np.random.default_rng(1)
    for _ in range(5):
        architecture = space.canonical(space.sample(rng))
        dense = {name: rows.dense for name, rows in supernet.path(architecture).items()}
        assert space.canonical(space.decode(discretize(space, dense))) == architecture


def test_one_hot_decisions_of_a_posterior_compute_the_architecture():
    space, x = MODELS["convolutional"], images()
    supernet, rng = supernet_of(space), np.random.default_rng(2)
    relaxed = RelaxedDecisions(supernet)
    for _ in range(5):
        architecture = space.sample(rng)
        rows = torch.zeros(relaxed.allowed.shape, dtype=torch.float64)
        for number, column in enumerate(space.rank(architecture)):
            rows[number, column] = 1.0
        relaxed_ = relaxed.mixture(rows.float())
        with torch.no_grad():
            expected = supernet(x, in_double(supernet.path(architecture)))
            torch.testing.assert_close(supernet(x, in_double(relaxed_)), expected, rtol=1e-8, atol=1e-8)


def test_partial_channels_need_functions_of_channels():
    with pytest.raises(
        InvalidInput, match=r"Choice 'block0': .* functions of channels for partial_channels 2, got a module"
    ):
        build_supernet(MODELS["convolutional"], SMALL, **SHAPE, seed=0, partial_channels=2)
    supernet = supernet_of(MODELS["cells"], partial_channels=4)
    assert supernet.network.model[1].nodes[0].edges["0"].alternatives["conv"].weight.shape == (2, 2, 3, 3)
    mixture = {group.name: torch.full(group.shape, 1.0 / group.shape[1]).double() for group in supernet.groups}
    assert supernet(images(), mixture).shape == (4, 10)


def test_nasi_rejects_widths():
    with pytest.raises(InvalidInput, match=r"Width 'width': Expected a method that trains or mixes widths, got nasi"):
        supernet_of(MODELS["convolutional"]).check_probes()
    supernet_of(MODELS["cells"]).check_probes()


def test_nasi_rejects_modules_without_second_derivatives():
    def network(in_channels, num_classes):
        choice = Choice({"a": nn.Conv2d(in_channels, 4, 1), "b": nn.Conv2d(in_channels, 4, 3, padding=1)}, name="conv")
        return nn.Sequential(choice, nn.Hardsigmoid(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, num_classes))

    with pytest.raises(InvalidInput, match="Expected modules with second derivatives for nasi, got Hardsigmoid"):
        build_supernet(ModelSpace(network), SMALL, **SHAPE, seed=0).check_probes()


def test_layers_that_cannot_be_masked_raise_an_error_that_names_the_width():
    def network(in_channels, num_classes):
        width = Width([4, 8], name="w")
        layers = [nn.Conv2d(in_channels, width, 1), nn.GroupNorm(2, width), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(width, num_classes))

    with pytest.raises(
        InvalidInput, match=r"Width 'w': Expected layers whose outputs can be masked, got GroupNorm \(1\)"
    ):
        build_supernet(ModelSpace(network), SMALL, **SHAPE, seed=0)
    build_sliced(ModelSpace(network), SMALL, **SHAPE, seed=0)


# Modules and parameters in several places


def sharing(in_channels, num_classes):
    """A module with a width in two places, a parameter in two alternatives, and one after them; a parametrization."""
    width = Width([4, 6, 8], name="width")
    twice = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))
    first, second, third = (nn.Conv2d(8, 8, 3, padding=1) for _ in range(3))
    second.weight = third.weight = first.weight
    choice = Choice({"first": first, "second": nn.Sequential(second, nn.Tanh()), "twice": first}, name="tied")
    normed = Choice({"norm": parametrizations.weight_norm(conv()), "skip": nn.Identity()}, name="normed")
    return nn.Sequential(
        nn.Conv2d(in_channels, width, 3), twice, nn.ReLU(), twice, nn.Conv2d(width, 8, 1), choice, third, normed,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, num_classes),
    )  # fmt: skip


def test_shared_modules_and_parameters_stay_shared():
    space = ModelSpace(sharing)
    compare_paths(space, 12)
    rng = np.random.default_rng(1)
    architectures = [space.sample(rng) for _ in range(12)]
    counted = [count_parameters(standalone_of(space, architecture)) for architecture in architectures]
    assert space.parameter_counts(architectures, **SHAPE) == counted
    network = standalone_of(space, ("6", "second", "skip"))
    assert network[1] is network[3] and network[5][0].weight is network[6].weight


# Modules that change their input in place


class Negate(nn.Module):
    def forward(self, x):
        return x.mul_(-3.0)


class AddInPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        x += self.conv(x.sigmoid())  # not of x, which its gradient needs
        return x


def chain(*layers):
    def network(in_channels, num_classes):
        first, last = nn.Conv2d(in_channels, 8, 3, padding=1), nn.Linear(8, num_classes)
        made = [layer() for layer in layers]
        return nn.Sequential(first, *made, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)

    return network


def relu(*modules):
    return nn.Sequential(nn.ReLU(inplace=True), *modules)


def conv():
    return nn.Conv2d(8, 8, 3, padding=1)


def inner():
    return Choice({"relu": relu(), "skip": nn.Identity(), "conv": conv()}, name="inner")


IN_PLACE = {
    "preactivation first": [lambda: Choice({"preact": relu(conv()), "conv": conv(), "skip": nn.Identity()}, name="c")],
    "preactivation last": [lambda: Choice({"skip": nn.Identity(), "conv": conv(), "preact": relu(conv())}, name="c")],
    "function": [lambda: Choice({"negate": Negate(), "skip": nn.Identity(), "conv": conv()}, name="c")],
    "activations": [
        lambda: Choice({"a": relu(), "b": nn.SiLU(inplace=True), "c": nn.Hardswish(inplace=True)}, name="c")
    ],
    "script": [lambda: Choice({"relu": torch.jit.script(relu()), "skip": nn.Identity()}, name="c")],
    "nested": [lambda: Choice({"inner": nn.Sequential(inner(), relu()), "skip": nn.Identity()}, name="c")],
    "blocks": [lambda: Repeat(lambda number: AddInPlace(), (0, 3), name="depth")],
    "blocks of choices": [lambda: Repeat(lambda number: relu(inner()), (1, 3), name="depth")],
    "after a skip": [lambda: Choice({"skip": nn.Identity(), "conv": conv()}, name="c"), relu, inner, relu],
}


def mixture_of(module, x, weights):
    """Computes a mixture from copies of the modules, which share no tensors."""
    if isinstance(module, Choice):
        outputs = [mixture_of(alternative, x, weights) for alternative in module.alternatives.values()]
    elif isinstance(module, Repeat):
        outputs = [x]
        for block in module.blocks:
            outputs.append(mixture_of(block, outputs[-1], weights))
        outputs = outputs[module.low :]
    elif isinstance(module, nn.Sequential):
        for child in module:
            x = mixture_of(child, x, weights)
        return x
    else:
        return copy.deepcopy(module)(x.clone())
    return sum(weight * out for weight, out in zip(weights[module.name][0], outputs, strict=True))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", IN_PLACE)
def test_alternatives_do_not_see_the_changes_of_others(name, training):
    space = ModelSpace(chain(*IN_PLACE[name]))
    space.check_model(images().float(), num_classes=10)
    supernet, x, generator = supernet_of(space).train(training), images(), torch.Generator().manual_seed(0)
    for _ in range(3):  # the first pass finds out which modules write
        weights = {
            group.name: torch.rand(group.shape, generator=generator, dtype=torch.float64).requires_grad_()
            for group in supernet.groups
        }
        logits = supernet(x, weights)
        expected = mixture_of(supernet.network.model, x, weights)
        torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)
        ours, theirs = (
            torch.autograd.grad(out.square().sum(), [*weights.values(), *supernet.parameters()], materialize_grads=True)
            for out in (logits, expected)
        )
        number = len(weights)
        for gradient, other in zip(ours[:number], theirs[:number], strict=True):  # copied modules have no gradients
            torch.testing.assert_close(gradient, other, rtol=1e-8, atol=1e-10)
    compare_paths(space, 6)


def test_a_probe_offers_alternatives_that_do_not_see_the_changes_of_others():
    model = chain(lambda: Choice({"negate": Negate(), "skip": nn.Identity(), "conv": conv()}, name="c"))(**SHAPE)
    offered = []

    def probe(value, offers):
        offered.extend([value, *(offer() for _, _, offer in offers)])
        return value

    model.double()[1].rows = Rows(torch.tensor([[0.0, 1.0, 0.0]]), (1,), probe)
    x = images()
    model(x)
    node = model[0](x)
    for out, expected in zip(offered, [node, -3.0 * node, node, model[1].alternatives["conv"](node)], strict=True):
        torch.testing.assert_close(out, expected)


def test_modules_with_partial_channels_do_not_see_the_changes_of_others():
    class Operation(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.channels = channels

        def forward(self, x):
            assert x.shape[1] == self.channels
            return x.mul_(-3.0)

    def network(in_channels, num_classes):
        operations = {"negate": Operation, "skip": lambda channels: nn.Identity()}
        choice = Choice(operations, name="c", channels=8)
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, num_classes)]
        return nn.Sequential(nn.Conv2d(in_channels, 8, 8), choice, *head)  # 1 x 1: slices of channels are contiguous

    supernet, x = supernet_of(ModelSpace(network), partial_channels=4), images()
    model = supernet.network.model
    part, rest = model[0](x).split([2, 6], dim=1)
    for _ in range(2):
        expected = torch.cat([0.5 * (-3.0 * part) + 2.0 * part, rest], dim=1).view(4, 4, 2, 1, 1).transpose(1, 2)
        logits = supernet(x, {"c": torch.tensor([[0.5, 2.0]]).double()})
        torch.testing.assert_close(logits, model[2:](expected.reshape(4, 8, 1, 1)))


class Residual(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


class Node(nn.Module):
    """Two inputs of a node are the same tensor."""

    def __init__(self):
        super().__init__()
        self.edges = Edges([relu(), conv(), conv()], k=2, name="node")

    def forward(self, x):
        return self.edges([x, x, x.sigmoid()])


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (
            lambda: Residual(Choice({"conv": conv(), "preact": relu(conv())}, name="c")),
            r"Choice 'c' \(1\.layers\.0\): .* in place .* 'preact'\. .* in 1\.layers\.0\.alternatives\.preact",
        ),
        (
            lambda: Residual(Choice({"conv": conv(), "skip": nn.Identity()}, name="c"), relu()),
            r"Choice 'c' \(1\.layers\.0\): .* 'skip'\. .* after 1\.layers\.0",
        ),
        (lambda: Residual(Repeat(lambda number: AddInPlace(), (1, 3), name="depth")), r"Repeat 'depth'"),
        (lambda: Residual(Repeat(lambda number: conv(), (0, 1), name="depth"), relu()), r"Repeat 'depth'"),
        (Node, r"Edges 'node' \(1\.edges\)"),
    ],
)
def test_a_change_of_a_tensor_that_the_model_reads_again_raises_an_error(layer, message):
    """A supernet, in which alternatives share the tensor, could not compute the standalone network."""
    with pytest.raises(InvalidInput, match=message):
        ModelSpace(chain(layer)).check_model(images().float(), num_classes=10)


def test_a_model_that_changes_its_images_raises_an_error():
    alternatives = {"conv": lambda: nn.Conv2d(1, 1, 1), "relu": relu}
    for labels in (("conv", "relu"), ("relu", "conv")):
        for first in ([], [Negate]):

            def network(in_channels, num_classes, labels=labels, first=first):
                choice = Choice({label: alternatives[label]() for label in labels}, name="c")
                return nn.Sequential(*(layer() for layer in first), choice, chain()(in_channels, num_classes))

            with pytest.raises(InvalidInput, match="Expected a model that leaves its images unchanged"):
                ModelSpace(network, name="network").check_model(images().float(), num_classes=10)


def test_random_and_stateful_models_are_not_taken_for_changes_in_place():
    class Noise(nn.Module):
        def forward(self, x):
            return x + torch.randn_like(x)

    class Count(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return x + self.calls

    layer = partial(Choice, {"noise": Noise(), "skip": nn.Identity(), "count": Count()}, name="c")
    ModelSpace(chain(layer, relu)).check_model(images().float(), num_classes=10)


# NAS-Bench-201

CHOICES = get_space(f"{EXAMPLES}/nasbench201_with_choices.py:network")
BUILT_IN = get_space("nasbench201")


def built_in_name(name, stages):
    """The name of a tensor of the model with choices in the built-in supernet."""
    layers = ["stem.0", "stem.1", *(f"stages.{number}" for number in range(stages)), "head.0", "", "", "", "classifier"]
    number, _, rest = name.removeprefix("network.model.").partition(".")
    return f"{layers[int(number)]}.{rest.replace('alternatives.', '')}"


def both_supernets(**options):
    """Both supernets with the same weights."""
    ours, built_in = (build_supernet(space, SMALL, **SHAPE, seed=0, **options) for space in (CHOICES, BUILT_IN))
    shared = built_in.state_dict()
    state = {name: shared.pop(built_in_name(name, len(built_in.stages))) for name in ours.state_dict()}
    assert not shared
    ours.load_state_dict(state)
    return ours, built_in


def test_nasbench201_with_choices_computes_the_built_in_supernet_and_networks():
    ours, built_in = both_supernets()
    x, generator = images().float(), torch.Generator().manual_seed(0)
    weights = torch.rand(6, 5, generator=generator).softmax(-1)
    edges = {
        group.name: weights[number : number + 1].clone().requires_grad_() for number, group in enumerate(ours.groups)
    }
    table = weights.detach().clone().requires_grad_()
    losses = [ours(x, edges).square().mean(), built_in(x, {"edges": table}).square().mean()]
    torch.testing.assert_close(*losses, rtol=1e-6, atol=1e-6)
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(torch.cat([row.grad for row in edges.values()]), table.grad, rtol=1e-5, atol=1e-6)
    expected = dict(built_in.named_parameters())
    for name, parameter in ours.named_parameters():
        other = expected[built_in_name(name, len(built_in.stages))]
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-4, atol=1e-6)
    rng = np.random.default_rng(0)
    for _ in range(5):
        architecture = BUILT_IN.sample(rng)
        networks = [standalone_of(space, architecture).float() for space in (CHOICES, BUILT_IN)]
        for supernet, network in zip((ours, built_in), networks, strict=True):
            copy_weights(supernet, architecture, network)
        torch.testing.assert_close(networks[0](x), networks[1](x), rtol=1e-5, atol=1e-6)


def test_an_epoch_of_gaea_darts_learns_the_same_architecture_parameters():
    data = load_images(DataSettings(name="digits", limit=200), device=torch.device("cpu"))
    settings, learned = SupernetTrainingSettings(epochs=1, batch_size=50, warmup_epochs=0), []
    for supernet in both_supernets(none=False):
        mixing = build_mixing(supernet, SimplexSettings(), MirrorDescentSettings(), seed=0)
        SupernetTrainer(supernet, data, mixing, settings, seed=0).epoch()
        learned.append(torch.cat(list(mixing.probabilities().values())))
    assert (learned[0] - 0.25).abs().max() > 1e-3
    torch.testing.assert_close(*learned, rtol=1e-4, atol=1e-5)
