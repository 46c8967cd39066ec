"""Spaces read from models with choices: decisions, strings, conditions, standalone networks, and clear errors."""

import copy
import math
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from archray import Choice, Edges, ModelSpace, Repeat, Width
from archray.errors import InvalidArchitecture, InvalidInput
from archray.platform.methods.configure import make_config
from archray.trainables.data import DataSettings, load_images
from archray.trainables.model_space.networks import inherit, standalone_state
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.nets.build_network import check_build, check_network
from archray.trainables.spaces import Space, get_space
from archray.trainables.supernets.elastic import build_sliced
from archray.trainables.supernets.networks import build_supernet

OWN = f"{Path(__file__).parents[2]}/examples/own_model.py:network"
SHAPE = {"in_channels": 1, "num_classes": 10}


def head(width, num_classes):
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes)]


def convolutions(channels=8, **kernels):
    return {name: nn.Conv2d(channels, channels, kernel, padding=kernel // 2) for name, kernel in kernels.items()}


def nested(in_channels, num_classes):
    """A choice within an alternative, and within a block that only the greater depth has."""
    inner = Choice(convolutions(a=1, b=3), name="inner")
    outer = Choice({"inner": inner, "skip": nn.Identity()}, name="outer")
    body = Repeat(lambda number: Choice(convolutions(a=1, b=3), name=f"block{number}"), (1, 2), name="depth")
    return nn.Sequential(nn.Conv2d(in_channels, 8, 3), outer, body, *head(8, num_classes))


def test_the_decisions_are_those_of_the_model():
    space = get_space(OWN)
    assert {decision.name: decision.choices for decision in space.decisions} == {
        "width": ("16", "24", "32"),
        "depth": ("1", "2", "3", "4"),
        **{f"block{number}": ("conv3", "conv5", "skip") for number in range(4)},
    }
    assert space.size == 3 * 4 * 3**4 == sum(1 for _ in space.enumerate())
    text = "width=24|depth=2|block0=conv3|block1=skip|block2=conv3|block3=conv3"
    unused = text.replace("block2=conv3", "block2=conv5")  # at depth 2
    assert space.encode(space.decode(text)) == space.encode(space.decode(unused)) == text
    assert get_space(OWN) == space and pickle.loads(pickle.dumps(space.decisions)) == space.decisions


def test_choices_that_an_architecture_does_not_use_have_no_effect():
    space = ModelSpace(nested)
    assert [decision.name for decision in space.decisions] == ["outer", "inner", "depth", "block0", "block1"]
    decoded = space.decode("outer=skip|inner=b|depth=1|block0=b|block1=b")
    assert space.encode(space.canonical(decoded)) == "outer=skip|inner=a|depth=1|block0=b|block1=a"
    assert len({space.canonical(architecture) for architecture in space.enumerate()}) == 3 * (2 + 4)
    assert space.condition("inner") == ("outer", ("inner",)) and space.condition("block1") == ("depth", ("2",))
    assert space.condition("outer") is None and space.condition("block0") is None


def repeated(in_channels, num_classes):
    """A decision that is used with each of two alternatives, one of which comes later."""
    first = Choice({"inner": Choice(convolutions(a=1, b=3), name="inner"), "skip": nn.Identity()}, name="first")
    inner = Repeat(lambda number: Choice(convolutions(a=1, b=3), name="inner"), (0, 2), name="depth")
    second = Choice({"skip": nn.Identity(), "inner": inner}, name="second")
    width = Width([4, 6, 8], name="width")
    return nn.Sequential(nn.Conv2d(in_channels, 8, 3), first, second, nn.Conv2d(8, width, 1), *head(width, num_classes))


@pytest.mark.parametrize(
    ("space", "number"),
    [
        (ModelSpace(nested), 3 * (2 + 4)),
        (ModelSpace(repeated), 3 * (2 + 2 * 3 + 1 + (1 + 2 + 2))),
        (get_space(OWN), 3 * sum(3**depth for depth in range(1, 5))),
        (ModelSpace(nested, constraint=lambda chosen: chosen["inner"] == "b"), 2 * (2 + 4)),
    ],
)
def test_every_canonical_form_is_listed_once_in_the_order_of_the_space(space, number):
    forms = space.canonical_forms()
    assert len(forms) == number and list(forms) == Space.canonical_forms(space)


def test_a_constraint_of_the_user_bounds_the_space():
    space = ModelSpace(nested, constraint=lambda chosen: chosen["outer"] == "skip" or chosen["depth"] == "1")
    rng = np.random.default_rng(0)
    assert space.size == 32 - 8 == sum(1 for _ in space.enumerate())
    architecture = space.sample(rng)
    for _ in range(50):
        architecture = space.mutate(architecture, rng)
        assert architecture[0] == "skip" or architecture[2] == "1"
    assert set(space.mutations(architecture)) < set(space.enumerate())
    forbidden = ("inner", "a", "2", "a", "a")
    with pytest.raises(InvalidArchitecture, match="meets the constraint"):
        space.check(forbidden)
    assert space.nearest(forbidden) == ("skip", "a", "2", "a", "a")
    impossible = ModelSpace(nested, constraint=lambda chosen: False)
    with pytest.raises(InvalidInput, match="Relax the constraint"):
        impossible.sample(rng)


def test_a_constraint_that_fails_raises_an_error():
    for constraint in (lambda chosen: 1 / 0, lambda: True, lambda chosen: np.zeros(2)):
        with pytest.raises(InvalidInput, match=r"'the constraint of .*' failed when archray called it"):
            ModelSpace(nested, constraint=constraint).sample(np.random.default_rng(0))


def test_a_standalone_network_has_neither_choices_nor_other_weights():
    network = build(OWN, "width=16|depth=2|block0=conv5|block1=skip|block2=conv3|block3=conv3", **OPTIONS)
    types = {type(module).__module__.partition(".")[0] for module in network.modules()}
    assert types == {"torch", type(network[1][0]).__module__.partition(".")[0]}  # of the user's file
    assert [tuple(parameter.shape) for parameter in network.parameters()] == [
        (16, 1, 3, 3), (16,), (16, 16, 5, 5), (16,), (16,), (10, 16), (10,),
    ]  # fmt: skip
    assert type(network[0].out_channels) is int and network[1][0].norm.running_mean.shape == (16,)
    program = torch.export.export(network.eval(), (torch.zeros(2, 1, 8, 8),))
    assert program.module()(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


OPTIONS = {"network": NetworkSettings(), **SHAPE, "seed": 0}


def test_the_scoring_form_uses_the_statistics_of_the_batch():
    text = "width=16|depth=1|block0=conv3|block1=skip|block2=conv3|block3=conv3"
    assert build(OWN, text, **OPTIONS, for_scoring=True)[1][0].norm.running_mean is None


def test_modules_of_one_name_are_one_decision():
    def cells(in_channels, num_classes):
        layers = [Choice(convolutions(a=1, b=3), name="cell") for _ in range(3)]
        return nn.Sequential(nn.Conv2d(in_channels, 8, 3), *layers, *head(8, num_classes))

    space = ModelSpace(cells)
    assert space.size == 2
    network = space.build(("b",), **SHAPE)
    assert [layer.kernel_size for layer in network[1:4]] == [(3, 3)] * 3


def test_the_default_network_is_computed_outside_a_supernet():
    torch.manual_seed(0)
    model, x = ModelSpace(nested).unresolved(**SHAPE), torch.randn(2, 1, 8, 8)
    default = ("inner", "a", "2", "a", "a")
    expected = ModelSpace(nested).build(default, **SHAPE)
    expected.load_state_dict(standalone_state(model, ModelSpace(nested).chosen(default)))
    torch.testing.assert_close(model(x), expected(x))


# Widths


def test_a_width_is_an_integer_with_the_structure_of_its_channels():
    heads, width = Width([1, 2, 3], name="heads"), Width([2, 4], name="width")
    assert heads == 3 and isinstance(heads, int) and nn.Linear(4, heads).out_features is heads
    chosen = {"heads": 2, "width": 2}
    assert (heads * 2).indices(chosen) == [0, 1, 2, 3] and int(heads * 2) == 6
    assert (3 * width).indices(chosen) == [0, 1, 4, 5, 8, 9] and int(3 * width) == 12
    assert (2 * (heads * 2)).indices(chosen) == [0, 1, 2, 3, 6, 7, 8, 9]
    assert (width + heads).indices(chosen) == [0, 1, 4, 5] and (1 + width).indices(chosen) == [0, 1, 2]
    assert (width // 2).indices(chosen) == [0] and width // 1 is width
    assert (heads * width).size({"heads": 2, "width": 4}) == 8 and set((heads * width).decisions) == {"heads", "width"}
    for copied in (copy.deepcopy(3 * width), pickle.loads(pickle.dumps(3 * width))):
        assert copied == 12 and copied.indices(chosen) == [0, 1, 4, 5, 8, 9]


# Errors


def model_of(*layers, channels=8):
    def network(in_channels, num_classes):
        return nn.Sequential(nn.Conv2d(in_channels, channels, 3), *layers, *head(channels, num_classes))

    return network


def block(number):
    return nn.Conv2d(8, 8, 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Choice({"a": nn.Identity()}, name="one"), r"Choice 'one': Expected two or more choices, got a"),
        (
            lambda: Choice({"a": nn.Identity(), "b": 3}, name="c"),
            r"Choice 'c': Expected a torch.nn.Module for 'b', got int",
        ),
        (
            lambda: Choice({"a": nn.Identity(), "x.y": nn.ReLU()}, name="c"),
            r"Choice 'c': Expected a label .* got 'x\.y'",
        ),
        (
            lambda: Choice({"a": nn.Identity(), "keys": nn.ReLU()}, name="c"),
            r"Choice 'c': Expected a label .* got 'keys'",
        ),
        (lambda: Choice({"a": nn.Identity(), "b": nn.ReLU()}, name="x=y"), r"Expected a name without '=' .* 'x=y'"),
        (
            lambda: Repeat(lambda number: nn.ReLU(), (2, 2), name="depth"),
            r"Repeat 'depth': .* low < high <= 10000, got \(2, 2\)",
        ),
        (
            lambda: Edges([nn.ReLU()] * 2, k=2, name="node"),
            r"Edges 'node': Expected an integer k between 1 and 1 for 2 inputs, .* got 2",
        ),
        (lambda: Choice([nn.Identity(), nn.ReLU()], name="c"), r"Choice 'c': Expected a dictionary .* got list"),
        (lambda: Choice({1: nn.Identity(), 2: nn.ReLU()}, name="c"), r"Choice 'c': Expected a label .* got 1"),
        (lambda: Choice({"": nn.Identity(), "b": nn.ReLU()}, name="c"), r"Choice 'c': Expected a label .* got ''"),
        (lambda: Choice({"a": nn.Identity(), "b": nn.ReLU()}, name=3), r"Expected a name without '=' .* got 3"),
        (lambda: Choice({"a": block, "b": block}, name="c", channels="8"), r"Choice 'c': .* for 'a', got function"),
        *(
            (lambda depths=depths: Repeat(block, depths, name="d"), rf"Repeat 'd': .*, got {re.escape(repr(depths))}\.")
            for depths in [(1, 2, 3), (1, 2.5), 3, ("1", "2"), (0, 0), (-1, 2), (1, 10**12), None]
        ),
        (
            lambda: Repeat(lambda number: None, (1, 3), name="d"),
            r"Repeat 'd': .* returns a torch.nn.Module, got a function that returns NoneType\. ",
        ),
        (lambda: Repeat([nn.ReLU()], (1, 3), name="d"), r"Repeat 'd': .* returns a torch.nn.Module, got list"),
        (lambda: Repeat(nn.Conv2d(8, 8, 1), (1, 3), name="d"), r"Repeat 'd': Expected a function .*, got Conv2d\. "),
        *(
            (lambda k=k: Edges([nn.ReLU()] * 3, k=k, name="node"), rf"Edges 'node': .* got {re.escape(repr(k))}\.")
            for k in [3, 0, 1.5, "1", None]
        ),
        (lambda: Edges([nn.ReLU()] * 50, k=25, name="node"), r"Edges 'node': .* up to 10000 combinations"),
        (lambda: Edges(3, k=1, name="node"), r"Edges 'node': Expected a list .* got int"),
        (
            lambda: Edges([nn.ReLU(), None, nn.ReLU()], k=1, name="node"),
            r"Edges 'node': Expected a list .* got NoneType",
        ),
        *(
            (lambda sizes=sizes: Width(sizes, name="w"), rf"Width 'w': Expected two .* got {re.escape(repr(sizes))}\.")
            for sizes in [[4, 8.5], ["4", "8"], 8, None, [], [4, 4]]
        ),
        (lambda: Width([4, 8], name=None), r"Expected a name without '=' .* for Width, got None"),
        (lambda: Width([4, 10**12], name="w"), r"Width 'w': Expected between 1 and .* got 1,000,000,000,000"),
        (lambda: Width([4, 10**5], name="v") * Width([4, 10**5], name="w"), r"Width 'v', 'w': .* got 10,000,000,000"),
        (lambda: Width([4, 8], name="w") * -1, r"Width 'w': Expected between 1 and .* got -8"),
        (lambda: Width([8], name="w"), r"Width 'w': Expected two or more distinct positive integers, got \[8\]"),
        (lambda: Width([8, 0], name="w"), r"Width 'w': .* got \[8, 0\]"),
        (lambda: Width([8, 4], name="w") + Width([8, 2], name="w"), r"Width 'w': Expected one list of sizes"),
    ],
)
def test_an_inconsistent_choice_raises_an_error_that_names_it(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


SHARED = Choice({"a": nn.ReLU(), "b": nn.Identity()}, name="shared")
W = Width([4, 8], name="w")


def resized(layer, **sizes):
    for attribute, size in sizes.items():
        setattr(layer, attribute, size)
    return layer


class Scale(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size, self.gain = size, nn.Parameter(torch.ones(int(size), 1, 1))

    def forward(self, x):
        return x * self.gain


def tied(in_channels, num_classes):
    first, second = nn.Conv2d(in_channels, W, 3), nn.ModuleList([nn.Conv2d(W, W, 1), nn.Conv2d(W, W, 1)])
    second[1].weight = second[0].weight
    return nn.Sequential(first, *second, *head(W, num_classes))


def tied_to_a_fixed_layer(in_channels, num_classes):
    fixed = nn.Conv2d(8, 8, 1)
    return nn.Sequential(nn.Conv2d(in_channels, 8, 3), fixed, resized(tie(nn.Conv2d(8, 8, 1), fixed), out_channels=W))


def tie(layer, other):
    layer.weight = other.weight
    return layer


def hooked():
    with pytest.warns(FutureWarning):
        return nn.utils.weight_norm(nn.Conv2d(8, W, 1))


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (
            tied,
            r"Width 'w': .* a weight of its own in Conv2d \(1\), got one parameter for 1\.weight, 2\.weight\. ",
        ),
        (tied_to_a_fixed_layer, r"Width 'w': .* in Conv2d \(2\), got one parameter for 1\.weight, 2\.weight\. "),
        *(
            (model_of(make()), r"Width 'w': Expected a parameter as weight of .*Conv2d \(1\), got one that is computed")
            for make in (
                lambda: parametrizations.weight_norm(nn.Conv2d(8, W, 1)),
                lambda: parametrizations.spectral_norm(nn.Conv2d(8, W, 1)),
                hooked,
                lambda: nn.utils.spectral_norm(nn.Conv2d(8, W, 1)),
            )
        ),
        (
            model_of(nn.LazyConv2d(8, 3)),
            r"Expected parameters of fixed shapes from .*, got those of LazyConv2d \(1\)\. Specify",
        ),
        (model_of(nn.Conv2d(8, 8, 3), nn.LazyBatchNorm2d()), r"got those of LazyBatchNorm2d \(2\)"),
        (model_of(nn.ReLU()), "Expected a model with choices .* got Sequential without any"),
        (model_of(SHARED, SHARED), r"Choice 'shared': Expected one place for each choice object, got 1 and 2"),
        (
            model_of(Choice(convolutions(a=1, b=3), name="c"), Choice(convolutions(a=1, d=3), name="c")),
            r"Choice 'c': Expected the same choices .* a, b, and Choice with a, d",
        ),
        (
            model_of(Choice(convolutions(a=1, b=3), name="w"), nn.Conv2d(8, W, 1)),
            "Width 'w': Expected the same choices",
        ),
        (model_of(Scale(W)), r"Width 'w': Expected layers of torch.nn .* got Scale \(1\) with its own tensors gain"),
        (model_of(resized(nn.Conv2d(8, 8, 1, groups=2), out_channels=W)), r"Width 'w': Expected groups 1, .* got 2"),
        (model_of(resized(nn.Conv2d(8, 6, 1), out_channels=W)), r"Width 'w': Expected the largest size, 8, .* got 6"),
        (nn.Sequential(nn.Conv2d(3, W, 1)), "Expected a function of in_channels and num_classes .* got Sequential"),
        (lambda in_channels: None, r"Expected a function .*\(in_channels, num_classes\)"),
        (lambda in_channels, num_classes, depth: None, r"got the parameters \(in_channels, num_classes, depth\)"),
        (lambda in_channels, num_classes: 3, "Expected a torch.nn.Module from .* got int"),
    ],
)
def test_an_inconsistent_model_raises_an_error_that_names_the_choice(network, message):
    with pytest.raises(InvalidInput, match=message):
        ModelSpace(network)


class Pair(nn.Module):
    def forward(self, x):
        return x, x


class Wrong(nn.Module):
    def __init__(self):
        super().__init__()
        self.node = Edges([nn.ReLU() for _ in range(3)], k=2, name="node")

    def forward(self, x):
        return self.node(x)


class Hidden(nn.Module):
    def __init__(self):
        super().__init__()
        self.choice = Choice(convolutions(a=1, b=3), name="hidden")

    def forward(self, x):
        return self.choice(x) if x.mean() > 1e6 else x


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (
            model_of(Choice({"a": nn.Conv2d(8, 8, 1), "b": nn.Conv2d(8, 8, 1, 2)}, name="c")),
            r"Choice 'c': Expected outputs of one shape, got \(2, 8, 6, 6\) from a, \(2, 8, 3, 3\) from b",
        ),
        (
            model_of(Repeat(lambda number: nn.MaxPool2d(2), (1, 2), name="depth")),
            r"Repeat 'depth': Expected outputs of one shape, got \(2, 8, 6, 6\) from depth 0",
        ),
        (
            model_of(Choice({"a": Pair(), "b": Pair()}, name="c")),
            r"Choice 'c': Expected one tensor .* got a: tuple, b: tuple",
        ),
        (model_of(Wrong()), r"Edges 'node': Expected 3 inputs, one for each edge, got Tensor"),
        (model_of(Hidden()), r"Choice 'hidden' \(1.choice\): Expected every forward pass to reach the choice"),
        (
            model_of(Choice(convolutions(a=1, b=3), name="c"), channels=4),
            "'the model of .*' failed .* to have 8 channels",
        ),
    ],
)
def test_unequal_shapes_and_hidden_choices_raise_an_error_before_a_run(network, message):
    data = load_images(DataSettings(name="digits", limit=20), device=torch.device("cpu"))
    with pytest.raises(InvalidInput, match=message):
        check_build(ModelSpace(network), NetworkSettings(), data, 0)


