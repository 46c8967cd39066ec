"""Layers whose size is a width, and networks of single architectures from a model with choices."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from archray.errors import DamagedFile, InvalidInput
from archray.trainables.checkpoint import read_weights
from archray.trainables.model_space.choices import Choice, ChoiceModule, Width

logger = logging.getLogger(__name__)
Chosen = Mapping[str, str]  # decision -> choice


class WidthPlace(NamedTuple):
    """An attribute of a module that depends on a width."""

    module: nn.Module
    attribute: str
    value: Any  # a Width, or a tuple or list that contains one


def width_places(module: nn.Module) -> Iterator[WidthPlace]:
    """Yields the attributes of a module itself, not of its submodules, that depend on a width."""
    for attribute, value in vars(module).items():
        if isinstance(value, Width) or (isinstance(value, tuple | list) and any(isinstance(v, Width) for v in value)):
            yield WidthPlace(module, attribute, value)


def widths_in(value: Any) -> Iterator[Width]:
    yield from (part for part in (value if isinstance(value, tuple | list) else (value,)) if isinstance(part, Width))


def children_of(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Returns the direct submodules, also those that the module contains twice."""
    return [(name, child) for name, child in module._modules.items() if child is not None]


def own_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Returns the state of a module itself, without its submodules; the tensors, not copies."""
    left_out = getattr(module, "_non_persistent_buffers_set", ())  # which a module of torch.jit.script does not have
    buffers = module.named_buffers(recurse=False, remove_duplicate=False)
    parameters = module.named_parameters(recurse=False, remove_duplicate=False)
    return {**dict(parameters), **{name: tensor for name, tensor in buffers if name not in left_out}}


BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_CONVOLUTION = {"out_channels": (("weight", 0), ("bias", 0)), "in_channels": (("weight", 1),)}
_TRANSPOSED = {"out_channels": (("weight", 1), ("bias", 0)), "in_channels": (("weight", 0),)}
_PER_CHANNEL = (("weight", 0), ("bias", 0), ("running_mean", 0), ("running_var", 0))
_Dimensions = Mapping[str, tuple[tuple[str, int], ...]]

# Layers -> attribute -> the tensors and dimensions that have its size
LAYERS: Mapping[tuple[type[nn.Module], ...], _Dimensions] = {
    (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d): _TRANSPOSED,
    (nn.Conv1d, nn.Conv2d, nn.Conv3d): _CONVOLUTION,
    (nn.Linear,): {"out_features": (("weight", 0), ("bias", 0)), "in_features": (("weight", 1),)},
    (*BATCH_NORMS, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d): {"num_features": _PER_CHANNEL},
    (nn.GroupNorm,): {"num_channels": _PER_CHANNEL},
    (nn.LayerNorm, nn.RMSNorm): {"normalized_shape": (("weight", -1), ("bias", -1))},
    (nn.PReLU,): {"num_parameters": (("weight", 0),)},
    (nn.Embedding,): {"embedding_dim": (("weight", 1),)},
}
OUTPUTS = ("out_channels", "out_features", "num_features", "num_channels", "normalized_shape", "embedding_dim")


def dimensions_of(module: nn.Module) -> _Dimensions | None:
    """Returns the entry of `LAYERS` for a module; None for another kind of module."""
    return next((entry for types, entry in LAYERS.items() if isinstance(module, types)), None)


class Slice(NamedTuple):
    """One dimension of a tensor of a layer whose size is a width."""

    tensor: str
    dimension: int
    width: Width
    output: bool  # whether the dimension is that of the layer's outputs


def slices_of(module: nn.Module) -> list[Slice]:
    """Returns the sliced dimensions of a layer's tensors; none for modules without a width or without tensors."""
    dimensions = dimensions_of(module)
    if dimensions is None:
        return []
    slices = []
    depthwise = isinstance(getattr(module, "groups", 1), Width)
    for place in width_places(module):
        width = next(widths_in(place.value))
        for tensor, dimension in dimensions.get(place.attribute, ()):
            if depthwise and place.attribute == "in_channels":  # its dimension is in_channels / groups
                continue
            if getattr(module, tensor, None) is not None:
                slices.append(Slice(tensor, dimension, width, place.attribute in OUTPUTS))
    return slices


