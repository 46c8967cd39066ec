"""One uniformly drawn operation per edge and step. SPOS: Guo et al. 2020; strict fairness: FairNAS, Chu et al. 2021."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from pydantic import model_validator
from torch import Tensor

from archray.errors import InvalidInput
from archray.trainables.spaces import Space
from archray.trainables.supernets.mixing import Mixing
from archray.trainables.supernets.networks import Group, MixtureWeights, Supernet
from archray.trainables.supernets.networks.group import one_hot
from archray.trainables.supernets.optimizers.optimizer_settings import Domain, OptimizerSettings
from archray.trainables.supernets.relaxations.drawn_paths import DECISIONS, OpenDecisions, UniformArchitectures
from archray.trainables.supernets.relaxations.relaxation import Relaxation
from archray.trainables.supernets.relaxations.relaxation_settings import RELAXATIONS, RelaxationSettings
from archray.trainables.supernets.relaxations.relaxed_decisions import RelaxedDecisions


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


@RELAXATIONS.register("path")
class PathSettings(RelaxationSettings):
    """One uniformly drawn path per step; there are no architecture parameters to train.

    Attributes:
        draws: `edges`, an operation for each edge of the supernet, or `architectures`, a whole architecture of the
            space, with two inputs for each of DARTS' nodes (thesis 5.2.1), see `UniformArchitectures`.
        fair: strict fairness among the draws of edges, see `Path`. The weights are updated after every path.
    """

    domains = ("simplex",)
    further_results = ("updates",)

    name: Literal["path"] = "path"
    draws: Literal["edges", "architectures"] = "edges"
    fair: bool = False

    @model_validator(mode="after")
    def _fair_edges(self) -> PathSettings:
        if self.fair and self.draws != "edges":
            raise ValueError("strict fairness is among the operations of an edge; set fair to false or draws to edges")
        return self

    @property
    def draws_one(self) -> bool:
        return self.draws == "edges"

    def make(self, generator: torch.Generator, domain: Domain) -> Path:
        return Path(generator, self.fair)

    def mixing(
        self, supernet: Supernet, optimizer: OptimizerSettings, *, seed: int, device: torch.device | str = "cpu"
    ) -> Mixing:
        if self.draws == "architectures":
            return UniformArchitectures(supernet)
        return super().mixing(supernet, optimizer, seed=seed, device=device)

    def entropy_rows(self, space: Space, groups: Sequence[Group]) -> dict[str, int]:
        if self.draws == "architectures":
            return {DECISIONS: len(OpenDecisions(space, groups).decisions)}
        return super().entropy_rows(space, groups)

    def chances(self, supernet: Supernet) -> dict[str, Tensor] | None:
        """Unknown where a path leaves out loose ends."""
        if supernet.loose_ends:
            return None
        if self.draws == "edges":
            return {group.name: torch.full(group.shape, 1.0 / group.shape[1]) for group in supernet.groups}
        relaxed = RelaxedDecisions(supernet)
        return relaxed.chances(relaxed.allowed / relaxed.allowed.sum(-1, keepdim=True))

    def check_optimizer(self, optimizer: OptimizerSettings) -> None:
        if optimizer.name != "none":
            raise InvalidInput(
                f"the relaxation path has no parameters to train; set the optimizer to none, not {optimizer.name}"
            )
