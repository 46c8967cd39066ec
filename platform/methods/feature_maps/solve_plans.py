"""The candidates of a search for a feature map, how a solve is a trial, and what was found."""

from __future__ import annotations

from typing import Any

import numpy as np

from archray.errors import InvalidInput
from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.methods.feature_maps.feature_map_config import FeatureMapConfig
from archray.platform.methods.training_stages import ACCURACY
from archray.platform.quantities import quantity_of
from archray.platform.run.layout import FOUND
from archray.plurals import count
from archray.trainables.data import load_data
from archray.trainables.tune.feature_map_trainable import FeatureMapSettings, FeatureMapTrainable, feature_map_space

READS = ("solve", "full_dimension")  # what a solve depends on, whatever the feature map
MAX_DRAWS = 1000  # in search of a feature map that is new


def sample_candidates(context: Context[FeatureMapConfig], number: int) -> list[str]:
    """The run's candidates: distinct feature maps drawn uniformly from the space, a function of the run's seed.

    Naive-Bayes weights need two classes (note W8): with more, maps that use them are not drawn.
    """
    run, config = context.run, context.config
    space = feature_map_space(run.space)
    classes = load_data(run.data).num_classes
    rng = np.random.default_rng(context.seed("candidates"))
    drawn: dict[str, None] = {}
    left_out = 0
    for _ in range(MAX_DRAWS + 10 * number):
        if len(drawn) == number:
            break
        candidate = space.encode(space.canonical(space.sample(rng)))
        if classes > 2 and space.configuration(candidate).get("weights") == "naive-bayes":
            left_out += 1
        else:
            drawn[candidate] = None
    if len(drawn) < number:
        raise InvalidInput(
            f"{config.space} gave {count(len(drawn), 'distinct feature map')}, and {number} were asked for as "
            "candidates; ask for fewer"
        )
    if left_out:
        context.say(
            f"maps with Naive-Bayes weights are left out: they need two classes, {config.data.name} has {classes}"
        )
    return list(drawn)


def solves(number: int, config: FeatureMapConfig) -> str:
    """`3 solves with 2 000 features`: how much a stage does."""
    return f"{count(number, 'solve')} with {count(config.full_dimension, 'feature')}"


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
    context.say(f"found {architecture}  ({quantity_of(ACCURACY).told(value)}, {count(calls, 'solver call')})")
