"""What every relaxation says of itself, and the mixture that it makes of a supernet's operations with an optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from archray.errors import InvalidInput
from archray.registry import PackageRegistry
from archray.settings import RegisteredSettings
from archray.trainables.spaces import Space
from archray.trainables.supernets.optimizer_settings import Domain, OptimizerSettings

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from archray.trainables.supernets.mixings.mixing import Mixing
    from archray.trainables.supernets.mixings.relaxation import Relaxation
    from archray.trainables.supernets.networks import Group, Supernet

RELAXATIONS: PackageRegistry[type[RelaxationSettings]] = PackageRegistry(
    "relaxation", "archray.trainables.supernets.relaxations"
)


class RelaxationSettings(RegisteredSettings):
    """The settings of a relaxation, which make it. A subclass registers itself, by its `name`.

    One that is a function of parameters, a row per edge, says `domains` and `make`. Another one says `mixing`.
    """

    registry = RELAXATIONS
    domains: ClassVar[tuple[Domain, ...]] = ()  # what its parameters may be; the first where the optimizer takes any
    further_results: ClassVar[tuple[str, ...]] = ()  # entries of a trial's result that others do not have

    @property
    def draws_one(self) -> bool:
        """Whether a step evaluates one operation of an edge alone: that has no use for partial channels."""
        return False

    def make(self, generator: torch.Generator, domain: Domain) -> Relaxation:
        """The relaxation of parameters in `domain`, drawing from `generator`."""
        raise NotImplementedError(f"the relaxation {self.name} is no function of a supernet's parameters")

    def mixing(
        self, supernet: Supernet, optimizer: OptimizerSettings, *, seed: int, device: torch.device | str = "cpu"
    ) -> Mixing:
        """What learns the architecture, or draws it; see `build_mixing`, which checks that all go together."""
        from archray.trainables.supernets.mixings.relaxation import ArchitectureParameters

        make = partial(self.make, domain=optimizer.domain or self.domains[0])
        return ArchitectureParameters(supernet, make, optimizer, seed=seed, device=device)

    def entropy_rows(self, space: Space, groups: Sequence[Group]) -> dict[str, int]:
        """How many entropies `Mixing.entropies` has under each name. groups: of the supernet of `space`."""
        return {group.name: group.edges for group in groups}

    def chances(self, supernet: Supernet) -> dict[str, Tensor] | None:
        """group -> (edges, operations): the probability that a step's path takes an operation; None if unknown."""
        return None

    def check_optimizer(self, optimizer: OptimizerSettings) -> None:
        """Raises: InvalidInput if the optimizer cannot learn its parameters."""
        if optimizer.domain is None or optimizer.domain in self.domains:
            return
        if optimizer.domain == "simplex":
            raise InvalidInput(
                f"{optimizer.name} needs parameters on simplices; choose the relaxation simplex or gumbel, or adam"
            )
        raise InvalidInput(
            f"{optimizer.name} leaves the simplex; choose mirror-descent, or the relaxation softmax or gumbel"
        )


def check_together(relaxation: RelaxationSettings, optimizer: OptimizerSettings, partial_channels: int) -> None:
    """Raises: InvalidInput if relaxation, optimizer and partial channels do not go together."""
    optimizer.check_relaxation(relaxation.name)
    relaxation.check_optimizer(optimizer)
    if partial_channels > 1 and relaxation.draws_one:
        raise InvalidInput(
            f"partial channels are for mixtures, and {relaxation.name} draws one operation; choose softmax, simplex, "
            "gumbel with hard false, or path with draws architectures, where edges weigh 1; or partial_channels 1"
        )


def build_mixing(
    supernet: Supernet,
    relaxation: RelaxationSettings,
    optimizer: OptimizerSettings,
    *,
    seed: int,
    device: torch.device | str = "cpu",
) -> Mixing:
    """What learns the architecture: by the gradient of the mixture, by gradients of single images, by reward, by the
    ELBO; or draws it.

    seed: of initial parameters. Raises: InvalidInput as `check_together`.
    """
    check_together(relaxation, optimizer, supernet.partial_channels)
    return relaxation.mixing(supernet, optimizer, seed=seed, device=device)
