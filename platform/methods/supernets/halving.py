"""Successive halving with weight sharing over a supernet. Khodak et al. 2020, Algorithm 1.

Each round trains the supernet on the paths of the candidates that are left, from the weights of the round before, and
scores them with it.
"""

import math

import pandas as pd

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.run_costs import searched_space
from archray.platform.engine.stage import Context
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.stages import trainings
from archray.platform.methods.supernets.config import SupernetHalvingConfig
from archray.platform.methods.supernets.shared_scoring import draw_architectures
from archray.platform.methods.supernets.stages import READS, supernet_recipe, supernet_settings, write_found
from archray.platform.run.layout import ROUNDS
from archray.plurals import count
from archray.searchers import WeightSharingHalving
from archray.trainables.tune.supernet_trainable import SupernetTrainable


def _trials(context: Context[SupernetHalvingConfig], tuned: Folder) -> TrialPlan:
    config = context.config
    seed = context.seed("candidates")
    candidates = draw_architectures(searched_space(context), config.supernet, config.candidates, seed)

    def searcher() -> WeightSharingHalving:
        return WeightSharingHalving(
            candidates,
            replicas=config.replicas,
            keep=config.keep,
            budget=config.supernet.training.epochs,
            growth=config.growth,
            seed=context.seed("search"),
        )

    return TrialPlan(
        trainable=SupernetTrainable,
        settings=supernet_settings(context, score=config.score, weights_dir=(tuned / "weights").uri),
        metric="score",
        mode=config.mode,
        total=searcher().expected_trials,
        searcher=searcher,
        at_most=config.replicas,
    )


def _write_winner(context: Context[SupernetHalvingConfig], folder: Folder, run: TuneRun) -> None:
    """One row: the candidate that was left, and the last trial, which trained and scored it alone.

    Raises: ArchrayError if none was left.
    """
    ended: WeightSharingHalving = run.searcher()
    folder.write_parquet(ROUNDS, ended.rounds())
    trials, best = run.trials, ended.best()
    if best is None or ended.failure is not None:
        raise ArchrayError(f"halving found no architecture: {ended.failure or run.failures}")
    last = trials[trials["round"] == best["round"]]
    if len(last["candidates"].iloc[0]) > 1:
        raise ArchrayError(f"halving ended after round {best['round']}, with candidates left; give it more time")
    trial = last.iloc[0]
    winner = {
        "trial_id": trial["trial_id"],
        "seed": trial["seed"],
        "architecture": best["candidate"],
        "shared_accuracy": trial["shared_accuracy"],
        "mixture_accuracy": math.nan,
        "failure": None,
    }
    write_found(context, folder, pd.DataFrame([winner]))


RECIPE = supernet_recipe(
    TuneStage(
        name="search",
        title="train a supernet on the candidates that are left, and halve",
        reads=(*READS, "candidates", "replicas", "keep", "growth", "score"),
        plan=_trials,
        finish=_write_winner,
        search=True,
        amount=lambda config: (
            count(config.candidates, "candidate") + ", of which a round leaves a share of "
            f"{config.keep:g}; the first trains {trainings(config.replicas, config.supernet.training, 'supernet')}"
        ),
    ),
)
