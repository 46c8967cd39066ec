"""AutoAttack: attacks one after another, each on what withstood those before. Croce and Hein 2020, section 6."""

from __future__ import annotations

from typing import Any

from archray.trainables.adversarial.registry import Attack
from archray.trainables.adversarial.settings import AttackSettings

_CLASSES_OF_DLR = 3  # the difference of logits ratio divides by the gap between the first and the third logit


def _make(classifier: Any, settings: AttackSettings) -> Any:
    from art.attacks.evasion import AutoAttack, AutoProjectedGradientDescent, DeepFool, SquareAttack

    own = settings.autoattack
    losses = ["cross_entropy"]
    if classifier.nb_classes >= _CLASSES_OF_DLR:
        losses.append("difference_logits_ratio")
    bounded = {"norm": "inf", "eps": settings.epsilon, "batch_size": settings.batch}
    parts = [
        AutoProjectedGradientDescent(
            classifier,
            **bounded,
            eps_step=2 * settings.epsilon,  # its first; it is halved where the loss stops rising
            max_iter=own.iterations,
            nb_random_init=own.restarts,
            loss_type=loss,
            verbose=False,
        )
        for loss in losses
    ]
    parts.append(DeepFool(classifier, max_iter=own.iterations, epsilon=1e-3, batch_size=settings.batch, verbose=False))
    parts.append(
        SquareAttack(classifier, **bounded, max_iter=own.queries, p_init=0.8, nb_restarts=own.restarts, verbose=False)
    )
    return AutoAttack(classifier, **bounded, eps_step=2 * settings.epsilon, attacks=parts)


autoattack = Attack(
    title="AutoAttack",
    norm="linf",
    reads=lambda settings: {
        "epsilon": settings.epsilon,
        "batch": settings.batch,
        **settings.autoattack.model_dump(mode="json"),
    },
    make=_make,
)
