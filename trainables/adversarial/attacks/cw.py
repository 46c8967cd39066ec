"""CW: the nearest image, by L_2, that is classified wrongly. Carlini and Wagner 2017, section VI A."""

from __future__ import annotations

from typing import Any

from archray.trainables.adversarial.registry import Attack
from archray.trainables.adversarial.settings import AttackSettings


def _make(classifier: Any, settings: AttackSettings) -> Any:
    from art.attacks.evasion import CarliniL2Method

    return CarliniL2Method(
        classifier,
        confidence=settings.cw.confidence,
        learning_rate=settings.cw.learning_rate,
        binary_search_steps=settings.cw.search_steps,
        max_iter=settings.cw.iterations,
        initial_const=settings.cw.constant,
        batch_size=settings.batch,
        verbose=False,
    )


cw = Attack(
    title="CW",
    norm="l2",
    reads=lambda settings: settings.cw.model_dump(mode="json"),
    make=_make,
)
