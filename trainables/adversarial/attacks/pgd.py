"""PGD: FGSM in small steps, projected onto the ball after each. Madry et al. 2018, section 2.1."""

from __future__ import annotations

from typing import Any

from archray.trainables.adversarial.registry import Attack
from archray.trainables.adversarial.settings import AttackSettings


def _step(settings: AttackSettings) -> float:
    """Of an iteration, in units of a pixel."""
    return settings.epsilon / 4 if settings.pgd.step is None else settings.pgd.step


def _make(classifier: Any, settings: AttackSettings) -> Any:
    from art.attacks.evasion import ProjectedGradientDescent

    return ProjectedGradientDescent(
        classifier,
        norm="inf",
        eps=settings.epsilon,
        eps_step=_step(settings),
        max_iter=settings.pgd.iterations,
        num_random_init=int(settings.pgd.random_start),
        batch_size=settings.batch,
        verbose=False,
    )


pgd = Attack(
    title="PGD",
    norm="linf",
    reads=lambda settings: {
        "epsilon": settings.epsilon,
        "batch": settings.batch,
        **settings.pgd.model_dump(mode="json"),
        "step": _step(settings),
    },
    make=_make,
)
