"""Ensembles of networks: measures, evaluation from cached predictions, selection, one module of all members.

Importing this loads no torch until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from archray.registry import lazy_attributes
from archray.trainables.ensembles.evaluator import CachedEnsembles, in_process
from archray.trainables.ensembles.measures import (
    agreement,
    average,
    calibration_error,
    classes_of,
    disagreement,
    ensemble_accuracy,
    ensemble_loss,
    measure_ensemble,
    member_accuracies,
    member_losses,
    top_agreement,
)
from archray.trainables.ensembles.scores import Selection, arrange, forward_selection, restore, score_ensembles

if TYPE_CHECKING:
    from archray.trainables.ensembles.ensemble import Ensemble, Member, load_ensemble, member_of, save_ensemble
    from archray.trainables.ensembles.prediction import predict

__all__ = [
    "CachedEnsembles",
    "Ensemble",
    "Member",
    "Selection",
    "agreement",
    "arrange",
    "average",
    "calibration_error",
    "classes_of",
    "disagreement",
    "ensemble_accuracy",
    "ensemble_loss",
    "forward_selection",
    "in_process",
    "load_ensemble",
    "measure_ensemble",
    "member_accuracies",
    "member_losses",
    "member_of",
    "predict",
    "restore",
    "save_ensemble",
    "score_ensembles",
    "top_agreement",
]

__getattr__ = lazy_attributes(  # what needs torch
    __name__,
    ensemble=("Ensemble", "Member", "load_ensemble", "member_of", "save_ensemble"),
    prediction=("predict",),
)
