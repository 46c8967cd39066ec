"""The configuration of the study of validation sets. Oymak et al. 2021."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from archray.platform.methods.method import Method
from archray.platform.methods.understanding import StudyConfig, problem_flags
from archray.trainables.data import DataSettings
from archray.trainables.spaces import Space
from archray.trainables.validation_split.settings import TEACHER_DATA, SplitSettings

MEASURES, SPECTRAL = "measures", "spectral"  # stages
MEASURES_TABLE, SPECTRAL_TABLE = "measures.parquet", "spectral.parquet"


class SplitConfig(StudyConfig):
    """The configuration of the study of validation sets.

    Fields:
        problem: the models, the samples and the teacher. Data sets other than `gaussian` have labels without a teacher.
        parameters: numbers h of architecture parameters, in increasing order; each uses the first h candidates.
        spectral_parameters: number h in the comparison of spectral solutions with gradient ascent.
        seeds: number of problems for each h; samples, features and teacher differ between problems.
        tolerance: largest relative excess of the test loss over the best, up to which an architecture counts as good.
    """

    method: Literal["split"] = "split"
    space: str = "activations"
    data: DataSettings = DataSettings(name=TEACHER_DATA)
    problem: SplitSettings = SplitSettings()
    parameters: tuple[int, ...] = (2, 4, 8, 16)
    spectral_parameters: int = Field(8, ge=2)
    seeds: int = Field(10, ge=1)
    tolerance: float = Field(0.05, gt=0)

    @field_validator("parameters")
    @classmethod
    def _growing(cls, numbers: tuple[int, ...]) -> tuple[int, ...]:
        if not numbers or sorted(set(numbers)) != list(numbers):
            raise ValueError(
                f"expected one or more numbers of architecture parameters in increasing order, got {list(numbers)}"
            )
        if numbers[0] < 2:
            raise ValueError(f"expected numbers of architecture parameters of at least 2, got {numbers[0]}")
        return numbers

    def check(self) -> None:
        """Checks that there are enough candidates, features and samples. Raises: ArchrayError."""
        from archray.trainables.tune.split_trainable import SplitTrialSettings, check_problem  # which import torch

        if not all(Path(path).exists() for path in self.data.paths):
            return  # arrays of the caller that the run does not contain yet: its trials check them
        settings = SplitTrialSettings(data=self.data, **self.problem.model_dump())
        check_problem(settings, max(*self.parameters, self.spectral_parameters))


def serves(space: Space) -> str | None:
    """None for a space of activations; otherwise the reason why the study does not support it."""
    if space.kind == "activation":
        return None
    return (
        f"its architectures are {space.kind}s, and the study supports only activations, whose models have a closed "
        "form. Remove --space"
    )


SMOKE: Mapping[str, object] = {
    "width": 32,
    "train_size": 16,
    "validation_sizes": (8, 32, 64),
    "test_size": 128,
    "architectures": 4,
    "steps": 10,
}

SPLIT = Method(
    name="split",
    config=SplitConfig,
    recipe_at="archray.platform.methods.understanding.split.stages:RECIPE",
    presets={
        "smoke": {"problem": SMOKE, "parameters": (2, 3), "spectral_parameters": 3, "seeds": 2},
        "demo": {},
        "paper": {
            "problem": {
                "width": 256,
                "train_size": 100,
                "architectures": 64,
                "validation_sizes": (8, 16, 32, 64, 128, 256, 512, 1024, 2048),
                "test_size": 4096,
                "scales": (1.0, 2.0, 4.0),
            },
            "parameters": (2, 4, 8, 16, 32),
            "seeds": 20,
        },
    },
    flags={
        **problem_flags("form", "teacher", "layers", "noise", "train_size", "test_size", "width", "ridge", "steps"),
        "seeds": "seeds",
        "tolerance": "tolerance",
    },
    serves=serves,
)
