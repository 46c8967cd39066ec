"""The spaces of DARTS and NASNet: a normal and a reduction cell, two inputs per node. Liu et al. 2019, section 3.1."""

import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

from archray.trainables.spaces.genotypes import CELLS, CellEdges, GenotypeSpace, cell_decisions, cell_nodes
from archray.trainables.spaces.space import SPACES, Architecture, Decision

# In the order of the original program, which is also the order of a supernet's columns.
OPERATIONS = (
    "none", "max_pool_3x3", "avg_pool_3x3", "skip_connect",
    "sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5",
)  # fmt: skip
NODES = (2, 3, 4, 5)  # the intermediate nodes; a cell's output is their concatenation

# As the programs print them: DARTS by its first and second order (github.com/quark0/darts, cnn/genotypes.py), SNAS
# with mild constraint (Xie et al. 2019; from github.com/shuyao95/Understanding-NAS), and the best of GAEA PC-DARTS on
# CIFAR-10 (Li et al. 2021, Figure 3).
NAMED = {
    "darts-v1": (
        "Genotype(normal=[('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('skip_connect', 0), ('sep_conv_3x3', 1), "
        "('skip_connect', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('skip_connect', 2)], "
        "normal_concat=[2, 3, 4, 5], reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2), "
        "('max_pool_3x3', 0), ('max_pool_3x3', 0), ('skip_connect', 2), ('skip_connect', 2), ('avg_pool_3x3', 0)], "
        "reduce_concat=[2, 3, 4, 5])"
    ),
    "darts-v2": (
        "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1), "
        "('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), ('dil_conv_3x3', 2)], "
        "normal_concat=[2, 3, 4, 5], reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2), "
        "('max_pool_3x3', 1), ('max_pool_3x3', 0), ('skip_connect', 2), ('skip_connect', 2), ('max_pool_3x3', 1)], "
        "reduce_concat=[2, 3, 4, 5])"
    ),
    "snas-mild": (
        "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('skip_connect', 0), ('dil_conv_3x3', 1), "
        "('skip_connect', 0), ('skip_connect', 1), ('skip_connect', 0), ('sep_conv_3x3', 1)], "
        "normal_concat=[2, 3, 4, 5], reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2), "
        "('max_pool_3x3', 1), ('max_pool_3x3', 1), ('skip_connect', 2), ('dil_conv_5x5', 2), ('max_pool_3x3', 0)], "
        "reduce_concat=[2, 3, 4, 5])"
    ),
    "gaea-pc-darts": (
        "Genotype(normal=[('skip_connect', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 1), ('skip_connect', 2), "
        "('skip_connect', 2), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('dil_conv_3x3', 4)], "
        "normal_concat=range(2, 6), reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('sep_conv_5x5', 0), "
        "('sep_conv_5x5', 2), ('sep_conv_5x5', 2), ('dil_conv_5x5', 1), ('sep_conv_5x5', 4), ('sep_conv_3x3', 1)], "
        "reduce_concat=range(2, 6))"
    ),
}