class Product(nn.Module):
    """Widths of two layers, whose outputs are multiplied, and a size that is read from a width."""

    def __init__(self, first, second, size):
        super().__init__()
        self.first, self.second = nn.Conv2d(8, first, 1), nn.Conv2d(8, second, 1)
        self.gain = nn.Parameter(torch.ones(int(size), 1, 1))

    def forward(self, x):
        return self.first(x) * self.second(x) * self.gain


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (lambda: [nn.Conv2d(8, W, 1)], r"^Linear \(4\): 'the network w=4 of .*' failed .*: RuntimeError: "),
        (
            lambda: [Product(W, Width([4, 8], name="v"), 1), nn.Conv2d(W, 8, 1)],
            r"^Product \(1\): 'the network w=4\|v=8 of ",
        ),
        (lambda: [nn.Sequential(Product(W, W, W)), nn.Conv2d(W, 8, 1)], r"^Product \(1\.0\): 'the network w=4 of "),
        (
            lambda: [nn.Conv2d(8, W, 1), nn.Unflatten(1, (int(W), 1)), nn.Flatten(1, 2)],
            r"^Unflatten \(2\): 'the network w=4 ",
        ),
    ],
)
def test_a_network_that_cannot_run_raises_an_error_that_names_the_module(layers, message):
    space = ModelSpace(lambda in_channels, num_classes: model_of(*layers())(in_channels, num_classes))
    images = {"image_size": 8, **SHAPE}
    space.check_model(torch.randn(2, 1, 8, 8), num_classes=10)  # with the largest widths
    assert not check_network(space, space.extremes[1], NetworkSettings(), seed=0, **images).training
    architecture = ("4", "8")[: len(space.decisions)]
    with pytest.raises(InvalidArchitecture, match=message):
        check_network(space, architecture, NetworkSettings(), seed=0, **images)


