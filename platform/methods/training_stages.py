"""Trainings of standalone networks as stages: of what was found, and of random architectures beside it."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from ray import tune

from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.tuning import TrialPlan, TuneStage
from archray.platform.methods.final_stage import ACCURACY, FinalConfig, final_stage
from archray.platform.models.network_model import write_network
from archray.searchers import RandomSearch
from archray.trainables.nets import NetworkSettings
from archray.trainables.training import TrainingSettings
from archray.trainables.tune.standalone_trainable import StandaloneSettings, StandaloneTrainable


class TrainedSearchConfig(FinalConfig):
    """A search that ends with the standalone training of what it found.

    Fields:
        network: the skeleton that architectures are put in.
        final: how the found architecture is trained.
        baseline: how many random architectures are trained the same way, to compare with; 0 for none.
    """

    network: NetworkSettings = NetworkSettings()
    final: TrainingSettings = TrainingSettings(epochs=200)
    baseline: int = Field(0, ge=0)


def training_plan(
    context: Context[TrainedSearchConfig],
    training: TrainingSettings,
    *,
    test: bool,
    trainable: type[tune.Trainable] = StandaloneTrainable,
    settings: dict[str, Any] | None = None,
    **plan: Any,
) -> TrialPlan:
    """A plan of standalone trainings.

    Args:
        test: whether the test split is evaluated, in the last epoch.
        settings: what `trainable` is told beside the settings of a `StandaloneTrainable`.
        plan: further fields of `TrialPlan`.
    """
    run = context.run
    standalone = StandaloneSettings(
        space=run.space,
        data=run.data,
        network=context.config.network,
        training=training,
        evaluate_test="last" if test else "never",
    )
    return TrialPlan(
        trainable=trainable,
        settings=standalone.model_dump(mode="json") | (settings or {}),
        metric=ACCURACY,
        mode="max",
        **plan,
    )


def _final_trials(context: Context[TrainedSearchConfig], **plan: Any) -> TrialPlan:
    return training_plan(context, context.config.final, test=True, **plan)


def _random_trials(context: Context[TrainedSearchConfig], tuned: Folder) -> TrialPlan | None:
    count = context.config.baseline
    if count == 0:
        context.say("none asked for")
        return None
    seed, space = context.seed("baseline"), context.run.space
    return _final_trials(context, total=count, searcher=lambda: RandomSearch(space, budget=count, seed=seed))


FINAL_STAGE = final_stage(
    "train the found architecture from scratch", reads=("network", "final"), trials=_final_trials, write=write_network
)
BASELINE_STAGE = TuneStage[TrainedSearchConfig](
    name="baseline",
    title="train random architectures the same way",
    reads=("network", "final", "baseline"),
    plan=_random_trials,
)
