"""From a row per decision of a posterior to the weights of a supernet's mixture. Shu 2022 (thesis), 5.3.3; note E6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from archray.trainables.spaces import Architecture
from archray.trainables.supernets.networks import MixtureWeights, Supernet
from archray.trainables.supernets.networks.group import possible_choices

Choices = Mapping[str, Sequence[str]]  # name of a decision -> some of its choices


class RelaxedDecisions:
    """The decisions of a posterior over a supernet's space, B of them with up to C choices, as rows of numbers.

    Rows that are one-hot stand for an architecture, and `mixture` gives the weights under which the supernet computes
    its function. Each weight is a product of entries of at most two rows, so gradients reach every choice that the
    function of the drawn architecture could change by, one decision at a time. One exception: with partial channels,
    an edge that has drawn `none` passes no gradient to single operations, as an edge without a weight has none.

    Attributes:
        decisions: the space's `posterior_decisions`.
        allowed: (B, C) bool: padding is False, and so is `none` where the supernet has no such operation.

    Args:
        device: of rows and weights.
    """

    def __init__(self, supernet: Supernet, device: torch.device | str = "cpu") -> None:
        self.supernet, space = supernet, supernet.space
        self.decisions = space.posterior_decisions
        self._index = {decision.name: number for number, decision in enumerate(self.decisions)}
        self._shape = len(self.decisions), max(len(decision.choices) for decision in self.decisions)
        possible = {decision.name: possible_choices(decision, supernet.groups) for decision in self.decisions}
        self.allowed = self._marked(possible).bool().to(device)
        self._groups = {}
        for group in supernet.groups:
            # An entry of the group's weights is the sum of some of a decision's choices, where the decision matters.
            of_entries: list[Choices] = []
            for row in range(group.edges):
                for column, operation in enumerate(group.operations):
                    decision = self.decisions[self._index[group.decision(row, column)]]
                    taken = [choice for choice in decision.choices if group.stands_for(operation, choice)]
                    of_entries.append({decision.name: taken})
            places = torch.tensor([self._index[name] for entry in of_entries for name in entry], device=device)
            self._groups[group.name] = (group, self._matrix(of_entries).to(device), places)
        conditions = [space.condition(decision.name) for decision in self.decisions]
        self._taken = self._matrix([dict([condition] if condition else []) for condition in conditions]).to(device)
        self._always = torch.tensor([float(condition is None) for condition in conditions], device=device)

    def reach(self, rows: Tensor) -> Tensor:
        """(B, C) probabilities -> (B,): how probable it is that a decision matters. One-hot rows: whether it does."""
        return self._always + rows.flatten() @ self._taken

    def follow(self, values: Tensor) -> Tensor:
        """(B,) a value of each decision -> (B, C): the sum over the decisions that matter because of a choice."""
        return (self._taken @ values).view(self.allowed.shape)

    def mixture(self, rows: Tensor) -> dict[str, MixtureWeights]:
        """(B, C) one-hot rows, or any -> the weights of every group; all operations are evaluated."""
        # With partial channels the weights of inputs multiply those of operations in the supernet itself.
        partial = self.supernet.partial_channels > 1
        return {
            name: MixtureWeights(self._weights(name, rows, whole=partial and not group.inputs))
            for name, (group, *_) in self._groups.items()
        }

    def chances(self, rows: Tensor) -> dict[str, Tensor]:
        """(B, C) probabilities -> group -> (edges, operations): how probable an operation is in an architecture.

        Loose ends of NAS-Bench-1Shot1 are counted.
        """
        operations = [name for name, (group, *_) in self._groups.items() if not group.inputs]
        return {name: self._weights(name, rows) for name in operations}

    def architecture(self, chosen: Tensor) -> Architecture:
        """(B,) numbers of choices -> the architecture."""
        numbers = zip(self.decisions, chosen.tolist(), strict=True)
        named = {decision.name: decision.choices[number] for decision, number in numbers}
        return self.supernet.space.architecture_of_decisions(named)

    def _weights(self, name: str, rows: Tensor, whole: bool = False) -> Tensor:
        """(edges, columns) of a group; whole: as if each of its decisions mattered."""
        group, matrix, places = self._groups[name]
        sums = rows.flatten() @ matrix
        return (sums if whole else sums * self.reach(rows)[places]).view(group.shape)

    def _matrix(self, columns: Sequence[Choices]) -> Tensor:
        """(B C, columns) of 0 and 1."""
        return torch.stack([self._marked(choices).flatten() for choices in columns], dim=1)

    def _marked(self, choices: Choices) -> Tensor:
        """(B, C): 1 at the choices, 0 elsewhere."""
        marked = torch.zeros(self._shape)
        for name, of_decision in choices.items():
            row = self._index[name]
            for choice in of_decision:
                marked[row, self.decisions[row].choices.index(choice)] = 1.0
        return marked