class Changed(nn.Module):
    """Changes the logits of a model."""

    def __init__(self, change, requires_grad=True):
        super().__init__()
        self.body = model_of(Choice(convolutions(a=1, b=3), name="c"))(**SHAPE).requires_grad_(requires_grad)
        self.change = change

    def forward(self, x):
        return self.change(self, self.body(x))


class Unlearning(nn.Module):
    """Has no parameters."""

    def __init__(self):
        super().__init__()
        self.choice = Choice({"a": nn.ReLU(), "b": nn.Tanh()}, name="c")

    def forward(self, x):
        return self.choice(x).flatten(1)[:, :10]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: Changed(lambda self, x: x.detach()), "a gradient for none of 6 parameters"),
        (lambda: Changed(lambda self, x: (x > 0).float()), "a gradient for none of 6 parameters"),
        (lambda: Changed(lambda self, x: x * math.nan), "finite logits .*, got NaN or infinity in 20 of 20"),
        (lambda: Changed(lambda self, x: x / (not self.training)), "finite logits .*, got NaN or infinity in 20 of 20"),
        (lambda: Changed(lambda self, x: x[:, :9] if self.training else x), r"got the shape \(2, 9\)"),
        (lambda: Changed(lambda self, x: x, requires_grad=False), "trainable .*, got 6 with requires_grad=False"),
        (Unlearning, "expected trainable parameters .*, got none"),
    ],
)
def test_networks_that_cannot_learn_raise_an_error_before_a_run(model, message):
    data = load_images(DataSettings(name="digits", limit=20), device=torch.device("cpu"))
    with pytest.raises(InvalidArchitecture, match=message):
        check_build(ModelSpace(lambda in_channels, num_classes: model()), NetworkSettings(), data, 0)


