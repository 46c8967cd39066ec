"""From settings to the mixing that learns as they say."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from archray.errors import InvalidInput
from archray.trainables.spaces import Space, get_space, posterior_decisions
from archray.trainables.supernets.mixings.drawn_paths import DECISIONS, open_decisions
from archray.trainables.supernets.mixings.mixing import Mixing
from archray.trainables.supernets.mixings.points import PointParameters
from archray.trainables.supernets.mixings.reinforce import ReinforcedController
from archray.trainables.supernets.mixings.relaxed_parameters import ArchitectureParameters
from archray.trainables.supernets.mixings.uniform import UniformArchitectures
from archray.trainables.supernets.mixings.variational import VariationalPosterior
from archray.trainables.supernets.networks import Group, Supernet
from archray.trainables.supernets.search_settings import (
    AdamSettings,
    ControllerSettings,
    OptimizerSettings,
    PathSettings,
    ReinforceSettings,
    RelaxationSettings,
    VariationalSettings,
    XNASSettings,
    mismatch,
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

    Args:
        seed: of initial parameters.
        device: of architecture parameters.

    Raises: InvalidInput if relaxation, optimizer and partial channels do not go together.
    """
    wrong = mismatch(relaxation, optimizer, supernet.partial_channels)
    if wrong is not None:
        raise InvalidInput(wrong)
    if isinstance(relaxation, PathSettings) and relaxation.draws == "architectures":
        return UniformArchitectures(supernet)
    if isinstance(relaxation, VariationalSettings) and isinstance(optimizer, AdamSettings):
        assert relaxation.scale != "data"  # `mismatch` refuses it
        return VariationalPosterior(supernet, relaxation, optimizer, scale=relaxation.scale, device=device)
    if isinstance(relaxation, ControllerSettings) and isinstance(optimizer, ReinforceSettings):
        return ReinforcedController(supernet, relaxation, optimizer, seed=seed)
    if isinstance(optimizer, XNASSettings):
        return PointParameters(supernet, optimizer, seed=seed, device=device)
    return ArchitectureParameters(supernet, relaxation, optimizer, seed=seed, device=device)


def entropy_rows(space: Space | str, groups: Sequence[Group], relaxation: RelaxationSettings) -> dict[str, int]:
    """How many entropies `Mixing.entropies` has under each name.

    groups: of the supernet of `space`.
    """
    if isinstance(relaxation, VariationalSettings):
        return {DECISIONS: len(posterior_decisions(get_space(space)))}
    whole = isinstance(relaxation, PathSettings) and relaxation.draws == "architectures"
    if whole or isinstance(relaxation, ControllerSettings):
        return {DECISIONS: len(open_decisions(get_space(space), groups))}
    return {group.name: group.edges for group in groups}
