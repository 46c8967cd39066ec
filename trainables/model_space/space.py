"""A search space that is read from a user's model with choices, and the standalone networks of its architectures."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from archray.errors import InvalidArchitecture, InvalidInput
from archray.references import call_reference
from archray.trainables.model_space.choices import ChoiceModule, Edges, Width, check_forward, partial_channels
from archray.trainables.spaces.space import Architecture, Decision, Space

IMAGE_CHANNELS, CLASSES = 3, 10  # of the model from which the decisions are read; they do not depend on them
FILE_HASH = r"_[0-9a-f]{8}$"  # `references.file_module_name` adds it to the name of a user's file
COUNTED = 100_000  # a constrained space with up to this many combinations is counted
TRIES = 10_000  # draws until a sample meets the constraint

Condition = tuple[str, tuple[str, ...]]  # a decision, and the choices of it that use a place in the model
Chosen = Mapping[str, str]  # decision -> choice


class ModelSpace(Space):
    """The architectures of a model with `Choice`, `Repeat`, `Edges` and `Width`.

    The decisions are those of the model, in the order of its modules. Strings are `block0=conv3|depth=2`. The canonical
    form has the first choice for decisions that the architecture does not use, such as those of an alternative that is
    not taken.

    Args:
        network: Function of `in_channels` and `num_classes`, and of `channels` and `cells` if it has these parameters,
            that returns the model: images (n, in_channels, H, W) -> logits (n, num_classes).
        constraint: Function from {decision: choice} to whether the architecture is in the space (default: all are).
        name: Name of the space in messages (default: the module and name of the function).

    Raises: InvalidInput if the function does not return a module, or the choices of the model are inconsistent.

    Example:
        >>> from torch import nn
        >>> from archray import Choice, ModelSpace
        >>> def network(in_channels, num_classes):
        ...     convolutions = {"1x1": nn.Conv2d(in_channels, 8, 1), "3x3": nn.Conv2d(in_channels, 8, 3, padding=1)}
        ...     layer = Choice(convolutions, name="layer")
        ...     return nn.Sequential(layer, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, num_classes))
        >>> space = ModelSpace(network)
        >>> print(space.encode(("1x1",)), space.size)
        layer=1x1 2
    """

    name: str  # type: ignore[misc]  # of this instance
    family: ClassVar[str] = "model"
    supernets: ClassVar[tuple[str, ...]] = ("mixed", "sliced")
    # Shu (2022) samples ensembles with 2 partial channels, for which alternatives must be functions of channels.
    defaults: ClassVar[Mapping[str, Any]] = {"ensembles": {"supernet": {"partial_channels": 1}}}

    def __init__(
        self,
        network: Callable[..., nn.Module],
        *,
        constraint: Callable[[dict[str, str]], bool] | None = None,
        name: str | None = None,
    ) -> None:
        self.network, self.constraint = network, constraint
        self.name = name or f"{re.sub(FILE_HASH, '.py', network.__module__)}:{network.__qualname__}"
        self._options = _option_names(network, self.name)
        with torch.device("meta"):
            model = self.unresolved(in_channels=IMAGE_CHANNELS, num_classes=CLASSES)
        self.decisions, self._uses, self._kinds = _read(model, self.name)
        self._extremes = _extremes(model, self.decisions)
        self.check_strings()

    @property
    def widths(self) -> list[str]:
        """The names of the decisions that are a `Width`."""
        return [name for name, kind in self._kinds.items() if kind == Width.__name__]

    @property
    def edges(self) -> list[str]:
        """The names of the decisions that are an `Edges`."""
        return [name for name, kind in self._kinds.items() if kind == Edges.__name__]

    @property
    def extremes(self) -> tuple[Architecture, Architecture]:
        """The architectures with the fewest and the most parameters in every decision."""
        return self._extremes

    def unresolved(self, *, partial: int = 1, **options: Any) -> nn.Module:
        """Returns the model with its choices.

        Args:
            partial: K; alternatives that are functions of channels are built for 1/K of their channels.
            options: `in_channels`, `num_classes`, `channels`, `cells`. An option that the function does not take is
                ignored.

        Raises: InvalidInput if the function fails or does not return a module.
        """
        taken = {name: value for name, value in options.items() if name in self._options}
        with partial_channels(partial):
            model = call_reference(self.name, self.network, **taken)
        if not isinstance(model, nn.Module):
            raise InvalidInput(
                f"Expected a torch.nn.Module from {self.name}, got {type(model).__name__}. Return the model"
            )
        return model

    def build(
        self,
        architecture: Architecture,
        *,
        in_channels: int,
        num_classes: int,
        channels: int | None = None,
        cells: int | None = None,
        normalisation: str = "training",
    ) -> nn.Module:
        """Builds the standalone network: the model with each choice resolved, without the other weights.

        Args:
            normalisation: `training`, or `scoring`: batch normalization without running statistics.

        Raises: InvalidArchitecture; InvalidInput as `unresolved`.
        """
        self.check(architecture)
        sizes = {name: size for name, size in (("channels", channels), ("cells", cells)) if size is not None}
        model = self.unresolved(in_channels=in_channels, num_classes=num_classes, **sizes)
        network = resolve(model, self.chosen(architecture))
        if normalisation == "scoring":
            use_batch_statistics(network)
        return network

    def check_model(self, images: Tensor, *, num_classes: int, **sizes: int) -> None:
        """Checks the shapes of all alternatives on a batch of images (n, in_channels, H, W).

        Args:
            sizes: `channels` and `cells`.

        Raises: InvalidInput if alternatives have unequal shapes, a forward pass does not reach a choice, or the logits
            are not (n, num_classes).
        """
        model = self.unresolved(in_channels=images.shape[1], num_classes=num_classes, **sizes).eval()
        with torch.no_grad():
            logits = call_reference(f"the model of {self.name}", check_forward, model, images)
        if not isinstance(logits, Tensor) or logits.shape != (len(images), num_classes):
            got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise InvalidInput(
                f"Expected logits of shape {(len(images), num_classes)} from the model of {self.name} for images of "
                f"shape {tuple(images.shape)}, got {got}. Use in_channels and num_classes in the model"
            )

    def chosen(self, architecture: Architecture) -> dict[str, str]:
        """Returns decision -> choice. Raises: InvalidArchitecture for another number of choices."""
        return {decision.name: choice for decision, choice in zip(self.decisions, architecture, strict=True)}

    def is_used(self, decision: str, chosen: Chosen) -> bool:
        """Whether an architecture contains a place of a decision."""
        return any(all(chosen[name] in labels for name, labels in place) for place in self._uses[decision])

    def canonical(self, architecture: Architecture) -> Architecture:
        self.check(architecture)
        chosen = self.chosen(architecture)
        return tuple(
            choice if self.is_used(decision.name, chosen) else decision.choices[0]
            for decision, choice in zip(self.decisions, architecture, strict=True)
        )

    def condition(self, decision: str) -> Condition | None:
        """Returns the innermost choice around a decision; None if the decision can matter in several ways."""
        innermost = {place[-1] if place else None for place in self._uses[decision]}
        return innermost.pop() if len(innermost) == 1 else None

    @property
    def size(self) -> int | float:
        """The number of architectures; with a constraint and more than 100,000 combinations, an upper bound."""
        product = super().size
        if self.constraint is None or product > COUNTED:
            return product
        return sum(1 for _ in self.enumerate())

    def sample(self, rng: np.random.Generator) -> Architecture:
        return self._first_allowed(lambda: super(ModelSpace, self).sample(rng))

    def enumerate(self) -> Iterator[Architecture]:
        return filter(self._is_allowed, super().enumerate())

    def mutate(self, architecture: Architecture, rng: np.random.Generator) -> Architecture:
        return self._first_allowed(lambda: super(ModelSpace, self).mutate(architecture, rng))

    def mutations(self, architecture: Architecture) -> Iterator[Architecture]:
        return filter(self._is_allowed, self._changes(architecture))

    def check(self, architecture: Architecture) -> None:
        super().check(architecture)
        if not self._is_allowed(architecture):
            raise InvalidArchitecture(
                f"{self.name}: Expected an architecture that meets the constraint of the space, got {architecture}. "
                "Choose another architecture"
            )

    def _changes(self, architecture: Architecture) -> Iterator[Architecture]:
        for index, decision in enumerate(self.decisions):
            for choice in decision.choices:
                if choice != architecture[index]:
                    yield (*architecture[:index], choice, *architecture[index + 1 :])

    def _is_allowed(self, architecture: Architecture) -> bool:
        if self.constraint is None:
            return True
        return bool(call_reference(f"the constraint of {self.name}", self.constraint, self.chosen(architecture)))

    def nearest(self, architecture: Architecture) -> Architecture:
        """Returns an architecture if it meets the constraint, else one with few changes that does.

        Raises: InvalidInput if none is found.
        """
        near, seen = [architecture], {architecture}
        for candidate in near:
            if self._is_allowed(candidate):
                return candidate
            if len(near) < TRIES:
                changes = [child for child in self._changes(candidate) if child not in seen]
                near += changes
                seen.update(changes)
        raise InvalidInput(
            f"{self.name}: Expected a constraint that an architecture near {architecture} meets. Relax the constraint"
        )

    def _first_allowed(self, draw: Callable[[], Architecture]) -> Architecture:
        for _ in range(TRIES):
            if self._is_allowed(architecture := draw()):
                return architecture
        raise InvalidInput(
            f"{self.name}: Expected a constraint that some architectures meet, but {TRIES} drawn architectures do not. "
            "Relax the constraint"
        )


@lru_cache
def model_space(network: Callable[..., nn.Module]) -> ModelSpace:
    """Returns the space of a user's function, which is read once per process."""
    return ModelSpace(network)