def test_networks_that_leave_a_parameter_unused_or_fixed_can_learn():
    def network(in_channels, num_classes):
        model = Changed(lambda self, x: x)
        model.unused = nn.Linear(8, 8)
        model.body[0].requires_grad_(False)
        return model

    check_network(ModelSpace(network), ("a",), NetworkSettings(), seed=0, image_size=8, **SHAPE)


def test_one_network_of_a_model_that_cannot_run_raises_an_error_before_a_run():
    data = load_images(DataSettings(name="digits", limit=20), device=torch.device("cpu"))

    def network(in_channels, num_classes):
        return model_of(nn.Conv2d(8, Width([4, 6, 8], name="w"), 1))(in_channels, num_classes)

    with pytest.raises(InvalidArchitecture, match=r"'the network w=4 of .*' failed"):
        check_build(ModelSpace(network), NetworkSettings(), data, 0)
    check_build(ModelSpace(network, constraint=lambda chosen: chosen["w"] == "8"), NetworkSettings(), data, 0)


def test_networks_larger_than_the_memory_raise_an_error_before_a_run():
    data = load_images(DataSettings(name="digits", limit=20), device=torch.device("cpu"))
    with pytest.raises(InvalidInput, match=r"fit in memory, got network\.channels 1000000 .*Lower the sizes"):
        check_build(get_space("nasbench201"), NetworkSettings(channels=10**6), data, 0)


