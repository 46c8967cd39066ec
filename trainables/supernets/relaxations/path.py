"""The settings of one uniformly drawn path per step. SPOS: Guo et al. 2020; FairNAS: Chu et al. 2021."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import model_validator

from archray.errors import InvalidInput
from archray.trainables.spaces import Space
from archray.trainables.supernets.optimizer_settings import Domain, OptimizerSettings
from archray.trainables.supernets.relaxation_settings import RELAXATIONS, RelaxationSettings

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from archray.trainables.supernets.mixings.mixing import Mixing
    from archray.trainables.supernets.mixings.single_path import Path
    from archray.trainables.supernets.networks import Group, Supernet


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
        from archray.trainables.supernets.mixings.single_path import Path

        return Path(generator, self.fair)

    def mixing(
        self, supernet: Supernet, optimizer: OptimizerSettings, *, seed: int, device: torch.device | str = "cpu"
    ) -> Mixing:
        if self.draws == "architectures":
            from archray.trainables.supernets.mixings.drawn_paths import UniformArchitectures

            return UniformArchitectures(supernet)
        return super().mixing(supernet, optimizer, seed=seed, device=device)

    def entropy_rows(self, space: Space, groups: Sequence[Group]) -> dict[str, int]:
        if self.draws == "architectures":
            from archray.trainables.supernets.mixings.drawn_paths import DECISIONS, OpenDecisions

            return {DECISIONS: len(OpenDecisions(space, groups).decisions)}
        return super().entropy_rows(space, groups)

    def chances(self, supernet: Supernet) -> dict[str, Tensor] | None:
        """Unknown where a path leaves out loose ends."""
        if supernet.loose_ends:
            return None
        if self.draws == "edges":
            import torch

            return {group.name: torch.full(group.shape, 1.0 / group.shape[1]) for group in supernet.groups}
        from archray.trainables.supernets.mixings.relaxed_decisions import RelaxedDecisions

        relaxed = RelaxedDecisions(supernet)
        return relaxed.chances(relaxed.allowed / relaxed.allowed.sum(-1, keepdim=True))

    def check_optimizer(self, optimizer: OptimizerSettings) -> None:
        if optimizer.name != "none":
            raise InvalidInput(
                f"the relaxation path has no parameters to train; set the optimizer to none, not {optimizer.name}"
            )
