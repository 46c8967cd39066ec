"""Building of the standalone network of an architecture, for archray's and custom spaces; size of a network."""

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.parameter import UninitializedParameter
from torch.utils.flop_counter import FlopCounterMode

from archray.errors import InvalidArchitecture, InvalidInput, is_out_of_memory
from archray.plurals import count
from archray.references import call_reference
from archray.registry import import_modules
from archray.trainables.data.dataset import Dataset
from archray.trainables.devices import restored_randomness
from archray.trainables.nets.network_settings import Initialisation, NetworkSettings
from archray.trainables.nets.registry import NETWORKS, SpaceNetwork
from archray.trainables.spaces import Architecture, Space, TableSpace, get_space
from archray.trainables.spaces.constrained_space import even_architectures

CHECKED = 5  # architectures of a custom space that archray builds before a run starts

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
    """Builds the standalone network of `architecture`, in train mode, on the CPU.

    Args:
        space: A space, its name or a reference. A custom space with a method `build` builds its network itself:
            `build(architecture, *, in_channels, num_classes)`, with `channels`, `cells`, `stem`, `auxiliary` and
            `normalization` if its signature contains them.
        architecture: Choices, the space's string for them, or the name of a published architecture.
        network: Width, depth, stem, auxiliary classifier, initialization, normalization. An initialization other than
            `pytorch-default` is also applied to the network of a custom space.
        seed: Seed of the initial weights; torch's global generator is restored. None draws from the global generator.
        for_scoring: Whether to use the form for training-free metrics (note P5) if `network.normalization` is `auto`;
            without the auxiliary classifier.

    Returns: The network, images (n, in_channels, H, W) -> logits (n, num_classes).

    Raises: InvalidArchitecture; InvalidInput if the space's network has no such stem or no auxiliary classifier, or a
        custom `build` returns no module; UnknownName if a space has neither a `build` nor a registered network.

    Example:
        >>> from archray.trainables.nets import NetworkSettings, build
        >>> cell = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|nor_conv_1x1~2|"
        >>> settings = NetworkSettings(channels=8, cells=1)
        >>> network = build("nasbench201", cell, network=settings, in_channels=3, num_classes=10, seed=0)
    """
    space = get_space(space)
    if isinstance(architecture, str):
        architecture = space.decode(space.named.get(architecture, architecture))
    choices = tuple(architecture)
    space.check(choices)
    if isinstance(space, TableSpace) and space.base is not None:  # the base contains the table's architectures
        space = space.base
    user_build = getattr(space, "build", None)
    builder = user_build or NETWORKS.get(space.name)
    options = network_options(space, builder, network, for_scoring=for_scoring)
    options |= {"in_channels": in_channels, "num_classes": num_classes}
    with nullcontext() if seed is None else restored_randomness(seed):  # weights are drawn on the CPU
        if user_build is None:
            module = builder(space, choices, **options)
        else:  # an error is a failed result, which a retry cannot fix
            name = f"{type(space).__name__}.build"
            module = call_reference(name, builder, choices, **options, raises=InvalidArchitecture)
        if not isinstance(module, nn.Module):
            raise InvalidArchitecture(
                f"expected a torch.nn.Module from the build method of space {space.name!r}, got {type(module).__name__}"
            )
        initialize(module, network.init)
    correct_average_pools(module)
    return module.train()


def correct_average_pools(network: nn.Module) -> None:
    """Makes the inputs of padded average pools contiguous on a GPU, for torch before 2.14.

    Its CUDA kernel ignores the padding in the gradient of channels-last images, and of those with one channel
    (pytorch/pytorch issue 188344).
    """
    if torch.__version__ < "2.14":
        for module in network.modules():
            if isinstance(module, nn.AvgPool2d) and module.padding not in (0, (0, 0)):
                module.register_forward_pre_hook(_contiguous_on_gpu)


