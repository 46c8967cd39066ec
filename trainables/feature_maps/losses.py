"""Losses and accuracies of decision values, point by point. Note W7."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from archray.trainables.feature_maps.solve_settings import Loss


def signs(labels: Tensor, classes: int) -> Tensor:
    """Targets of one class against the rest: (n, K) float64, +1 for a point's class and -1 for the others."""
    return F.one_hot(labels, classes).double().mul_(2).sub_(1)


def point_losses(decisions: Tensor, labels: Tensor, loss: Loss) -> Tensor:
    """The loss of each point, summed over one-against-rest problems for ridge (square) and svm (hinge).

    decisions: (n, K). labels: (n,). Returns: (n,) float64; logistic in nats.
    """
    decisions = decisions.double()
    if loss == "logistic":
        return F.cross_entropy(decisions, labels, reduction="none")
    targets = signs(labels, decisions.shape[1])
    if loss == "ridge":
        return (decisions - targets).square().sum(1)
    return (1 - decisions * targets).clamp_(min=0).sum(1)


def point_hits(decisions: Tensor, labels: Tensor) -> Tensor:
    """(n,) float64: 1 where the largest decision value is the label's."""
    finite = torch.isfinite(decisions).all(1)
    return ((decisions.argmax(1) == labels) & finite).double()
