"""NAS-Bench-1Shot1: three subsets of NAS-Bench-101 for weight sharing. Zela et al. 2020; Ying et al. 2019; note G6."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from archray.errors import InvalidArchitecture
from archray.plurals import count
from archray.trainables.spaces.space import SPACES, Architecture, Decision, Space

OPERATIONS = ("conv1x1-bn-relu", "conv3x3-bn-relu", "maxpool3x3")  # NAS-Bench-101's names
INPUT, OUTPUT = "input", "output"
PADDED = 7  # vertices of a cell in NAS-Bench-101's tables; smaller cells get isolated vertices
PADDING = OPERATIONS[0]  # operation of a vertex without influence, in the tables

_VERTEX = re.compile(r"([^~+]*)~([0-9](?:,[0-9])*)")


class Module101(NamedTuple):
    """A cell in the format of NAS-Bench-101."""

    matrix: tuple[tuple[int, ...], ...]  # (V, V) upper triangular, 1 where the row's vertex feeds the column's
    operations: tuple[str, ...]  # (V,) `input`, the operations, `output`


class NASBench1Shot1(Space):
    """Base class of the spaces of NAS-Bench-1Shot1: an operation and a fixed number of parents on each node.

    Node 0 is the cell's input. Nodes 1 to n apply their operation to the sum of their parents. The output, node n + 1,
    concatenates its parents. Each node has two decisions, the operation and the parents (`"0,2"`). The last decision is
    the parents of the output. Strings are `conv3x3-bn-relu~0+maxpool3x3~0,1+...+output~1,4`: each node's operation and
    its parents.

    A node without a path to the output is a loose end: it has no influence, and `to_nasbench101` prunes it. `size`
    counts all choices. Zela et al. count 6,240 and 363,648 for spaces 1 and 3, without choices for the operation of a
    node without successors, and 29,160 for space 2, with them.
    """

    supernets: ClassVar[tuple[str, ...]] = ("mixed",)
    defaults: ClassVar[Mapping[str, Any]] = {
        # 3 stacks of 3 cells (Zela et al. 2020); NAS-Bench-101 trains for 108 epochs.
        "supernets": {
            "supernet": {"network": {"channels": 16, "cells": 3}},
            "network": {"channels": 128, "cells": 3},
            "final": {"epochs": 108},
        },
        # Shu 2022, 6.5.1. Its nu, 1000, holds for its own initialization: Eq. 6.14 is the rule.
        "nasi": {"nasi": {"mu": 1.0, "nu_rule": "adaptive"}},
    }
    parents: ClassVar[tuple[int, ...]]  # number of parents of nodes 1, 2, ... and of the output

    @property
    def nodes(self) -> range:
        """The nodes with an operation, 1 to n."""
        return range(1, len(self.parents))

    def graph(self, architecture: Architecture) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
        """Returns operations (n,) and parents (n + 1,), including the output's parents. Raises: InvalidArchitecture."""
        self.check(architecture)
        parents = (*architecture[1:-1:2], architecture[-1])
        return architecture[:-1:2], tuple(tuple(map(int, choice.split(","))) for choice in parents)

    def architecture(self, operations: Sequence[str], parents: Sequence[Sequence[int]]) -> Architecture:
        """Returns the architecture of a graph; a node's parents may have any order. Raises: InvalidArchitecture."""
        choices = [",".join(map(str, sorted(of_node))) for of_node in parents]
        if len(operations) != len(self.nodes) or len(choices) != len(self.parents):
            raise InvalidArchitecture(
                f"{self.name}: expected {count(len(self.nodes), 'operation')} and the parents of "
                f"{count(len(self.parents), 'node')}, got {len(operations)} and {len(choices)}"
            )
        pairs = itertools.chain.from_iterable(zip(operations, choices[:-1], strict=True))
        architecture = (*pairs, choices[-1])
        self.check(architecture)
        return architecture

    def encode(self, architecture: Architecture) -> str:
        """Joins `operation~parents` of all nodes by `+`. Raises: InvalidArchitecture."""
        self.check(architecture)
        operations, parents = (*architecture[:-1:2], OUTPUT), (*architecture[1:-1:2], architecture[-1])
        return "+".join(f"{name}~{of_node}" for name, of_node in zip(operations, parents, strict=True))

    def decode(self, text: str) -> Architecture:
        """Parses a string. Raises: InvalidArchitecture, with the expected format or the choices."""
        vertices = [_VERTEX.fullmatch(part) for part in text.split("+")]
        pairs = [vertex.groups() for vertex in vertices if vertex is not None]
        if len(pairs) != len(vertices) or len(pairs) != len(self.parents) or pairs[-1][0] != OUTPUT:
            raise InvalidArchitecture(
                f"{self.name}: expected {count(len(self.nodes), 'node')} and the output as operation~parent,parent+...+"
                f"output~parent,parent, got {text!r}; an operation is one of {', '.join(OPERATIONS)}"
            )
        parents = [[int(parent) for parent in of_node.split(",")] for _, of_node in pairs]
        return self.architecture([name for name, _ in pairs[:-1]], parents)

    def live(self, architecture: Architecture) -> tuple[int, ...]:
        """Returns the nodes with a path to the output, in order; the others are loose ends."""
        return _live(self.graph(architecture)[1])

    def to_nasbench101(self, architecture: Architecture, *, pad: bool = True) -> Module101:
        """Returns the cell in the format of NAS-Bench-101, without edges of loose ends.

        Args:
            pad: Whether to keep every node, loose ends as isolated `conv1x1-bn-relu`, and pad to 7 vertices, as in the
                published tables. Otherwise only live nodes are vertices.
        """
        operations, parents = self.graph(architecture)
        live = self.live(architecture)
        kept = self.nodes if pad else live
        spare = PADDED - 2 - len(kept) if pad else 0
        last = len(kept) + spare + 1
        place = {0: 0, **{node: at for at, node in enumerate(kept, 1)}, len(self.parents): last}
        matrix = [[0] * (last + 1) for _ in range(last + 1)]
        for node in (*live, len(self.parents)):
            for parent in parents[node - 1]:
                matrix[place[parent]][place[node]] = 1
        names = [operations[node - 1] if node in live else PADDING for node in kept] + [PADDING] * spare
        return Module101(tuple(map(tuple, matrix)), (INPUT, *names, OUTPUT))

    def canonical(self, architecture: Architecture) -> Architecture:
        """Returns the first architecture, in enumeration order, whose cell without loose ends is isomorphic.

        The initial weights of all nodes have the same distribution, so the order of nodes has no meaning. A live node
        can take any place with its number of parents after its parents. The remaining places get their first choices.
        """
        operations, parents = self.graph(architecture)
        live, output = _live(parents), len(self.parents)
        first = [decision.choices[0] for decision in self.decisions]
        spellings: list[Architecture] = []
        for places in itertools.permutations(self.nodes, len(live)):
            place = {0: 0, output: output, **dict(zip(live, places, strict=True))}
            choices = first.copy()
            for node in (*live, output):
                at, of_node = place[node], sorted(place[parent] for parent in parents[node - 1])
                if self.parents[at - 1] != len(of_node) or of_node[-1] >= at:
                    break
                if node != output:
                    choices[2 * at - 2] = operations[node - 1]
                choices[2 * at - 1 if node != output else -1] = ",".join(map(str, of_node))
            else:
                spellings.append(tuple(choices))
        return min(spellings, key=self.rank)


