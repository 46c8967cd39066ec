"""The configuration of the study of activations. Roberts et al. 2022."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from archray.errors import InvalidInput
from archray.platform.methods.method import Method
from archray.platform.methods.understanding import StudyConfig, problem_flags
from archray.plurals import count
from archray.settings import REPEATED
from archray.trainables.activations.settings import OWN_INPUTS, ActivationOptions, Labels, listed
from archray.trainables.data import DataSettings
from archray.trainables.spaces import Activations, Space


class ActivationsConfig(StudyConfig):
    """The configuration of the study of activations.

    Fields:
        problem: the activations, the networks, the samples and the training.
        labels: kinds of labels: `realizable` (a teacher in the class), `noisy`, `outside` (a teacher with another
            activation), `data` (the classes of the data set as +1 and -1). Default: all that the data support.
        seeds: number of instances of each kind of labels; inputs, teacher and initial weights differ between instances.
        seeds_at_once: number of instances that a trial trains as one computation.
        teachers: number of random teachers that test the theorems, for 2, 3 and all activations.
    """

    method: Literal["activations"] = "activations"
    space: str = "activations"
    data: DataSettings = DataSettings(name=OWN_INPUTS)
    problem: ActivationOptions = ActivationOptions()
    labels: Annotated[tuple[Labels, ...], REPEATED] = ()
    seeds: int = Field(20, ge=1)
    seeds_at_once: int = Field(5, ge=1)
    teachers: int = Field(1000, ge=1)

    @field_validator("labels", mode="before")
    @classmethod
    def _listed(cls, names: object) -> object:
        return listed(names)

    @model_validator(mode="before")
    @classmethod
    def _all_labels(cls, values: Any) -> Any:
        """The default of `labels`: all kinds of teachers, and the labels of the data set if it has any."""
        if not isinstance(values, dict) or values.get("labels"):
            return values
        data = values.get("data", {})
        name = data.get("name", OWN_INPUTS) if isinstance(data, Mapping) else getattr(data, "name", data)
        of_data = () if name == OWN_INPUTS else ("data",)
        return {**values, "labels": ("realizable", "noisy", "outside", *of_data)}

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of activations for which Theorems 1, 4 and 7 are tested."""
        most = len(self.problem.activations)
        return (*(size for size in (2, 3) if size < most), most)

    def check(self) -> None:
        """Checks that activations, labels and data fit. Raises: ArchrayError."""
        from archray.trainables.activations.instances import Pool
        from archray.trainables.activations.two_layer import get_activations  # which imports torch

        problem = self.problem
        Activations(problem.activations)
        get_activations((*problem.activations, problem.outside))
        if "outside" in self.labels and problem.outside in problem.activations:
            raise InvalidInput(
                f"expected problem.outside to be an activation outside of problem.activations "
                f"({', '.join(problem.activations)}), got {problem.outside}. Choose another, or remove it from "
                "problem.activations"
            )
        labeled = "data" in self.labels
        if labeled and self.data.name == OWN_INPUTS:
            raise InvalidInput(
                f"expected a data set with labels, got {OWN_INPUTS}, which has only inputs. Choose --data digits, or "
                "remove data from --labels"
            )
        if not all(Path(path).exists() for path in self.data.paths):
            return  # arrays of the caller that the run does not contain yet: its stages check them
        pool = Pool.load(self.data)
        if pool is not None:
            pool.check(problem, self.data.name, labeled=labeled)


def serves(space: Space) -> str | None:
    """None for a space of activations; otherwise the reason why the study does not support it."""
    if isinstance(space, Activations):
        return None
    return (
        "the study supports only activations of two-layer networks. Remove --space, and list activations: relu tanh sin"
    )


def amount(config: ActivationsConfig) -> str:
    """The number of training runs, of their steps, and of instances per computation."""
    training_runs = len(config.labels) * config.seeds * (2 + len(config.problem.activations))
    steps = count(config.problem.steps, "step")
    return f"{count(training_runs, 'training run')} of {steps}, {count(config.seeds_at_once, 'instance')} at once"


ACTIVATIONS = Method(
    name="activations",
    config=ActivationsConfig,
    recipe_at="archray.platform.methods.understanding.activations.stages:RECIPE",
    serves=serves,
    presets={
        "smoke": {
            "problem": {
                "activations": ["relu", "tanh", "quadratic"],
                "width": 8,
                "dimension": 4,
                "samples": 32,
                "validation": 32,
                "risk_samples": 200,
                "steps": 40,
            },
            "seeds": 4,
            "seeds_at_once": 2,
            "teachers": 50,
        },
        "demo": {},
        "paper": {"problem": {"width": 128, "samples": 1024, "validation": 1024, "steps": 5000}, "teachers": 10_000},
    },
    flags={
        "activation": "problem.activations",
        "labels": "labels",
        "seeds": "seeds",
        "seeds_at_once": "seeds_at_once",
        "teachers": "teachers",
        **problem_flags("width", "dimension", "samples", "validation", "risk_samples", "outside", "noise"),
        **problem_flags("steps", "rate", "alpha_rate"),
    },
    words="activation",
)
