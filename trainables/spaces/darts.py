"""The space of DARTS: a normal and a reduction cell, four nodes of two inputs each. Liu et al. 2019, section 3.1."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from archray.errors import InvalidArchitecture
from archray.plurals import count
from archray.trainables.spaces.space import SPACES, Architecture, Decision, Space

# In the original's order, which is the order of a supernet's columns.
OPERATIONS = (
    "none",
    "max_pool_3x3",
    "avg_pool_3x3",
    "skip_connect",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "dil_conv_3x3",
    "dil_conv_5x5",
)
CELLS = ("normal", "reduce")
INPUTS = 2  # nodes 0 and 1 are the outputs of the two cells before
NODES = (2, 3, 4, 5)  # the intermediate nodes; a cell's output is their concatenation
FORM = (
    "Genotype(normal=[('sep_conv_3x3', 0), ...], normal_concat=range(2, 6), "
    "reduce=[('max_pool_3x3', 0), ...], reduce_concat=range(2, 6)), 8 pairs in each list"
)
LONGEST = 4096  # characters; a genotype has some 500, and the parser's memory grows with the text
PER_NODE = 3  # decisions: the two inputs, then the operation on either

CellEdges = tuple[tuple[str, int], ...]


class Genotype(NamedTuple):
    """Two cells as DARTS writes them: 8 pairs (operation, source) each, two for node 2, two for node 3, and so on."""

    normal: CellEdges
    reduce: CellEdges

    def __str__(self) -> str:
        concat = f"range({NODES[0]}, {NODES[-1] + 1})"
        cells = zip(CELLS, self, strict=True)
        return f"Genotype({', '.join(f'{name}={list(edges)!r}, {name}_concat={concat}' for name, edges in cells)})"


def _decisions(operations: tuple[str, ...]) -> tuple[Decision, ...]:
    """For each cell and node: the two inputs, the operation on the lower one, the operation on the higher one."""
    decisions = []
    for cell, node in itertools.product(CELLS, NODES):
        pairs = tuple(f"{low},{high}" for low, high in itertools.combinations(range(node), 2))
        decisions.append(Decision(f"{cell}_{node}_inputs", pairs))
        decisions += [Decision(f"{cell}_{node}_{which}", operations) for which in ("lower", "higher")]
    return tuple(decisions)


@SPACES.register("darts")
class DARTS(Space):
    """The space of DARTS' genotypes: (180 x 7^8)^2, about 10^18.

    A cell's nodes 0 and 1 are the outputs of the two cells before it; each of nodes 2 to 5 is the sum of one operation
    on each of two different earlier nodes. Per node there are three decisions: the two inputs (`"0,2"`), the operation
    on the lower one and the operation on the higher one. `none` is no choice: discretisation never keeps it (note G4).

    Strings are the genotypes that DARTS prints. The order of a node's two edges has no meaning: a genotype with the
    higher source first is read too, and is written with the lower one first.
    """

    name: ClassVar[str] = "darts"
    operations: ClassVar[tuple[str, ...]] = OPERATIONS[1:]
    decisions = _decisions(OPERATIONS[1:])

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
        """The architecture of two cells, whatever the order of a node's two edges. Raises: InvalidArchitecture."""
        choices: list[str] = []
        for cell, edges in zip(CELLS, genotype, strict=True):
            if len(edges) != 2 * len(NODES):
                raise InvalidArchitecture(f"{self.name}: expected 8 edges in {cell}, got {len(edges)}: {edges!r}")
            for node, at in zip(NODES, range(0, len(edges), 2), strict=True):
                (first, low), (second, high) = sorted(edges[at : at + 2], key=lambda edge: edge[1])
                if not 0 <= low < high < node:
                    raise InvalidArchitecture(
                        f"{self.name}: expected node {node} of {cell} to have two different inputs among the nodes "
                        f"0 to {node - 1}, got {low} and {high}"
                    )
                choices += [f"{low},{high}", first, second]
        self.check(tuple(choices))
        return tuple(choices)

    @property
    def posterior_decisions(self) -> tuple[Decision, ...]:
        """For each cell and node one over the pairs of inputs (`normal_3_inputs`), then for each edge into the node one
        over its operations (`normal_3<-0`). A draw has a choice for every edge; those of the pair drawn count."""
        pairs = {decision.name: decision for decision in self.decisions}
        decisions = []
        for cell, node in itertools.product(CELLS, NODES):
            decisions.append(pairs[f"{cell}_{node}_inputs"])
            decisions += [Decision(f"{cell}_{node}<-{source}", self.operations) for source in range(node)]
        return tuple(decisions)

    def architecture_of_decisions(self, chosen: Mapping[str, str]) -> Architecture:
        choices: list[str] = []
        for cell, node in itertools.product(CELLS, NODES):
            inputs = chosen[f"{cell}_{node}_inputs"]
            choices += [inputs, *(chosen[f"{cell}_{node}<-{source}"] for source in inputs.split(","))]
        return tuple(choices)

    def condition(self, decision: str) -> tuple[str, tuple[str, ...]] | None:
        """The operation on an edge matters where the node's pair of inputs takes the edge."""
        node, on_edge, source = decision.partition("<-")
        if not on_edge:
            return None
        [inputs] = [each for each in self.decisions if each.name == f"{node}_inputs"]
        return inputs.name, tuple(pair for pair in inputs.choices if source in pair.split(","))

    def encode(self, architecture: Architecture) -> str:
        """The genotype as DARTS prints it. Raises: InvalidArchitecture."""
        return str(self.genotype(architecture))

    def decode(self, text: str) -> Architecture:
        """The architecture of a genotype as DARTS prints it, parsed, never evaluated. Raises: InvalidArchitecture."""
        try:
            genotype = _parse(text)
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
            raise InvalidArchitecture(f"{self.name}: expected {FORM}; got {text[:LONGEST]!r} ({error})") from error
        return self.architecture(genotype)

    def canonical(self, architecture: Architecture) -> Architecture:
        """The first architecture, in enumeration order, that is `architecture` with its nodes in another order.

        Exchanging nodes permutes the channels of a cell's output, and every layer that reads it starts from weights
        that are drawn alike for all channels. Where `none` is a choice, the source of its edge is the lowest free one.
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
            if any(source >= node for node, terms in zip(NODES, renamed, strict=True) for _, source in terms):
                continue
            spellings.append(tuple(choice for terms in renamed for choice in self._node(terms)))
        return min(spellings, key=self.rank)  # both cells have the same decisions

    @staticmethod
    def _node(terms: Sequence[tuple[str, int]]) -> tuple[str, str, str]:
        """The three decisions of a node from its edges other than `none`."""
        free = (source for source in range(INPUTS) if source not in {source for _, source in terms})
        pair = [*terms, *(("none", next(free)) for _ in range(2 - len(terms)))]
        (first, low), (second, high) = sorted(pair, key=lambda edge: edge[1])
        return f"{low},{high}", first, second


@SPACES.register("darts-none")
class DARTSWithNone(DARTS):
    """DARTS' space with all eight operations: `none` may stand on an edge, which then gives zeros. (180 x 8^8)^2."""

    name: ClassVar[str] = "darts-none"
    operations: ClassVar[tuple[str, ...]] = OPERATIONS
    decisions = _decisions(OPERATIONS)


def _parse(text: str) -> Genotype:
    """The pairs of a printed genotype. Raises: SyntaxError, ValueError or TypeError, saying what is wrong."""
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
    for cell in CELLS:
        if _nodes(parts[f"{cell}_concat"]) != NODES:
            raise ValueError(f"{cell}_concat is not range(2, 6): a cell's output is all of its four nodes")
    return Genotype(_edges(parts["normal"]), _edges(parts["reduce"]))


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
        return NODES if bounds == [NODES[0], NODES[-1] + 1] else ()
    return tuple(ast.literal_eval(expression))
