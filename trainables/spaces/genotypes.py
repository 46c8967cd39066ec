"""Genotypes in DARTS' notation, a base class of spaces of such cells, their variants, and published architectures.

Liu et al. 2019, section 3.1.
"""

import ast
import difflib
import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cache, partial
from operator import itemgetter
from typing import ClassVar, NamedTuple

import numpy as np

from archray.errors import InvalidArchitecture, InvalidInput
from archray.plurals import count
from archray.trainables.spaces.space import SPACES, Architecture, Decision, Space

CELLS = ("normal", "reduce")
INPUTS = 2  # nodes 0 and 1 are the outputs of the two previous cells
LONGEST = 4096  # characters; a genotype has about 500, and the parser's memory grows with the text
MOST_NODES = 100  # in a printed range
PER_NODE = 3  # decisions: the two inputs, then the operations on them

CellEdges = tuple[tuple[str, int], ...]


class Genotype(NamedTuple):
    """Two cells: pairs (operation, source), two for node 2, two for node 3, and so on."""

    normal: CellEdges
    reduce: CellEdges

    def __str__(self) -> str:
        """As DARTS prints it, where all nodes are outputs of their cell."""
        return spell(self, *(cell_nodes(edges) for edges in self))


def cell_nodes(edges: CellEdges) -> tuple[int, ...]:
    """Returns the numbers of a cell's intermediate nodes."""
    return tuple(range(INPUTS, INPUTS + len(edges) // 2))


def cell_decisions(
    nodes: Sequence[int], operations: tuple[str, ...], *, repeated_inputs: bool = False
) -> tuple[Decision, ...]:
    """Returns, for each cell and node, the decisions for the two inputs and for the operations on them."""
    combinations = itertools.combinations_with_replacement if repeated_inputs else itertools.combinations
    decisions = []
    for cell, node in itertools.product(CELLS, nodes):
        pairs = tuple(f"{low},{high}" for low, high in combinations(range(node), 2))
        decisions.append(Decision(f"{cell}_{node}_inputs", pairs))
        decisions += [Decision(f"{cell}_{node}_{which}", operations) for which in ("lower", "higher")]
    return tuple(decisions)


class GenotypeSpace(Space):
    """Base class of spaces of two cells, normal and reduction. A node sums one operation on each of two earlier nodes.

    Nodes 0 and 1 are the outputs of the two previous cells. A subclass sets `decisions` by `cell_decisions`.
    """

    nodes: ClassVar[tuple[int, ...]]  # the intermediate ones
    operations: ClassVar[tuple[str, ...]]
    outputs_rule: ClassVar[str]  # text of the rule for a cell's output, for errors
    repeated_inputs: ClassVar[bool] = False  # whether a node may read the same node twice

    @abstractmethod
    def outputs(self, edges: CellEdges) -> tuple[int, ...]:
        """Returns the nodes whose concatenation is a cell's output."""

    def genotype(self, architecture: Architecture) -> Genotype:
        """Returns the two cells of an architecture. Raises: InvalidArchitecture."""
        self.check(architecture)
        edges: list[tuple[str, int]] = []
        for at in range(0, len(architecture), PER_NODE):
            edges += _node_edges(*architecture[at : at + PER_NODE])
        half = len(edges) // 2
        return Genotype(tuple(edges[:half]), tuple(edges[half:]))

    def architecture(self, genotype: Genotype) -> Architecture:
        """Returns the architecture of two cells; a node's two edges may have any order. Raises: InvalidArchitecture."""
        choices: list[str] = []
        expected = 2 * len(self.nodes)
        for cell, edges in zip(CELLS, genotype, strict=True):
            if len(edges) != expected:
                raise InvalidArchitecture(
                    f"{self.name}: expected {expected} edges in {cell}, got {len(edges)}: {edges!r}"
                )
            for node, at in zip(self.nodes, range(0, len(edges), 2), strict=True):
                (first, low), (second, high) = sorted(edges[at : at + 2], key=lambda edge: edge[1])
                if not 0 <= low <= high < node or (low == high and not self.repeated_inputs):
                    two = "two" if self.repeated_inputs else "two different"
                    raise InvalidArchitecture(
                        f"{self.name}: expected {two} inputs of node {node} of {cell} among the nodes "
                        f"0 to {node - 1}, got {low} and {high}"
                    )
                choices += [f"{low},{high}", first, second]
        self.check(tuple(choices))
        return tuple(choices)

    def encode(self, architecture: Architecture) -> str:
        """Returns the genotype as DARTS prints it. Raises: InvalidArchitecture."""
        genotype = self.genotype(architecture)
        return spell(genotype, *(self.outputs(edges) for edges in genotype))

    def decode(self, text: str) -> Architecture:
        """Parses a genotype as DARTS prints it, without evaluating it. Raises: InvalidArchitecture."""
        try:
            genotype, printed = _parse(text)
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
            got = f"{text[:LONGEST]!r} ({error})"
            raise InvalidArchitecture(f"{self.name}: expected {self._form}; got {got}") from error
        architecture = self.architecture(genotype)
        for cell, edges, nodes in zip(CELLS, genotype, printed, strict=True):
            if nodes != self.outputs(edges):
                raise InvalidArchitecture(
                    f"{self.name}: expected {cell}_concat={_spell_nodes(self.outputs(edges))}, because "
                    f"{self.outputs_rule}, got {list(nodes)}"
                )
        return architecture

    @property
    def _form(self) -> str:
        return (
            "Genotype(normal=[('sep_conv_3x3', 0), ...], normal_concat=range(2, 6), reduce=[('max_pool_3x3', 0), ...], "
            f"reduce_concat=range(2, 6)), {2 * len(self.nodes)} pairs in each list"
        ).replace("range(2, 6)", _spell_nodes(self.nodes))

    def canonical(self, architecture: Architecture) -> Architecture:
        """Returns the first architecture, in enumeration order, that differs only in the order of nodes.

        Exchanging nodes permutes the channels of a cell's output, and the initial weights of every layer that reads it
        have the same distribution for all channels. An edge with `none` gets the lowest free source. The operations of
        a node that reads another node twice are sorted.
        """
        normal, reduce = self.genotype(architecture)
        return (*self._canonical_cell(normal), *self._canonical_cell(reduce))

    def _canonical_cell(self, edges: CellEdges) -> tuple[str, ...]:
        """Returns the decisions of one cell in the order of nodes that ranks lowest."""
        nodes = [
            (node, *_node_terms(self.operations, edges[2 * at : 2 * at + 2])) for at, node in enumerate(self.nodes)
        ]
        # Node by node: the ranks of the first nodes, and the new places of the nodes in every order with these ranks.
        ranks: list[tuple[int, int, int, int]] = []
        orders: list[dict[int, int]] = [{source: source for source in range(INPUTS)}]
        for place in self.nodes:
            options = []
            for places in orders:
                for node, source, operation, other, second in nodes:
                    if node not in places and source in places and other in places:
                        low, high = places[source], places[other]
                        if low < high or (low == high and operation <= second):
                            options.append(((low, high, operation, second), places, node))
                        else:
                            options.append(((high, low, second, operation), places, node))
            lowest = min(options, key=itemgetter(0))[0]
            ranks.append(lowest)
            orders = [{**places, node: place} for rank, places, node in options if rank == lowest]
        names = self.operations
        return tuple(
            choice for low, high, first, second in ranks for choice in (f"{low},{high}", names[first], names[second])
        )


@cache  # a large pool has few distinct nodes
def _node_edges(sources: str, *operations: str) -> CellEdges:
    """Returns the edges of a node from its decisions."""
    return tuple(zip(operations, map(int, sources.split(",")), strict=True))


@cache
def _node_terms(operations: tuple[str, ...], edges: CellEdges) -> tuple[int, int, int, int]:
    """Returns source and number of the operation for both edges of a node. `none` reads the lowest free input."""
    read = {source for operation, source in edges if operation != "none"}
    free = (source for source in range(INPUTS) if source not in read)
    (source, first), (other, second) = (
        (next(free) if operation == "none" else source, operations.index(operation)) for operation, source in edges
    )
    return source, first, other, second


def spell(genotype: Genotype, *outputs: Sequence[int]) -> str:
    """Formats a genotype. outputs: the concatenated nodes of each cell."""
    cells = zip(CELLS, genotype, outputs, strict=True)
    parts = (f"{name}={list(edges)!r}, {name}_concat={_spell_nodes(nodes)}" for name, edges, nodes in cells)
    return f"Genotype({', '.join(parts)})"


def _spell_nodes(nodes: Sequence[int]) -> str:
    """Formats consecutive nodes as `range(2, 6)`, others as a list."""
    whole = range(INPUTS, nodes[-1] + 1)
    return repr(whole) if tuple(nodes) == tuple(whole) else repr(list(nodes))


def _parse(text: str) -> tuple[Genotype, tuple[tuple[int, ...], ...]]:
    """Parses the pairs and the outputs of a printed genotype.

    Raises: SyntaxError, ValueError or TypeError, with the reason.
    """
    if len(text) > LONGEST:
        raise ValueError(f"it has {count(len(text), 'character')}, more than {LONGEST}")
    if "\\" in text:
        raise ValueError("it contains a backslash, which is in no operation name")  # Python warns about some
    call = ast.parse(text.strip(), mode="eval").body
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Genotype"):
        raise ValueError("it is not a Genotype(...)")
    parts = {keyword.arg: keyword.value for keyword in call.keywords}
    if call.args or len(parts) != len(call.keywords) or set(parts) != {*CELLS, *(f"{cell}_concat" for cell in CELLS)}:
        raise ValueError("its arguments are not normal, normal_concat, reduce, reduce_concat")
    outputs = tuple(_nodes(parts[f"{cell}_concat"]) for cell in CELLS)
    return Genotype(_edges(parts["normal"]), _edges(parts["reduce"])), outputs


def _edges(expression: ast.expr) -> CellEdges:
    """Parses the (operation, source) pairs of a literal list."""
    pairs = ast.literal_eval(expression)
    if not isinstance(pairs, list | tuple):
        raise TypeError(f"{pairs!r} is not a list")
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and type(pair[0]) is str and type(pair[1]) is int):
            raise TypeError(f"{pair!r} is not a pair of an operation and a node number")
    return tuple(pairs)


def _nodes(expression: ast.expr) -> tuple[int, ...]:
    """Parses the numbers of `range(2, 6)` or of a literal list, which older versions printed."""
    if isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name) and expression.func.id == "range":
        bounds = [ast.literal_eval(argument) for argument in expression.args]
        if len(bounds) != 2 or expression.keywords:
            raise ValueError("range needs two numbers")
        if not all(type(bound) is int and 0 <= bound <= MOST_NODES for bound in bounds):
            raise ValueError(f"{bounds[0]} to {bounds[1]} is not a range of nodes")
        return tuple(range(*bounds))
    return tuple(ast.literal_eval(expression))


