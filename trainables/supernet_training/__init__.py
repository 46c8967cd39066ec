"""Training of supernets: weights and architecture parameters, side by side; scores by shared weights."""

from __future__ import annotations

from archray.trainables.supernet_training.architecture import ArchitectureParameters
from archray.trainables.supernet_training.build import build_mixing
from archray.trainables.supernet_training.candidates import CandidatePaths
from archray.trainables.supernet_training.controller import Controller
from archray.trainables.supernet_training.evaluation import score_architectures
from archray.trainables.supernet_training.mixing import Mixing
from archray.trainables.supernet_training.points import PointParameters
from archray.trainables.supernet_training.reinforce import Reinforce, ReinforcedController
from archray.trainables.supernet_training.settings import (
    AdamSettings,
    ControllerSettings,
    GumbelSettings,
    MirrorDescentSettings,
    NoOptimizerSettings,
    OptimizerSettings,
    PathSettings,
    ReinforceSettings,
    RelaxationSettings,
    SimplexSettings,
    SoftmaxSettings,
    SupernetTrainingSettings,
    XNASSettings,
)
from archray.trainables.supernet_training.shared_weights import read_weights, write_weights
from archray.trainables.supernet_training.trainer import Diverged, SupernetTrainer
from archray.trainables.supernet_training.unrolled import unrolled_gradient

__all__ = [
    "AdamSettings",
    "ArchitectureParameters",
    "CandidatePaths",
    "Controller",
    "ControllerSettings",
    "Diverged",
    "GumbelSettings",
    "MirrorDescentSettings",
    "Mixing",
    "NoOptimizerSettings",
    "OptimizerSettings",
    "PathSettings",
    "PointParameters",
    "Reinforce",
    "ReinforceSettings",
    "ReinforcedController",
    "RelaxationSettings",
    "SimplexSettings",
    "SoftmaxSettings",
    "SupernetTrainer",
    "SupernetTrainingSettings",
    "XNASSettings",
    "build_mixing",
    "read_weights",
    "score_architectures",
    "unrolled_gradient",
    "write_weights",
]
