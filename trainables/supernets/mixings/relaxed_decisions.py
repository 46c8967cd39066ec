"""From a row per decision of a posterior to the weights of a supernet's mixture. Shu 2022 (thesis), 5.3.3; note E6."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from archray.trainables.spaces import DARTS, Decision, NASBench1Shot1, architecture_of_decisions, posterior_decisions
from archray.trainables.supernets.mixings.relaxed_parameters import chooses_inputs
from archray.trainables.supernets.networks import Group, Supernet
from archray.trainables.supernets.networks.group import NONE
from archray.trainables.supernets.relaxations import MixtureWeights


class _Entry(NamedTuple):
    """An entry of a group's weights: the sum of some of a decision's choices, where the decision matters."""

    decision: str
    choices: list[str]


class RelaxedDecisions:
    """The decisions of a posterior over a supernet's space, B of them with up to C choices, as rows of numbers.

    Rows that are one-hot stand for an architecture, and `mixture` gives the weights under which the supernet computes
    its function. Each weight is a product of entries of at most two rows, so gradients reach every choice that the
    function of the drawn architecture could change by, one decision at a time. One exception: with partial channels,
    an edge that has drawn `none` passes no gradient to single operations, as an edge without a weight has none.

    Attributes:
        decisions: those of `posterior_decisions`.
        allowed: (B, C) bool: padding is False, and so is `none` where the supernet has no such operation.

    Args:
        supernet: of DARTS' space or a NAS-Bench's.
        device: of rows and weights.
    """

    def __init__(self, supernet: Supernet, device: torch.device | str = "cpu") -> None:
        self.supernet = supernet
        self.decisions: tuple[Decision, ...] = posterior_decisions(supernet.space)
        self._index = {decision.name: number for number, decision in enumerate(self.decisions)}
        none = any(NONE in group.operations for group in supernet.groups)
        shape = len(self.decisions), max(len(decision.choices) for decision in self.decisions)
        self.allowed = torch.zeros(shape, dtype=torch.bool, device=device)
        for number, decision in enumerate(self.decisions):
            for choice, name in enumerate(decision.choices):
                self.allowed[number, choice] = none or name != NONE
        self._groups = {}
        for group in supernet.groups:
            entries = list(self._entries(group))
            terms = [[(entry.decision, choice) for choice in entry.choices] for entry in entries]
            places = torch.tensor([self._index[entry.decision] for entry in entries], device=device)
            self._groups[group.name] = (group, self._matrix(terms).to(device), places)
        # A decision on an edge matters where the pair of inputs takes the edge.
        conditions = [self._condition(decision) for decision in self.decisions]
        self._taken = self._matrix([each or [] for each in conditions]).to(device)
        self._always = torch.tensor([float(each is None) for each in conditions], device=device)

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
            name: MixtureWeights(self._weights(name, rows, whole=partial and not chooses_inputs(group)))
            for name, (group, *_) in self._groups.items()
        }

    def chances(self, rows: Tensor) -> dict[str, Tensor]:
        """(B, C) probabilities -> group -> (edges, operations): how probable an operation is in an architecture.

        Loose ends of NAS-Bench-1Shot1 are counted.
        """
        operations = [name for name, (group, *_) in self._groups.items() if not chooses_inputs(group)]
        return {name: self._weights(name, rows) for name in operations}

    def path(self, chosen: Tensor) -> dict[str, MixtureWeights]:
        """(B,) numbers of choices -> the path of their architecture, alone evaluated; on the CPU."""
        return self.supernet.path(self.architecture(chosen))

    def architecture(self, chosen: Tensor) -> tuple[str, ...]:
        """(B,) numbers of choices -> the architecture."""
        numbers = zip(self.decisions, chosen.tolist(), strict=True)
        named = {decision.name: decision.choices[number] for decision, number in numbers}
        return architecture_of_decisions(self.supernet.space, named)

    def _weights(self, name: str, rows: Tensor, whole: bool = False) -> Tensor:
        """(edges, columns) of a group; whole: as if each of its decisions mattered."""
        group, matrix, places = self._groups[name]
        sums = rows.flatten() @ matrix
        return (sums if whole else sums * self.reach(rows)[places]).view(group.shape)

    def _matrix(self, columns: list[list[tuple[str, str]]]) -> Tensor:
        """(B C, columns) of 0 and 1."""
        matrix = torch.zeros(*self.allowed.shape, len(columns))
        for number, terms in enumerate(columns):
            for name, choice in terms:
                at = self._index[name]
                matrix[at, self.decisions[at].choices.index(choice), number] = 1.0
        return matrix.flatten(0, 1)

    def _condition(self, decision: Decision) -> list[tuple[str, str]] | None:
        """The choices under which a decision matters; None if it always does."""
        if not isinstance(self.supernet.space, DARTS) or "<-" not in decision.name:
            return None
        into, source = decision.name.split("<-")
        inputs = f"{into}_inputs"
        return [(inputs, pair) for pair in self._choices(inputs) if source in pair.split(",")]

    def _entries(self, group: Group) -> Iterator[_Entry]:
        """Row by row."""
        if group.name in self._index:  # the parents of a node of NAS-Bench-1Shot1
            for parent in group.operations:
                yield _Entry(group.name, [each for each in self._choices(group.name) if parent in each.split(",")])
        elif chooses_inputs(group):  # an edge is there unless it is `none`
            for source in group.operations:
                name = f"{group.name.replace('inputs_', '')}<-{source}"
                yield _Entry(name, [each for each in self._choices(name) if each != NONE])
        else:
            for name in self._names(group):
                choices = self._choices(name)
                for operation in group.operations:
                    yield _Entry(name, [operation] if operation in choices else [])

    def _names(self, group: Group) -> list[str]:
        """The decisions on the operations of a group, a row each."""
        space = self.supernet.space
        if isinstance(space, NASBench1Shot1):
            return [f"operation_{node}" for node in space.nodes]
        prefix = f"{group.name}_" if isinstance(space, DARTS) else ""
        return [name for name in self._index if "<-" in name and name.startswith(prefix)]

    def _choices(self, name: str) -> tuple[str, ...]:
        return self.decisions[self._index[name]].choices
