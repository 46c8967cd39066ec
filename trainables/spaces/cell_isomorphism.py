"""When two small cells are the same network: a normal form of the function that a cell computes.

Used for NAS-Bench-201 (Dong and Yang 2020), whose 15,625 strings spell far fewer networks; pools of
architectures keep one row per network (thesis 7.4, where the authors sample without this care).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

INPUT = -1  # the atom that stands for the cell's input; convolutions are numbered by their edge, from 0

# A value is a sum of terms, kept sorted. A term (p, atom) is the atom average-pooled p times.
Value = tuple[tuple[int, int], ...]
NormalForm = tuple[object, ...]


def normal_form(edges: Sequence[tuple[int, int]], operations: Sequence[str]) -> NormalForm:
    """The function of a cell, spelt so that equal spellings mean the same network in distribution.

    Args:
        edges: (E,) pairs (target node, source node), in topological order; node 0 is the input, the highest
            target is the output. A node is the sum of its edges.
        operations: (E,) one per edge: `none`, `skip_connect`, `avg_pool_3x3`; any other name is a layer with
            weights and normalisation of its own (a convolution).

    The rules, each an identity of functions (not only of strings):

    1. `none` contributes nothing; a layer or a pool whose input is nothing contributes nothing; what does not
       reach the output is dropped. (A convolution of zeros followed by an affine normalisation would be a
       learnt constant. archray's networks do not compute it, so for them this is exact; in the benchmark's own
       trainings such a constant existed.)
    2. `skip_connect` passes its node's terms on.
    3. Sums commute.
    4. Average pooling is linear: the pool of a sum is the sum of pools.
    5. Layers are initialised independently, so they may be renamed among themselves; but a layer used on two
       paths stays one layer: 2 conv_a(x) is not conv_a(x) + conv_b(x).

    Nothing else is merged; in particular scale (conv(2x) and conv(x) under batch normalisation) is kept.
    """
    values: dict[int, Value] = {0: ((0, INPUT),)}
    layers: dict[int, tuple[str, Value]] = {}  # edge -> (operation, the value it is applied to)
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
    """The smallest spelling over all renamings of the layers that reach the output (rule 5)."""
    live: set[int] = set()
    _collect(output, layers, live)
    colours: dict[int, tuple[object, ...]] = {INPUT: ()}
    for number in sorted(live):  # topological: a layer's input names only earlier edges
        operation, value = layers[number]
        colours[number] = (operation, tuple(sorted((pools, colours[atom]) for pools, atom in value)))
    # A colour is what a layer computes from the input, all names removed. Layers of different colour cannot be
    # exchanged, so only renamings within a colour are tried: at most 24 for a cell of 6 edges in practice.
    by_colour = sorted(live, key=lambda number: (colours[number], number))
    classes = [list(group) for _, group in itertools.groupby(by_colour, key=lambda number: colours[number])]
    orders = itertools.product(*(itertools.permutations(group) for group in classes))
    return min(_spelling(layers, output, list(itertools.chain.from_iterable(order))) for order in orders)


def _spelling(layers: dict[int, tuple[str, Value]], output: Value, order: list[int]) -> NormalForm:
    """The cell with its live layers numbered in this order."""
    rank = {INPUT: INPUT} | {number: place for place, number in enumerate(order)}
    return tuple((layers[number][0], _renamed(layers[number][1], rank)) for number in order), _renamed(output, rank)


def _collect(value: Value, layers: dict[int, tuple[str, Value]], live: set[int]) -> None:
    for _, atom in value:
        if atom != INPUT and atom not in live:
            live.add(atom)
            _collect(layers[atom][1], layers, live)


def _renamed(value: Value, rank: dict[int, int]) -> Value:
    return tuple(sorted((pools, rank[atom]) for pools, atom in value))
