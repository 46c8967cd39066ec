"""The attacks and their strength. Imports neither torch nor the toolbox.

Epsilon and steps are in units of a pixel in 0..1, before normalization. Shu 2022, section 5.4, uses 0.01 and 0.008 for
FGSM and PGD. The defaults here are those of AutoAttack's paper on CIFAR, 8/255, for all attacks that are bounded by
L_inf, and a quarter of it as the step of PGD (Madry et al. 2018). To add an attack, add a function at the end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

from pydantic import Field

from archray.errors import MissingExtra, install_command
from archray.registry import Registry
from archray.settings import Settings

EPSILON = 8 / 255
PACKAGES = ("art", "multiprocess")  # the toolbox, and an import of its AutoAttack that it does not require


class PGDSettings(Settings):
    """Options of projected gradient descent (Madry et al. 2018).

    Attributes:
        step: Size of a step, in units of a pixel (default: a quarter of epsilon).
        iterations: Number of steps; 40 gives PGD-40.
        random_start: Whether to start at a random point of the ball instead of the image.
    """

    step: float | None = Field(None, gt=0, lt=1)
    iterations: int = Field(40, ge=1)
    random_start: bool = True


class CWSettings(Settings):
    """Options of the L_2 attack of Carlini and Wagner (2017), with the numbers of Shu (2022), section 5.4.

    The toolbox descends by a line search that starts with the learning rate, not by Adam.

    Attributes:
        confidence: Minimum margin of a wrong class, in logits.
        constant: Initial c, the weight of misclassification against distance; the geometric center of the range in Shu
            (2022), 0.001 to 10. It is doubled while the attack fails, and halved or bisected when it succeeds.
        search_steps: Number of values of c.
        iterations: Number of steps of the descent for each c.
        learning_rate: Learning rate of the first step.
    """

    confidence: float = Field(0.0, ge=0)
    constant: float = Field(0.1, gt=0)
    search_steps: int = Field(3, ge=1)
    iterations: int = Field(50, ge=1)
    learning_rate: float = Field(0.01, gt=0)


class AutoAttackSettings(Settings):
    """Options of the toolbox's AutoAttack: APGD on cross-entropy and on the logit difference ratio, DeepFool, Square.

    Croce and Hein (2020) use a targeted APGD, and FAB instead of DeepFool; the toolbox has neither. Each part attacks
    the images that are still classified correctly.

    Attributes:
        iterations: Number of iterations of APGD, and of DeepFool.
        restarts: Number of restarts of APGD and Square.
        queries: Number of queries of Square per image.
    """

    iterations: int = Field(100, ge=1)
    restarts: int = Field(1, ge=1)
    queries: int = Field(5000, ge=1)


class AttackSettings(Settings):
    """Strength of the attacks.

    Attributes:
        epsilon: Maximum change of a pixel in 0..1, for attacks that are bounded by L_inf.
        pgd: Options of PGD.
        cw: Options of the attack of Carlini and Wagner.
        autoattack: Options of AutoAttack.
        batch: Number of images that are attacked at once.
    """

    epsilon: float = Field(EPSILON, gt=0, lt=1)
    pgd: PGDSettings = PGDSettings()
    cw: CWSettings = CWSettings()
    autoattack: AutoAttackSettings = AutoAttackSettings()
    batch: int = Field(256, ge=1)


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack of the toolbox.

    Attributes:
        title: Name in tables.
        norm: `linf`, bounded by epsilon; or `l2`, unbounded, where the attack minimizes the change.
        reads: Function that returns the settings on which the attack depends, as plain data.
        make: Function from (the toolbox's classifier, settings) to the toolbox's attack.
    """

    title: str
    norm: Literal["linf", "l2"]
    reads: Callable[[AttackSettings], dict[str, Any]]
    make: Callable[[Any, AttackSettings], Any]


ATTACKS: Registry[Attack] = Registry("attack")


def attack(
    *, title: str, norm: Literal["linf", "l2"], reads: Callable[[AttackSettings], dict[str, Any]]
) -> Callable[[Callable[[Any, AttackSettings], Any]], Attack]:
    """Decorates the function `Attack.make`; the options are attributes of `Attack`."""
    return lambda make: Attack(title=title, norm=norm, reads=reads, make=make)


def check_toolbox() -> None:
    """Raises: MissingExtra, with the install command, without the toolbox. It imports nothing."""
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise MissingExtra(
            f"expected the Adversarial Robustness Toolbox for attacks, and Python cannot import {', '.join(missing)}. "
            f"Run {install_command('adversarial')}"
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
    """Returns the size of a step, in units of a pixel."""
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
    """The nearest misclassified image, by L_2. Carlini and Wagner 2017, section VI A."""
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
    """Several attacks, each on the images that the previous attacks did not change. Croce and Hein 2020, section 6."""
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
            eps_step=2 * settings.epsilon,  # the first step; it is halved when the loss stops increasing
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
