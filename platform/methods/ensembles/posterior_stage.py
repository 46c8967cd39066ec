"""Stages 1 and 2 of NESBS: a supernet trained on random paths, and the posterior over architectures, given it.

A uniformly drawn path for each step: Shu 2022, section 5.2.1. The posterior: section 5.3.3, Eq. 5.4.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
from ray import tune

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.result_log import read_results
from archray.platform.engine.stage import Context, file_digests
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.ensembles.ensemble_config import NESBSConfig
from archray.platform.methods.ensembles.ensemble_tables import POSTERIOR, POSTERIOR_LEARNT, SUPERNET
from archray.platform.methods.training_stages import trainings
from archray.platform.quantities import quantity_of
from archray.platform.run.layout import CURVES, TRIALS
from archray.plurals import count
from archray.searchers.nesbs.posterior import Posterior
from archray.trainables.checkpoint import read_state, write_weights
from archray.trainables.spaces import get_space
from archray.trainables.tune.settings import PosteriorSettings, SupernetSettings
from archray.trainables.tune.supernet_trainable import PosteriorTrainable, SupernetTrainable

WEIGHTS = "weights.pt"
MIXTURE = "mixture_accuracy"


def _single_trial(context: Context[NESBSConfig], stage: str, **plan: Any) -> TrialPlan:
    """One trial with the stage's own seed. plan: fields of `TrialPlan`; more of the metric is better."""
    return TrialPlan(mode="max", total=1, keys={"seed": tune.grid_search([context.seed(stage)])}, at_most=1, **plan)


# The supernet


def supernet_settings(context: Context[NESBSConfig]) -> dict[str, Any]:
    """What a `SupernetTrainable` of the run is told: space and data as they hold in its folder."""
    run, options = context.run, dict(context.config.trained_supernet)
    return SupernetSettings(**options, space=run.space, data=run.data).model_dump(mode="json")


def _supernet_trial(context: Context[NESBSConfig], tuned: Folder) -> TrialPlan:
    settings = supernet_settings(context)
    return _single_trial(context, SUPERNET, trainable=SupernetTrainable, settings=settings, metric=MIXTURE)


def _write_trained(context: Context[NESBSConfig], folder: Folder, run: TuneRun) -> None:
    for name, table in ((TRIALS, run.trials), (CURVES, run.curves)):  # without the tables that stand in cells
        folder.write_parquet(name, table.drop(columns=["updates", "posterior"], errors="ignore"))
    [result] = run.ended
    checkpoint = run.checkpoint(result)
    if checkpoint is None:
        raise ArchrayError(f"the training of the supernet failed: {run.failures}")
    metrics = result.metrics or {}
    with checkpoint.as_directory() as place:
        state = read_state(Path(place))["trainer"]["supernet"]
    write_weights(folder.uri, WEIGHTS, state)
    updates = pd.DataFrame(json.loads(metrics["updates"]))
    folder.write_parquet("updates.parquet", updates)
    if metrics.get("posterior") is not None:  # the best response, learnt with the weights
        folder.write_json(POSTERIOR, json.loads(metrics["posterior"]))
    context.say(
        f"{quantity_of(MIXTURE).told(metrics[MIXTURE])}, of drawn paths; an operation's weights were updated "
        f"{updates['updates'].min()} to {updates['updates'].max()} times"
    )


SUPERNET_STAGE = TuneStage[NESBSConfig](
    name=SUPERNET,
    title="train a supernet on random paths",
    reads=("trained_supernet",),
    plan=_supernet_trial,
    finish=_write_trained,
    amount=lambda config: trainings(1, config.supernet.training, "supernet"),
)


# The posterior


def _posterior_trial(context: Context[NESBSConfig], tuned: Folder) -> TrialPlan | None:
    run, config = context.run, context.config
    if config.best_response:
        tuned.parent.write_json(POSTERIOR, context.folder(SUPERNET).read_json(POSTERIOR))
        context.say("it was learnt with the supernet")
        return None
    settings = PosteriorSettings(
        **dict(config.posterior),
        space=run.space,
        data=run.data,
        supernet=config.supernet,
        weights=(context.folder(SUPERNET) / WEIGHTS).uri,
    ).model_dump(mode="json")
    return _single_trial(context, POSTERIOR_LEARNT, trainable=PosteriorTrainable, settings=settings, metric="elbo")


def _write_posterior(context: Context[NESBSConfig], folder: Folder, run: TuneRun) -> None:
    [result] = run.ended
    metrics = result.metrics or {}
    if metrics.get("posterior") is None:
        raise ArchrayError(f"the posterior was not learnt: {run.failures}")
    folder.write_parquet(CURVES, entropy_curves(context.run.space, read_results(run.folder)))
    folder.write_json(POSTERIOR, Posterior(json.loads(metrics["posterior"]), context.run.space).to_dict())
    context.say(
        f"{quantity_of('elbo').told(metrics['elbo'])} at scale {metrics['scale']:g}, KL {metrics['kl']:.4f}, mean "
        f"entropy of a decision {metrics['entropy']:.4f} nats"
    )


def entropy_curves(space: str, results: pd.DataFrame) -> pd.DataFrame:
    """A row per epoch and decision with two choices or more: `epoch`, `decision`, `entropy` (nats); and, the same in
    each row of an epoch, `elbo`, `kl`, `expected_loss` (nats), `scale`."""
    decisions = get_space(space).posterior_decisions
    rows = [
        {
            **{name: epoch[name] for name in ("epoch", "elbo", "kl", "expected_loss", "scale")},
            "decision": decision.name,
            "entropy": entropy,
        }
        for epoch in results.drop_duplicates("epoch", keep="last").sort_values("epoch").to_dict("records")
        for decision, entropy in zip(decisions, epoch["entropies"], strict=True)
        if len(decision.choices) > 1
    ]
    return pd.DataFrame(rows)


POSTERIOR_STAGE = TuneStage[NESBSConfig](
    name=POSTERIOR_LEARNT,
    title="learn a posterior over architectures, given the supernet",
    reads=("trained_supernet", "posterior", "best_response"),
    depends=file_digests(f"{SUPERNET}/{WEIGHTS}"),
    plan=_posterior_trial,
    finish=_write_posterior,
    amount=lambda config: (
        "none, it is learnt with the supernet" if config.best_response else count(config.posterior.epochs, "epoch")
    ),
)
