"""The architecture parameters of a supernet by name and shape, what they weigh, and the weights made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from archray.errors import InvalidInput
from archray.plurals import count
from archray.trainables.spaces import Decision

NONE = "none"  # the operation that gives zeros; it has no module
LEFT_OUT = -1  # in place of a chosen operation: nothing flows through the edge


def one_hot(chosen: Tensor, operations: int, dtype: torch.dtype) -> Tensor:
    """(edges,) -> (edges, operations): 1 at the chosen operation. Waits for no device, unlike torch's own."""
    dense = torch.zeros((len(chosen), operations), dtype=dtype, device=chosen.device)
    return dense.scatter_(-1, chosen[:, None], 1.0)


@dataclass(frozen=True)
class MixtureWeights:
    """The weights of the operations of one group of edges, for one step.

    Attributes:
        dense: (edges, operations), rows that sum to one. Gradients for the architecture parameters flow through it.
        chosen: (edges,) int64, the operation of each edge when all rows are one-hot, else None. With it a supernet
            evaluates one operation per edge; the gradient of the others' weights is then not known to it.

    Raises: InvalidInput if the shapes do not fit.
    """

    dense: Tensor
    chosen: Tensor | None = None

    def __post_init__(self) -> None:
        if self.dense.ndim != 2:
            raise InvalidInput(f"expected weights of shape (edges, operations), got {tuple(self.dense.shape)}")
        chosen = self.chosen
        if chosen is not None and (chosen.shape != self.dense.shape[:1] or chosen.dtype != torch.int64):
            raise InvalidInput(
                f"expected one int64 operation for each of {count(self.dense.shape[0], 'edge')}, "
                f"got {chosen.dtype} of shape {tuple(chosen.shape)}"
            )


Weights = Mapping[str, Tensor | MixtureWeights]


@dataclass(frozen=True)
class Group:
    """Edges that choose among the same operations: one row of weights per edge, one column per operation.

    Attributes:
        name: what the weights are keyed by, `normal`.
        edges: rows.
        operations: the columns, in order. Where an input is chosen and not an operation, the inputs' numbers.
        decisions: names of the space's `posterior_decisions`, the one that each row weighs.
    """

    inputs: ClassVar[bool] = False  # whether the columns are nodes, not operations

    name: str
    edges: int
    operations: tuple[str, ...]
    decisions: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return self.edges, len(self.operations)

    def decision(self, row: int, column: int) -> str:
        """The name of the decision that an entry weighs."""
        return self.decisions[row]

    def stands_for(self, operation: str, choice: str) -> bool:
        """Whether a choice of an entry's decision takes the operation of its column."""
        return choice == operation


class EdgesGroup(Group):
    """One row for the edges into a node, a column for each; `decisions` are those on the columns' operations."""

    inputs = True

    def decision(self, row: int, column: int) -> str:
        return self.decisions[column]

    def stands_for(self, operation: str, choice: str) -> bool:
        """An edge is there unless it is `none`."""
        return choice != NONE


class ParentsGroup(Group):
    """One row for the parents of a node, a column for each that it may have; a choice is `0,2`."""

    inputs = True

    def stands_for(self, operation: str, choice: str) -> bool:
        return operation in choice.split(",")


# What an entry of a group's weights, (row, column), would multiply; evaluated when it is called
Offer = tuple[int, int, Callable[[], Tensor]]
# What a node has taken, and the offers that its sum is of -> what the node is
Probe = Callable[[Tensor, Sequence[Offer]], Tensor]


@dataclass(frozen=True)
class Rows:
    """The weights of one group as a supernet's cells take them.

    With a probe the weights are those of a path, 0 or 1, and multiply nothing: what they would multiply is offered to
    the probe, node by node in the order of computation. The pass can then be differentiated any number of times.
    """

    dense: Tensor  # (edges, operations)
    chosen: tuple[int, ...] | None = None  # per edge the column evaluated alone, or LEFT_OUT; None if all are mixed
    probe: Probe | None = None


def rows_of(groups: Sequence[Group], weights: Weights) -> dict[str, Rows]:
    """The weights of every group. Raises: InvalidInput if a group is missing or unknown, or a shape is another."""
    expected = [group.name for group in groups]
    if set(weights) != set(expected):
        raise InvalidInput(f"expected weights for {', '.join(expected)}, got {', '.join(weights) or 'none'}")
    rows = {}
    for group in groups:
        of_group = weights[group.name]
        dense, chosen = (of_group.dense, of_group.chosen) if isinstance(of_group, MixtureWeights) else (of_group, None)
        if tuple(dense.shape) != group.shape:
            raise InvalidInput(
                f"expected weights of shape {group.shape}, edges and operations, for {group.name}, "
                f"got {tuple(dense.shape)}"
            )
        rows[group.name] = Rows(dense, None if chosen is None else tuple(chosen.tolist()))
    return rows


def path_weights(group: Group, chosen: Sequence[str | None]) -> MixtureWeights:
    """One-hot rows on the CPU for an operation per edge; None leaves an edge out: zeros, and nothing is evaluated."""
    columns = [LEFT_OUT if name is None else group.operations.index(name) for name in chosen]
    dense = torch.zeros(group.shape)
    for edge, column in enumerate(columns):
        if column != LEFT_OUT:
            dense[edge, column] = 1.0
    return MixtureWeights(dense, torch.tensor(columns))


def possible_choices(decision: Decision, groups: Sequence[Group]) -> tuple[str, ...]:
    """The choices that a supernet of these groups has: all of the decision's, `none` only if a group has it."""
    none = any(NONE in group.operations for group in groups)
    return decision.choices if none else without_none(decision.choices)


def columns_of(operations: Sequence[str], rows: Tensor) -> tuple[str, ...]:
    """The operations that rows of weights stand for: all of them, or without `none`. Raises: InvalidInput."""
    for names in (tuple(operations), without_none(operations)):
        if rows.shape[-1] == len(names):
            return names
    raise InvalidInput(
        f"expected weights of {', '.join(operations)}, with or without none, got {count(rows.shape[-1], 'column')}"
    )


def without_none(operations: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in operations if name != NONE)
