"""HNAS: a training-free objective whose (mu, nu) Bayesian optimisation finds. Shu 2022, ch. 7, Alg. 7.1, Eq. 7.7."""

from __future__ import annotations

from typing import Any, Literal

import pandas as pd
from pydantic import Field

from archray.errors import ArchrayError, InvalidInput
from archray.files import Folder
from archray.platform.config import SearchConfig
from archray.platform.engine.pool_scoring import POOL, PoolSettings, candidates, score_pool
from archray.platform.engine.stage import Context, WorkStage, file_digests
from archray.platform.engine.tuning import TrialPlan, TuneRun, TuneStage
from archray.platform.methods.found_networks import tested_networks
from archray.platform.methods.hnas.hnas_report import SECTIONS, headline, listings
from archray.platform.methods.method import METHODS, Method
from archray.platform.methods.training_stages import (
    ACCURACY,
    BASELINE_STAGE,
    FINAL_STAGE,
    TrainedSearchConfig,
    training_plan,
)
from archray.platform.run.layout import FOUND
from archray.searchers import HNASSearch
from archray.searchers.hnas.scored_pool import PoolFile
from archray.settings import Settings
from archray.trainables.proxies import ProxySettings, check_proxies, column_of, get_proxy
from archray.trainables.spaces import get_space
from archray.trainables.training import TrainingSettings

MAX_CONCURRENT = 4  # more trials in flight than this, and the optimiser decides on too little
KAPPA = "kappa"
SEARCHER = "searcher.json"  # the state of the searcher when the search ended: an extended search continues from it


class HNASOptions(Settings):
    """What `HNASSearch` is told; see there.

    Fields:
        proxy: the training-free metric M of Eq. 7.7: a name (`archray list proxies`), or path.py:function.
        budget: trainings, K of Algorithm 7.1. 20 in the authors' program (note H2).
    """

    proxy: str = "ntk_trace"
    budget: int = Field(20, ge=1)
    penalty: Literal["square", "absolute"] | None = None
    preset: Literal["paper-code"] | None = None
    on_repeat: Literal["tell", "next-best"] | None = None


class HNASConfig(TrainedSearchConfig):
    """The configuration of HNAS.

    Fields:
        proxies: how the pool is scored: its metrics are those listed, the one searched with, and kappa.
        pool: which architectures are scored.
        search: the search over (mu, nu).
        train: the short training that gives a trial its value.
    """

    method: Literal["hnas"] = "hnas"
    proxies: ProxySettings = ProxySettings()
    pool: PoolSettings = PoolSettings()
    search: HNASOptions = HNASOptions()
    train: TrainingSettings = TrainingSettings(epochs=12)

    def check(self) -> None:
        if self.search.proxy == KAPPA:
            raise InvalidInput("kappa is the other half of HNAS's objective; choose another proxy")
        if self.pool.table is None:
            check_proxies(self.scored)
            if get_proxy(self.search.proxy).direction == "min":
                raise InvalidInput(
                    f"HNAS looks for a large M, and {self.search.proxy} promises the more the smaller it is; choose "
                    "another proxy, or return its inverse"
                )
            candidates(self.space, self.pool.size, self.seed)
        else:
            space = get_space(self.space)
            for architecture in PoolFile.of(self.pool.table).load(self.metric).architectures:
                space.decode(architecture)

    def references(self) -> dict[str, str]:
        metrics = self.scored.metrics if self.pool.table is None else ()
        return super().references() | {_role(name): name for name in metrics}

    def check_extends(self, before: SearchConfig) -> None:
        if isinstance(before, HNASConfig) and self.search.budget < before.search.budget:
            raise InvalidInput(
                f"the run has a budget of {before.search.budget} trainings; expected more, got {self.search.budget}"
            )

    @property
    def metric(self) -> str:
        """The column of the pool that is M."""
        return column_of(self.search.proxy)

    @property
    def scored(self) -> ProxySettings:
        """The proxies that the pool is scored with."""
        metrics = dict.fromkeys((*self.proxies.metrics, self.search.proxy, KAPPA))
        return self.proxies.model_copy(update={"metrics": tuple(metrics)})


def _role(metric: str) -> str:
    """Of a metric's file in the run, where it is the user's own."""
    return f"proxy-{column_of(metric)}"


# Stage 1: the pool


def _score(context: Context[HNASConfig], folder: Folder) -> None:
    config, run = context.config, context.run
    if (source := config.pool.table) is not None:
        table = pd.read_csv(source) if source.endswith(".csv") else pd.read_parquet(source)
        folder.write_parquet(POOL, table)
        context.say(f"{len(table)} architectures taken from {source}")
        return
    metrics = tuple(run.resolved(_role(name), name) for name in config.scored.metrics)
    score_pool(
        folder,
        candidates(run.space, config.pool.size, context.seed("pool")),
        space=run.space,
        data=run.data,
        proxy=config.scored.model_copy(update={"metrics": metrics}),
        resources=config.resources,
        console=context.console,
        chunk=config.pool.chunk,
    )