def test_choices_that_change_between_calls_raise_an_error():
    names, sizes = iter("abc"), iter([2, 3, 4, 2])

    def renamed(in_channels, num_classes):
        return model_of(Choice(convolutions(a=1, b=3), name=next(names)))(in_channels, num_classes)

    def resized(in_channels, num_classes):
        kernels = {str(number): 1 for number in range(next(sizes))}
        return model_of(Choice(convolutions(**kernels), name="c"))(in_channels, num_classes)

    for space, message in (
        (ModelSpace(renamed), r"same choices .* got 'a' with a, b and then nowhere"),
        (ModelSpace(resized), r"same choices .* got 'c' with 0, 1 and then with 0, 1, 2\. "),
    ):
        with pytest.raises(InvalidInput, match=message):
            space.check_model(torch.randn(2, 1, 8, 8), num_classes=10)
        with pytest.raises(InvalidInput, match="same choices"):
            space.build(space.extremes[0], **SHAPE)
        with pytest.raises(InvalidInput, match="same choices"):
            ModelSpace(model_with_channels).unresolved(**SHAPE, channels=8)


def model_with_channels(in_channels, num_classes, channels=4):
    width = Width([channels, 2 * channels], name="w")
    return nn.Sequential(nn.Conv2d(in_channels, width, 1), *head(width, num_classes))


