"""How strong the attacks are; importable without torch.

Epsilon and steps are in units of a pixel in 0..1, before normalisation. Shu 2022, section 5.4, has 0.01 and 0.008 of
FGSM and PGD; here the defaults are those of AutoAttack's paper on CIFAR, 8/255, for all attacks that are bounded by
L_inf, and a quarter of it as the step of PGD (Madry et al. 2018).
"""

from pydantic import Field

from archray.settings import Settings

EPSILON = 8 / 255


class PGDSettings(Settings):
    """Projected gradient descent. Madry et al. 2018.

    Fields:
        step: of an iteration, in units of a pixel; None: a quarter of epsilon.
        iterations: 40 are PGD-40.
        random_start: whether it begins at a random point of the ball, or at the image.
    """

    step: float | None = Field(None, gt=0, lt=1)
    iterations: int = Field(40, ge=1)
    random_start: bool = True


class CWSettings(Settings):
    """The L_2 attack of Carlini and Wagner 2017, with the thesis' numbers (Shu 2022, section 5.4).

    The toolbox descends by a line search that begins with the learning rate, not by Adam.

    Fields:
        confidence: by how much a wrong class must be ahead, in logits.
        constant: c, the weight of being classified wrongly over being near, with which the search for it begins; the
            geometric middle of the thesis' range, 0.001 to 10. It doubles while the attack fails, and is halved, or
            bisected, where it succeeds.
        search_steps: values of c that are tried.
        iterations: of the descent for each.
        learning_rate: that of its first step.
    """

    confidence: float = Field(0.0, ge=0)
    constant: float = Field(0.1, gt=0)
    search_steps: int = Field(3, ge=1)
    iterations: int = Field(50, ge=1)
    learning_rate: float = Field(0.01, gt=0)


class AutoAttackSettings(Settings):
    """The toolbox' AutoAttack: APGD on the cross-entropy, APGD on the difference of logits ratio, DeepFool, Square.

    That of Croce and Hein 2020 has a targeted APGD, and FAB in the place of DeepFool; the toolbox has neither. Each
    part attacks the images that those before it left classified rightly.

    Fields:
        iterations: of APGD, and of DeepFool.
        restarts: of APGD and Square.
        queries: of Square, for an image.
    """

    iterations: int = Field(100, ge=1)
    restarts: int = Field(1, ge=1)
    queries: int = Field(5000, ge=1)


class AttackSettings(Settings):
    """How strong the attacks are.

    Fields:
        epsilon: the largest change of a pixel in 0..1, of the attacks that are bounded by L_inf.
        pgd, cw, autoattack: what one attack has for itself.
        batch: images that are attacked at once.
    """

    epsilon: float = Field(EPSILON, gt=0, lt=1)
    pgd: PGDSettings = PGDSettings()
    cw: CWSettings = CWSettings()
    autoattack: AutoAttackSettings = AutoAttackSettings()
    batch: int = Field(256, ge=1)
