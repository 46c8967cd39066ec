"""Genotypes in DARTS' notation, the base of spaces of such cells, their variants, and published architectures.

Liu et al. 2019, section 3.1.
"""

import ast
import difflib
import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from archray.errors import InvalidArchitecture, InvalidInput
from archray.plurals import count
from archray.trainables.spaces.space import SPACES, Architecture, Decision, Space

CELLS = ("normal", "reduce")
INPUTS = 2  # nodes 0 and 1 are the outputs of the two cells before
LONGEST = 4096  # characters; a genotype has about 500, and the parser's memory grows with the text
MOST_NODES = 100  # of a printed range
PER_NODE = 3  # decisions: the two inputs, then the operation on either

CellEdges = tuple[tuple[str, int], ...]


class Genotype(NamedTuple):
    """Two cells: pairs (operation, source), two for node 2, two for node 3, and so on."""

    normal: CellEdges
    reduce: CellEdges

    def __str__(self) -> str:
        """As DARTS prints it: the outputs of both cells are all of their nodes."""
        return spell(self, *(cell_nodes(edges) for edges in self))


def cell_nodes(edges: CellEdges) -> tuple[int, ...]:
    """The numbers of a cell's intermediate nodes."""
    return tuple(range(INPUTS, INPUTS + len(edges) // 2))


def cell_decisions(
    nodes: Sequence[int], operations: tuple[str, ...], *, repeated_inputs: bool = False
) -> tuple[Decision, ...]:
    """For each cell and node: the two inputs, the operation on the lower one, the operation on the higher one."""
    combinations = itertools.combinations_with_replacement if repeated_inputs else itertools.combinations
    decisions = []
    for cell, node in itertools.product(CELLS, nodes):
        pairs = tuple(f"{low},{high}" for low, high in combinations(range(node), 2))
        decisions.append(Decision(f"{cell}_{node}_inputs", pairs))
        decisions += [Decision(f"{cell}_{node}_{which}", operations) for which in ("lower", "higher")]
    return tuple(decisions)


class GenotypeSpace(Space):
    """A space of two cells, normal and reduction, whose nodes sum one operation on each of two earlier nodes.

    Nodes 0 and 1 are the outputs of the two cells before. A subclass sets `decisions` by `cell_decisions`.
    """

    nodes: ClassVar[tuple[int, ...]]  # the intermediate ones
    operations: ClassVar[tuple[str, ...]]
    outputs_rule: ClassVar[str]  # what a cell's output is, in words
    repeated_inputs: ClassVar[bool] = False  # whether a node may read the same node twice

    @abstractmethod
    def outputs(self, edges: CellEdges) -> tuple[int, ...]:
        """The nodes whose concatenation is a cell's output."""

    def genotype(self, architecture: Architecture) -> Genotype:
        """The two cells of an architecture. Raises: InvalidArchitecture."""
        self.check(architecture)
        edges: list[tuple[str, int]] = []
        for at in range(0, len(architecture), PER_NODE):
            sources, *operations = architecture[at : at + PER_NODE]
            edges += zip(operations, map(int, sources.split(",")), strict=True)
        half = len(edges) // 2
        return Genotype(tuple(edges[:half]), tuple(edges[half:]))

    def architecture(self, genotype: Genotype) -> Architecture:
        """The architecture of two cells, with a node's two edges in any order. Raises: InvalidArchitecture."""
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
                        f"{self.name}: expected node {node} of {cell} to have {two} inputs among the nodes "
                        f"0 to {node - 1}, got {low} and {high}"
                    )
                choices += [f"{low},{high}", first, second]
        self.check(tuple(choices))
        return tuple(choices)

    def encode(self, architecture: Architecture) -> str:
        """The genotype as DARTS prints it. Raises: InvalidArchitecture."""
        genotype = self.genotype(architecture)
        return spell(genotype, *(self.outputs(edges) for edges in genotype))

    def decode(self, text: str) -> Architecture:
        """The architecture of a genotype as DARTS prints it, parsed, never evaluated. Raises: InvalidArchitecture."""
        try:
            genotype, printed = _parse(text)
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
            got = f"{text[:LONGEST]!r} ({error})"
            raise InvalidArchitecture(f"{self.name}: expected {self._form}; got {got}") from error
        architecture = self.architecture(genotype)
        for cell, edges, nodes in zip(CELLS, genotype, printed, strict=True):
            if nodes != self.outputs(edges):
                raise InvalidArchitecture(
                    f"{self.name}: {cell}_concat is not {_spell_nodes(self.outputs(edges))}: {self.outputs_rule}; got "
                    f"{list(nodes)}"
                )
        return architecture

    @property
    def _form(self) -> str:
        return (
            "Genotype(normal=[('sep_conv_3x3', 0), ...], normal_concat=range(2, 6), reduce=[('max_pool_3x3', 0), ...], "
            f"reduce_concat=range(2, 6)), {2 * len(self.nodes)} pairs in each list"
        ).replace("range(2, 6)", _spell_nodes(self.nodes))

    def canonical(self, architecture: Architecture) -> Architecture:
        """The first architecture, in enumeration order, that is `architecture` with its nodes in another order.

        Exchanging nodes permutes the channels of a cell's output, and the initial weights of every layer that reads it
        have the same distribution for all channels. An edge with `none` has the lowest free source; the operations of a
        node that reads another twice are in order.
        """
        normal, reduce = self.genotype(architecture)
        return (*self._canonical_cell(normal), *self._canonical_cell(reduce))

    def _canonical_cell(self, edges: CellEdges) -> tuple[str, ...]:
        """The decisions of one cell whose nodes are in the order that makes them lowest."""
        # `none` reads nothing, so it does not bind the order of nodes.
        nodes = [[edge for edge in edges[at : at + 2] if edge[0] != "none"] for at in range(0, len(edges), 2)]
        spellings: list[tuple[str, ...]] = []
        for order in itertools.permutations(range(len(nodes))):
            place = {old + INPUTS: new + INPUTS for new, old in enumerate(order)} | {i: i for i in range(INPUTS)}
            renamed = [[(operation, place[source]) for operation, source in nodes[old]] for old in order]
            if any(source >= node for node, terms in zip(self.nodes, renamed, strict=True) for _, source in terms):
                continue
            spellings.append(tuple(choice for terms in renamed for choice in self._node(terms)))
        return min(spellings, key=self.rank)  # both cells have the same decisions

    def _node(self, terms: Sequence[tuple[str, int]]) -> tuple[str, str, str]:
        """The three decisions of a node from its edges other than `none`."""
        free = (source for source in range(INPUTS) if source not in {source for _, source in terms})
        pair = [*terms, *(("none", next(free)) for _ in range(2 - len(terms)))]
        (first, low), (second, high) = sorted(pair, key=lambda edge: (edge[1], self.operations.index(edge[0])))
        return f"{low},{high}", first, second


def spell(genotype: Genotype, *outputs: Sequence[int]) -> str:
    """A genotype's text. outputs: of either cell, the nodes that it concatenates."""
    cells = zip(CELLS, genotype, outputs, strict=True)
    parts = (f"{name}={list(edges)!r}, {name}_concat={_spell_nodes(nodes)}" for name, edges, nodes in cells)
    return f"Genotype({', '.join(parts)})"


def _spell_nodes(nodes: Sequence[int]) -> str:
    """`range(2, 6)` for all nodes in a row, else a list."""
    whole = range(INPUTS, nodes[-1] + 1)
    return repr(whole) if tuple(nodes) == tuple(whole) else repr(list(nodes))


def _parse(text: str) -> tuple[Genotype, tuple[tuple[int, ...], ...]]:
    """The pairs and the outputs of a printed genotype.

    Raises: SyntaxError, ValueError or TypeError, saying what is wrong.
    """
    if len(text) > LONGEST:
        raise ValueError(f"it is {count(len(text), 'character')} long")
    if "\\" in text:
        raise ValueError("it has a backslash, which no operation's name has")  # Python warns of some
    call = ast.parse(text.strip(), mode="eval").body
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Genotype"):
        raise ValueError("it is no Genotype(...)")
    parts = {keyword.arg: keyword.value for keyword in call.keywords}
    if call.args or len(parts) != len(call.keywords) or set(parts) != {*CELLS, *(f"{cell}_concat" for cell in CELLS)}:
        raise ValueError("its parts are not normal, normal_concat, reduce, reduce_concat")
    outputs = tuple(_nodes(parts[f"{cell}_concat"]) for cell in CELLS)
    return Genotype(_edges(parts["normal"]), _edges(parts["reduce"])), outputs


def _edges(expression: ast.expr) -> CellEdges:
    """The (operation, source) pairs of a literal list."""
    pairs = ast.literal_eval(expression)
    if not isinstance(pairs, list | tuple):
        raise TypeError(f"{pairs!r} is no list")
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and type(pair[0]) is str and type(pair[1]) is int):
            raise TypeError(f"{pair!r} is no pair of an operation and a node's number")
    return tuple(pairs)