# Stage 2: the search


def _trials(context: Context[HNASConfig], tuned: Folder) -> TrialPlan:
    config, pool, stage = context.config, context.folder("pool"), tuned.parent

    def searcher() -> HNASSearch:
        """One that knows the trials of the smaller budget that this run was extended from."""
        options = config.search.model_dump() | {"proxy": config.metric}
        searcher = HNASSearch(f"{pool.uri}/{POOL}", seed=context.seed("search"), **options)
        if stage.exists(SEARCHER):
            searcher.set_state(stage.read_json(SEARCHER))
        return searcher

    return training_plan(
        context,
        config.train,
        test=False,
        total=config.search.budget,
        searcher=searcher,
        at_most=MAX_CONCURRENT,
        fixed=True,
    )


def _write_found(context: Context[HNASConfig], folder: Folder, run: TuneRun) -> None:
    searcher: HNASSearch = run.searcher()
    folder.write_json(SEARCHER, searcher.get_state())
    objective = {
        "proxy": searcher.proxy,
        "scale": searcher.pool.factor,
        "penalty": searcher.penalty,
        "log10_mu": list(searcher.log10_mu),
        "root_nu": [searcher.coordinates.target(0.0), searcher.coordinates.target(1.0)],
        "epsilon": searcher.epsilon,
        "pool": len(searcher.pool),
        "excluded": searcher.pool.excluded,
    }
    folder.write_json("objective.json", objective)
    folder.write_parquet("asked.parquet", searcher.asked())
    best = searcher.best()
    if best is None:
        raise ArchrayError(f"none of the {len(run.trials)} trials has a value: {run.failures}")
    folder.write_json(FOUND, {**best, "metric": ACCURACY})
    context.say(f"found {best['architecture']}  ({ACCURACY} {best['value']:.4f})")


# The method

_TINY = {"channels": 4, "cells": 1}

PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {
        "network": _TINY,
        "proxies": {"network": _TINY, "batch_size": 16},
        "pool": {"size": 12},
        "search": {"budget": 3},
        "train": {"epochs": 1, "batch_size": 32},
        "final": {"epochs": 2, "batch_size": 32},
        "baseline": 2,
    },
    "demo": {
        "network": {"channels": 8, "cells": 1},
        "proxies": {
            "network": {"channels": 4, "cells": 3},
            "batch_size": 64,
            "metrics": ["grad_norm", "snip", "ntk_trace"],
        },
        "pool": {"size": 300},
        "search": {"budget": 8},
        # after some 20 epochs nearly every cell has learnt these small digits, and there is nothing to compare
        "train": {"epochs": 4, "batch_size": 64},
        "final": {"epochs": 10, "batch_size": 64},
        "final_seeds": 3,
        "baseline": 8,
    },
    # Shu 2022, 7.5 and appendix; the search as in the authors' program (note H2), NAS-Bench-201's network and data
    "paper": {
        "data": {"name": "cifar10"},
        "network": {"channels": 16, "cells": 5},
        "proxies": {"network": {"channels": 16, "cells": 5}, "batch_size": 64},
        "pool": {"size": None},
        "search": {"budget": 20, "preset": "paper-code"},
        "train": {"epochs": 12},
        "final": {"epochs": 200},
        "final_seeds": 3,
    },
}

HNAS = METHODS.register(
    "hnas",
    Method(
        name="hnas",
        summary="Hybrid NAS: Bayesian optimisation over (mu, nu) of a training-free objective (Shu 2022, ch. 7)",
        config=HNASConfig,
        stages=(
            WorkStage(
                name="pool",
                title="score architectures without training",
                reads=("scored", "pool.size", "pool.table"),
                work=_score,
            ),
            TuneStage(
                name="search",
                title="train what the objective selects, and learn (mu, nu)",
                reads=("network", "train", "search"),
                depends=file_digests(f"pool/{POOL}"),
                plan=_trials,
                finish=_write_found,
                search=True,
                extends=True,
            ),
            FINAL_STAGE,
            BASELINE_STAGE,
        ),
        presets=PRESETS,
        results=tested_networks,
        headline=headline,
        sections=SECTIONS,
        listings=listings,
        flags={
            "proxy": "search.proxy",
            "budget": "search.budget",
            "epochs": "train.epochs",
            "final_epochs": "final.epochs",
            "final_seeds": "final_seeds",
            "pool": "pool.table",
            "pool_size": "pool.size",
            "random": "baseline",
        },
        extendable=("budget", "final_epochs", "final_seeds", "random"),
    ),
)
