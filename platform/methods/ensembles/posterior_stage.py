"""Stage 2 of NESBS: the posterior over architectures, given the trained supernet. Shu 2022, section 5.3.3, Eq. 5.4."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.result_log import read_results
from archray.platform.engine.single_trial import run_single_trial
from archray.platform.engine.stage import Context, Stage
from archray.platform.methods.ensembles.ensemble_config import nesbs_config
from archray.platform.methods.ensembles.supernet_stage import BEST_RESPONSE, WEIGHTS
from archray.platform.methods.ensembles.supernet_stage import STAGE as SUPERNET
from archray.platform.methods.training_stages import failure_reasons
from archray.searchers.nesbs.posterior import Posterior
from archray.trainables.spaces import get_space, posterior_decisions
from archray.trainables.tune.posterior_settings import PosteriorSettings
from archray.trainables.tune.posterior_trainable import PosteriorTrainable

STAGE, POSTERIOR, CURVES = "posterior", "posterior.json", "curves.parquet"
METRIC = "elbo"


def posterior_inputs(context: Context) -> dict[str, Any]:
    """What the posterior depends on."""
    config = nesbs_config(context.run)
    return {
        "space": context.run.space,
        "data": context.run.manifest["data_checksum"],
        "supernet": config.trained_supernet.model_dump(mode="json"),
        "weights": context.folder(SUPERNET).sha256(WEIGHTS),
        "posterior": config.posterior.model_dump(mode="json"),
        "seed": config.seed,
    }


def _learn(context: Context, folder: Folder) -> None:
    run, config = context.run, nesbs_config(context.run)
    if config.best_response:
        folder.write_json(POSTERIOR, context.folder(SUPERNET).read_json(BEST_RESPONSE))
        context.console.print("    it was learnt with the supernet")
        return
    settings = PosteriorSettings(
        **dict(config.posterior),
        space=run.space,
        data=run.data,
        supernet=config.supernet,
        weights=f"{context.folder(SUPERNET).uri}/{WEIGHTS}",
    )
    tuned, trials, result = run_single_trial(
        context,
        folder,
        PosteriorTrainable,
        settings.model_dump(mode="json"),
        stage=STAGE,
        metric=METRIC,
        inputs=posterior_inputs(context),
    )
    folder.write_parquet("trials.parquet", trials)
    told = result.metrics or {}
    if told.get("posterior") is None:
        raise ArchrayError(f"the posterior was not learnt: {failure_reasons(trials)}")
    folder.write_parquet(CURVES, entropy_curves(run.space, read_results(tuned)))
    posterior = Posterior(json.loads(told["posterior"]), run.space)
    folder.write_json(POSTERIOR, posterior.to_dict())
    context.console.print(
        f"    ELBO {told['elbo']:.4f} at scale {told['scale']:g}, KL {told['kl']:.4f}, mean entropy of a decision "
        f"{told['entropy']:.4f} nats",
        soft_wrap=True,
    )


def entropy_curves(space: str, results: pd.DataFrame) -> pd.DataFrame:
    """A row per epoch and decision with two choices or more: `epoch`, `decision`, `entropy` (nats); and, the same in
    each row of an epoch, `elbo`, `kl`, `expected_loss` (nats), `scale`."""
    decisions = posterior_decisions(get_space(space))
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


def posterior_stage() -> Stage:
    return Stage(STAGE, "learn a posterior over architectures, given the supernet", posterior_inputs, _learn)
