"""From an architecture to a standalone network, of archray's spaces and the user's own; what a network costs."""

import inspect
import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parameter import UninitializedParameter
from torch.utils.flop_counter import FlopCounterMode

from archray.errors import InvalidArchitecture, InvalidInput
from archray.references import call_reference
from archray.registry import import_modules
from archray.trainables.data.dataset import Dataset
from archray.trainables.devices import own_randomness
from archray.trainables.nets.network_settings import Initialisation, NetworkSettings
from archray.trainables.nets.registry import NETWORKS, SpaceNetwork
from archray.trainables.spaces import Architecture, Space, TableSpace, get_space

CHECKED = 5  # architectures of a user's space that archray builds before a run starts

import_modules("archray.trainables.nets")  # they register their networks


def build(
    space: Space | str,
    architecture: Architecture | str,
    *,
    network: NetworkSettings,
    in_channels: int,
    num_classes: int,
    seed: int | None,
    for_scoring: bool = False,
) -> nn.Module:
    """The standalone network of `architecture`, in train mode, on the CPU.

    Args:
        space: a space, its name or a reference. A user's space with a method `build` builds its network itself:
            `build(architecture, *, in_channels, num_classes)`, with `channels`, `cells`, `stem`, `auxiliary` and
            `normalisation` if its signature has them.
        architecture: choices, the space's string for them, or the name of a published one.
        network: width, depth, stem, auxiliary tower, initialisation, normalisation. An initialisation other than
            `pytorch-default` is also applied to the network of a user's space.
        seed: of the initial weights; torch's global generator is restored. None draws from the global generator.
        for_scoring: the form for training-free metrics (note P5) where `network.normalisation` is `auto`; without the
            auxiliary tower.

    Raises: InvalidArchitecture; InvalidInput if the space's network has no such stem or no auxiliary tower, or a
    user's `build` returns no module; UnknownName if a space has neither a `build` nor a registered network.
    """
    space = get_space(space)
    if isinstance(architecture, str):
        architecture = space.decode(space.named.get(architecture, architecture))
    choices = tuple(architecture)
    space.check(choices)
    if isinstance(space, TableSpace) and space.base is not None:  # which has the table's architectures
        space = space.base
    user_build = getattr(space, "build", None)
    builder = user_build or NETWORKS.get(space.name)
    options = network_options(space, builder, network, for_scoring=for_scoring)
    options |= {"in_channels": in_channels, "num_classes": num_classes}
    with nullcontext() if seed is None else own_randomness(seed):  # weights are drawn on the CPU
        if user_build is None:
            module = builder(space, choices, **options)
        else:  # an error is a failed result, which a retry cannot cure
            name = f"{type(space).__name__}.build"
            module = call_reference(name, builder, choices, **options, raises=InvalidArchitecture)
        if not isinstance(module, nn.Module):
            raise InvalidArchitecture(
                f"expected the build method of space {space.name!r} to return a torch.nn.Module, "
                f"got {type(module).__name__}"
            )
        initialise(module, network.init)
    return module.train()


def check_build(space: Space, network: NetworkSettings, dataset: Dataset, seed: int) -> None:
    """Builds networks of a user's space until the forward pass of one succeeds on two black images.

    Some architectures of a space may be invalid; they fail in their trials.

    Args:
        seed: of the architectures, which are sampled, and of their weights.

    Raises: InvalidArchitecture, of the first of `CHECKED` sampled architectures, if all fail.
    """
    rng, errors = np.random.default_rng(seed), []
    for _ in range(CHECKED):
        try:
            _check_network(space, space.sample(rng), network, dataset, seed)
            return
        except InvalidArchitecture as error:
            errors.append(error)
    raise errors[0]


def _check_network(
    space: Space, architecture: Architecture, network: NetworkSettings, dataset: Dataset, seed: int
) -> None:
    channels, classes = dataset.in_channels, dataset.num_classes
    module = build(space, architecture, network=network, in_channels=channels, num_classes=classes, seed=seed).eval()
    name = f"the network of {type(space).__name__}.build for {space.encode(architecture)}"
    if any(isinstance(parameter, UninitializedParameter) for parameter in module.parameters()):
        raise InvalidArchitecture(
            f"expected {name} to have parameters of fixed shapes, got those of a lazy layer such as nn.LazyLinear; "
            "give the number of its inputs"
        )
    images = torch.zeros(2, channels, dataset.image_size, dataset.image_size)
    with torch.no_grad():
        logits = call_reference(name, module, images, raises=InvalidArchitecture)
    if not isinstance(logits, torch.Tensor) or logits.shape != (2, classes):
        got = f"the shape {tuple(logits.shape)}" if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise InvalidArchitecture(
            f"expected {name} to turn images of the shape {tuple(images.shape)} into logits of the shape "
            f"(2, {classes}), got {got}; correct its forward method"
        )


