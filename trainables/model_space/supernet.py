"""Supernets of a user's model with choices: mixtures, paths and masks, and slices for the sandwich rule."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from archray.errors import InvalidInput
from archray.trainables.devices import restored_randomness
from archray.trainables.model_space.choices import ChoiceModule, Width
from archray.trainables.model_space.networks import (
    BATCH_NORMS,
    Slice,
    resolved_value,
    sizes_of,
    sliced,
    slices_of,
    standalone_state,
    use_batch_statistics,
    width_places,
    widths_in,
)
from archray.trainables.model_space.space import ModelSpace
from archray.trainables.nets.build_network import correct_average_pools, initialize
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.spaces.space import Architecture, Space
from archray.trainables.supernets.elastic import SLICED_SUPERNETS, SlicedSupernet
from archray.trainables.supernets.networks.supernet import (
    LEFT_OUT,
    Group,
    MixtureWeights,
    ParentsGroup,
    Rows,
    Supernet,
    columns_of,
    path_weights,
    without_none,
)
from archray.trainables.supernets.settings import SUPERNETS


class ChoiceGroup(Group):
    """The row of one decision of a model. The model itself multiplies the weights of nested choices."""

    nested = True


class EdgesGroup(ParentsGroup):
    """The row of an `Edges`, with a column per input."""

    nested = True


class WeightedModel(nn.Module):
    """A model with choices, and forward passes with weights for them.

    Widths are slices of the layers' weights if a choice is given for them, and otherwise masks on the layers' outputs:
    the sum over the sizes of the size's weight times its mask (FBNetV2, Wan et al. 2020, section 3.1).
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        use_batch_statistics(model)
        modules = list(model.named_modules())
        self._choices = [path for path, module in modules if isinstance(module, ChoiceModule)]
        self._widths = [path for path, module in modules if any(width_places(module))]

    @property
    def choices(self) -> list[ChoiceModule]:
        return [self.model.get_submodule(path) for path in self._choices]  # type: ignore[misc]

    def forward(self, images: Tensor, rows: Mapping[str, Rows], sizes: Mapping[str, int] | None = None) -> Tensor:
        """Maps images to logits.

        Args:
            rows: Decision -> its weights.
            sizes: Decision -> the size of a width; without it, widths are masks.
        """
        choices = self.choices
        for choice in choices:
            choice.rows = rows[choice.name]
        try:
            with self._with_widths(rows, sizes) as weights:
                if not weights:
                    return self.model(images)
                # A module in two places is named once; torch would not restore it if it also looked for ties.
                return functional_call(self.model, weights, (images,), tie_weights=False)
        finally:
            for choice in choices:
                choice.rows = None

    @contextmanager
    def _with_widths(self, rows: Mapping[str, Rows], sizes: Mapping[str, int] | None) -> Iterator[dict[str, Tensor]]:
        """Yields the weights of layers with widths. Attributes of modules have the sizes meanwhile."""
        weights: dict[str, Tensor] = {}
        changed: list[tuple[nn.Module, str, Any]] = []
        masks: dict[int, Tensor] = {}  # by the identity of the width
        try:
            for path in self._widths:
                module = self.model.get_submodule(path)
                entries = slices_of(module)
                for entry in entries:
                    name = f"{path}.{entry.tensor}" if path else entry.tensor
                    tensor = weights.get(name, getattr(module, entry.tensor))
                    if sizes is not None:
                        weights[name] = sliced(tensor, entry, sizes)
                    elif entry.output:
                        weights[name] = _masked(tensor, entry, rows, masks)
                if sizes is None:
                    if any(entry.output for entry in entries) and isinstance(module, nn.LayerNorm):
                        changed.append((module, "forward", None))
                        module.forward = partial(  # type: ignore[method-assign]
                            _masked_layer_norm, module, _mask(entries[0].width, rows, masks)
                        )
                    continue
                for place in list(width_places(module)):
                    changed.append((module, place.attribute, place.value))
                    setattr(module, place.attribute, resolved_value(place.value, sizes))
            yield weights
        finally:
            for module, attribute, value in changed:
                if attribute == "forward":
                    del module.forward
                else:
                    setattr(module, attribute, value)


