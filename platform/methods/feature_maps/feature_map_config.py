"""A search for a feature map: its configuration, the spaces it serves, its candidates, and how a solve is a trial."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field, field_validator

from archray.errors import InvalidInput
from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.tuning import TrialPlan
from archray.platform.methods.training_stages import ACCURACY, FinalConfig
from archray.platform.run.layout import FOUND
from archray.trainables.data import DataSettings, load_data
from archray.trainables.feature_maps.solve_settings import SolveSettings
from archray.trainables.spaces import Space
from archray.trainables.spaces.feature_map import FeatureMapSpace
from archray.trainables.tune.feature_map_trainable import (
    FeatureMapSettings,
    FeatureMapTrainable,
    check_memory,
    feature_map_space,
)

DIMENSIONS = {"images": 2_000, "text": 65_536}  # features, where the configuration names none
READS = ("solve", "full_dimension")  # what a solve depends on, whatever the feature map
MAX_DRAWS = 1000  # in search of a feature map that is new


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


def sample_candidates(context: Context[FeatureMapConfig], count: int) -> list[str]:
    """The run's candidates: distinct feature maps drawn uniformly from the space, a function of the run's seed.

    Naive-Bayes weights need two classes (note W8): with more, maps that use them are not drawn.
    """
    run, config = context.run, context.config
    space = feature_map_space(run.space)
    classes = load_data(run.data).num_classes
    rng = np.random.default_rng(context.seed("candidates"))
    drawn: dict[str, None] = {}
    left_out = 0
    for _ in range(MAX_DRAWS + 10 * count):
        if len(drawn) == count:
            break
        candidate = space.encode(space.canonical(space.sample(rng)))
        if classes > 2 and space.configuration(candidate).get("weights") == "naive-bayes":
            left_out += 1
        else:
            drawn[candidate] = None
    if len(drawn) < count:
        raise InvalidInput(
            f"{config.space} gave {len(drawn)} distinct feature maps, and {count} candidates were asked for; "
            "ask for fewer"
        )
    if left_out:
        context.say(
            f"maps with Naive-Bayes weights are left out: they need two classes, {config.data.name} has {classes}"
        )
    return list(drawn)


def solve_settings(context: Context[FeatureMapConfig], **changes: Any) -> dict[str, Any]:
    """What every `FeatureMapTrainable` of the run is told. `changes`: of the fields of `FeatureMapSettings`."""
    run, config = context.run, context.config
    given: dict[str, Any] = {"solve": config.solve, "dimension": config.full_dimension, **changes}
    return FeatureMapSettings(space=run.space, data=run.data, **given).model_dump(mode="json")


def solve_plan(context: Context[FeatureMapConfig], *, settings: dict[str, Any] | None = None, **plan: Any) -> TrialPlan:
    """A plan of solves. settings: of `solve_settings`. plan: further fields of `TrialPlan`."""
    return TrialPlan(
        **{
            "trainable": FeatureMapTrainable,
            "settings": settings or solve_settings(context),
            "metric": "score",
            "mode": context.config.mode,
            **plan,
        }
    )


def write_found_map(
    context: Context[FeatureMapConfig], folder: Folder, architecture: str, value: float, *, calls: int
) -> None:
    """Writes what was found, with its validation accuracy, and says so."""
    folder.write_json(FOUND, {"architecture": architecture, "value": value, "metric": ACCURACY})
    context.say(f"found {architecture}  (validation accuracy {value:.4f}, {calls} solver calls)")