@SPACES.register("darts")
class DARTS(GenotypeSpace):
    """The space of DARTS: genotypes of a normal and a reduction cell, (180 x 7^8)^2, about 10^18.

    Nodes 0 and 1 of a cell are the outputs of the two previous cells. Each of nodes 2 to 5 is the sum of one operation
    on each of two different earlier nodes. Each node has three decisions: the two inputs (`"0,2"`), the operation on
    the lower input and the operation on the higher input. `none` is not a choice, because discretization never keeps it
    (note G4).

    Strings are the genotypes that DARTS prints. The order of a node's two edges has no meaning: `decode` accepts both
    orders, and `encode` writes the lower source first.
    """

    name: ClassVar[str] = "darts"
    supernets: ClassVar[tuple[str, ...]] = ("mixed",)
    named: ClassVar[Mapping[str, str]] = NAMED
    defaults: ClassVar[Mapping[str, Any]] = {
        # Supernets of 8 cells and 16 channels; evaluation on CIFAR-10 with 20 cells and 36 channels (Liu et al. 2019,
        # App. A.2; GAEA, C.1.2).
        "supernets": {
            "supernet": {"network": {"channels": 16, "cells": 2}},
            "network": {"channels": 36, "cells": 6, "auxiliary": True},
            "final": {
                "epochs": 600,
                "batch_size": 128,
                "lr": 0.025,
                "nesterov": False,
                "weight_decay": 3e-4,
                "grad_clip": 5.0,
                "auxiliary_weight": 0.4,
                "drop_path": 0.3,
                "augmentation": {"cutout": 16},
            },
        },
        "nasi": {"nasi": {"mu": 2.0}, "final": {"batch_size": 96, "drop_path": 0.2}},  # Shu 2022, 6.4.4 and 6.5.3
        "ensembles": {"final": {"drop_path": 0.2}},  # increasing from 0 (note E8)
    }
    nodes: ClassVar[tuple[int, ...]] = NODES
    outputs_rule: ClassVar[str] = "a cell's output is the concatenation of its four nodes"
    operations: ClassVar[tuple[str, ...]] = OPERATIONS[1:]
    decisions = cell_decisions(NODES, OPERATIONS[1:])

    def outputs(self, edges: CellEdges) -> tuple[int, ...]:
        return NODES

    @property
    def posterior_decisions(self) -> tuple[Decision, ...]:
        """For each cell and node the pair of inputs (`normal_3_inputs`), then the operation of each edge into the node.

        An edge's decision is named `normal_3<-0`. A draw has a choice for every edge; only its pair's edges matter.
        """
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
        """The operation on an edge matters if the node's pair of inputs contains the edge."""
        node, on_edge, source = decision.partition("<-")
        if not on_edge:
            return None
        inputs = next(decision for decision in self.decisions if decision.name == f"{node}_inputs")
        return inputs.name, tuple(pair for pair in inputs.choices if source in pair.split(","))


@SPACES.register("darts-none")
class DARTSWithNone(DARTS):
    """The space of DARTS with all eight operations, including `none`, which outputs zeros. (180 x 8^8)^2."""

    name: ClassVar[str] = "darts-none"
    operations: ClassVar[tuple[str, ...]] = OPERATIONS
    decisions = cell_decisions(NODES, OPERATIONS)


# Cells of NASNet, AmoebaNet and ENAS: five nodes. Zoph et al. 2018, section 3; Pham et al. 2018.

# Operations of the named cells and candidates of DARTS, in the order of DARTS' program.
NASNET_OPERATIONS = (
    "max_pool_3x3", "avg_pool_3x3", "skip_connect", "sep_conv_3x3", "sep_conv_5x5", "sep_conv_7x7",
    "dil_conv_3x3", "dil_conv_5x5", "conv_7x1_1x7",
)  # fmt: skip
NASNET_NODES = (2, 3, 4, 5, 6)

# NASNet-A (Zoph et al. 2018) and AmoebaNet-A (Real et al. 2019) from DARTS' program (github.com/quark0/darts,
# cnn/genotypes.py), ENAS (Pham et al. 2018) from the program of Shu 2022, chapter 4
# (github.com/shuyao95/Understanding-NAS, genotypes.py).
NASNET_NAMED = {
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
    """The space of NASNet: cells of five nodes, each the sum of one operation on each of two earlier nodes.

    The two inputs of a node may be the same node. (56,700 x 9^10)^2, about 4 x 10^28. Decisions are those of `DARTS`,
    with inputs such as `"0,0"` in addition.

    A cell's output concatenates the nodes that no other node reads, as in Zoph et al. and ENAS. The three named cells
    print the same outputs, so that each has its published size. Shu (2022), section 4.2.1, names all nodes but trains
    the printed outputs; a cell's width and depth are the same in both cases. Its program keeps a cell's outputs in
    variants of the connections, so that some nodes have no path to the output. Here every node has a path.

    The space has no supernet, because a cell's outputs depend on its connections and cannot be mixed.
    """

    name: ClassVar[str] = "nasnet"
    named: ClassVar[Mapping[str, str]] = NASNET_NAMED
    nodes: ClassVar[tuple[int, ...]] = NASNET_NODES
    outputs_rule: ClassVar[str] = "a cell's output is the concatenation of the nodes that no other node reads"
    operations: ClassVar[tuple[str, ...]] = NASNET_OPERATIONS
    repeated_inputs: ClassVar[bool] = True
    decisions = cell_decisions(NASNET_NODES, NASNET_OPERATIONS, repeated_inputs=True)

    def outputs(self, edges: CellEdges) -> tuple[int, ...]:
        read = {source for _, source in edges}
        return tuple(node for node in cell_nodes(edges) if node not in read)