def _live(parents: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Returns the nodes with a path to the output, which is the last node with parents."""
    needed = set(parents[-1])
    for node in range(len(parents) - 1, 0, -1):
        if node in needed:
            needed.update(parents[node - 1])
    return tuple(sorted(needed - {0}))


def _decisions(parents: Sequence[int]) -> tuple[Decision, ...]:
    """Returns the decisions for the operation and the parents of each node, and for the parents of the output."""
    decisions = []
    for node, number in enumerate(parents, 1):
        if node < len(parents):
            decisions.append(Decision(f"operation_{node}", OPERATIONS))
        choices = tuple(",".join(map(str, chosen)) for chosen in itertools.combinations(range(node), number))
        decisions.append(Decision(f"parents_{node}", choices))
    return tuple(decisions)


@SPACES.register("nasbench1shot1-1")
class NASBench1Shot1Space1(NASBench1Shot1):
    """Space 1 of NAS-Bench-1Shot1: four nodes with 1, 2, 2, 2 parents, an output with 2. 14,580 choices."""

    name: ClassVar[str] = "nasbench1shot1-1"
    parents = (1, 2, 2, 2, 2)
    decisions = _decisions(parents)


@SPACES.register("nasbench1shot1-2")
class NASBench1Shot1Space2(NASBench1Shot1):
    """Space 2 of NAS-Bench-1Shot1: four nodes with 1, 1, 2, 2 parents, an output with 3. 29,160 choices."""

    name: ClassVar[str] = "nasbench1shot1-2"
    parents = (1, 1, 2, 2, 3)
    decisions = _decisions(parents)


@SPACES.register("nasbench1shot1-3")
class NASBench1Shot1Space3(NASBench1Shot1):
    """Space 3 of NAS-Bench-1Shot1: five nodes with 1, 1, 1, 2, 2 parents, an output with 2. 1,312,200 choices."""

    name: ClassVar[str] = "nasbench1shot1-3"
    parents = (1, 1, 1, 2, 2, 2)
    decisions = _decisions(parents)
