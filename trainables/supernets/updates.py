"""How often the weights of each operation were updated, by steps of a single path. Shu 2022 (thesis), App. B.1; E7."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from archray.trainables.supernets.mixings.mixing import Mixture
from archray.trainables.supernets.networks import Group
from archray.trainables.supernets.networks.group import NONE


class UpdateCounter:
    """Counts, for each edge and operation, the weights' steps whose path took it.

    A step of a mixture updates every operation and is not counted. `none` has no weights, so that steps that draw it
    update nothing on that edge. Draws of a supernet's inputs are not operations.

    Attributes:
        steps: of a single path, in all.
        counts: group -> (edges, operations) int64, on the CPU; the column of `none` stays at zero.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups = {group.name: group for group in groups}
        self.steps = 0
        self.counts: dict[str, Tensor] = {}

    def add(self, mixture: Mixture) -> None:
        """One step of the weights under `mixture`."""
        taken = {name: weights.dense != 0 for name, weights in mixture.items() if weights.chosen is not None}
        self.steps += bool(taken)
        for name, rows in taken.items():
            group = self._groups[name]
            if group.inputs:
                continue
            has_weights = torch.tensor([column != NONE for column in group.operations])
            counted = (rows.cpu() & has_weights).long()
            self.counts[name] = self.counts[name] + counted if name in self.counts else counted

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "counts": dict(self.counts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steps = state["steps"]
        self.counts = {name: counts.cpu() for name, counts in state["counts"].items()}


def update_table(
    counter: UpdateCounter, groups: Sequence[Group], chances: Mapping[str, Tensor] | None
) -> dict[str, list[Any]]:
    """Columns of one length: `group`, `edge` (its row in the group), `operation`, `updates`, `steps`, `chance`.

    Updates are binomial, of `steps` trials of probability `chance` (note E7); None where it is unknown.

    chances: group -> (edges, operations), the probability that a step takes an operation.
    """
    rows: list[tuple[Any, ...]] = []
    for group in groups:
        if group.name not in counter.counts:
            continue
        for edge, row in enumerate(counter.counts[group.name].tolist()):
            for column, (operation, count) in enumerate(zip(group.operations, row, strict=True)):
                if operation != NONE:
                    chance = None if chances is None else float(chances[group.name][edge, column])
                    rows.append((group.name, edge, operation, count, counter.steps, chance))
    names = ("group", "edge", "operation", "updates", "steps", "chance")
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}
