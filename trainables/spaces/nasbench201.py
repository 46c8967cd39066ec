"""NAS-Bench-201: cells with 4 nodes, 6 edges, 5 operations (Dong and Yang 2020; Shu 2022, 7.5)."""

import itertools
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from archray.errors import InvalidArchitecture
from archray.trainables.spaces.space import SPACES, Architecture, Decision, Space

EDGES = ((1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2))  # (target, source), in the order of the string
OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")  # in the benchmark's order
FORM = "|op~0|+|op~0|op~1|+|op~0|op~1|op~2|"
_PATTERN = re.compile(
    r"\|([^|~+]*)~0\|"
    r"\+\|([^|~+]*)~0\|([^|~+]*)~1\|"
    r"\+\|([^|~+]*)~0\|([^|~+]*)~1\|([^|~+]*)~2\|"
)

INPUT = -1  # the atom of the cell's input; convolutions are numbered by their edge, from 0

# A value is a sorted sum of terms. A term (p, atom) is the atom average-pooled p times.
Value = tuple[tuple[int, int], ...]
NormalForm = tuple[object, ...]


def normal_form(edges: Sequence[tuple[int, int]], operations: Sequence[str]) -> NormalForm:
    """Returns the function of a cell in a form that is equal for networks that are equal in distribution.

    The 15,625 strings describe far fewer networks. Pools keep one row per network, unlike in Shu (2022), 7.4.

    Args:
        edges: (E,) pairs (target node, source node), in topological order; node 0 is the input, the highest
            target is the output. A node is the sum of its edges.
        operations: (E,) one per edge: `none`, `skip_connect`, `avg_pool_3x3`; any other name is a layer with
            separate weights and normalization (a convolution).

    The rules are identities of functions, not only of strings:

    1. `none` contributes nothing; a layer or a pool without input contributes nothing; an edge without a path to the
       output is dropped. (This is exact for archray's networks. In the benchmark's training runs a convolution
       of zeros with an affine normalization was a learned constant.)
    2. `skip_connect` passes on the terms of its node.
    3. Sums commute.
    4. Average pooling is linear: the pool of a sum is the sum of pools.
    5. Layers are initialized independently, so they can be exchanged. A layer that is used on two paths stays one
       layer: 2 conv_a(x) is not conv_a(x) + conv_b(x).

    No other networks are merged. In particular, conv(2x) and conv(x) under batch normalization stay different.
    """
    values: dict[int, Value] = {0: ((0, INPUT),)}
    layers: dict[int, tuple[str, Value]] = {}  # edge -> (operation, its input)
    for number, ((target, source), operation) in enumerate(zip(edges, operations, strict=True)):
        value = values.get(source, ())
        if not value or operation == "none":
            continue
        if operation == "avg_pool_3x3":
            value = tuple((pools + 1, atom) for pools, atom in value)  # rule 4
        elif operation != "skip_connect":
            layers[number] = (operation, value)
            value = ((0, number),)
        values[target] = tuple(sorted(values.get(target, ()) + value))
    output = values.get(max(target for target, _ in edges), ())
    return _rename(layers, output)


def _rename(layers: dict[int, tuple[str, Value]], output: Value) -> NormalForm:
    """Returns the smallest spelling over all renamings of the layers with a path to the output (rule 5)."""
    live: set[int] = set()
    _collect(output, layers, live)
    colors: dict[int, tuple[object, ...]] = {INPUT: ()}
    for number in sorted(live):  # topological: a layer's input contains only earlier edges
        operation, value = layers[number]
        colors[number] = (operation, tuple(sorted((pools, colors[atom]) for pools, atom in value)))
    # A color is a layer's function of the input, without names. Layers of different colors cannot be exchanged, so only
    # renamings within a color are tried, in practice at most 24 for a cell with 6 edges.
    by_color = sorted(live, key=lambda number: (colors[number], number))
    classes = [list(group) for _, group in itertools.groupby(by_color, key=lambda number: colors[number])]
    orders = itertools.product(*(itertools.permutations(group) for group in classes))
    spellings: list[NormalForm] = []
    for order in orders:
        numbers = list(itertools.chain.from_iterable(order))
        rank = {INPUT: INPUT} | {number: place for place, number in enumerate(numbers)}
        spelling = tuple((layers[number][0], _renamed(layers[number][1], rank)) for number in numbers)
        spellings.append((spelling, _renamed(output, rank)))
    return min(spellings)


def _collect(value: Value, layers: dict[int, tuple[str, Value]], live: set[int]) -> None:
    for _, atom in value:
        if atom != INPUT and atom not in live:
            live.add(atom)
            _collect(layers[atom][1], layers, live)


def _renamed(value: Value, rank: dict[int, int]) -> Value:
    return tuple(sorted((pools, rank[atom]) for pools, atom in value))


@SPACES.register("nasbench201")
class NASBench201(Space):
    """The space of NAS-Bench-201: an operation for each edge of a complete cell with 4 nodes, 15,625 cells.

    Node 0 is the cell's input, node 3 its output; a node is the sum of its incoming edges. Strings are those of the
    benchmark: `|nor_conv_3x3~0|+|none~0|skip_connect~1|+|…|`, where `op~i` is the operation from node i.

    Example:
        ```python
        space = NASBench201()
        cell = space.decode("|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|nor_conv_1x1~2|")
        print(space.encode(space.canonical(cell)))
        ```
    """

    name: ClassVar[str] = "nasbench201"
    supernets: ClassVar[tuple[str, ...]] = ("mixed",)
    # Networks of the benchmark, trained as in Dong and Yang (2020). GAEA omits `none` (Li et al. 2021, C.3).
    defaults: ClassVar[Mapping[str, Any]] = {
        "supernets": {
            "supernet": {"network": {"channels": 16, "cells": 5}, "none": False, "training": {"epochs": 25}},
            "network": {"channels": 16, "cells": 5},
            "final": {"epochs": 200},
        },
        "paper-code": {"biases": True},  # `bias = not affine` in the authors' program (note P5)
    }
    decisions = tuple(Decision(f"{target}<-{source}", OPERATIONS) for target, source in EDGES)

    def encode(self, architecture: Architecture) -> str:
        """Returns the benchmark's string. Raises: InvalidArchitecture."""
        self.check(architecture)
        a, b, c, d, e, f = architecture
        return f"|{a}~0|+|{b}~0|{c}~1|+|{d}~0|{e}~1|{f}~2|"

    def decode(self, text: str) -> Architecture:
        """Parses the benchmark's string. Raises: InvalidArchitecture, with the format or the operations."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise InvalidArchitecture(
                f"nasbench201: expected a cell with 6 operations as {FORM}, got {text!r}; "
                f"an operation is one of {', '.join(OPERATIONS)}"
            )
        architecture = match.groups()
        self.check(architecture)
        return architecture

    def canonical(self, architecture: Architecture) -> Architecture:
        """Returns the first cell, in enumeration order, whose network is equal to `architecture` in distribution.

        `normal_form` defines this equality. `none` is the first operation, so a canonical cell has `none` on every dead
        edge. The first call in a process enumerates the whole space (about a second).
        """
        self.check(architecture)
        return _canonical_forms()[architecture]


@lru_cache(maxsize=1)
def _canonical_forms() -> dict[Architecture, Architecture]:
    """Returns the canonical form of every cell."""
    first: dict[NormalForm, Architecture] = {}
    return {cell: first.setdefault(normal_form(EDGES, cell), cell) for cell in NASBench201().enumerate()}
