"""A search space that is read from a user's model with choices, and the standalone networks of its architectures."""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial, reduce
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from archray.errors import InvalidArchitecture, InvalidInput
from archray.references import call_reference, source_name
from archray.trainables.model_space.checks import check_forward, check_in_place
from archray.trainables.model_space.choices import ChoiceModule, Edges, Width, partial_channels
from archray.trainables.model_space.networks import (
    BATCH_NORMS,
    Chosen,
    check_layer,
    check_sharing,
    children_of,
    inherit,
    resolve,
    standalone_state,
    use_batch_statistics,
    width_places,
    widths_in,
)
from archray.trainables.nets.build_network import call_network
from archray.trainables.spaces.space import Architecture, Decision, Space

IMAGE_CHANNELS, CLASSES = 3, 10  # of the model from which the decisions are read; they do not depend on them
COUNTED = 100_000  # a constrained space with up to this many combinations is counted
TRIES = 10_000  # draws until a sample meets the constraint

Condition = tuple[str, tuple[str, ...]]  # a decision, and the choices of it that use a place in the model


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
    all_valid: ClassVar[bool] = True  # a constraint excludes others
    # Shu (2022) samples ensembles with 2 partial channels, for which alternatives must be functions of channels.
    defaults: ClassVar[Mapping[str, Any]] = {"ensembles": {"supernet": {"partial_channels": 1}}}

    def __init__(
        self,
        network: Callable[..., nn.Module],
        *,
        constraint: Callable[[dict[str, str]], bool] | None = None,
        name: str | None = None,
    ) -> None:
        if isinstance(network, nn.Module) or not callable(network):
            raise InvalidInput(
                "Expected a function of in_channels and num_classes that returns the model, got "
                f"{type(network).__name__}. Create the model in a function"
            )
        self.network, self.constraint = network, constraint
        of = getattr(network, "__qualname__", type(network).__qualname__)  # `functools.partial` has no name
        self.name = name or f"{source_name(network.__module__)}:{of}"
        self._options = _option_names(network, self.name)
        with torch.device("meta"):
            model = self._called(1, in_channels=IMAGE_CHANNELS, num_classes=CLASSES)
        self.decisions, self._uses, self._kinds = _read(model, self.name)
        self._extremes = _extremes(model, self.decisions)
        normalized = [
            place for module in model.modules() if isinstance(module, BATCH_NORMS) for place in width_places(module)
        ]
        self._normalized = dict.fromkeys(
            name for place in normalized for name in next(widths_in(place.value)).decisions
        )
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

    def unresolved(self, *, partial: int = 1, weights: str | None = None, **options: Any) -> nn.Module:
        """Returns the model with its choices.

        Args:
            partial: K; alternatives that are functions of channels are built for 1/K of their channels.
            weights: File whose tensors the model inherits, see `inherit`.
            options: `in_channels`, `num_classes`, `channels`, `cells`. An option that the function does not take is
                ignored.

        Raises: InvalidInput if the function fails, does not return a module, or returns one with other choices than in
            an earlier call.
        """
        model = self._called(partial, **options)
        self._check_choices(model)
        if weights is not None and not any(parameter.is_meta for parameter in model.parameters()):
            inherit(model, weights)
        return model

    def _check_choices(self, model: nn.Module) -> None:
        before, now = {decision.name: decision.choices for decision in self.decisions}, _choices_of(model)
        if now == before:
            return
        name = next(name for name in before | now if now.get(name) != before.get(name))
        calls = (f"with {', '.join(choices[name])}" if name in choices else "nowhere" for choices in (before, now))
        raise InvalidInput(
            f"Expected the same choices from every call of {self.name}, got {name!r} {' and then '.join(calls)}. "
            "Create the modules at each call. Do not draw names and choices at random, and do not derive them from the "
            "parameters of the function"
        )

    def _called(self, partial: int, **options: Any) -> nn.Module:
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
        normalization: str = "training",
        weights: str | None = None,
    ) -> nn.Module:
        """Builds the standalone network: the model with each choice resolved, without the other weights.

        Args:
            normalization: `training`, or `scoring`: batch normalization without running statistics.
            weights: As in `unresolved`.

        Raises: InvalidArchitecture; InvalidInput as `unresolved`.
        """
        self.check(architecture)
        sizes = {name: size for name, size in (("channels", channels), ("cells", cells)) if size is not None}
        model = self.unresolved(in_channels=in_channels, num_classes=num_classes, weights=weights, **sizes)
        network = resolve(model, self.chosen(architecture))
        if normalization == "scoring":
            use_batch_statistics(network)
        return network

    def check_model(self, images: Tensor, *, num_classes: int, **sizes: Any) -> None:
        """Checks the shapes of all alternatives on a batch of images (n, in_channels, H, W).

        Args:
            sizes: `channels` and `cells`.

        Raises: InvalidInput if alternatives have unequal shapes, a forward pass does not reach a choice, the logits are
            not (n, num_classes), or the model reads a tensor again that a module has changed in place.
        """
        model = self.unresolved(in_channels=images.shape[1], num_classes=num_classes, **sizes).eval()
        with torch.no_grad():
            logits = call_network(f"the model of {self.name}", model, check_forward, model, images)
        if not isinstance(logits, Tensor) or logits.shape != (len(images), num_classes):
            got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise InvalidInput(
                f"Expected logits of shape {(len(images), num_classes)} from the model of {self.name} for images of "
                f"shape {tuple(images.shape)}, got {got}. Use in_channels and num_classes in the model"
            )
        with torch.no_grad():
            call_network(f"the model of {self.name}", model, check_in_place, model, images)

    def parameter_counts(self, architectures: Sequence[Architecture], **shape: int) -> list[int]:
        sizes: dict[str, Any] = shape
        with torch.device("meta"):
            model = self.unresolved(**sizes)
        states = (standalone_state(model, self.chosen(architecture)) for architecture in architectures)
        buffers = {name.rpartition(".")[2] for name, _ in model.named_buffers()}  # such as running statistics
        counted = (
            {id(tensor): tensor for name, tensor in state.items() if name.rpartition(".")[2] not in buffers}
            for state in states  # tensors in two places count once
        )
        return [sum(tensor.numel() for tensor in tensors.values()) for tensors in counted]

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

    def encode(self, architecture: Architecture) -> str:
        """Returns the string of the canonical form, so that equal networks have equal strings."""
        return super().encode(self.canonical(architecture))

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

    def canonical_forms(self) -> Sequence[Architecture]:
        if self.constraint is not None:  # it may exclude a canonical form, but not its variants
            return super().canonical_forms()
        # Unused decisions have their first choice, so that `enumerate` yields a form before its variants.
        numbers = np.arange(int(self.size))
        kept = np.ones(len(numbers), dtype=bool)
        strides = np.cumprod([1, *(len(decision.choices) for decision in self.decisions[:0:-1])])[::-1]
        stride_of = dict(zip((decision.name for decision in self.decisions), strides.tolist(), strict=True))
        choices_of = {decision.name: decision.choices for decision in self.decisions}

        def ranks(name: str) -> Any:
            return numbers // stride_of[name] % len(choices_of[name])

        for name, places in self._uses.items():
            if () in places:  # always used
                continue
            used = ranks(name) == 0
            for place in set(places):
                holds = (np.isin(ranks(n), [choices_of[n].index(label) for label in labels]) for n, labels in place)
                used |= reduce(np.logical_and, holds)
            kept &= used
        return _Forms(self.decisions, np.flatnonzero(kept))

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

    def _is_allowed(self, architecture: Architecture) -> bool:
        if self.constraint is None:
            return True
        constraint, chosen = self.constraint, self.chosen(architecture)
        # A result such as an array may have no truth value.
        return call_reference(f"the constraint of {self.name}", lambda: bool(constraint(chosen))) is True

    @property
    def notes(self) -> tuple[str, ...]:
        if not self._normalized:
            return ()
        names = ", ".join(map(repr, self._normalized))
        note = (
            f"Width {names}: Supernets normalize by the statistics of the batch, because the running statistics of a "
            "BatchNorm depend on the width. Standalone networks keep running statistics."
        )
        return (note,)

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