def check_layer(module: nn.Module, path: str) -> None:
    """Raises: InvalidInput if a module with a width cannot be sliced."""
    widths = {
        name: place for place in width_places(module) for width in widths_in(place.value) for name in width.decisions
    }
    name, kind = ", ".join(map(repr, widths)), type(module).__name__
    dimensions = dimensions_of(module)
    if dimensions is None:
        if own := own_tensors(module):
            raise InvalidInput(
                f"Width {name}: Expected layers of torch.nn with this size, got {kind} ({path}) with its own tensors "
                f"{', '.join(own)}. Use a fixed size there, or build it from convolutions, linear and normalization "
                "layers"
            )
        return
    groups = getattr(module, "groups", 1)
    if isinstance(groups, int) and groups > 1 and not isinstance(groups, Width):
        raise InvalidInput(
            f"Width {name}: Expected groups 1, or groups equal to the width, in {kind} ({path}), got {groups}. Use one "
            "of these"
        )
    for place in width_places(module):
        if isinstance(place.value, tuple | list) and len(place.value) > 1 and place.attribute == "normalized_shape":
            raise InvalidInput(
                f"Width {name}: Expected a normalization over the last dimension in {kind} ({path}), got "
                f"{tuple(map(int, place.value))}. Normalize only the dimension with the width"
            )
    own = own_tensors(module)
    for entry in slices_of(module):
        if entry.tensor not in own:  # a parametrization, or a hook such as that of torch.nn.utils.weight_norm
            raise InvalidInput(
                f"Width {name}: Expected a parameter as {entry.tensor} of {kind} ({path}), got one that is computed "
                "from others, as weight_norm does. Use a fixed size there, or remove the parametrization"
            )
        size = getattr(module, entry.tensor).shape[entry.dimension]
        if size != int(entry.width):
            raise InvalidInput(
                f"Width {name}: Expected the largest size, {int(entry.width)}, in dimension {entry.dimension} of the "
                f"{entry.tensor} of {kind} ({path}), got {size}. Build the layer with the largest size of the width"
            )


def check_sharing(modules: Mapping[str, nn.Module]) -> None:
    """Raises: InvalidInput if modules share a tensor that one of them slices. modules: path -> module, each once."""
    holders: dict[int, list[str]] = {}
    for path, module in modules.items():
        for name, tensor in own_tensors(module).items():
            holders.setdefault(id(tensor), []).append(f"{path}.{name}".lstrip("."))
    for path, module in modules.items():
        for entry in slices_of(module):
            shared = holders[id(getattr(module, entry.tensor))]
            if len(shared) > 1:
                names = ", ".join(map(repr, entry.width.decisions))
                raise InvalidInput(
                    f"Width {names}: Expected a {entry.tensor} of its own in {type(module).__name__} ({path}), got one "
                    f"parameter for {', '.join(shared)}. Use a fixed size there, or one module in both places"
                )


def sizes_of(chosen: Chosen) -> dict[str, int]:
    """Returns the choices that are numbers, as the sizes of widths."""
    return {name: int(label) for name, label in chosen.items() if label.isdecimal()}


def resolved_value(value: Any, sizes: Mapping[str, int]) -> Any:
    """Returns the value of an attribute in an architecture: plain integers instead of widths."""
    if isinstance(value, tuple | list):
        return type(value)(resolved_value(part, sizes) for part in value)
    return value.size(sizes) if isinstance(value, Width) else value


def sliced(tensor: Tensor, entry: Slice, sizes: Mapping[str, int]) -> Tensor:
    """Returns the part of a tensor that an architecture uses; a view if it is the first channels."""
    indices = entry.width.indices(sizes)
    if indices == list(range(len(indices))):
        return tensor.narrow(entry.dimension, 0, len(indices))
    return tensor.index_select(entry.dimension, torch.tensor(indices, device=tensor.device))


# Standalone networks -------------------------------------------------------------------------------------------------


def resolve(module: nn.Module, chosen: Chosen) -> nn.Module:
    """Replaces every choice in a model by what an architecture chooses, in place. Returns the network.

    Attributes that are widths become plain integers, and layers keep only the weights that they use.
    """
    if isinstance(module, ChoiceModule):
        return resolve(module.resolved(chosen[module.name]), chosen)
    for key, child in children_of(module):
        setattr(module, key, resolve(child, chosen))
    sizes = sizes_of(chosen)
    with torch.no_grad():
        for entry in slices_of(module):
            tensor = getattr(module, entry.tensor)
            part = sliced(tensor, entry, sizes).clone()
            is_parameter = isinstance(tensor, nn.Parameter)
            setattr(module, entry.tensor, nn.Parameter(part, tensor.requires_grad) if is_parameter else part)
    for place in list(width_places(module)):
        setattr(module, place.attribute, resolved_value(place.value, sizes))
    return module


