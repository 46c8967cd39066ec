"""What a `SupernetTrainable` is told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from archray.settings import Seed, Settings
from archray.trainables.costs import BoundSettings
from archray.trainables.costs.edges import EdgeCosts
from archray.trainables.data import DataSettings
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import Space
from archray.trainables.supernets.cost_penalty_settings import CostPenaltySettings
from archray.trainables.supernets.optimizer_settings import OptimizerSettings
from archray.trainables.supernets.optimizers.mirror_descent import MirrorDescentSettings
from archray.trainables.supernets.relaxation_settings import RelaxationSettings, check_together
from archray.trainables.supernets.relaxations.simplex import SimplexSettings
from archray.trainables.supernets.supernet_training_settings import SupernetTrainingSettings

if TYPE_CHECKING:
    from archray.trainables.supernets.networks import Group, Supernet


class SupernetOptions(Settings):
    """What a supernet is and how it is trained, whatever its space and data.

    The default method is GAEA: the simplex mixture and mirror descent. Any relaxation goes with any objective and, as
    far as they mean the same by a parameter, with any optimizer.

    Args:
        network: width, depth and initialisation of the supernet.
        partial_channels: K of PC-DARTS: operations see 1/K of the channels, and edges have weights of their own.
        none: whether the operation `none` takes part, where the space has it. GAEA leaves it out on NAS-Bench-201
            (note G1).
        relaxation: how the weights of a mixture of operations are made of the architecture's parameters.
        optimizer: how the architecture's parameters learn.
        training: of the weights, and when the architecture learns.
        penalty: how much what the mixture costs counts while the architecture learns.
    """

    network: NetworkSettings = NetworkSettings()
    partial_channels: int = Field(1, ge=1)
    none: bool = True
    relaxation: SerializeAsAny[RelaxationSettings] = SimplexSettings()
    optimizer: SerializeAsAny[OptimizerSettings] = MirrorDescentSettings()
    training: SupernetTrainingSettings = SupernetTrainingSettings()
    penalty: CostPenaltySettings = CostPenaltySettings()

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        check_together(self.relaxation, self.optimizer, self.partial_channels)
        self.optimizer.check_objective(self.training.objective)
        return self

    def groups(self, space: Space | str) -> tuple[Group, ...]:
        """The architecture parameters of the supernet of `space`. Raises: as `networks.groups`."""
        from archray.trainables.supernets.networks import groups  # which imports torch

        return groups(space, partial_channels=self.partial_channels, none=self.none)

    def build(self, space: Space | str, *, in_channels: int, num_classes: int, seed: int | None) -> Supernet:
        """The supernet of `space`. Args, Raises: as `build_supernet`."""
        from archray.trainables.supernets.networks import build_supernet

        return build_supernet(
            space, self.network, in_channels, num_classes, seed, partial_channels=self.partial_channels, none=self.none
        )


class SupernetSettings(SupernetOptions):
    """All options of a `SupernetTrainable`; they stand in its Tune config under the key `settings`.

    Args:
        space: a registered name, or a reference to a space of the user's that has a supernet.
        score: what `scores` are in a config with `candidates`: "loss", least is best, or "accuracy".
        weights_dir: where a trial with `candidates` stores the weights: a local path or a pyarrow URI that every node
            reads. None stores none, and the next round starts from new weights.
        device: "auto" (a GPU if the trial was given one, else the CPU), or torch's own word.
        seed: of a trial whose config has no `seed` of its own.
        bounds: constraints that the architecture which a trial ends with meets: the most probable one near to what the
            weights say. None: there are none.
        edge_costs: by column, what each operation of each edge costs: of the penalty's cost, and of bounds on costs
            that are measured elsewhere.
    """

    space: str = "nasbench201"
    data: DataSettings = DataSettings()
    score: Literal["loss", "accuracy"] = "loss"
    weights_dir: str | None = None
    device: str = "auto"
    seed: Seed = 0
    bounds: BoundSettings | None = None
    edge_costs: dict[str, EdgeCosts] = Field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @field_validator("weights_dir")
    @classmethod
    def _absolute(cls, place: str | None) -> str | None:
        return place if place is None or "://" in place else str(Path(place).expanduser().absolute())
