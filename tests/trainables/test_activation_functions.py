"""The space of activations, and the functions of its choices."""

import math

import pytest
import torch

from archray.errors import InvalidInput
from archray.trainables.activations.two_layer import ACTIVATIONS
from archray.trainables.spaces import Activations, get_space

PLAIN = {  # by their definitions, one number at a time
    "relu": lambda z: max(z, 0.0),
    "leaky-relu": lambda z: z if z > 0 else 0.01 * z,
    "elu": lambda z: z if z > 0 else math.exp(z) - 1,
    "softplus": lambda z: math.log(1 + math.exp(z)),
    "gelu": lambda z: z * (1 + math.erf(z / math.sqrt(2))) / 2,
    "silu": lambda z: z / (1 + math.exp(-z)),
    "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
    "tanh": math.tanh,
    "erf": math.erf,
    "sin": math.sin,
    "cos": math.cos,
    "quadratic": lambda z: z * z,
    "identity": lambda z: z,
}


def test_every_choice_of_the_space_is_a_function_and_vice_versa():
    (decision,) = get_space("activations").decisions
    assert sorted(decision.choices) == ACTIVATIONS.names() == sorted(PLAIN)


def test_an_activation_matches_its_name():
    z = torch.linspace(-3, 3, 13, dtype=torch.float64)
    for name, function in PLAIN.items():
        expected = torch.tensor([function(value) for value in z.tolist()], dtype=torch.float64)
        torch.testing.assert_close(ACTIVATIONS.get(name)(z), expected)
        assert ACTIVATIONS.get(name)(z.reshape(1, 13)).shape == (1, 13)


def test_a_space_of_some_activations():
    space = Activations(("relu", "tanh", "sin"))
    assert space.size == 3 and [space.encode(a) for a in space.enumerate()] == [
        "activation=relu",
        "activation=tanh",
        "activation=sin",
    ]
    assert space != Activations() and space == Activations(("relu", "tanh", "sin"))


@pytest.mark.parametrize("names", [(), ("relu",), ("relu", "relu")])
def test_fewer_than_two_activations_raise_an_error(names):
    with pytest.raises(InvalidInput, match="expected two or more distinct activations, got"):
        Activations(names)
