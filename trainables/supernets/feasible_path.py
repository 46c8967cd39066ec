"""The architecture that a supernet's learnt weights favour among those that meet a constraint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from torch import Tensor

from archray.trainables.costs.edges import EdgeCosts
from archray.trainables.spaces import Architecture, Space
from archray.trainables.supernets.networks import Supernet
from archray.trainables.supernets.networks.group import LEFT_OUT, NONE

STEPS = 60  # of the walk, at most
NEIGHBOURS = 40  # mutations looked at in a step, drawn where there are more


def log_probability(supernet: Supernet, probabilities: Mapping[str, Tensor], architecture: Architecture) -> float:
    """Of an architecture's operations under the learnt weights, nats: the sum over its edges.

    probabilities: group -> (edges, operations). An edge that the architecture leaves out counts as `none` where that
    is an operation, and else for nothing.
    """
    total = 0.0
    for group in supernet.groups:
        rows = probabilities[group.name].detach().cpu().double().clamp_min(1e-12).log()
        weights = supernet.path(architecture)[group.name]
        chosen = weights.dense.argmax(-1) if weights.chosen is None else weights.chosen
        for edge, column in enumerate(chosen.tolist()):
            if column != LEFT_OUT:
                total += float(rows[edge, column])
            elif NONE in group.operations:
                total += float(rows[edge, group.operations.index(NONE)])
    return total


def path_cost(supernet: Supernet, costs: EdgeCosts, architecture: str) -> float:
    """What the operations of an architecture cost by a table of edges, whose own are measured elsewhere."""
    weights = supernet.path(supernet.space.decode(architecture))
    return float(costs.expected({name: rows.dense.cpu().double() for name, rows in weights.items()}))


def feasible_architecture(
    supernet: Supernet,
    derived: str,
    probabilities: Mapping[str, Tensor] | None,
    violation: Callable[[str], float],
    seed: int,
) -> str:
    """The string of an architecture that meets a constraint, near to the one that was derived; itself if it does.

    1. From `derived`, while nothing near meets the constraint: the mutation that loses least log-probability for what
       it takes off the violation.
    2. When mutations meet it, the most probable of them; and on to the most probable neighbour that does.

    Without probabilities only the violation counts. What violates least is returned where nothing is found.

    Args:
        violation: string -> by how much it violates the constraint; 0 if it does not.
        seed: of the mutations that are looked at where there are more than 40.
    """
    space, rng = supernet.space, np.random.default_rng(seed)
    without_none = not any(NONE in group.operations for group in supernet.groups)
    known: dict[Architecture, tuple[float, float]] = {}

    def judged(architecture: Architecture) -> tuple[float, float]:
        """Violation and log-probability."""
        if architecture not in known:
            score = 0.0 if probabilities is None else log_probability(supernet, probabilities, architecture)
            known[architecture] = violation(space.encode(architecture)), score
        return known[architecture]

    here = space.decode(derived)
    for _ in range(STEPS):
        beyond, score = judged(here)
        near = [child for child in _neighbours(space, here, rng) if not (without_none and NONE in child)]
        feasible = [child for child in near if judged(child)[0] == 0.0]
        better = [child for child in near if judged(child)[0] < beyond]
        if beyond == 0.0:
            best = max(feasible, key=lambda child: judged(child)[1], default=here)
            if judged(best)[1] <= score:
                break
            here = best
        elif feasible:
            here = max(feasible, key=lambda child: judged(child)[1])
        elif better:
            here = max(better, key=lambda child: (judged(child)[1] - score) / (beyond - judged(child)[0]))
        else:
            break
    return space.encode(here)


def _neighbours(space: Space, architecture: Architecture, rng: np.random.Generator) -> Iterator[Architecture]:
    listed = space.mutations(architecture)
    if listed is None:
        for _ in range(NEIGHBOURS):
            yield space.mutate(architecture, rng)
        return
    near = list(listed)
    for place in rng.permutation(len(near))[:NEIGHBOURS] if len(near) > NEIGHBOURS else range(len(near)):
        yield near[place]
