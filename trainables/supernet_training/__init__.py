"""Training of supernets: weights and architecture parameters, side by side; scores by shared weights."""

from __future__ import annotations

from archray.trainables.supernet_training.architecture import ArchitectureParameters
from archray.trainables.supernet_training.build import build_mixing
from archray.trainables.supernet_training.candidates import CandidatePaths
from archray.trainables.supernet_training.controller import Controller
from archray.trainables.supernet_training.evaluation import score_architectures
from archray.trainables.supernet_training.mixing import Mixing
from archray.trainables.supernet_training.points import PointParameters
from archray.trainables.supernet_training.posterior_trainer import PosteriorTrainer
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
    VariationalSettings,
    XNASSettings,
)
from archray.trainables.supernet_training.shared_weights import read_weights, write_weights
from archray.trainables.supernet_training.trainer import Diverged, SupernetTrainer
from archray.trainables.supernet_training.uniform import UniformArchitectures
from archray.trainables.supernet_training.unrolled import unrolled_gradient
from archray.trainables.supernet_training.updates import UpdateCounter
from archray.trainables.supernet_training.variational import VariationalPosterior

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
    "PosteriorTrainer",
    "Reinforce",
    "ReinforceSettings",
    "ReinforcedController",
    "RelaxationSettings",
    "SimplexSettings",
    "SoftmaxSettings",
    "SupernetTrainer",
    "SupernetTrainingSettings",
    "UniformArchitectures",
    "UpdateCounter",
    "VariationalPosterior",
    "VariationalSettings",
    "XNASSettings",
    "build_mixing",
    "read_weights",
    "score_architectures",
    "unrolled_gradient",
    "write_weights",
]
