"""Settings of the study of activations. Imports no torch. Roberts et al. 2022."""

from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator

from archray.settings import REPEATED, Seed, Settings
from archray.trainables.data.settings import DataSettings

Labels = Literal["realizable", "noisy", "outside", "data"]
LABELS: tuple[str, ...] = get_args(Labels)
OWN_INPUTS = "gaussian"  # the data set with inputs drawn here, of `dimension` coordinates


class ActivationOptions(Settings):
    """The networks, their teachers, the samples and the training.

    Attributes:
        activations: the h activations to choose from, of the space `activations`.
        width: k, hidden units.
        dimension: d, coordinates of Gaussian inputs; of a data set, as many as an image has numbers.
        samples: points for training the weights.
        validation: points for training alpha.
        risk_samples: points for risks and conditions; of a data set, at most the remaining points.
        outside: the teacher's activation of labels that no alpha can generate; none of `activations`.
        noise: the standard deviation of the noise of noisy labels, relative to that of the labels without noise.
        steps: of each training run: of the search, of the weights at uniform alpha, of each activation alone.
        rate: of the weights, in units of 1 / the largest eigenvalue of the inputs' second moments; halved for an
            instance that diverges.
        alpha_rate: of mirror descent.
        threads: torch threads of a trial; None: as many as the CPUs that Tune gave it.
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
    """The names in a list, whose entries may be several names separated by commas, such as `relu,tanh`."""
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return names  # pydantic reports the wrong type
    return tuple(name.strip() for entry in names for name in entry.split(",") if name.strip())


class ActivationSettings(ActivationOptions):
    """All options of an `ActivationTrainable`, in its Tune config under the key `settings`.

    Attributes:
        data: source of inputs, and of the labels `data`.
        seeds: number of instances that a trial trains at once, numbered from its config's `first`.
        instances: total number: the last trial may have fewer. None: each trial has `seeds`.
        device: "auto" (a GPU if the trial has one, else the CPU), or a torch device.
        seed: of a trial whose config has no `seed`.
    """

    data: DataSettings = DataSettings(name=OWN_INPUTS)
    seeds: int = Field(5, ge=1)
    instances: int | None = Field(None, ge=1)
    device: str = "auto"
    seed: Seed = 0
