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


class SplitConfig(StudyConfig):
    """The configuration of the study of validation sets.

    Fields:
        problem: the models, the points and the teacher. Data other than `gaussian` have labels without a teacher.
        parameters: the numbers h of architecture parameters, growing; each takes the first h candidates.
        spectral_parameters: h of the comparison of spectral solutions with gradient ascent.
        seeds: problems of each h; points, features and teacher differ between problems.
        tolerance: an architecture is as good as the best if its test loss exceeds the best's by at most this share.
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
            raise ValueError("expected one number of architecture parameters or more, growing")
        if numbers[0] < 2:
            raise ValueError("one candidate has nothing to weigh; expected numbers of 2 or more")
        return numbers

    def check(self) -> None:
        """Raises: ArchrayError if candidates, features or points do not suffice."""
        from archray.trainables.tune.split_trainable import SplitTrialSettings, check_problem  # which import torch

        if not all(Path(path).exists() for path in self.data.paths):
            return  # arrays of the caller that the run does not hold yet: its trials check them
        settings = SplitTrialSettings(data=self.data, **self.problem.model_dump())
        check_problem(settings, max(*self.parameters, self.spectral_parameters))


def serves(space: Space) -> str | None:
    """None for a space of activations; else why its parameters cannot be studied."""
    if space.kind == "activation":
        return None
    return f"its architectures are {space.kind}s, not activations, of which alone the models have a closed form"


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
