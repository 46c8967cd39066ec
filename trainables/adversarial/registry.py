"""The attacks. Importing this loads neither torch nor the toolbox, which a function at the end imports when called.

To add an attack, add such a function.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

from archray.errors import MissingExtra
from archray.registry import Registry
from archray.trainables.adversarial.settings import AttackSettings

PACKAGES = ("art", "multiprocess")  # the toolbox, and what its AutoAttack imports without requiring it


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack of the toolbox.

    Attributes:
        title: as tables have it.
        norm: what it is bounded by: `linf`, by epsilon; `l2`, by nothing, and it makes the change small.
        reads: what of the settings it depends on, JSON-able.
        make: (the toolbox' classifier, settings) -> the toolbox' attack.
    """

    title: str
    norm: Literal["linf", "l2"]
    reads: Callable[[AttackSettings], dict[str, Any]]
    make: Callable[[Any, AttackSettings], Any]


ATTACKS: Registry[Attack] = Registry("attack")


def attack(
    *, title: str, norm: Literal["linf", "l2"], reads: Callable[[AttackSettings], dict[str, Any]]
) -> Callable[[Callable[[Any, AttackSettings], Any]], Attack]:
    """Makes an attack of a function as `Attack.make`; the options are those of `Attack`."""
    return lambda make: Attack(title=title, norm=norm, reads=reads, make=make)


def check_toolbox() -> None:
    """Raises: MissingExtra, with what to install, if the toolbox is not there. It imports nothing."""
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise MissingExtra(
            f"attacks need the Adversarial Robustness Toolbox, and {', '.join(missing)} cannot be imported; install it "
            "with: pip install 'archray[adversarial]'"
        )


@ATTACKS.register("fgsm")
@attack(title="FGSM", norm="linf", reads=lambda settings: {"epsilon": settings.epsilon})
def fgsm(classifier: Any, settings: AttackSettings) -> Any:
    """One step of epsilon along the sign of the gradient. Goodfellow et al. 2015, section 4."""
    from art.attacks.evasion import FastGradientMethod

    return FastGradientMethod(
        classifier, norm="inf", eps=settings.epsilon, eps_step=settings.epsilon, batch_size=settings.batch
    )


def _pgd_step(settings: AttackSettings) -> float:
    """Of an iteration, in units of a pixel."""
    return settings.epsilon / 4 if settings.pgd.step is None else settings.pgd.step


@ATTACKS.register("pgd")
@attack(
    title="PGD",
    norm="linf",
    reads=lambda settings: {
        "epsilon": settings.epsilon,
        "batch": settings.batch,
        **settings.pgd.model_dump(mode="json"),
        "step": _pgd_step(settings),
    },
)
def pgd(classifier: Any, settings: AttackSettings) -> Any:
    """FGSM in small steps, projected onto the ball after each. Madry et al. 2018, section 2.1."""
    from art.attacks.evasion import ProjectedGradientDescent

    return ProjectedGradientDescent(
        classifier,
        norm="inf",
        eps=settings.epsilon,
        eps_step=_pgd_step(settings),
        max_iter=settings.pgd.iterations,
        num_random_init=int(settings.pgd.random_start),
        batch_size=settings.batch,
        verbose=False,
    )


@ATTACKS.register("cw")
@attack(title="CW", norm="l2", reads=lambda settings: settings.cw.model_dump(mode="json"))
def cw(classifier: Any, settings: AttackSettings) -> Any:
    """The nearest image, by L_2, that is classified wrongly. Carlini and Wagner 2017, section VI A."""
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


_CLASSES_OF_DLR = 3  # the difference of logits ratio divides by the gap between the first and the third logit


@ATTACKS.register("autoattack")
@attack(
    title="AutoAttack",
    norm="linf",
    reads=lambda settings: {
        "epsilon": settings.epsilon,
        "batch": settings.batch,
        **settings.autoattack.model_dump(mode="json"),
    },
)
def autoattack(classifier: Any, settings: AttackSettings) -> Any:
    """Attacks one after another, each on what withstood those before. Croce and Hein 2020, section 6."""
    from art.attacks.evasion import AutoAttack, AutoProjectedGradientDescent, DeepFool, SquareAttack

    iterations, restarts = settings.autoattack.iterations, settings.autoattack.restarts
    losses = ["cross_entropy"]
    if classifier.nb_classes >= _CLASSES_OF_DLR:
        losses.append("difference_logits_ratio")
    bounded = {"norm": "inf", "eps": settings.epsilon, "batch_size": settings.batch}
    parts = [
        AutoProjectedGradientDescent(
            classifier,
            **bounded,
            eps_step=2 * settings.epsilon,  # its first; it is halved where the loss stops rising
            max_iter=iterations,
            nb_random_init=restarts,
            loss_type=loss,
            verbose=False,
        )
        for loss in losses
    ]
    parts.append(DeepFool(classifier, max_iter=iterations, epsilon=1e-3, batch_size=settings.batch, verbose=False))
    parts.append(
        SquareAttack(
            classifier, **bounded, max_iter=settings.autoattack.queries, p_init=0.8, nb_restarts=restarts, verbose=False
        )
    )
    return AutoAttack(classifier, **bounded, eps_step=2 * settings.epsilon, attacks=parts)
