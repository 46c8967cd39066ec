"""The configuration of a search for a feature map, the spaces it serves; random search. Khodak et al. 2020."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from archray.errors import InvalidInput
from archray.platform.methods.method import Method, Values
from archray.platform.methods.trained_config import FinalConfig
from archray.trainables.data import DataSettings
from archray.trainables.feature_maps.solve_settings import SolveSettings
from archray.trainables.spaces import Space, get_space, is_own_space
from archray.trainables.spaces.feature_map import FeatureMapSpace

DIMENSIONS = {"images": 2_000, "text": 65_536}  # features, where the configuration names none
PAPER: Values = {"data": {"name": "cifar10"}, "dimension": 100_000}
FLAGS: Mapping[str, str] = {"dimension": "dimension", "loss": "solve.loss", "final_seeds": "final_seeds"}


class FeatureMapConfig(FinalConfig):
    """The configuration of a method that selects a feature map. A final solve has bases of its own.

    Fields:
        solve: the regularised problem that is solved, and how its solution is scored.
        dimension: features of a full solve. None: 2,000 for images and 65,536 for text (the paper has 100,000 for
            CIFAR-10 and 16,777,216 for IMDb).
    """

    space: str = "fourier"
    solve: SolveSettings = SolveSettings()
    dimension: int | None = Field(None, ge=1, validate_default=True)

    @field_validator("data")
    @classmethod
    def _split_of_the_paper(cls, data: DataSettings) -> DataSettings:
        """CIFAR-10 in 40,000, 10,000 and 10,000 images unless the user says otherwise (appendix B.2.1)."""
        if data.name == "cifar10" and data.validation_fraction is None:
            return data.model_copy(update={"validation_fraction": 0.2})
        return data

    @field_validator("dimension")
    @classmethod
    def _of_own_space(cls, dimension: int | None, info: ValidationInfo) -> int | None:
        """Of a user's own space it is written down: to know it, a run's configuration needs none of the run's code."""
        space = info.data.get("space", "")
        if dimension is None and is_own_space(space) and not info.context:
            return DIMENSIONS[get_space(space).data_kind]
        return dimension

    @property
    def full_dimension(self) -> int:
        """Features of a full solve."""
        if self.dimension is None and is_own_space(self.space):
            raise InvalidInput(f"expected a dimension for the space {self.space}, got none; give --dimension")
        return self.dimension or DIMENSIONS[get_space(self.space).data_kind]

    @property
    def mode(self) -> str:
        """Whether the best score is the least (a loss) or the largest (an accuracy)."""
        return "min" if self.solve.score == "loss" else "max"

    def check(self) -> None:
        from archray.trainables.tune.feature_map_trainable import check_memory  # which imports torch and scikit-learn

        check_memory(self.solve, data=self.data, space=self.space, dimension=self.full_dimension)


def serves(space: Space) -> str | None:
    """None for a space of feature maps; else why it cannot be searched."""
    if isinstance(space, FeatureMapSpace):
        return None
    return (
        "it is no space of feature maps; choose fourier or ngrams, or, to halve networks, the method supernet-halving"
    )


maps_method = partial(Method, serves=serves, extendable=("final_seeds",))


class RandomMapsConfig(FeatureMapConfig):
    """The configuration of random search.

    Fields:
        candidates: how many feature maps are drawn, and solved for.
    """

    method: Literal["random-maps"] = "random-maps"
    candidates: int = Field(32, ge=1)


RANDOM_MAPS = maps_method(
    name="random-maps",
    config=RandomMapsConfig,
    recipe_at="archray.platform.methods.feature_maps.random_maps:RECIPE",
    presets={
        "smoke": {"candidates": 3, "dimension": 64},
        "demo": {"candidates": 32},
        "paper": {**PAPER, "candidates": 32},
    },
    flags={**FLAGS, "candidates": "candidates"},
)
