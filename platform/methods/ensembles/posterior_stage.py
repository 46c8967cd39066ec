"""Stage 2 of NESBS: the posterior over architectures, given the trained supernet. Shu 2022, section 5.3.3, Eq. 5.4."""

from __future__ import annotations

import json

import pandas as pd

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.result_log import read_results
from archray.platform.engine.stage import Context, file_digests
from archray.platform.engine.tuning import TrialPlan, TuneRun, TuneStage
from archray.platform.methods.ensembles.ensemble_config import NESBSConfig
from archray.platform.methods.ensembles.ensemble_tables import POSTERIOR, POSTERIOR_LEARNT, SUPERNET
from archray.platform.methods.ensembles.supernet_stage import BEST_RESPONSE, WEIGHTS, single_trial
from archray.platform.run.layout import CURVES
from archray.searchers.nesbs.posterior import Posterior
from archray.trainables.spaces import get_space
from archray.trainables.tune.posterior_settings import PosteriorSettings
from archray.trainables.tune.posterior_trainable import PosteriorTrainable

METRIC = "elbo"


def _trial(context: Context[NESBSConfig], tuned: Folder) -> TrialPlan | None:
    run, config = context.run, context.config
    if config.best_response:
        tuned.parent.write_json(POSTERIOR, context.folder(SUPERNET).read_json(BEST_RESPONSE))
        context.say("it was learnt with the supernet")
        return None
    settings = PosteriorSettings(
        **dict(config.posterior),
        space=run.space,
        data=run.data,
        supernet=config.supernet,
        weights=f"{context.folder(SUPERNET).uri}/{WEIGHTS}",
    ).model_dump(mode="json")
    return single_trial(context, POSTERIOR_LEARNT, trainable=PosteriorTrainable, settings=settings, metric=METRIC)


def _write_posterior(context: Context[NESBSConfig], folder: Folder, run: TuneRun) -> None:
    [result] = run.ended
    metrics = result.metrics or {}
    if metrics.get("posterior") is None:
        raise ArchrayError(f"the posterior was not learnt: {run.failures}")
    folder.write_parquet(CURVES, entropy_curves(context.run.space, read_results(run.folder)))
    folder.write_json(POSTERIOR, Posterior(json.loads(metrics["posterior"]), context.run.space).to_dict())
    context.say(
        f"ELBO {metrics['elbo']:.4f} at scale {metrics['scale']:g}, KL {metrics['kl']:.4f}, mean entropy of a "
        f"decision {metrics['entropy']:.4f} nats"
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
    plan=_trial,
    finish=_write_posterior,
)