def _option_names(network: Callable[..., nn.Module], name: str) -> set[str]:
    """Returns the options that the user's function takes. Raises: InvalidInput if others are required."""
    known = ("in_channels", "num_classes", "channels", "cells")
    parameters = inspect.signature(network).parameters
    required = [
        parameter.name
        for parameter in parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    unknown = [parameter for parameter in required if parameter not in known]
    if unknown or not {"in_channels", "num_classes"} <= parameters.keys():
        raise InvalidInput(
            f"Expected a function {name}(in_channels, num_classes) that returns a model, got the parameters "
            f"({', '.join(parameters)}). Add these two parameters, and defaults for parameters other than "
            f"{', '.join(known)}"
        )
    return {option for option in known if option in parameters}


# Reading a model -----------------------------------------------------------------------------------------------------


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


def _widths(value: Any) -> Iterator[Width]:
    yield from (part for part in (value if isinstance(value, tuple | list) else (value,)) if isinstance(part, Width))


def children_of(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Returns the direct submodules, also those that the module contains twice."""
    return [(name, child) for name, child in module.named_modules(remove_duplicate=False) if name and "." not in name]


def own_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Returns the state of a module itself, without its submodules; the tensors, not copies."""
    return {name: tensor for name, tensor in module.state_dict(keep_vars=True).items() if "." not in name}


def _read(
    model: nn.Module, name: str
) -> tuple[tuple[Decision, ...], dict[str, list[tuple[Condition, ...]]], dict[str, str]]:
    """Returns the decisions of a model in the order of its modules, the places of each, and the kind of each.

    A place is a sequence of conditions, all of which hold in an architecture that contains the place.

    Raises: InvalidInput.
    """
    choices: dict[str, tuple[str, ...]] = {}
    kinds: dict[str, str] = {}
    uses: dict[str, list[tuple[Condition, ...]]] = {}
    seen: dict[int, str] = {}

    def add(decision: str, kind: str, labels: tuple[str, ...], place: tuple[Condition, ...]) -> None:
        if choices.setdefault(decision, labels) != labels or kinds.setdefault(decision, kind) != kind:
            raise InvalidInput(
                f"{kind} {decision!r}: Expected the same choices wherever the model has this name, got "
                f"{kinds[decision]} with {', '.join(choices[decision])}, and {kind} with {', '.join(labels)}. "
                "Give the two different names, or the same choices"
            )
        uses.setdefault(decision, []).append(place)

    def visit(module: nn.Module, path: str, place: tuple[Condition, ...]) -> None:
        for found in width_places(module):
            for width in _widths(found.value):
                for decision, sizes in width.decisions.items():
                    add(decision, "Width", tuple(map(str, sizes)), place)
            check_layer(module, path)
        if isinstance(module, ChoiceModule):
            kind = type(module).__name__
            if id(module) in seen:
                raise InvalidInput(
                    f"{kind} {module.name!r}: Expected one place for each choice object, got {seen[id(module)]} and "
                    f"{path}. Create a second {kind} with the same name; both then take the same choice"
                )
            seen[id(module)] = path
            add(module.name, kind, module.labels, place)
            for branch, child, labels in module.branches():
                used = place if len(labels) == len(module.labels) else (*place, (module.name, labels))
                visit(child, f"{path}.{branch}".lstrip("."), used)
        else:
            for key, child in children_of(module):
                visit(child, f"{path}.{key}".lstrip("."), place)

    visit(model, "", ())
    if not choices:
        raise InvalidInput(
            f"Expected a model with choices from {name}, got {type(model).__name__} without any. Add a Choice, Repeat, "
            "Edges or Width of archray"
        )
    return tuple(Decision(decision, labels) for decision, labels in choices.items()), uses, kinds


def _extremes(model: nn.Module, decisions: Sequence[Decision]) -> tuple[Architecture, Architecture]:
    """Returns the choices with the fewest and the most parameters; the first of equal alternatives."""
    modules: dict[str, ChoiceModule] = {}
    for module in model.modules():
        if isinstance(module, ChoiceModule):
            modules.setdefault(module.name, module)

    def parameters(decision: Decision, choice: str) -> int:
        if decision.name not in modules:  # a width
            return int(choice)
        parts = [part for _, part in modules[decision.name].places(choice)]
        return sum(parameter.numel() for part in parts for parameter in part.parameters())

    ordered = [sorted(d.choices, key=lambda choice, d=d: parameters(d, choice)) for d in decisions]  # type: ignore[misc]
    largest = (max(d.choices, key=lambda choice, d=d: parameters(d, choice)) for d in decisions)  # type: ignore[misc]
    return tuple(choices[0] for choices in ordered), tuple(largest)


# Layers with a width -------------------------------------------------------------------------------------------------

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
        width = next(_widths(place.value))
        for tensor, dimension in dimensions.get(place.attribute, ()):
            if depthwise and place.attribute == "in_channels":  # its dimension is in_channels / groups
                continue
            if getattr(module, tensor, None) is not None:
                slices.append(Slice(tensor, dimension, width, place.attribute in OUTPUTS))
    return slices


def check_layer(module: nn.Module, path: str) -> None:
    """Raises: InvalidInput if a module with a width cannot be sliced."""
    widths = {
        name: place for place in width_places(module) for width in _widths(place.value) for name in width.decisions
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
    for entry in slices_of(module):
        size = getattr(module, entry.tensor).shape[entry.dimension]
        if size != int(entry.width):
            raise InvalidInput(
                f"Width {name}: Expected the largest size, {int(entry.width)}, in dimension {entry.dimension} of the "
                f"{entry.tensor} of {kind} ({path}), got {size}. Build the layer with the largest size of the width"
            )


def sizes_of(chosen: Chosen) -> dict[str, int]:
    """Returns the choices that are numbers, as the sizes of widths."""
    return {name: int(label) for name, label in chosen.items() if label.isdigit()}


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

    def visit(module: nn.Module, prefix: str) -> None:
        if isinstance(module, ChoiceModule):
            for name, child in module.places(chosen[module.name]):
                visit(child, f"{prefix}{name}." if name else prefix)
            return
        tensors = own_tensors(module)
        for entry in slices_of(module):
            tensors[entry.tensor] = sliced(tensors[entry.tensor], entry, sizes)
        state.update({f"{prefix}{key}": tensor for key, tensor in tensors.items()})
        for key, child in children_of(module):
            visit(child, f"{prefix}{key}.")

    visit(model, "")
    return state


def use_batch_statistics(network: nn.Module) -> None:
    """Lets every batch normalization use the statistics of the batch, also in evaluation mode (note G3).

    Running statistics would mix those of different architectures.
    """
    for module in network.modules():
        if isinstance(module, BATCH_NORMS):
            module.track_running_stats = False
            module.running_mean = module.running_var = module.num_batches_tracked = None
