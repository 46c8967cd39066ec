"""Settings of a regularized linear problem over feature maps and of its solver. Khodak et al. 2020, Algorithm 1."""

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
        loss: Loss: `ridge` (square loss of targets +-1, one class against the rest, closed form), `svm` (hinge loss,
            one class against the rest, liblinear) or `logistic` (log loss, L-BFGS). `auto`: ridge for images, svm for
            text.
        lam: Weight of ||w||^2. In scikit-learn, Ridge has alpha = lam and classifiers have C = 1 / (2 lam). The
            intercept is not penalized, except by liblinear, which treats it as one more weight.
        score: Score of a candidate on validation points: mean loss (the paper) or accuracy (its authors' program).
        validation: Validation points of a candidate. `assigned` (Algorithm 1): the points that were assigned to it.
            `all`: every point. `auto`: `all` if a candidate would get fewer than 30 points.
        bases: Random bases of the candidates of a solve. `shared`: one Gaussian and one Cauchy basis and one offset, or
            one hash of n-grams, for all candidates, so that a weight belongs to the same feature in all maps.
            `independent`: a basis, or a hash, for each candidate.
        gram: Arithmetic of ridge's Gram matrix. `float64` factorizes it directly. `float32` and `int8` (dense features
            rounded to 8 bits, faster on CPUs with VNNI or AMX) factorize a cheaper matrix as the preconditioner of
            conjugate gradients in float64, with the same predictions to better than 1e-6. They keep all features in
            memory. If `memory_gib` is too small for that, or conjugate gradients do not converge, float64 is used.
            `auto`: int8 on CPUs with VNNI or AMX, float32 otherwise.
        memory_gib: Upper bound on the memory of a solve, without the data, in GiB.
    """

    loss: Loss | Literal["auto"] = "auto"
    lam: float = Field(0.5, gt=0)
    score: Score = "loss"
    validation: Validation = "auto"
    bases: Bases = "shared"
    gram: Precision | Literal["auto"] = "auto"
    memory_gib: float = Field(4.0, gt=0)

    def loss_for(self, data_kind: str) -> Loss:
        """The loss for data of this kind, `images` or `text`."""
        return LOSS_OF_DATA[data_kind] if self.loss == "auto" else self.loss