# Width and depth of a cell. Shu 2022, section 4.2.2.


class CellShape(NamedTuple):
    """The shape of a cell, which depends on its connections only.

    Attributes:
        width: Width in units of c, the width of a node: the sum over intermediate nodes of the share of their
            connections that come from the cell's inputs. At most n, the number of intermediate nodes.
        depth: Number of connections on the longest path from an input to the output, from 2 to n + 1.
    """

    width: float
    depth: int


def cell_shape(edges: CellEdges) -> CellShape:
    """Computes the shape of a cell. edges: pairs (operation, source) of a `Genotype`. DARTS' normal cell: 3.5 and 3."""
    reached = dict.fromkeys(range(INPUTS), 0)  # connections on the longest path to a node
    width = 0.0
    for number, node in enumerate(cell_nodes(edges)):
        sources = [source for _, source in edges[2 * number : 2 * number + 2]]
        width += sum(source < INPUTS for source in sources) / len(sources)
        reached[node] = 1 + max(reached[source] for source in sources)
    return CellShape(width, 1 + max(reached.values()))


# Published architectures by name, such as `darts-v2`.


def named_architectures() -> dict[str, tuple[str, ...]]:
    """Returns every name, with the spaces that contain an architecture of this name."""
    names: dict[str, tuple[str, ...]] = {}
    for space in SPACES:
        for name in SPACES.get(space).named:
            names[name] = (*names.get(name, ()), space)
    return names