def _contiguous_on_gpu(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    # The strides of one channel may be those of both layouts, of which the kernel takes channels-last.
    return tuple(x.clone(memory_format=torch.contiguous_format) if x.is_cuda else x for x in inputs)


def check_build(space: Space, network: NetworkSettings, dataset: Dataset, seed: int) -> None:
    """Builds networks of a space, and computes their passes on two random images.

    If all architectures of the space are valid, the smallest network, the largest, and `CHECKED` random ones must
    succeed. Otherwise one of the random networks must succeed; invalid architectures fail in their trials.

    Args:
        seed: Seed of the sampled architectures and of their weights.

    Raises: InvalidArchitecture, of the first network that fails; InvalidInput as `check_model`, or if the networks do
        not fit in memory.
    """
    shape = {name: getattr(dataset, name) for name in ("in_channels", "image_size", "num_classes")}
    rng, errors = np.random.default_rng(seed), []
    with fitting_memory(network):
        with restored_randomness(seed):
            images = torch.randn(2, dataset.in_channels, dataset.image_size, dataset.image_size)
            sizes = {"channels": network.channels, "cells": network.cells}
            space.check_model(images, num_classes=dataset.num_classes, **sizes)
        ends = even_architectures(space)[: len(space.extremes)] if space.all_valid else []
        for architecture in dict.fromkeys([*ends, *(space.sample(rng) for _ in range(CHECKED))]):
            try:
                check_network(space, architecture, network, seed=seed, **shape)
            except InvalidArchitecture as error:
                if space.all_valid:
                    raise
                errors.append(error)
            else:
                if not space.all_valid:
                    return
    if errors:
        raise errors[0]


@contextmanager
def fitting_memory(network: NetworkSettings) -> Iterator[None]:
    """Raises: InvalidInput if the networks that the block builds do not fit in memory."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        reason = " ".join(str(error).split())
        raise InvalidInput(
            f"expected networks that fit in memory, got network.channels {network.channels} and network.cells "
            f"{network.cells} ({reason}). Lower the sizes of the networks"
        ) from error


def check_network(
    space: Space,
    architecture: Architecture,
    network: NetworkSettings,
    *,
    in_channels: int,
    image_size: int,
    num_classes: int,
    seed: int,
) -> nn.Module:
    """Builds a network, and computes its passes on two random images. Returns it in evaluation mode.

    Raises: InvalidArchitecture if one of them fails, the logits have another shape than (2, num_classes) or are not
        finite, or no trainable parameter has a gradient.
    """
    shape: dict[str, Any] = {"in_channels": in_channels, "num_classes": num_classes}
    module = build(space, architecture, network=network, **shape, seed=seed)
    name = f"the network {space.encode(architecture)} of {space.name}"
    parameters = list(module.parameters())
    if any(isinstance(parameter, UninitializedParameter) for parameter in parameters):
        raise InvalidArchitecture(
            f"expected parameters of fixed shapes in {name}, got parameters of a lazy layer such as nn.LazyLinear; "
            "specify the number of its inputs"
        )
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    if not trainable:
        got = f"{len(parameters)} with requires_grad=False" if parameters else "none"
        raise InvalidArchitecture(f"expected trainable parameters in {name}, got {got}; add a layer that trains")

    with restored_randomness(seed):
        images = torch.randn(2, in_channels, image_size, image_size)
        for training in (False, True):
            module.train(training)
            with torch.set_grad_enabled(training):
                logits = call_network(name, module, module, images.clone(), raises=InvalidArchitecture)
            if training and network.auxiliary and isinstance(logits, tuple):
                logits = logits[0]  # without those of the auxiliary classifier
            _check_logits(logits, (2, num_classes), f"{name} for images of shape {tuple(images.shape)}")
        gradients: tuple[torch.Tensor | None, ...] = ()
        if logits.requires_grad:
            backward = partial(torch.autograd.grad, allow_unused=True)
            gradients = call_reference(name, backward, logits.sum(), trainable, raises=InvalidArchitecture)
    if all(gradient is None for gradient in gradients):
        raise InvalidArchitecture(
            f"expected logits from {name} that depend on its parameters, got a gradient for none of "
            f"{count(len(trainable), 'parameter')}; remove detach, no_grad or argmax from its forward method"
        )
    return module.eval()


def _check_logits(logits: Any, shape: tuple[int, int], of: str) -> None:
    """Raises: InvalidArchitecture unless the logits are a tensor of this shape with finite values."""
    if not isinstance(logits, torch.Tensor) or logits.shape != shape:
        got = f"the shape {tuple(logits.shape)}" if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise InvalidArchitecture(f"expected logits of shape {shape} from {of}, got {got}; correct its forward method")
    if wrong := int((~logits.isfinite()).sum()):
        raise InvalidArchitecture(
            f"expected finite logits from {of}, got NaN or infinity in {wrong} of {logits.numel()}; correct its "
            "forward method or its initial weights"
        )


def call_network(
    reference: str,
    network: nn.Module,
    function: Callable[..., Any],
    *arguments: Any,
    raises: type[Exception] = InvalidInput,
) -> Any:
    """Calls a function that computes passes of a user's network, as `call_reference`. An error names the module."""
    paths, running = {module: path for path, module in network.named_modules()}, list[str]()

    def enter(module: nn.Module, inputs: Any) -> None:
        running.append(f"{type(module).__name__} ({paths[module]})" if paths.get(module) else "")

    def leave(module: nn.Module, inputs: Any, output: Any) -> None:
        running.pop()

    hooks = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave)]
    try:
        return call_reference(reference, function, *arguments, raises=raises)
    except raises as error:
        place = next((name for name in reversed(running) if name), None)
        if place is None or error.__cause__ is None:  # an error of archray names the choice
            raise
        raise raises(f"{place}: {error}") from error
    finally:
        for hook in hooks:
            hook.remove()


