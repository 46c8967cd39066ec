"""How a regularised linear problem over feature maps is solved and scored. Khodak et al. 2020, Algorithm 1."""

from typing import Literal

from pydantic import Field

from archray.settings import Settings

Loss = Literal["ridge", "svm", "logistic"]
Score = Literal["loss", "accuracy"]
Validation = Literal["auto", "assigned", "all"]
Bases = Literal["shared", "independent"]
Precision = Literal["float64", "float32", "int8"]

LOSS_OF_DATA: dict[str, Loss] = {"images": "ridge", "text": "svm"}  # as in the paper, section 2


class SolveSettings(Settings):
    """The problem lam ||w||^2 + summed loss, its solver and its scores. Defaults: section 2 and appendix B.2.

    Attributes:
        loss: `ridge` (square loss of targets +-1, one class against the rest, closed form), `svm` (hinge loss, one
            against the rest, liblinear) or `logistic` (log loss, L-BFGS). `auto`: ridge for images, svm for text.
        lam: the weight of ||w||^2. In scikit-learn's words: Ridge's alpha = lam, C = 1 / (2 lam). The intercept is not
            penalised, except by liblinear, which has it as one more weight.
        score: what a candidate is scored by on validation points: mean loss (the paper) or accuracy (its authors'
            program).
        validation: `assigned` (Algorithm 1): a candidate is scored on the points that were assigned to it. `all`:
            every candidate on every point. `auto`: all when a candidate would get fewer than 30 points (note W3).
        bases: `shared`: one Gaussian and one Cauchy basis and one offset, or one hash of n-grams, for all candidates of
            a solve; only then a weight means the same feature for all maps. `independent`: a basis, or a hash, for each
            candidate (as note W2 has it for hashes; on docstrings a shared hash ranked maps as well or better).
        gram: the arithmetic of ridge's Gram matrix. `float64` factorises it, and that is the solution. `float32` and
            `int8` (dense features rounded to 8 bits; it gains on CPUs with VNNI or AMX) factorise a cheaper one and
            use it as the preconditioner of conjugate gradients in float64: the same predictions to better than 1e-6,
            sooner. They keep all features; where `memory_gib` does not hold these, or conjugate gradients do not
            converge, the Gram matrix is a float64 one.
        memory_gib: bound on the memory of a solve besides the data, in GiB.
    """

    loss: Loss | Literal["auto"] = "auto"
    lam: float = Field(0.5, gt=0)
    score: Score = "loss"
    validation: Validation = "auto"
    bases: Bases = "shared"
    gram: Precision = "float32"
    memory_gib: float = Field(4.0, gt=0)

    def loss_for(self, data_kind: str) -> Loss:
        """The loss for data of this kind, `images` or `text`."""
        return LOSS_OF_DATA[data_kind] if self.loss == "auto" else self.loss
