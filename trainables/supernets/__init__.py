"""Supernets: all architectures of a space in one network, trained with its architecture or for one.

Importing this loads no torch until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from archray.registry import lazy_attributes
from archray.trainables.supernets.settings import OPTIMIZERS, RELAXATIONS, SupernetTrainingSettings, build_mixing

if TYPE_CHECKING:
    from archray.trainables.supernets.evaluation import score_architectures
    from archray.trainables.supernets.posterior import PosteriorTrainer
    from archray.trainables.supernets.trainer import SupernetTrainer

__all__ = [
    "OPTIMIZERS",
    "RELAXATIONS",
    "PosteriorTrainer",
    "SupernetTrainer",
    "SupernetTrainingSettings",
    "build_mixing",
    "score_architectures",
]

__getattr__ = lazy_attributes(  # what needs torch
    __name__,
    evaluation=("score_architectures",),
    posterior=("PosteriorTrainer",),
    trainer=("SupernetTrainer",),
)
