"""p_alpha(A): what is sampled independently, the path of a sample, and the mode. Shu 2022, sections 6.2.3 and 6.4."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from archray.trainables.spaces import Architecture, Decision
from archray.trainables.spaces.darts import NODES
from archray.trainables.spaces.genotypes import CELLS, Genotype
from archray.trainables.supernets.mixings.relaxed_decisions import RelaxedDecisions
from archray.trainables.supernets.networks import MixtureWeights, Supernet
from archray.trainables.supernets.networks.darts_supernet import DARTSSupernet
from archray.trainables.supernets.networks.group import LEFT_OUT, Rows

KEPT = 2  # inputs, and operations, that a node of DARTS keeps


class WholeDecisions(RelaxedDecisions):
    """The decisions of the space, each of its own: NAS-Bench-201, NAS-Bench-1Shot1 and spaces of a user's."""

    def wanted(self, rows: Tensor) -> dict[str, Tensor]:
        """group -> (edges, operations) bool: the weights that rows (B, C) reach by a single choice."""
        return {group.name: torch.ones(group.shape, dtype=torch.bool) for group in self.supernet.groups}

    def mode(self, probabilities: Tensor) -> Architecture:
        """The most probable architecture, Algorithm 6.1; the first one wins a draw. probabilities: (B, C)."""
        return self.architecture(probabilities.argmax(-1))


class OneInputDecisions:
    """One operation and one input of each node of DARTS' cells, sampled independently. Section 6.4.2.

    A node is o(x_k) for its operation o and its input k, so an edge's weight of an operation is the product of two
    rows. `RelaxedDecisions` says what its methods take and return.
    """

    def __init__(self, supernet: DARTSSupernet, device: torch.device | str = "cpu") -> None:
        self.space, self.operations = supernet.space, supernet.groups[0].operations
        self.decisions: tuple[Decision, ...] = tuple(
            decision
            for cell, node in itertools.product(CELLS, NODES)
            for decision in (
                Decision(f"{cell}_{node}_operation", self.operations),
                Decision(f"{cell}_{node}_input", tuple(map(str, range(node)))),
            )
        )
        most = max(len(decision.choices) for decision in self.decisions)
        sizes = torch.tensor([len(decision.choices) for decision in self.decisions])
        self.allowed = (torch.arange(most) < sizes[:, None]).to(device)

    def mixture(self, rows: Tensor) -> dict[str, MixtureWeights]:
        return {cell: MixtureWeights(torch.cat(parts)) for cell, parts in self._parts(rows).items()}

    def wanted(self, rows: Tensor) -> dict[str, Tensor]:
        """The chosen input's operations, and the chosen operation on every input: others need two choices."""
        found = {}
        for cell in CELLS:
            parts = [
                (by_input[:, None] + of_operations) > 0 for by_input, of_operations in self._rows_of(rows.cpu(), cell)
            ]
            found[cell] = torch.cat(parts)
        return found

    def mode(self, probabilities: Tensor) -> Architecture:
        """Of each node the two most probable inputs and operations, the likelier operation on the likelier input.

        The thesis does not say which of the operations goes with which input (note N1). The first ones win draws.
        """
        cells = []
        for cell in CELLS:
            edges: list[tuple[str, int]] = []
            for by_input, of_operations in self._rows_of(probabilities, cell):
                sources = by_input.argsort(descending=True, stable=True)[:KEPT].tolist()
                columns = of_operations.argsort(descending=True, stable=True)[:KEPT].tolist()
                kept = zip(sources, columns, strict=True)
                edges += [(self.operations[column], source) for source, column in sorted(kept)]
            cells.append(tuple(edges))
        return self.space.architecture(Genotype(*cells))

    def _parts(self, rows: Tensor) -> dict[str, list[Tensor]]:
        """cell -> of each node the weights of the edges into it, (sources, operations)."""
        return {cell: [torch.outer(*pair) for pair in self._rows_of(rows, cell)] for cell in CELLS}

    def _rows_of(self, rows: Tensor, cell: str) -> list[tuple[Tensor, Tensor]]:
        """Of each node of a cell the row of its inputs, (sources,), and that of its operations."""
        first = CELLS.index(cell) * 2 * len(NODES)
        return [
            (rows[first + 2 * number + 1, :node], rows[first + 2 * number, : len(self.operations)])
            for number, node in enumerate(NODES)
        ]


NASIDecisions = WholeDecisions | OneInputDecisions


def decisions_of(supernet: Supernet, device: torch.device | str = "cpu") -> NASIDecisions:
    """What NASI samples of a supernet's space."""
    if isinstance(supernet, DARTSSupernet):
        return OneInputDecisions(supernet, device)
    return WholeDecisions(supernet, device)


def path_of(supernet: Supernet, mixture: Mapping[str, MixtureWeights]) -> dict[str, Rows]:
    """The path of a mixture whose weights are 0 and 1."""
    found = {}
    for group in supernet.groups:
        dense = mixture[group.name].dense.detach()
        columns = torch.where(dense.sum(-1) > 0, dense.argmax(-1), LEFT_OUT)
        found[group.name] = Rows(dense, None if group.inputs else tuple(columns.tolist()))
    return found


def one_hot_rows(chosen: Tensor, allowed: Tensor) -> Tensor:
    """(B,) numbers of choices -> (B, C)."""
    return functional.one_hot(chosen, allowed.shape[1]).to(torch.get_default_dtype())
