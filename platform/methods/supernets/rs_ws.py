"""Random search with weight sharing. Li and Talwalkar 2019, section 3.2.

A supernet is trained with one uniformly drawn path for each step, then random architectures are scored with its
weights, and the best is taken. The paper scores on a mini-batch first, and only the best of these on all validation
data; here all of them are, by actors over the cluster.
"""

import math
from typing import Any

import pandas as pd

from archray.files import Folder
from archray.platform.engine.run_costs import searched_space
from archray.platform.engine.stage import Context
from archray.platform.engine.trial_tables import reasons
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.supernets.config import RandomSearchWSConfig
from archray.platform.methods.supernets.shared_scoring import draw_architectures, score_with_shared_weights
from archray.platform.methods.supernets.stages import (
    METRIC,
    READS,
    supernet_recipe,
    supernet_settings,
    supernet_trials,
    supernets_amount,
    write_entropies,
    write_found,
)
from archray.platform.methods.supernets.tables import SCORES
from archray.plurals import count
from archray.seeds import stream_seed
from archray.trainables.tune.scorers import trained_weights

MIXTURE = "mixture_accuracy"  # of random paths, while training


def _write_best(context: Context[RandomSearchWSConfig], folder: Folder, run: TuneRun) -> None:
    """Scores random architectures with the weights of every trial that has ended, and takes the best of each."""
    write_entropies(context, folder, run)
    config, trials = context.config, run.trials.assign(failure=reasons(run.trials))
    ended = {(result.metrics or {}).get("trial_id"): result for result in run.ended}
    cells: list[dict[str, Any]] = []
    tables: list[pd.DataFrame] = []
    for trial in trials.to_dict("records"):
        key = {"trial_id": trial["trial_id"], "seed": trial["seed"]}
        best = {"architecture": None, METRIC: math.nan, "failure": trial["failure"]}
        if pd.isna(trial["failure"]):
            checkpoint = ended[trial["trial_id"]].checkpoint
            assert checkpoint is not None  # a trial that ended without a failure has saved its last epoch
            with checkpoint.as_directory() as place:
                weights = trained_weights(place)
            samples = stream_seed(context.seed("samples"), trial["seed"])  # each has architectures of its own
            scores = score_with_shared_weights(
                folder / f"scores-{trial['trial_id']}",
                draw_architectures(searched_space(context), config.supernet, config.samples, samples),
                settings=supernet_settings(context),
                weights=weights,
                resources=config.resources,
                console=context.console,
                labels=context.labels(folder.name),
            )
            tables.append(scores.assign(**key))
            best = best_of(scores)
        cells.append({**key, MIXTURE: trial.get(MIXTURE, math.nan), **best})
    if tables:
        folder.write_parquet(SCORES, pd.concat(tables, ignore_index=True))
    write_found(context, folder, pd.DataFrame(cells))


def best_of(scores: pd.DataFrame) -> dict[str, Any]:
    """`architecture` and `shared_accuracy` of the best, of equal ones the one with the least loss; or the `failure`.

    scores: `architecture`, `shared_loss`, `shared_accuracy`, `failure`.
    """
    usable = scores.dropna(subset=[METRIC]).sort_values([METRIC, "shared_loss"], ascending=[False, True])
    if usable.empty:
        reasons = "; ".join(sorted(set(scores["failure"].dropna())))
        return {"architecture": None, METRIC: math.nan, "failure": f"no architecture has a score: {reasons}"}
    best = usable.iloc[0]
    return {"architecture": best["architecture"], METRIC: float(best[METRIC]), "failure": None}


RECIPE = supernet_recipe(
    TuneStage(
        name="search",
        title="train supernets on random paths, and score random architectures",
        reads=(*READS, "samples"),
        plan=lambda context, tuned: supernet_trials(context, metric=MIXTURE),
        finish=_write_best,
        search=True,
        amount=lambda config: (
            f"{supernets_amount(config)}, and {count(config.samples, 'architecture')} scored with the weights of each"
        ),
    ),
)