def _nodes(expression: ast.expr) -> tuple[int, ...]:
    """The numbers of `range(2, 6)` or of a literal list, as older versions printed them."""
    if isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name) and expression.func.id == "range":
        bounds = [ast.literal_eval(argument) for argument in expression.args]
        if len(bounds) != 2 or expression.keywords:
            raise ValueError("range needs two numbers")
        if not all(type(bound) is int and 0 <= bound <= MOST_NODES for bound in bounds):
            raise ValueError(f"{bounds[0]} to {bounds[1]} is no range of nodes")
        return tuple(range(*bounds))
    return tuple(ast.literal_eval(expression))


# Width and depth of a cell. Shu 2022, section 4.2.2.


class CellShape(NamedTuple):
    """The shape of a cell, by its connections alone.

    Attributes:
        width: in c, the width of a node: the sum over intermediate nodes of the share of their connections that come
            from the cell's inputs. At most n, the number of intermediate nodes.
        depth: connections on the longest path from an input to the output; from 2 to n + 1.
    """

    width: float
    depth: int


def cell_shape(edges: CellEdges) -> CellShape:
    """edges: pairs (operation, source), as a `Genotype` has them. DARTS' own normal cell: 3.5 and 3."""
    reached = dict.fromkeys(range(INPUTS), 0)  # connections on the longest path to a node
    width = 0.0
    for number, node in enumerate(cell_nodes(edges)):
        sources = [source for _, source in edges[2 * number : 2 * number + 2]]
        width += sum(source < INPUTS for source in sources) / len(sources)
        reached[node] = 1 + max(reached[source] for source in sources)
    return CellShape(width, 1 + max(reached.values()))


