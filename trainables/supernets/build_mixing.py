"""From settings to the mixing that learns as they say, if they go together."""

from __future__ import annotations

import torch

from archray.errors import InvalidInput
from archray.trainables.supernets.mixings.mixing import Mixing
from archray.trainables.supernets.networks import Supernet
from archray.trainables.supernets.optimizers import OptimizerSettings
from archray.trainables.supernets.relaxations import RelaxationSettings


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

    Args:
        seed: of initial parameters.
        device: of architecture parameters.

    Raises: InvalidInput if relaxation, optimizer and partial channels do not go together.
    """
    check_together(relaxation, optimizer, supernet.partial_channels)
    return relaxation.mixing(supernet, optimizer, seed=seed, device=device)