def standalone_state(model: nn.Module, chosen: Chosen) -> dict[str, Tensor]:
    """Returns the state of an architecture's standalone network from the weights of the model with choices."""
    sizes, state = sizes_of(chosen), {}
    parts: dict[nn.Module, dict[str, Tensor]] = {}  # a module in two places has its tensors once

    def visit(module: nn.Module, prefix: str) -> None:
        if isinstance(module, ChoiceModule):
            for name, child in module.places(chosen[module.name]):
                visit(child, f"{prefix}{name}." if name else prefix)
            return
        if module not in parts:
            tensors = parts[module] = own_tensors(module)
            for entry in slices_of(module):
                tensors[entry.tensor] = sliced(tensors[entry.tensor], entry, sizes)
        state.update({f"{prefix}{key}": tensor for key, tensor in parts[module].items()})
        for key, child in children_of(module):
            visit(child, f"{prefix}{key}.")

    visit(model, "")
    return state


@torch.no_grad()
def inherit(model: nn.Module, weights: str) -> tuple[int, int]:
    """Copies tensors of a state dict into a model with choices, by name and shape.

    A tensor in an alternative inherits the tensor with its own name, or with the name that it has without the choice:
    `layer1.1.alternatives.basic.conv1.weight` inherits `layer1.1.conv1.weight`. Other tensors, such as a classifier of
    other classes, keep their values; a warning lists them.

    Args:
        weights: Path or URI of a file of `torch.save`: a state dict, alone or under the key `state_dict` or `model`.

    Returns: The number of tensors that were copied, and the number of tensors of the model.
    Raises: InvalidInput if the file does not exist or is no state dict, or no tensor fits.
    """
    try:
        saved = read_weights(weights)
    except FileNotFoundError as error:
        raise InvalidInput(
            f"Expected a file of torch.save as network.weights, got {weights}. Check the path"
        ) from error
    except DamagedFile as error:
        raise InvalidInput(
            f"Expected a state dict as network.weights, got the file {weights} ({error.reason}). Save the state dict, "
            "not the model: torch.save(model.state_dict(), path)"
        ) from error
    saved = next((saved[key] for key in ("state_dict", "model") if isinstance(saved.get(key), Mapping)), saved)
    missing, used = [], 0

    def visit(module: nn.Module, path: str, plain: str) -> None:
        nonlocal used
        for name, tensor in own_tensors(module).items():
            sources = (saved.get(f"{prefix}.{name}".lstrip(".")) for prefix in (path, plain))
            source = next((s for s in sources if isinstance(s, Tensor) and s.shape == tensor.shape), None)
            if source is None:
                missing.append(f"{path}.{name}".lstrip("."))
            else:
                tensor.copy_(source)
                used += 1
        for key, child in children_of(module):
            if isinstance(module, ChoiceModule):  # `alternatives.LABEL`, `blocks.NUMBER` or `edges.NUMBER`
                for branch, part, _ in module.branches():
                    number = branch.rpartition(".")[2]
                    visit(part, f"{path}.{branch}", plain if isinstance(module, Choice) else f"{plain}.{number}")
                return
            visit(child, f"{path}.{key}", f"{plain}.{key}")

    visit(model, "", "")
    if not used:
        raise InvalidInput(
            f"Expected tensors in {weights} with the names and shapes of the model, got none of "
            f"{', '.join(missing[:3])}, .... Save the state dict of this model, with or without its choices"
        )
    if missing:
        logger.warning(
            "%s inherits %d tensors of %s; not inherited: %s%s",
            type(model).__name__, used, weights, ", ".join(missing[:5]), ", ..." if len(missing) > 5 else "",
        )  # fmt: skip
    return used, used + len(missing)


def use_batch_statistics(network: nn.Module) -> None:
    """Lets every batch normalization use the statistics of the batch, also in evaluation mode (note G3).

    Running statistics would mix those of different architectures.
    """
    for module in network.modules():
        if isinstance(module, BATCH_NORMS):
            module.track_running_stats = False
            module.running_mean = module.running_var = module.num_batches_tracked = None