def is_name(text: str) -> bool:
    """Whether a text looks like a name, not like a space's string."""
    return bool(text) and all(character.isalnum() or character in "-_." for character in text)


def spelled_out(space: Space, text: str) -> str:
    """Returns the string of an architecture from its string or its name in the space.

    Raises: InvalidArchitecture for an unknown name, or a string that the space cannot parse.
    """
    if text in space.named:
        return space.encode(space.decode(space.named[text]))
    choices = (f"one of {', '.join(space.named)}, or " if space.named else "") + f"a string of the space {space.name}"
    spaces = named_architectures().get(text)
    if spaces is not None:
        raise InvalidArchitecture(
            f"expected an architecture of the space {space.name}, got {text!r}, which is in "
            f"{' and '.join(spaces)}. Choose that space, or {choices}"
        )
    if space.named and is_name(text):
        near = difflib.get_close_matches(text, space.named, n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise InvalidArchitecture(
            f"there is no architecture {text!r} in the space {space.name}; {meant}choose {choices}"
        )
    space.decode(text)
    return text


def cell_space(text: str) -> GenotypeSpace:
    """Returns the first registered space that can parse a genotype. Raises: InvalidArchitecture, with the reasons."""
    reasons = []
    for name in SPACES:
        if issubclass(SPACES.get(name), GenotypeSpace):
            space = SPACES.get(name)()
            assert isinstance(space, GenotypeSpace)
            try:
                space.decode(text)
            except InvalidArchitecture as error:
                reasons.append(str(error).split(";")[0])
            else:
                return space
    raise InvalidArchitecture(
        f"expected the genotype of two cells, or the name of one (archray list architectures), got {text[:200]!r}: "
        f"{'; '.join(reasons)}"
    )


# Variants of a pair of cells: other connections, other operations, the widest form. Shu 2022, A.1.2 and sec. 4.4.

TRIES = 200  # draws per variant before archray reports that the space is too small


def connection_variants(space: GenotypeSpace, architecture: Architecture, number: int, seed: int) -> list[Architecture]:
    """Draws `number` distinct architectures uniformly, with the same operations and other sources (A.1.2).

    Nodes keep their order and their operations. Each source is drawn from the previous nodes. If a space needs two
    different inputs of a node, they are drawn without replacement, unlike in the program of Shu (2022). The variants
    differ from each other and from `architecture` by more than the order of nodes.

    Raises: InvalidInput if the space has fewer.
    """
    return _distinct(space, architecture, number, seed, partial(_reconnect, space))


def random_shapes(space: GenotypeSpace, architecture: Architecture, number: int, seed: int) -> list[Genotype]:
    """Draws `number` connections like `connection_variants`, but possibly with duplicates."""
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
    """Draws `number` distinct architectures uniformly, with the same connections and other operations (A.1.2).

    `none` is not drawn, because it is no connection. Distinct as in `connection_variants`. Raises: InvalidInput
    likewise.
    """
    operations = [operation for operation in space.operations if operation != "none"]

    def redraw(edges: CellEdges, rng: np.random.Generator) -> CellEdges:
        return tuple((operations[rng.integers(len(operations))], source) for _, source in edges)

    return _distinct(space, architecture, number, seed, redraw)


def widest(space: GenotypeSpace, architecture: Architecture) -> Architecture:
    """Returns the architecture whose nodes all read both inputs of the cell: SNAS' pattern (sec. 4.4, Figure 4.26).

    The operations stay the same. A node's operation on the lower source reads the first input, the other the second.
    """
    cells = (
        tuple((operation, number % INPUTS) for number, (operation, _) in enumerate(edges))
        for edges in space.genotype(architecture)
    )
    return space.architecture(Genotype(*cells))


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
            f"expected at most the number of variants of {space.encode(architecture)} in {space.name}, got {number}, "
            f"found {len(variants)}. Lower the number"
        )
    return variants
