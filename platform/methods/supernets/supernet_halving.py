"""Successive halving with weight sharing over a supernet. Khodak et al. 2020, Algorithm 1.

Each round trains the supernet on the paths of the candidates that are left, from the weights of the round before, and
scores them with it.
"""

from __future__ import annotations

import math
from typing import Literal

import pandas as pd
from pydantic import Field

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.tuning import TrialPlan, TuneRun, TuneStage
from archray.platform.methods.supernets.shared_scoring import draw_architectures
from archray.platform.methods.supernets.supernet_config import SupernetSearchConfig
from archray.platform.methods.supernets.supernet_method import register_supernet_method
from archray.platform.methods.supernets.supernet_search import READS, supernet_settings, write_found
from archray.platform.run.layout import ROUNDS
from archray.searchers import WeightSharingHalving
from archray.trainables.tune.supernet_trainable import SupernetTrainable


class SupernetHalvingConfig(SupernetSearchConfig):
    """The configuration of halving over a supernet; see `WeightSharingHalving`.

    A round trains for `supernet.training.epochs`, the last one and the one candidate that it leaves for so many, too.

    Fields:
        search_seeds: there is one search. Its replicas are what runs at the same time.
        candidates: how many architectures the search chooses from, drawn by the seed.
        replicas: supernets that a round trains, each from weights of its own; their scores are averaged.
        keep: the share of the candidates that a round keeps.
        growth: how many times more epochs each round has than the one before; 1 is Algorithm 1.
        score: what candidates are ranked by, on the validation data.
    """

    method: Literal["supernet-halving"] = "supernet-halving"
    search_seeds: Literal[1] = 1
    candidates: int = Field(256, ge=2)
    replicas: int = Field(1, ge=1)
    keep: float = Field(0.5, gt=0, lt=1)
    growth: float = Field(1.0, ge=1)
    score: Literal["loss", "accuracy"] = "loss"

    @property
    def mode(self) -> str:
        return "min" if self.score == "loss" else "max"

    def check(self) -> None:
        super().check()
        draw_architectures(self.space, self.supernet, self.candidates, self.seed)


def _trials(context: Context[SupernetHalvingConfig], tuned: Folder) -> TrialPlan:
    config = context.config
    seed = context.seed("candidates")
    candidates = draw_architectures(context.run.space, config.supernet, config.candidates, seed)

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
        "value": trial["validation_accuracy"],
        "validation_accuracy": math.nan,
        "failure": None,
    }
    write_found(context, folder, pd.DataFrame([winner]))


register_supernet_method(
    "supernet-halving",
    "Successive halving with weight sharing, over a supernet (Khodak 2020, Algorithm 1)",
    TuneStage(
        name="search",
        title="train a supernet on the candidates that are left, and halve",
        reads=(*READS, "candidates", "replicas", "keep", "growth", "score"),
        plan=_trials,
        finish=_write_winner,
        search=True,
    ),
    {"supernet": {"relaxation": {"name": "path"}, "optimizer": {"name": "none"}}, "search_seeds": 1},
    config=SupernetHalvingConfig,
    presets={
        "smoke": {"candidates": 4, "search_seeds": 1},
        "demo": {"candidates": 32, "search_seeds": 1},
        "paper": {"search_seeds": 1},
    },
    flags={"candidates": "candidates", "replicas": "replicas"},
)
