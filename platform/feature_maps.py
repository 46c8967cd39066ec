"""What the methods that select a feature map share: their configuration, their candidates, and how a solve is a trial.

Khodak et al. 2020, section 2 and appendix B.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field, field_validator

from archray.cluster.resources import concurrency
from archray.errors import InvalidInput
from archray.platform.config import SearchConfig
from archray.platform.run import Run
from archray.platform.stages import Context
from archray.platform.training_stages import stage_seed
from archray.platform.tuning import TrialPlan
from archray.trainables.data import DataSettings, load_data
from archray.trainables.feature_map import FeatureMapSettings, FeatureMapTrainable, check_memory
from archray.trainables.feature_maps.settings import SolveSettings
from archray.trainables.spaces import Space, get_space
from archray.trainables.spaces.feature_map import FeatureMapSpace

METRIC = "score"
DIMENSIONS = {"images": 2_000, "text": 65_536}  # features, where the configuration names none
MAX_DRAWS = 1000  # in search of a feature map that is new


class FeatureMapConfig(SearchConfig):
    """The configuration of a method that selects a feature map.

    Fields:
        solve: the regularised problem that is solved, and how its solution is scored.
        dimension: features of a full solve. None: 2,000 for images and 65,536 for text (the paper has 100,000 for
            CIFAR-10 and 16,777,216 for IMDb).
        final_seeds: how often the found map is solved for in the end, each time in bases of its own.
    """

    space: str = "fourier"
    solve: SolveSettings = SolveSettings()
    dimension: int | None = Field(None, ge=1)
    final_seeds: int = Field(1, ge=1)

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
        return self.dimension or DIMENSIONS[_feature_maps(self.space).data_kind]

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
    return "it is no space of feature maps; choose fourier or ngrams"


def feature_map_config(run: Run) -> FeatureMapConfig:
    """The configuration of a run whose method selects a feature map."""
    assert isinstance(run.config, FeatureMapConfig)  # methods with these stages have such a configuration
    return run.config


def _feature_maps(space: str) -> FeatureMapSpace:
    found = get_space(space)
    assert isinstance(found, FeatureMapSpace)  # `serves` has refused every other
    return found


# Candidates


def sample_candidates(context: Context, count: int) -> list[str]:
    """The run's candidates: distinct feature maps drawn uniformly from the space, a function of the run's seed.

    Naive-Bayes weights need two classes (note W8): with more, maps that use them are not drawn.
    """
    run, config = context.run, feature_map_config(context.run)
    space = _feature_maps(run.space)
    classes = load_data(run.data).num_classes
    rng = np.random.default_rng(stage_seed(config.seed, "candidates"))
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
        context.console.print(
            f"    maps with Naive-Bayes weights are left out: they need two classes, {run.config.data.name} "
            f"has {classes}",
            soft_wrap=True,
        )
    return list(drawn)


# A solve as a trial


def solve_settings(context: Context, **changes: Any) -> dict[str, Any]:
    """What every `FeatureMapTrainable` of the run is told. `changes`: of the fields of `FeatureMapSettings`."""
    run, config = context.run, feature_map_config(context.run)
    given: dict[str, Any] = {"solve": config.solve, "dimension": config.full_dimension, **changes}
    return FeatureMapSettings(space=run.space, data=run.data, **given).model_dump(mode="json")


def solve_inputs(context: Context) -> dict[str, Any]:
    """What a solve depends on, whatever the feature map."""
    config = feature_map_config(context.run)
    return {
        "space": context.run.space,
        "data": context.run.manifest["data_checksum"],
        "solve": config.solve.model_dump(mode="json"),
        "dimension": config.full_dimension,
        "seed": config.seed,
    }


def solve_plan(context: Context, *, total: int, settings: dict[str, Any] | None = None, **plan: Any) -> TrialPlan:
    """A plan of solves with the run's resources; `plan`: of the fields of `TrialPlan`."""
    config = feature_map_config(context.run)
    resources = config.resources
    return TrialPlan(
        **{
            "trainable": FeatureMapTrainable,
            "settings": settings or solve_settings(context),
            "metric": METRIC,
            "mode": config.mode,
            "total": total,
            "cpus": resources.cpus_per_trial,
            "gpus": resources.gpus(),
            "concurrency": concurrency(resources),
            **plan,
        }
    )
