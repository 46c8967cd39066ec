"""The decisions that a distribution over a space is a product over; DARTS' pairs of inputs apart (note E6)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from archray.errors import InvalidInput
from archray.trainables.spaces.darts import CELLS, DARTS, NODES
from archray.trainables.spaces.space import Architecture, Decision, Space


def posterior_decisions(space: Space) -> tuple[Decision, ...]:
    """The decisions that a posterior over `space` has a categorical distribution for.

    They are the space's own, but for DARTS' (note E6): for each cell and node one over the pairs of inputs
    (`normal_3_inputs`), then for each edge into the node one over its operations (`normal_3<-0`). A draw has a choice
    for every edge; those of the pair drawn make the architecture.

    Raises: InvalidInput for a space with a continuous constant.
    """
    if math.isinf(space.size):
        raise InvalidInput(
            f"posterior: expected a space of categorical decisions, got {space.name}, which has a continuous constant; "
            "leave space out, and give the log-probabilities of values of your choosing"
        )
    if not isinstance(space, DARTS):
        return space.decisions
    pairs = {decision.name: decision for decision in space.decisions}
    decisions = []
    for cell, node in itertools.product(CELLS, NODES):
        decisions.append(pairs[f"{cell}_{node}_inputs"])
        decisions += [Decision(f"{cell}_{node}<-{source}", space.operations) for source in range(node)]
    return tuple(decisions)


def architecture_of_decisions(space: Space, chosen: Mapping[str, str]) -> Architecture:
    """The architecture of a choice for each of `posterior_decisions`, in their order."""
    if not isinstance(space, DARTS):
        return tuple(chosen.values())
    architecture: list[str] = []
    for cell, node in itertools.product(CELLS, NODES):
        inputs = chosen[f"{cell}_{node}_inputs"]
        architecture += [inputs, *(chosen[f"{cell}_{node}<-{source}"] for source in inputs.split(","))]
    return tuple(architecture)
