"""Adversarial attacks on one member of an ensemble, and what the whole ensemble makes of them. Shu 2022, 5.3.6.

The attacks are those of the Adversarial Robustness Toolbox (Nicolae et al. 2018), imported where one is made; importing
this loads neither it nor torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from archray.registry import lazy_attributes
from archray.trainables.adversarial.registry import ATTACKS, Attack, check_toolbox
from archray.trainables.adversarial.settings import AttackSettings

if TYPE_CHECKING:
    from archray.trainables.adversarial.defence import PixelNetwork, adversarial_images, attack_member, pixels_of

__all__ = [
    "ATTACKS",
    "Attack",
    "AttackSettings",
    "PixelNetwork",
    "adversarial_images",
    "attack_member",
    "check_toolbox",
    "pixels_of",
]

__getattr__ = lazy_attributes(  # what needs torch
    __name__,
    defence=("attack_member", "PixelNetwork", "pixels_of", "adversarial_images"),
)