def network_options(
    space: Space, builder: Callable[..., nn.Module], network: NetworkSettings, *, for_scoring: bool = False
) -> dict[str, Any]:
    """The settings that a builder of the space's networks takes by name: width, depth, form.

    Raises: InvalidInput for a stem or an auxiliary tower that it does not take.
    """
    normalisation = network.normalisation
    if normalisation == "auto":
        normalisation = "scoring" if for_scoring else "training"
    options = {
        "channels": network.channels,
        "cells": network.cells,
        "stem": network.stem,
        "auxiliary": network.auxiliary and not for_scoring,
        "normalisation": normalisation,
    }
    parameters = inspect.signature(builder.network if isinstance(builder, SpaceNetwork) else builder).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        options = {name: value for name, value in options.items() if name in parameters}
    if network.auxiliary and "auxiliary" not in options:
        raise InvalidInput(
            f"expected auxiliary false, as networks of the space {space.name} have no auxiliary tower, got true; "
            "set network.auxiliary to false"
        )
    if network.stem != "cifar" and "stem" not in options:
        raise InvalidInput(
            f"expected the stem cifar, as networks of the space {space.name} have no other, got {network.stem}; "
            "set network.stem to cifar"
        )
    return options


@torch.no_grad()
def initialise(network: nn.Module, init: Initialisation) -> None:
    """Draws the weights of all convolutions and linear layers again, in place, from torch's global generator.

    The initialisations of thesis Table 7.9 (note P5): with `fan_in`, `fan_out` the inputs and outputs of one unit
    (kernel included), weights are normal with variance

    - `lecun-normal`: 1 / fan_in,
    - `xavier`: 2 / (fan_in + fan_out) (Glorot and Bengio 2010),
    - `he`: 2 / fan_in (He et al. 2015),

    and biases are zero. `pytorch-default` changes nothing, and normalisation layers are not changed.
    """
    if init == "pytorch-default":
        return
    for layer in network.modules():
        if not isinstance(layer, nn.Conv2d | nn.Linear):
            continue
        if init == "lecun-normal":
            fan_in = layer.weight[0].numel()
            layer.weight.normal_(0.0, math.sqrt(1.0 / fan_in))
        elif init == "xavier":
            nn.init.xavier_normal_(layer.weight)
        else:  # he
            nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity="relu")
        if layer.bias is not None:
            layer.bias.zero_()


def count_parameters(network: nn.Module) -> int:
    """Trainable numbers in the network, without its auxiliary tower (`network.auxiliary`), as papers count.

    Cells have parameters on live edges only (see `nasbench201_network.Cell`).
    """
    tower = getattr(network, "auxiliary", None)
    left_out = set() if tower is None else set(tower.parameters())
    return sum(
        parameter.numel() for parameter in network.parameters() if parameter.requires_grad and parameter not in left_out
    )


@torch.no_grad()
def count_multiply_adds(network: nn.Module, image_shape: tuple[int, int, int]) -> int:
    """Multiply-adds of the forward pass of one image (C, H, W) in evaluation mode; NAS papers call them FLOPs.

    Convolutions and matrix products count; normalisation, pooling, activations, sums and the auxiliary tower do not.
    The network's mode is restored.
    """
    training = network.training
    network.eval()
    try:
        reference = next(network.parameters())
        # Two images: where normalisation has no running statistics (scoring form) one alone cannot pass 1 x 1 maps.
        images = torch.zeros(2, *image_shape, device=reference.device, dtype=reference.dtype)
        # Attention as matrix products: before 2.14 torch does not count its fused kernel for CPUs.
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            network(images)
    finally:
        network.train(training)
    flops = counter.get_total_flops()  # a multiply-add is two
    return flops // 2 // len(images)
