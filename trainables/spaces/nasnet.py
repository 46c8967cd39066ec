"""The space of NASNet's, AmoebaNet's and ENAS' cells: five nodes. Zoph et al. 2018, section 3; Pham et al. 2018."""

from collections.abc import Mapping
from typing import ClassVar

from archray.trainables.spaces.genotypes import CellEdges, GenotypeSpace, cell_decisions, cell_nodes
from archray.trainables.spaces.space import SPACES

# What the named cells have and DARTS' candidates, in the order of DARTS' program.
OPERATIONS = (
    "max_pool_3x3",
    "avg_pool_3x3",
    "skip_connect",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "sep_conv_7x7",
    "dil_conv_3x3",
    "dil_conv_5x5",
    "conv_7x1_1x7",
)
NODES = (2, 3, 4, 5, 6)

# NASNet-A (Zoph et al. 2018) and AmoebaNet-A (Real et al. 2019) as DARTS' program has them (github.com/quark0/darts,
# cnn/genotypes.py), ENAS' (Pham et al. 2018) as the program of Shu 2022, chapter 4, has it
# (github.com/shuyao95/Understanding-NAS, genotypes.py).
NAMED = {
    "nasnet": (
        "Genotype(normal=[('sep_conv_5x5', 1), ('sep_conv_3x3', 0), ('sep_conv_5x5', 0), ('sep_conv_3x3', 0), "
        "('avg_pool_3x3', 1), ('skip_connect', 0), ('avg_pool_3x3', 0), ('avg_pool_3x3', 0), ('sep_conv_3x3', 1), "
        "('skip_connect', 1)], normal_concat=[2, 3, 4, 5, 6], reduce=[('sep_conv_5x5', 1), ('sep_conv_7x7', 0), "
        "('max_pool_3x3', 1), ('sep_conv_7x7', 0), ('avg_pool_3x3', 1), ('sep_conv_5x5', 0), ('skip_connect', 3), "
        "('avg_pool_3x3', 2), ('sep_conv_3x3', 2), ('max_pool_3x3', 1)], reduce_concat=[4, 5, 6])"
    ),
    "amoebanet": (
        "Genotype(normal=[('avg_pool_3x3', 0), ('max_pool_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_5x5', 2), "
        "('sep_conv_3x3', 0), ('avg_pool_3x3', 3), ('sep_conv_3x3', 1), ('skip_connect', 1), ('skip_connect', 0), "
        "('avg_pool_3x3', 1)], normal_concat=[4, 5, 6], reduce=[('avg_pool_3x3', 0), ('sep_conv_3x3', 1), "
        "('max_pool_3x3', 0), ('sep_conv_7x7', 2), ('sep_conv_7x7', 0), ('avg_pool_3x3', 1), ('max_pool_3x3', 0), "
        "('max_pool_3x3', 1), ('conv_7x1_1x7', 0), ('sep_conv_3x3', 5)], reduce_concat=[3, 4, 6])"
    ),
    "enas": (
        "Genotype(normal=[('sep_conv_3x3', 1), ('skip_connect', 1), ('sep_conv_5x5', 1), ('skip_connect', 0), "
        "('avg_pool_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('avg_pool_3x3', 1), ('sep_conv_5x5', 1), "
        "('avg_pool_3x3', 0)], normal_concat=[2, 3, 4, 5, 6], reduce=[('sep_conv_5x5', 0), ('avg_pool_3x3', 1), "
        "('sep_conv_3x3', 1), ('avg_pool_3x3', 1), ('sep_conv_3x3', 1), ('avg_pool_3x3', 1), ('sep_conv_5x5', 4), "
        "('avg_pool_3x3', 1), ('sep_conv_3x3', 5), ('sep_conv_5x5', 0)], reduce_concat=[2, 3, 6])"
    ),
}


@SPACES.register("nasnet")
class NASNet(GenotypeSpace):
    """Cells of five nodes, each the sum of an operation on each of two earlier nodes, which may be the same one twice.

    (56,700 x 9^10)^2, about 4 x 10^28. Decisions are those of `DARTS`, with the inputs `"0,0"` too.

    A cell's output concatenates the nodes that no other node reads, which is Zoph et al.'s rule and ENAS'; the printed
    outputs of the three named cells are just these, so each has its published size. The thesis (section 4.2.1) speaks
    of all nodes, but what it trains has the printed outputs; a cell's width and depth are the same either way, as the
    node at the end of the longest path is read by no other. Its program keeps a cell's outputs where it redraws the
    connections, so that some of a variant's nodes lead nowhere; here none does.

    There is no supernet of it: outputs of a cell that depend on its connections have no mixture.
    """

    name: ClassVar[str] = "nasnet"
    named: ClassVar[Mapping[str, str]] = NAMED
    standalone: ClassVar[bool] = True
    nodes: ClassVar[tuple[int, ...]] = NODES
    outputs_rule: ClassVar[str] = "a cell's output is the nodes that no other node reads"
    operations: ClassVar[tuple[str, ...]] = OPERATIONS
    repeated_inputs: ClassVar[bool] = True
    decisions = cell_decisions(NODES, OPERATIONS, repeated_inputs=True)

    def outputs(self, edges: CellEdges) -> tuple[int, ...]:
        read = {source for _, source in edges}
        return tuple(node for node in cell_nodes(edges) if node not in read)