def test_a_reference_that_is_no_space_raises_an_error():
    with pytest.raises(InvalidInput, match="Expected a function of a model with choices"):
        get_space("string:digits")


# Inherited weights


def residual(in_channels, num_classes, choices=True):
    layers = {"conv": nn.Conv2d(8, 8, 3, padding=1), "skip": nn.Identity()}
    middle = Choice(layers, name="middle") if choices else layers["conv"]
    body = Repeat(lambda number: nn.Conv2d(8, 8, 1), (1, 2), name="depth")
    plain = nn.Sequential(nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1))
    return nn.Sequential(nn.Conv2d(in_channels, 8, 3), middle, body if choices else plain, *head(8, num_classes))


@pytest.mark.parametrize("choices", [True, False])
def test_networks_and_supernets_inherit_weights_by_name(choices, tmp_path):
    """The file has the names of the model with choices, or of the model before choices were added."""
    torch.manual_seed(1)
    saved = residual(**SHAPE, choices=choices).state_dict()
    torch.save({"state_dict": saved}, tmp_path / "w.pt")
    space, network = ModelSpace(residual), NetworkSettings(weights=str(tmp_path / "w.pt"))
    plain = {name.replace("alternatives.conv.", "").replace("blocks.", ""): w for name, w in saved.items()}
    architecture = ("conv", "2")
    built = build(space, architecture, network=network, **SHAPE, seed=0).state_dict()
    supernets = (build_supernet(space, network, **SHAPE, seed=0), build_sliced(space, network, **SHAPE, seed=0))
    for state in (built, supernets[0].weights_of(architecture, built), supernets[1].weights_of(architecture)):
        assert set(state) == set(plain) and all(torch.equal(state[name], plain[name]) for name in plain)