def _mask(width: Width, rows: Mapping[str, Rows], masks: dict[int, Tensor]) -> Tensor:
    """Returns (channels,): the sum over the sizes of a width of the size's weight times its mask."""
    key = id(width)
    if key not in masks:
        names = list(width.decisions)
        like = rows[names[0]].dense
        total = like.new_zeros(int(width))
        for columns in product(*(range(len(width.decisions[name])) for name in names)):
            sizes = {name: width.decisions[name][column] for name, column in zip(names, columns, strict=True)}
            weight = torch.stack(
                [rows[name].dense[0, column] for name, column in zip(names, columns, strict=True)]
            ).prod()
            used = torch.zeros_like(total)
            used[width.indices(sizes)] = 1.0
            total = total + weight * used
        masks[key] = total
    return masks[key]


def _masked(tensor: Tensor, entry: Slice, rows: Mapping[str, Rows], masks: dict[int, Tensor]) -> Tensor:
    """Multiplies a layer's weights by the mask of its outputs, which multiplies the outputs."""
    shape = [1] * tensor.ndim
    shape[entry.dimension] = -1
    return tensor * _mask(entry.width, rows, masks).to(tensor).view(shape)


def _masked_layer_norm(module: nn.LayerNorm, mask: Tensor, x: Tensor) -> Tensor:
    """Normalizes by the mean and the variance of the used features, weighted by the mask."""
    mask = mask.to(x)
    weights = mask / mask.sum().clamp_min(torch.finfo(x.dtype).tiny)  # zero in a branch that is not used
    mean = (weights * x).sum(-1, keepdim=True)
    centered = x - mean
    variance = (weights * centered.square()).sum(-1, keepdim=True)
    normalized = centered * (variance + module.eps).rsqrt()
    weight, bias = (getattr(module, name, None) for name in ("weight", "bias"))  # masked, if there are any
    out = normalized * (mask if weight is None else weight)
    return out if bias is None else out + bias


