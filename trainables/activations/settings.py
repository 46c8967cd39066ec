"""Settings of the study of activation functions (Roberts et al. 2022). Imports no torch."""

from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator

from archray.settings import REPEATED, Seed, Settings
from archray.trainables.data.settings import DataSettings

Labels = Literal["realizable", "noisy", "outside", "data"]
LABELS: tuple[str, ...] = get_args(Labels)
OWN_INPUTS = "gaussian"  # data set whose inputs archray draws, with `dimension` coordinates


class ActivationOptions(Settings):
    """Options of the networks, their teachers, the samples and the training.

    Attributes:
        activations: The h candidate activations of the space `activations`.
        width: Number of hidden units, k.
        dimension: Number of coordinates of Gaussian inputs, d. A data set uses one coordinate per image value.
        samples: Number of points that train the weights.
        validation: Number of points that train alpha.
        risk_samples: Number of points for risks and conditions. A data set uses at most the remaining points.
        outside: Activation of the teacher whose labels no alpha can generate. It must not be in `activations`.
        noise: Standard deviation of the label noise, relative to the standard deviation of labels without noise.
        steps: Number of steps of each training run: the search, the weights at uniform alpha, each single activation.
        rate: Learning rate of the weights, in units of 1 / the largest eigenvalue of the inputs' second moments. It is
            halved for an instance that diverges.
        alpha_rate: Learning rate of mirror descent on alpha.
        threads: Number of torch threads per trial (default: the number of CPUs that Tune assigned to the trial).
    """

    activations: Annotated[tuple[str, ...], REPEATED] = ("relu", "tanh", "sigmoid", "sin", "quadratic")
    width: int = Field(32, ge=1)
    dimension: int = Field(8, ge=1)
    samples: int = Field(256, ge=2)
    validation: int = Field(256, ge=2)
    risk_samples: int = Field(2000, ge=2)
    outside: str = "cos"
    noise: float = Field(0.5, gt=0)
    steps: int = Field(1000, ge=1)
    rate: float = Field(0.5, gt=0)
    alpha_rate: float = Field(0.5, gt=0)
    threads: int | None = Field(None, ge=1)

    @field_validator("activations", mode="before")
    @classmethod
    def _listed(cls, names: object) -> object:
        return listed(names)


def listed(names: object) -> object:
    """Splits a list of names. An entry may contain several names separated by commas, such as `relu,tanh`."""
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return names  # pydantic reports the wrong type
    return tuple(name.strip() for entry in names for name in entry.split(",") if name.strip())


class ActivationSettings(ActivationOptions):
    """All options of an `ActivationTrainable`. Its Tune config contains them under the key `settings`.

    Attributes:
        data: Data set of the inputs. It also provides the labels if `labels` is `data`.
        seeds: Number of instances that one trial trains at once, numbered from `first` of its config.
        instances: Total number of instances; the last trial may train fewer (default: `seeds` in every trial).
        device: Torch device, or `auto`: the GPU of the trial if it has one, else the CPU.
        seed: Seed of a trial whose config has no `seed`.
    """

    data: DataSettings = DataSettings(name=OWN_INPUTS)
    seeds: int = Field(5, ge=1)
    instances: int | None = Field(None, ge=1)
    device: str = "auto"
    seed: Seed = 0
