"""Settings of the study of validation sets. Imports no torch."""

import itertools
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, field_validator

from archray.settings import Settings

Form = Literal["activation", "kernels"]
Layers = Literal["output", "both"]  # the layers that learn: random features, or the tangent features of both
Teacher = Literal["sparse", "dense"]

TEACHER_DATA = "gaussian"  # data set for the labels of a teacher, as its own labels are random

# Ordered from dissimilar to similar, so that the first h differ; `identity` has too few features to fit all labels.
CANDIDATES = (
    "relu", "cos", "tanh", "sin", "gelu", "quadratic", "sigmoid", "erf", "softplus", "elu", "silu", "leaky-relu",
)  # fmt: skip


class SplitSettings(Settings):
    """Options of a study of interpolating models, and of its measurements (note U6).

    Attributes:
        form: Form of the model. `activation`: one hidden layer with the activation sum_i alpha_i sigma_i. `kernels`:
            one layer per activation, with the kernel sum_i alpha_i K_i.
        activations: Candidate activations that alpha weights, in this order.
        scales: Scales s of the candidates sigma(s x). Every activation is a candidate at each scale; the candidates at
            the first scale come first.
        layers: Trained layers: `output` (random features) or `both` (the tangent features of the network).
        width: Number of hidden units, m.
        inputs: Number of coordinates of the Gaussian inputs, d.
        teacher: Architecture that labels Gaussian inputs: it uses the first two candidates (`sparse`) or all (`dense`).
        noise: Standard deviation of the teacher's label noise; the labels have standard deviation 1.
        train_size: Number of training points, n_T. Must be below the number of features, so that every model
            interpolates.
        validation_sizes: Numbers of validation points, n_V, in increasing order.
        test_size: Number of test points.
        ridge: Small ridge on the diagonal of the training kernel, whose mean is about 1, against rounding errors.
        architectures: Number of random architectures on which validation and test are compared.
        steps: Maximum number of steps of each descent on alpha.
    """

    form: Form = "activation"
    activations: tuple[str, ...] = CANDIDATES
    scales: tuple[float, ...] = (1.0, 2.0)
    layers: Layers = "output"
    width: int = Field(128, ge=2)
    inputs: int = Field(10, ge=1)
    teacher: Teacher = "dense"
    noise: float = Field(0.3, ge=0)
    train_size: int = Field(60, ge=2)
    validation_sizes: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512)
    test_size: int = Field(1024, ge=2)
    ridge: float = Field(1e-6, ge=0)
    architectures: int = Field(24, ge=3)
    steps: int = Field(60, ge=1)

    @field_validator("validation_sizes")
    @classmethod
    def _growing(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if len(sizes) < 2 or sizes[0] < 1 or any(a >= b for a, b in itertools.pairwise(sizes)):
            raise ValueError("expected two or more increasing sizes of a validation set, the first at least 1")
        return sizes

    @field_validator("activations", "scales")
    @classmethod
    def _distinct(cls, values: tuple[str | float, ...]) -> tuple[str | float, ...]:
        if not values or len(set(values)) < len(values):
            raise ValueError("expected one or more distinct values")
        return values

    @property
    def candidates(self) -> Sequence[tuple[str, float]]:
        """Activation and scale of each candidate, in order."""
        return [(name, scale) for scale in self.scales for name in self.activations]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Numbers of training points, of validation points in the largest set, and of test points."""
        return self.train_size, self.validation_sizes[-1], self.test_size
