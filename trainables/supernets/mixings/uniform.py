"""Training on one uniformly drawn architecture per step. Shu 2022 (thesis), section 5.2.1 and Appendix B.1."""

from __future__ import annotations

import math

import torch

from archray.trainables.spaces import Architecture
from archray.trainables.supernets.mixings.drawn_paths import DECISIONS, DrawnPaths, open_decisions
from archray.trainables.supernets.networks import Supernet


class UniformArchitectures(DrawnPaths):
    """Each step trains the path of one architecture, drawn uniformly from the space; nothing is learned.

    In DARTS a path has two inputs for each node, so an edge into node t is drawn in a share of 2 / t of the steps. With
    partial channels an edge weighs 1 where the path takes it, and 0 elsewhere: the edge weights of PC-DARTS compare
    mixed inputs, and a path has nothing to compare. The thesis is silent on them. Shared weights are scored so too.

    Args:
        supernet: whose paths they are. `none` is drawn only if its groups have it.
    """

    def __init__(self, supernet: Supernet) -> None:
        super().__init__(supernet)
        self._open = open_decisions(supernet.space, supernet.groups)
        self._first = [decision.choices[0] for decision in supernet.space.decisions]

    def drawn(self, generator: torch.Generator) -> Architecture:
        choices = self._first.copy()
        for at, decision in self._open.items():
            choices[at] = decision.choices[int(torch.randint(len(decision.choices), (), generator=generator))]
        return tuple(choices)

    def entropies(self) -> dict[str, list[float]]:
        return {DECISIONS: [math.log(len(decision.choices)) for decision in self._open.values()]}
