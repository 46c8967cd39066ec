"""Costs of the entries of a supernet's weights: the expected cost of a mixture is linear in the weights.

FBNet, Wu et al. 2019, Eq. 2 to 4, and ProxylessNAS, Cai et al. 2019, Eq. 2 and 3, for the edges of cells instead of a
chain of layers.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from archray.settings import Settings
from archray.trainables.spaces import Decision, Space

if TYPE_CHECKING:
    from torch import Tensor

    from archray.trainables.supernets.networks import Group

SKIP, NONE = "skip_connect", "none"


class EdgeCosts(Settings):
    """The expected cost of architectures whose operations are drawn by the weights: `base` + the sum of w * entry.

    Attributes:
        base: the cost of the reference, whose edges all skip (or have their first operation).
        entries: group -> edges -> operations, the cost that an operation adds to the reference, times the chance that
            the architecture keeps its edge.
    """

    base: float
    entries: dict[str, list[list[float]]]

    def tensors(self, like: Tensor) -> dict[str, Tensor]:
        """group -> (edges, operations), with the type and device of `like`."""
        import torch

        return {name: torch.tensor(rows, dtype=like.dtype, device=like.device) for name, rows in self.entries.items()}

    def expected(self, weights: Mapping[str, Tensor]) -> Tensor:
        """The expected cost under the weights of a mixture, group -> (edges, operations); differentiable."""
        like = next(iter(weights.values()))
        terms = [(weights[name] * entries).sum() for name, entries in self.tensors(like).items()]
        return self.base + sum(terms, like.new_zeros(()))


def edge_costs(space: Space, groups: Sequence[Group], cost: Callable[[str], float]) -> EdgeCosts:
    """The cost of every entry of the groups' weights, from changes of single choices in a reference.

    1. The reference skips on every edge (without such an operation it takes the first other than `none`).
    2. An entry is the cost of the reference with that operation on that edge, minus the cost of the reference. If only
       some inputs of the edge's node keep the edge (DARTS), both have such inputs, and the entry is multiplied by the
       share of these inputs.
    3. Decisions that no group of operations weighs, such as a node's inputs, add the mean of their choices to the base.

    If choices are independent and no edge is `none` this is exact for sums over operations: parameters, flops. If
    `none` cuts an edge off from the output it is an upper bound. Groups that weigh inputs are left out: their inputs
    count as equally likely.

    cost: string of an architecture -> its cost.
    """
    decisions = {decision.name: decision for decision in space.posterior_decisions}
    reference = {name: _plain(decision) for name, decision in decisions.items()}

    def cost_with(choices: Mapping[str, str]) -> float:
        return cost(space.encode(space.architecture_of_decisions({**reference, **choices})))

    base = cost_with({})
    entries: dict[str, list[list[float]]] = {}
    weighed: set[str] = set()
    for group in groups:
        if group.inputs:
            continue
        entries[group.name] = []
        for row in range(group.edges):
            condition = space.condition(group.decision(row, 0))
            kept, share = {}, 1.0
            if condition is not None:
                name, choices = condition
                kept, share = {name: choices[0]}, len(choices) / len(decisions[name].choices)
            plain = cost_with(kept)
            differences: list[float] = []
            for column, operation in enumerate(group.operations):
                decision = decisions[group.decision(row, column)]
                candidates = [choice for choice in decision.choices if group.stands_for(operation, choice)]
                # The cheapest choice counts, of all if none takes the operation.
                least = min(cost_with({**kept, decision.name: choice}) for choice in candidates or decision.choices)
                differences.append(share * (least - plain))
                weighed.add(decision.name)
            entries[group.name].append(differences)
    for name in decisions.keys() - weighed:
        base += statistics.fmean(cost_with({name: choice}) for choice in decisions[name].choices) - cost_with({})
    return EdgeCosts(base=base, entries=entries)


def _plain(decision: Decision) -> str:
    if SKIP in decision.choices:
        return SKIP
    return next((choice for choice in decision.choices if choice != NONE), decision.choices[0])
