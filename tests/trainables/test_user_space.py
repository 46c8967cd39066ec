"""A user's space with a network, by reference, through get_space and build."""

import pytest
import torch

import archray
from archray.errors import InvalidArchitecture, UnknownName
from archray.trainables.data import DataSettings, load_images
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.nets.build_network import check_build
from archray.trainables.spaces import get_space

FILE = """
from torch import nn

from archray.trainables.spaces import Decision, Space


class Perceptron(Space):
    name = "perceptron"
    decisions = (Decision("activation", ("relu", "tanh")), Decision("depth", ("1", "2")))

    def build(self, architecture, *, in_channels, num_classes{extra}):
        activation, depth = architecture
        layers, width = [], 4 * in_channels
        for _ in range(int(depth)):
            layers += [nn.Linear(width, {width}), dict(relu=nn.ReLU, tanh=nn.Tanh)[activation]()]
            width = {width}
        return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), *layers, nn.Linear(width, num_classes))


class Leaving(Perceptron):
    def build(self, architecture, *, in_channels, num_classes):
        raise SystemExit(3)


class Broken(Perceptron):
    name = "broken"

    def build(self, architecture, *, in_channels, num_classes):
        return "no module"


class Lazy(Perceptron):
    def build(self, architecture, *, in_channels, num_classes):
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes))


class Mismatched(Perceptron):
    def build(self, architecture, *, in_channels, num_classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(5, num_classes))


class Narrow(Perceptron):
    def build(self, architecture, *, in_channels, num_classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))


class ReluOnly(Perceptron):
    def build(self, architecture, *, in_channels, num_classes):
        if architecture[0] == "tanh":
            raise ValueError("no tanh")
        return super().build(architecture, in_channels=in_channels, num_classes=num_classes)


class Unbuilt(Space):
    name = "unbuilt"
    decisions = Perceptron.decisions
"""


def write(folder, *, extra="", width="12"):
    file = folder / "own_space.py"
    file.write_text(FILE.format(extra=extra, width=width))
    return file


def make(reference, architecture="activation=tanh|depth=2", **network):
    return build(reference, architecture, network=NetworkSettings(**network), in_channels=3, num_classes=7, seed=0)


def test_a_users_space_builds_and_trains(tmp_path):
    reference = f"{write(tmp_path)}:Perceptron"
    space = get_space(reference)
    assert space.name == "perceptron"
    assert space.size == 4
    network = make(reference)
    logits = network(torch.randn(5, 3, 8, 8))
    assert logits.shape == (5, 7)
    logits.sum().backward()
    again = make(space, ("tanh", "2"))
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters(), strict=True))


def test_width_is_passed_only_if_it_is_accepted(tmp_path):
    forms = {
        "ignored": ("", "12", 12),
        "taken": (", channels", "channels", 5),
        "everything": (", **options", "(options['channels'] + options['cells'])", 7),
    }
    for name, (extra, width, expected) in forms.items():
        (tmp_path / name).mkdir()
        file = write(tmp_path / name, extra=extra, width=width)
        assert make(f"{file}:Perceptron", channels=5, cells=2)[-1].in_features == expected


def test_initialization_overrides_that_of_the_user(tmp_path):
    reference = f"{write(tmp_path)}:Perceptron"
    assert torch.count_nonzero(make(reference)[-1].bias) > 0
    assert torch.count_nonzero(make(reference, init="he")[-1].bias) == 0


def test_networks_that_cannot_be_built_raise_an_error(tmp_path):
    file = write(tmp_path)
    with pytest.raises(InvalidArchitecture, match=r"space 'broken', got str"):
        make(f"{file}:Broken")
    with pytest.raises(InvalidArchitecture, match=r"'Leaving\.build' failed .*: SystemExit: 3 \(.*, line \d+\)"):
        make(f"{file}:Leaving")
    with pytest.raises(UnknownName, match="unbuilt"):
        make(f"{file}:Unbuilt")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Lazy", r"parameters of fixed shapes .* got parameters of a lazy layer such as nn\.LazyLinear"),
        ("Mismatched", r"Linear \(.*\): 'the network activation=.* of perceptron' failed .*: RuntimeError: "),
        ("Narrow", r"logits of shape \(2, 10\) .*, got the shape \(2, 3\)"),
        ("Leaving", r"'Leaving\.build' failed .*: SystemExit: 3"),
    ],
)
def test_a_space_whose_networks_all_fail_raises_before_the_run(tmp_path, name, message):
    with pytest.raises(InvalidArchitecture, match=message):
        archray.search("random", space=f"{write(tmp_path)}:{name}", data="digits", preset="smoke", out=tmp_path / "run")
    assert not [*(tmp_path / "run").glob("[!.]*")]


def test_a_space_in_which_some_networks_fail_is_accepted(tmp_path):
    space = get_space(f"{write(tmp_path)}:ReluOnly")
    for seed in range(5):
        check_build(space, NetworkSettings(), load_images(DataSettings(name="digits")), seed)
