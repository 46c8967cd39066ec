"""FGSM: one step of epsilon along the sign of the gradient. Goodfellow et al. 2015, section 4."""

from __future__ import annotations

from typing import Any

from archray.trainables.adversarial.registry import Attack
from archray.trainables.adversarial.settings import AttackSettings


def _make(classifier: Any, settings: AttackSettings) -> Any:
    from art.attacks.evasion import FastGradientMethod

    return FastGradientMethod(
        classifier, norm="inf", eps=settings.epsilon, eps_step=settings.epsilon, batch_size=settings.batch
    )


fgsm = Attack(
    title="FGSM",
    norm="linf",
    reads=lambda settings: {"epsilon": settings.epsilon},
    make=_make,
)
