"""Variants of a pair of cells: other connections, other operations, the widest form. Shu 2022, A.1.2 and sec. 4.4."""

from collections.abc import Callable
from functools import partial

import numpy as np

from archray.errors import InvalidInput
from archray.plurals import count
from archray.trainables.spaces.genotypes import INPUTS, CellEdges, Genotype, GenotypeSpace
from archray.trainables.spaces.space import Architecture, Space

TRIES = 200  # draws for each variant that is asked for, before a space is called too small


def genotype_space(space: Space) -> GenotypeSpace:
    """A space whose cells have connections to vary. Raises: InvalidInput for another."""
    if not isinstance(space, GenotypeSpace):
        raise InvalidInput(
            f"expected a space of genotypes, whose cells have a width and a depth (darts, darts-none, nasnet), got "
            f"{space.name}; choose an architecture of one of these"
        )
    return space


def connection_variants(space: GenotypeSpace, architecture: Architecture, number: int, seed: int) -> list[Architecture]:
    """`number` architectures of the same operations whose sources are drawn anew, uniformly (A.1.2).

    Nodes keep their order and their operations; each source is drawn from the nodes before. Where a space has two
    different inputs to a node, the two are drawn without replacement, which the thesis' program does not do. Distinct
    from each other and from `architecture`, up to the order of nodes.

    Raises: InvalidInput if the space has not that many.
    """

    return _distinct(space, architecture, number, seed, partial(_reconnect, space))


def random_shapes(space: GenotypeSpace, architecture: Architecture, number: int, seed: int) -> list[Genotype]:
    """`number` draws of its connections, as those of `connection_variants`, but not told apart from each other."""
    rng, cells = np.random.default_rng(seed), space.genotype(architecture)
    return [Genotype(*(_reconnect(space, edges, rng) for edges in cells)) for _ in range(number)]


def _reconnect(space: GenotypeSpace, edges: CellEdges, rng: np.random.Generator) -> CellEdges:
    drawn: list[tuple[str, int]] = []
    for at in range(0, len(edges), 2):
        sources = rng.choice(INPUTS + at // 2, size=2, replace=space.repeated_inputs)
        operations = [operation for operation, _ in edges[at : at + 2]]
        drawn += zip(operations, map(int, sources), strict=True)
    return tuple(drawn)


def operation_variants(space: GenotypeSpace, architecture: Architecture, number: int, seed: int) -> list[Architecture]:
    """`number` architectures of the same connections whose operations are drawn anew, uniformly (A.1.2).

    `none` is not drawn: it is no connection. Distinct as those of `connection_variants`. Raises: InvalidInput likewise.
    """
    operations = [operation for operation in space.operations if operation != "none"]

    def redraw(edges: CellEdges, rng: np.random.Generator) -> CellEdges:
        return tuple((operations[rng.integers(len(operations))], source) for _, source in edges)

    return _distinct(space, architecture, number, seed, redraw)


def widest(space: GenotypeSpace, architecture: Architecture) -> Architecture:
    """The same operations, every node reading both inputs of the cell: SNAS' pattern (sec. 4.4, Figure 4.26).

    A node's operation on the lower source reads the first input, the other one the second.
    """

    def adapt(edges: CellEdges) -> CellEdges:
        return tuple((operation, number % INPUTS) for number, (operation, _) in enumerate(edges))

    normal, reduce = space.genotype(architecture)
    return space.architecture(Genotype(adapt(normal), adapt(reduce)))


def deepest(space: GenotypeSpace, architecture: Architecture) -> Architecture:
    """The same operations, every node reading the two nodes before it: as deep as a cell can be (Shu 2022, Table 7.2).

    A node's operation on the lower source reads the earlier one. Of DARTS' four nodes 1.5 wide and 5 deep.
    """

    def adapt(edges: CellEdges) -> CellEdges:
        return tuple((operation, number // 2 + number % 2) for number, (operation, _) in enumerate(edges))

    normal, reduce = space.genotype(architecture)
    return space.architecture(Genotype(adapt(normal), adapt(reduce)))


def _distinct(
    space: GenotypeSpace,
    architecture: Architecture,
    number: int,
    seed: int,
    redraw: Callable[[CellEdges, np.random.Generator], CellEdges],
) -> list[Architecture]:
    rng = np.random.default_rng(seed)
    normal, reduce = space.genotype(architecture)
    seen, variants = {space.canonical(architecture)}, list[Architecture]()
    for _ in range(TRIES * number):
        if len(variants) == number:
            break
        variant = space.architecture(Genotype(redraw(normal, rng), redraw(reduce, rng)))
        form = space.canonical(variant)
        if form not in seen:
            seen.add(form)
            variants.append(variant)
    if len(variants) < number:
        raise InvalidInput(
            f"expected no more variants than {space.name} has of {space.encode(architecture)}, got {number} where "
            f"{count(len(variants), 'one')} was found; lower the number"
        )
    return variants
