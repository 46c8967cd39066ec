"""Training of supernets: weights and architecture parameters, side by side; scores by shared weights."""

from __future__ import annotations

from archray.trainables.supernets.evaluation import score_architectures
from archray.trainables.supernets.mixings.build_mixing import build_mixing
from archray.trainables.supernets.mixings.candidates import CandidatePaths
from archray.trainables.supernets.mixings.controller import Controller
from archray.trainables.supernets.mixings.mixing import Mixing
from archray.trainables.supernets.mixings.points import PointParameters
from archray.trainables.supernets.mixings.reinforce import Reinforce, ReinforcedController
from archray.trainables.supernets.mixings.relaxed_parameters import ArchitectureParameters
from archray.trainables.supernets.mixings.uniform import UniformArchitectures
from archray.trainables.supernets.mixings.variational import VariationalPosterior
from archray.trainables.supernets.posterior_trainer import PosteriorTrainer
from archray.trainables.supernets.search_settings import (
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
from archray.trainables.supernets.shared_weights import read_weights, write_weights
from archray.trainables.supernets.trainer import Diverged, SupernetTrainer
from archray.trainables.supernets.unrolled import unrolled_gradient
from archray.trainables.supernets.updates import UpdateCounter

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