def test_tensors_of_other_shapes_are_not_inherited(tmp_path, caplog):
    model, names = residual(in_channels=1, num_classes=7), residual(**SHAPE).state_dict().keys()
    torch.save(model.state_dict(), tmp_path / "w.pt")
    assert inherit(residual(**SHAPE), f"{tmp_path}/w.pt") == (len(names) - 2, len(names))
    network = build(
        ModelSpace(residual), ("conv", "1"), **OPTIONS | {"network": NetworkSettings(weights=f"{tmp_path}/w.pt")}
    )
    assert network[-1].out_features == 10
    assert "not inherited: 5.weight, 5.bias" in caplog.text


def test_weights_that_do_not_fit_raise_an_error(tmp_path):
    torch.save({"other": torch.zeros(3)}, tmp_path / "w.pt")
    options = OPTIONS | {"network": NetworkSettings(weights=f"{tmp_path}/w.pt")}
    with pytest.raises(InvalidInput, match=r"Expected tensors in .*w\.pt with the names and shapes of the model"):
        build(ModelSpace(residual), ("conv", "1"), **options)
    with pytest.raises(InvalidInput, match="expected no weights, as the space nasbench201 is not read from a model"):
        build("nasbench201", ("none",) * 6, **options)
    with pytest.raises(InvalidInput, match="expected no weights, as the space nasbench201 is not read from a model"):
        build_supernet("nasbench201", options["network"], **SHAPE, seed=0)
    options["network"] = NetworkSettings(weights="missing.pt")
    with pytest.raises(InvalidInput, match=r"Expected a file of torch.save as network.weights, got missing\.pt"):
        build(ModelSpace(residual), ("conv", "1"), **options)
    for content in (residual(**SHAPE), {"state_dict": residual(**SHAPE)}, [torch.zeros(3)]):
        torch.save(content, tmp_path / "w.pt")
        with pytest.raises(InvalidInput, match=r"a state dict as network\.weights, .*torch\.save\(model\.state_dict"):
            inherit(residual(**SHAPE), f"{tmp_path}/w.pt")
    with pytest.raises(ValueError, match="expected init pytorch-default with weights"):
        NetworkSettings(weights="w.pt", init="he")


def test_a_search_and_its_supernet_inherit_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for method, part in (("gaea-darts", "supernet"), ("nasi", "nasi"), ("random", None), ("sliced-supernet", None)):
        config = make_config(method, None, None, {"space": OWN, "weights": "w.pt"})
        networks = [config.network, *([getattr(config, part).network] if part else [])]
        assert [network.weights for network in networks] == [str(tmp_path / "w.pt")] * len(networks)