def network_options(
    space: Space, builder: Callable[..., nn.Module], network: NetworkSettings, *, for_scoring: bool = False
) -> dict[str, Any]:
    """Returns the settings that a builder of the space's networks takes by name: width, depth, form.

    Raises: InvalidInput for a stem, an auxiliary classifier or biases that it does not support.
    """
    normalization = network.normalization
    if normalization == "auto":
        normalization = "scoring" if for_scoring else "training"
    options = {
        "channels": network.channels,
        "cells": network.cells,
        "stem": network.stem,
        "auxiliary": network.auxiliary and not for_scoring,
        "normalization": normalization,
        **({"biases": True} if network.biases else {}),
        **({} if network.weights is None else {"weights": network.weights}),
    }
    parameters = inspect.signature(builder.network if isinstance(builder, SpaceNetwork) else builder).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        options = {name: value for name, value in options.items() if name in parameters}
    if network.weights is not None and "weights" not in options:
        raise InvalidInput(
            f"expected no weights, as the space {space.name} is not read from a model, got {network.weights}. Remove "
            "network.weights, or search a function that returns a model with choices"
        )
    if network.biases and "biases" not in options:
        raise InvalidInput(
            f"expected biases false, as networks of the space {space.name} have no such form, got true. "
            "Set network.biases to false"
        )
    if network.auxiliary and "auxiliary" not in options:
        raise InvalidInput(
            f"expected auxiliary false, as networks of the space {space.name} have no auxiliary classifier, got true. "
            "Set network.auxiliary to false"
        )
    if network.stem != "cifar" and "stem" not in options:
        raise InvalidInput(
            f"expected the stem cifar, the only one of the space {space.name}, got {network.stem}. "
            "Set network.stem to cifar"
        )
    return options


@torch.no_grad()
def initialize(network: nn.Module, init: Initialisation) -> None:
    """Redraws the weights of all convolutions and linear layers, in place, from torch's global generator.

    The initializations come from Shu (2022), Table 7.9 (note P5). With `fan_in`, `fan_out` the inputs and outputs of
    one unit (kernel included), weights are normal with variance

    - `lecun-normal`: 1 / fan_in,
    - `xavier`: 2 / (fan_in + fan_out) (Glorot and Bengio 2010),
    - `he`: 2 / fan_in (He et al. 2015),

    and biases are zero. `pytorch-default` changes nothing. Normalization layers are not changed.
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
    """Counts trainable numbers in the network without its auxiliary classifier (`network.auxiliary`), as papers do.

    Cells have parameters on live edges only (see `nasbench201_network.Cell`).
    """
    tower = getattr(network, "auxiliary", None)
    left_out = set() if tower is None else set(tower.parameters())
    return sum(
        parameter.numel() for parameter in network.parameters() if parameter.requires_grad and parameter not in left_out
    )


@torch.no_grad()
def count_multiply_adds(network: nn.Module, image_shape: tuple[int, int, int]) -> int:
    """Counts multiply-adds of the forward pass of one image (C, H, W) in evaluation mode; NAS papers call them FLOPs.

    Convolutions and matrix products count; normalization, pooling, activations, sums and the auxiliary classifier do
    not. The network's mode is restored.
    """
    training = network.training
    network.eval()
    try:
        reference = next(network.parameters())
        # Two images: without running statistics of normalization (scoring form), one image cannot pass 1 x 1 maps.
        images = torch.zeros(2, *image_shape, device=reference.device, dtype=reference.dtype)
        # Attention as matrix products: before 2.14 torch does not count its fused kernel for CPUs.
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            network(images)
    finally:
        network.train(training)
    flops = counter.get_total_flops()  # a multiply-add is two
    return flops // 2 // len(images)
