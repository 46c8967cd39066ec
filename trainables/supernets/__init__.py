"""Supernets: all architectures of a space in one network, trained with its architecture or for one."""

from __future__ import annotations

from archray.trainables.checkpoint import read_weights, write_weights
from archray.trainables.supernets.evaluation import score_architectures
from archray.trainables.supernets.optimizers import OPTIMIZERS
from archray.trainables.supernets.posterior_trainer import PosteriorTrainer
from archray.trainables.supernets.relaxations import RELAXATIONS
from archray.trainables.supernets.relaxations.relaxation_settings import build_mixing
from archray.trainables.supernets.supernet_training_settings import SupernetTrainingSettings
from archray.trainables.supernets.trainer import SupernetTrainer

__all__ = [
    "OPTIMIZERS",
    "RELAXATIONS",
    "PosteriorTrainer",
    "SupernetTrainer",
    "SupernetTrainingSettings",
    "build_mixing",
    "read_weights",
    "score_architectures",
    "write_weights",
]