def check_masks(model: nn.Module) -> None:
    """Raises: InvalidInput for a layer whose outputs cannot be masked."""
    for path, module in model.named_modules():
        widths = [name for place in width_places(module) for part in widths_in(place.value) for name in part.decisions]
        if not widths:
            continue
        normalization = (*BATCH_NORMS, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
        plain = isinstance(module, normalization) and not any(entry.output for entry in slices_of(module))
        if plain or isinstance(module, nn.GroupNorm | nn.RMSNorm):
            raise InvalidInput(
                f"Width {widths[0]!r}: Expected layers whose outputs can be masked, got {type(module).__name__} "
                f"({path}). Use batch normalization with affine parameters or layer normalization, or the method "
                "sliced-supernet"
            )


@SUPERNETS.register("model")
class ModelSupernet(Supernet):
    """The supernet of a user's model: a group of one row for each decision, with the decision's name.

    All batch normalizations use the statistics of the batch.

    Args:
        size: `channels`, `cells`, `in_channels`, `num_classes`, as far as the user's function takes them.

    Raises: InvalidInput if the space is not that of a model, or its choices do not support the options.
    """

    space: ModelSpace

    def __init__(self, space: Space, *, partial_channels: int, none: bool, **size: Any) -> None:
        groups = self.groups_of(space, partial_channels=partial_channels, none=none)
        super().__init__(space, groups, partial_channels)
        self.network = WeightedModel(self.space.unresolved(partial=partial_channels, **size))
        check_masks(self.network.model)
        self.loose_ends = any(self.space.condition(decision.name) for decision in self.space.decisions)  # type: ignore[misc]

    def logits(self, images: Tensor, rows: Mapping[str, Rows]) -> Tensor:
        widths = {name: rows[name] for name in self.space.widths}
        sizes = None
        # Slices have no gradient for the weights of sizes, which relaxations with drawn choices need; masks have.
        if widths and all(row.chosen is not None and not row.dense.requires_grad for row in widths.values()):
            columns = {name: row.chosen[0] for name, row in widths.items() if row.chosen is not None}
            choices = {decision.name: decision.choices for decision in self.space.decisions}
            sizes = {name: int(choices[name][column]) for name, column in columns.items() if column != LEFT_OUT}
        logits: Tensor = self.network(images, rows, sizes)
        return logits

    def check_probes(self) -> None:
        if self.space.widths:
            raise InvalidInput(
                f"Width {self.space.widths[0]!r}: Expected a method that trains or mixes widths, got nasi, which "
                "measures only the choice of modules. Choose another method, or replace the Width by a Choice"
            )
        for name, module in self.named_modules():
            if isinstance(module, nn.Hardsigmoid):
                raise InvalidInput(
                    f"{name}: Expected modules with second derivatives for nasi, got Hardsigmoid, for which torch has "
                    "none. Choose another method, or replace the module by Sigmoid"
                )

    def path(self, architecture: Architecture) -> dict[str, MixtureWeights]:
        """Returns the weights of an architecture. Decisions that it does not use are left out."""
        self.space.check(architecture)
        chosen = self.space.chosen(architecture)
        paths = {}
        for group in self.groups:
            label = chosen[group.name]
            used = self.space.is_used(group.name, chosen)
            if group.inputs:
                row = [float(used and column in label.split(",")) for column in group.operations]
                paths[group.name] = MixtureWeights(torch.tensor([row]))
            else:
                paths[group.name] = path_weights(group, [label if used and label in group.operations else None])
        return paths

    def weights_of(self, architecture: Architecture, names: Iterable[str]) -> dict[str, Tensor]:
        return standalone_state(self.network.model, self.space.chosen(architecture))

    @classmethod
    def groups_of(cls, space: Space, *, partial_channels: int, none: bool) -> tuple[Group, ...]:
        if not isinstance(space, ModelSpace):
            raise InvalidInput(f"Expected the space of a model, got {space.name!r}. Choose its own supernet")
        groups: list[Group] = []
        for decision in space.decisions:
            if decision.name in space.edges:
                inputs = sorted({int(number) for label in decision.choices for number in label.split(",")})
                groups.append(EdgesGroup(decision.name, 1, tuple(map(str, inputs)), (decision.name,)))
            else:
                labels = decision.choices if none else without_none(decision.choices)
                groups.append(ChoiceGroup(decision.name, 1, labels, (decision.name,)))
        return tuple(groups)

    @classmethod
    def discretize(cls, space: Space, rows: Mapping[str, Tensor]) -> Architecture:
        """Takes the strongest choice of each decision, and the strongest inputs of each `Edges`.

        If this architecture does not meet the constraint of the space, an allowed one with few changes is returned.
        """
        assert isinstance(space, ModelSpace)
        labels = []
        for decision in space.decisions:
            row = rows[decision.name][0]
            if decision.name in space.edges:
                k = len(decision.choices[0].split(","))
                strongest = row.argsort(descending=True, stable=True)[:k]
                labels.append(",".join(map(str, sorted(strongest.tolist()))))
            else:
                names = columns_of(decision.choices, row[None])
                labels.append(names[int(row.argmax())])
        return space.nearest(tuple(labels))


@SLICED_SUPERNETS.register("model")
class SlicedModel(SlicedSupernet):
    """The supernet of a user's model for the sandwich rule: each pass computes one architecture."""

    network: WeightedModel
    space: ModelSpace

    @classmethod
    def whole(cls, space: Space, network: NetworkSettings, *, seed: int | None = None, **shape: Any) -> nn.Module:
        assert isinstance(space, ModelSpace)
        with nullcontext() if seed is None else restored_randomness(seed):
            sizes = {"channels": network.channels, "cells": network.cells}
            model = space.unresolved(**sizes, **shape, weights=network.weights)
            initialize(model, network.init)
        correct_average_pools(model)
        return WeightedModel(model)

    def forward(self, images: Tensor, architecture: Architecture) -> Tensor:
        chosen = self.space.chosen(architecture)
        rows = {}
        for choice in self.network.choices:
            label = chosen[choice.name]
            rows[choice.name] = choice.chosen_rows(label)
        sizes = {name: size for name, size in sizes_of(chosen).items() if name in self.space.widths}
        logits: Tensor = self.network(images, rows, sizes)
        return logits

    def weights_of(self, architecture: Architecture) -> dict[str, Tensor]:
        return standalone_state(self.network.model, self.space.chosen(architecture))

    @classmethod
    def extremes(cls, space: Space) -> tuple[Architecture, Architecture]:
        assert isinstance(space, ModelSpace)
        return space.extremes
