"""The configuration of a method that selects a feature map, and the spaces it serves."""

from __future__ import annotations

from pydantic import Field, field_validator

from archray.platform.methods.final_stage import FinalConfig
from archray.trainables.data import DataSettings
from archray.trainables.feature_maps.solve_settings import SolveSettings
from archray.trainables.spaces import Space
from archray.trainables.spaces.feature_map import FeatureMapSpace
from archray.trainables.tune.feature_map_settings import check_memory, feature_map_space

DIMENSIONS = {"images": 2_000, "text": 65_536}  # features, where the configuration names none


class FeatureMapConfig(FinalConfig):
    """The configuration of a method that selects a feature map. A final solve has bases of its own.

    Fields:
        solve: the regularised problem that is solved, and how its solution is scored.
        dimension: features of a full solve. None: 2,000 for images and 65,536 for text (the paper has 100,000 for
            CIFAR-10 and 16,777,216 for IMDb).
    """

    space: str = "fourier"
    solve: SolveSettings = SolveSettings()
    dimension: int | None = Field(None, ge=1)

    @field_validator("data")
    @classmethod
    def _split_of_the_paper(cls, data: DataSettings) -> DataSettings:
        """CIFAR-10 in 40,000, 10,000 and 10,000 images unless the user says otherwise (appendix B.2.1)."""
        if data.name == "cifar10" and data.validation_fraction is None:
            return data.model_copy(update={"validation_fraction": 0.2})
        return data

    @property
    def full_dimension(self) -> int:
        """Features of a full solve."""
        return self.dimension or DIMENSIONS[feature_map_space(self.space).data_kind]

    @property
    def mode(self) -> str:
        """Whether the best score is the least (a loss) or the largest (an accuracy)."""
        return "min" if self.solve.score == "loss" else "max"

    def check(self) -> None:
        check_memory(self.solve, data=self.data, space=self.space, dimension=self.full_dimension)


def serves(space: Space) -> str | None:
    """None for a space of feature maps; else why it cannot be searched."""
    if isinstance(space, FeatureMapSpace):
        return None
    return (
        "it is no space of feature maps; choose fourier or ngrams, or, to halve networks, the method supernet-halving"
    )
