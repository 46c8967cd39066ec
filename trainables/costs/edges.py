"""What each entry of a supernet's weights adds to a cost: the expected cost of a mixture is linear in the weights.

FBNet, Wu et al. 2019, Eq. 2 to 4; ProxylessNAS, Cai et al. 2019, Eq. 2 and 3: there of a chain of layers, here of the
edges of cells.
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
        entries: group -> edges -> operations, what an operation adds to the reference, times the chance that its edge
            is one that the architecture keeps.
    """

    base: float
    entries: dict[str, list[list[float]]]

    def tensors(self, like: Tensor) -> dict[str, Tensor]:
        """group -> (edges, operations), beside `like`."""
        import torch

        return {name: torch.tensor(rows, dtype=like.dtype, device=like.device) for name, rows in self.entries.items()}

    def expected(self, weights: Mapping[str, Tensor]) -> Tensor:
        """The expected cost under the weights of a mixture, group -> (edges, operations); differentiable."""
        some = next(iter(weights.values()))
        terms = [(weights[name] * entries).sum() for name, entries in self.tensors(some).items()]
        return self.base + sum(terms, some.new_zeros(()))


def edge_costs(space: Space, groups: Sequence[Group], cost: Callable[[str], float]) -> EdgeCosts:
    """Of every entry of the groups' weights, by the differences that single choices make to a reference.

    1. The reference skips on every edge (without such an operation it takes the first other than `none`).
    2. An entry is the cost of the reference with that operation on that edge, less the reference's; of an edge that
       only some inputs of its node keep (DARTS), of both with inputs that do, times the share of those inputs.
    3. Decisions that no group of operations weighs, as a node's inputs, count in the base by the mean of their choices.

    Where choices do not depend on each other and no edge is `none` this is exact for what is summed over operations:
    parameters, flops. Where `none` cuts an edge off from the output it is an upper bound. Groups that weigh inputs are
    left out: their inputs count as equally likely.

    cost: string of an architecture -> its cost.
    """
    decisions = {decision.name: decision for decision in space.posterior_decisions}
    reference = {name: _plain(decision) for name, decision in decisions.items()}

    def of(chosen: Mapping[str, str]) -> float:
        return cost(space.encode(space.architecture_of_decisions({**reference, **chosen})))

    base = of({})
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
            plain = of(kept)
            entries[group.name].append(
                [share * (_with(group, row, column, decisions, kept, of) - plain) for column in range(group.shape[1])]
            )
            weighed |= {group.decision(row, column) for column in range(group.shape[1])}
    for name in decisions.keys() - weighed:
        base += statistics.fmean(of({name: choice}) for choice in decisions[name].choices) - of({})
    return EdgeCosts(base=base, entries=entries)


def _plain(decision: Decision) -> str:
    if SKIP in decision.choices:
        return SKIP
    return next((choice for choice in decision.choices if choice != NONE), decision.choices[0])


def _with(
    group: Group,
    row: int,
    column: int,
    decisions: Mapping[str, Decision],
    kept: Mapping[str, str],
    of: Callable[[Mapping[str, str]], float],
) -> float:
    """The cost of the reference with the operation of an entry; of one that no choice stands for, the cheapest's."""
    decision = decisions[group.decision(row, column)]
    standing = [choice for choice in decision.choices if group.stands_for(group.operations[column], choice)]
    return min(of({**kept, decision.name: choice}) for choice in standing or decision.choices)
