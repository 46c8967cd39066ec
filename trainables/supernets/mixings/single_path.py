"""One uniformly drawn operation per edge and step. SPOS: Guo et al. 2020; strict fairness: FairNAS, Chu et al. 2021."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from archray.trainables.supernets.mixings.relaxation import Relaxation
from archray.trainables.supernets.networks import MixtureWeights
from archray.trainables.supernets.networks.group import one_hot


class Path(Relaxation):
    """The parameters are not looked at, only their shape: every operation of an edge is as likely as the others.

    Args:
        fair: strict fairness. Of each |O| consecutive steps of a group, counted from its first, every operation of
            every edge has exactly one; their order is a random permutation, drawn anew for each edge and round.
            FairNAS adds up the gradients of one round before it updates the weights: that is left to the trainer.
    """

    reads_parameters = False

    def __init__(self, generator: torch.Generator, fair: bool = False) -> None:
        super().__init__(generator, "simplex")
        self.fair = fair
        # Of each group the order, (edges, operations) int64, of the present |O| steps, and how many of them are over.
        self._rounds: dict[str, tuple[Tensor, int]] = {}

    def group_weights(self, group: str, parameters: Tensor, progress: float) -> MixtureWeights:
        edges, operations = parameters.shape
        if self.fair:
            chosen = self._next(group, edges, operations)
        else:
            chosen = torch.randint(operations, (edges,), generator=self.generator, device=self.generator.device)
        chosen = chosen.to(parameters.device)
        return MixtureWeights(one_hot(chosen, operations, parameters.dtype), chosen)

    def _next(self, group: str, edges: int, operations: int) -> Tensor:
        """(edges,): the next operation of each edge in the group's present round."""
        order, position = self._rounds.get(group, (None, operations))
        if order is None or position == operations:
            # In float64: two equal draws favour the lower index, and have a chance below operations^2 / 2^54.
            device = self.generator.device
            keys = torch.rand((edges, operations), generator=self.generator, device=device, dtype=torch.float64)
            order, position = keys.argsort(-1), 0
        self._rounds[group] = (order, position + 1)
        return order[:, position]

    def state_dict(self) -> dict[str, Any]:
        """Tensors and numbers only: the generator's state, and each group's round."""
        rounds = {group: {"order": order, "position": position} for group, (order, position) in self._rounds.items()}
        return {**super().state_dict(), "rounds": rounds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        device = self.generator.device
        self._rounds = {
            group: (saved["order"].to(device), saved["position"]) for group, saved in state["rounds"].items()
        }