# Published architectures by name, such as `darts-v2`.


def named_architectures() -> dict[str, tuple[str, ...]]:
    """Every name, with the spaces that have an architecture of it."""
    names: dict[str, tuple[str, ...]] = {}
    for space in SPACES:
        for name in SPACES.get(space).named:
            names[name] = (*names.get(name, ()), space)
    return names


def is_name(text: str) -> bool:
    """Whether a text has the form of a name, not of a space's string."""
    return bool(text) and all(character.isalnum() or character in "-_." for character in text)


def spelt_out(space: Space, text: str) -> str:
    """The string of an architecture, from the string or a name in the space.

    Raises: InvalidArchitecture for a name that the space lacks, or a string that it cannot read.
    """
    if text in space.named:
        return space.encode(space.decode(space.named[text]))
    choices = (f"one of {', '.join(space.named)}, or " if space.named else "") + f"the string of one of {space.name}"
    spaces = named_architectures().get(text)
    if spaces is not None:
        raise InvalidArchitecture(
            f"expected an architecture of the space {space.name}, got {text!r}, which is one of "
            f"{' and '.join(spaces)}; choose that space, or {choices}"
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
    """The first registered space that reads a genotype. Raises: InvalidArchitecture, with a reason per space."""
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
        f"expected the genotype of two cells, which have a width and a depth, or the name of one (archray list "
        f"architectures), got {text[:200]!r}: {'; '.join(reasons)}"
    )


# Variants of a pair of cells: other connections, other operations, the widest form. Shu 2022, A.1.2 and sec. 4.4.

TRIES = 200  # draws per variant before an error says that the space is too small


def connection_variants(space: GenotypeSpace, architecture: Architecture, number: int, seed: int) -> list[Architecture]:
    """`number` architectures of the same operations with other sources, drawn uniformly (A.1.2).

    Nodes keep their order and their operations; each source is drawn from the nodes before. If the two inputs of a
    node differ in a space, they are drawn without replacement, unlike in the thesis' program. The variants are distinct
    from each other and from `architecture`, up to the order of nodes.

    Raises: InvalidInput if the space has fewer.
    """
    return _distinct(space, architecture, number, seed, partial(_reconnect, space))


def random_shapes(space: GenotypeSpace, architecture: Architecture, number: int, seed: int) -> list[Genotype]:
    """`number` draws of connections, as those of `connection_variants`, but not distinct."""
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
    """`number` architectures of the same connections with other operations, drawn uniformly (A.1.2).

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
            f"expected no more variants than {space.name} has of {space.encode(architecture)}, got {number} where "
            f"{count(len(variants), 'one')} was found; lower the number"
        )
    return variants
