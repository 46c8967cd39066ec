"""The options of a study of validation sets. No torch."""

import itertools
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, field_validator

from archray.settings import Settings

Form = Literal["activation", "kernels"]
Layers = Literal["output", "both"]  # the layers that learn: random features, or the tangent features of both
Teacher = Literal["sparse", "dense"]

TEACHER_DATA = "gaussian"  # the data set with a teacher's labels: its own are random

# From unlike to like, so that the first h of them differ; `identity` has too few features to fit every labeling.
CANDIDATES = (
    "relu", "cos", "tanh", "sin", "gelu", "quadratic", "sigmoid", "erf", "softplus", "elu", "silu", "leaky-relu",
)  # fmt: skip


class SplitSettings(Settings):
    """A problem of interpolating models, and its measurements; see note U6.

    Attributes:
        form: `activation`: one hidden layer with the activation sum_i alpha_i sigma_i; `kernels`: a layer of each
            activation, the kernel sum_i alpha_i K_i.
        activations: the candidates that alpha weighs, in this order.
        scales: each activation is a candidate once per scale s, as sigma(s x); all at the first scale come first.
        layers: the layers that learn: `output`, random features; `both`, the tangent features of the network.
        width: hidden units m.
        inputs: d, of the Gaussian inputs.
        teacher: labels Gaussian inputs: an architecture of the first two candidates (`sparse`) or of all (`dense`).
        noise: standard deviation of a teacher's label noise, of labels with standard deviation 1.
        train_size: n_T, fewer than the features, so that every model interpolates.
        validation_sizes: n_V, growing.
        test_size: points of the test set.
        ridge: on the training kernel's diagonal, whose mean is about 1; light, against rounding.
        architectures: random ones on which validation and test are compared.
        steps: of each descent on alpha, at most.
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
            raise ValueError("expected two sizes of a validation set or more, growing, the first at least 1")
        return sizes

    @field_validator("activations", "scales")
    @classmethod
    def _distinct(cls, values: tuple[str | float, ...]) -> tuple[str | float, ...]:
        if not values or len(set(values)) < len(values):
            raise ValueError("expected one or more, none of them twice")
        return values

    @property
    def candidates(self) -> Sequence[tuple[str, float]]:
        """Activation and scale of each, in order."""
        return [(name, scale) for scale in self.scales for name in self.activations]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Of training, largest validation, and test set."""
        return self.train_size, self.validation_sizes[-1], self.test_size