class _Forms(Sequence[Architecture]):
    """Architectures by their numbers in the order of `Space.enumerate`."""

    def __init__(self, decisions: Sequence[Decision], numbers: np.ndarray[Any, Any]) -> None:
        self.decisions, self.numbers = decisions, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        ranks = np.unravel_index(self.numbers[index], [len(decision.choices) for decision in self.decisions])
        return tuple(decision.choices[rank] for decision, rank in zip(self.decisions, ranks, strict=True))


@lru_cache
def model_space(network: Callable[..., nn.Module]) -> ModelSpace:
    """Returns the space of a user's function, which is read once per process.

    Of a model, archray copies the modules and their weights: every network starts from them.
    """
    if isinstance(network, nn.Module):
        return ModelSpace(partial(_copy, network), name=type(network).__name__)
    return ModelSpace(network)


def _copy(model: nn.Module, in_channels: int, num_classes: int) -> nn.Module:
    return copy.deepcopy(model)


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
            for width in widths_in(found.value):
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

    for path, module in model.named_modules():
        if any(map(is_lazy, (*module.parameters(recurse=False), *module.buffers(recurse=False)))):
            raise InvalidInput(
                f"Expected parameters of fixed shapes from {name}, got those of {type(module).__name__} ({path}). "
                "Specify the number of its inputs"
            )
    visit(model, "", ())
    check_sharing(dict(model.named_modules()))
    if not choices:
        raise InvalidInput(
            f"Expected a model with choices from {name}, got {type(model).__name__} without any. Add a Choice, Repeat, "
            "Edges or Width of archray"
        )
    return tuple(Decision(decision, labels) for decision, labels in choices.items()), uses, kinds


def _choices_of(model: nn.Module) -> dict[str, tuple[str, ...]]:
    """Returns decision -> its choices, in any order."""
    choices = {}
    for module in model.modules():
        if isinstance(module, ChoiceModule):
            choices[module.name] = module.labels
        for place in width_places(module):
            for width in widths_in(place.value):
                choices.update({name: tuple(map(str, sizes)) for name, sizes in width.decisions.items()})
    return choices


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
