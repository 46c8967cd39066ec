"""HNAS: a training-free objective whose (mu, nu) Bayesian optimisation finds. Shu 2022, ch. 7, Alg. 7.1, Eq. 7.7."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from archray.cluster.resources import concurrency
from archray.errors import ArchrayError, InvalidInput
from archray.files import Folder
from archray.platform.config import SearchConfig
from archray.platform.engine.pool_scoring import PoolSettings, candidates, score_pool
from archray.platform.engine.stage import Context, Stage
from archray.platform.engine.tuning import restored_searcher, run_trials
from archray.platform.methods.hnas.choice import choice_section
from archray.platform.methods.hnas.landscape import landscape_section
from archray.platform.methods.hnas.pool_scatter import pool_section
from archray.platform.methods.hnas.trials_table import trials_section
from archray.platform.methods.method import Method
from archray.platform.methods.report_stage import read_table, report_stage, run_view
from archray.platform.methods.training_stages import (
    METRIC,
    TrainedSearchConfig,
    baseline_stage,
    failure_reasons,
    final_stage,
    training_inputs,
    trial_plan,
    write_tables,
)
from archray.platform.report.cell import cell_section
from archray.platform.report.comparison import comparison_section
from archray.platform.report.curves import curves_section
from archray.platform.report.failures import failures_section
from archray.platform.report.manifest_section import manifest_section
from archray.platform.report.page import MakeSection
from archray.platform.report.repeats_section import repeats_section
from archray.platform.report.view import Objective, RunView
from archray.platform.run.run import Run, digest
from archray.searchers import HNASSearch
from archray.searchers.hnas.scored_pool import PoolFile
from archray.seeds import stage_seed
from archray.trainables.proxies import PROXIES, ProxySettings
from archray.trainables.spaces import get_space
from archray.trainables.training import TrainingSettings

HNAS_SECTIONS: tuple[MakeSection, ...] = (
    cell_section,
    comparison_section,
    repeats_section,
    choice_section,
    landscape_section,
    pool_section,
    curves_section,
    trials_section,
    failures_section,
    manifest_section,
)


MAX_CONCURRENT = 4  # more trials in flight than this, and the optimiser decides on too little
KAPPA = "kappa"


class HNASOptions(BaseModel):
    """What `HNASSearch` is told; see there.

    Fields:
        proxy: the training-free metric M of Eq. 7.7.
        budget: trainings, K of Algorithm 7.1. 20 in the authors' program (note H2).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

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
        for name in self.scored.metrics:
            PROXIES.get(name)
        if self.pool.table is None:
            candidates(self.space, self.pool.size, self.seed)
        else:
            space = get_space(self.space)
            for architecture in PoolFile.of(self.pool.table).load(self.search.proxy).architectures:
                space.decode(architecture)

    def check_extends(self, before: SearchConfig) -> None:
        if isinstance(before, HNASConfig) and self.search.budget < before.search.budget:
            raise InvalidInput(
                f"the run has a budget of {before.search.budget} trainings; expected more, got {self.search.budget}"
            )

    @property
    def scored(self) -> ProxySettings:
        """The proxies that the pool is scored with."""
        metrics = dict.fromkeys((*self.proxies.metrics, self.search.proxy, KAPPA))
        return self.proxies.model_copy(update={"metrics": tuple(metrics)})


def _config(context: Context) -> HNASConfig:
    config = context.run.config
    assert isinstance(config, HNASConfig)  # the run was opened with its method's configuration
    return config


# Stage 1: the pool


def _pool_inputs(context: Context) -> dict[str, Any]:
    config = _config(context)
    return {
        "space": context.run.space,
        "data": context.run.manifest["data_checksum"],
        "proxies": config.scored.model_dump(mode="json"),
        "size": config.pool.size,
        "table": config.pool.table,
        "seed": config.seed,
    }


def _score(context: Context, folder: Folder) -> None:
    config = _config(context)
    if config.pool.table is not None:
        given = config.pool.table
        table = pd.read_csv(given) if given.endswith(".csv") else pd.read_parquet(given)
        folder.write_parquet("pool.parquet", table)
        context.console.print(f"    {len(table)} architectures taken from {given}", soft_wrap=True)
        return
    score_pool(
        folder,
        candidates(context.run.space, config.pool.size, stage_seed(config.seed, "pool")),
        space=context.run.space,
        data=context.run.data,
        proxy=config.scored,
        resources=config.resources,
        pool=config.pool,
        console=context.console,
    )


# Stage 2: the search


def _search_inputs(context: Context) -> dict[str, Any]:
    config = _config(context)
    return {
        **training_inputs(context, config.train),
        "search": config.search.model_dump(mode="json"),
        "pool": context.folder("pool").sha256("pool.parquet"),
    }


def _search(context: Context, folder: Folder) -> None:
    config = _config(context)
    pool = context.folder("pool")
    concurrent = _concurrency(context, folder)
    options = config.search.model_dump()

    def fresh() -> HNASSearch:
        return HNASSearch(f"{pool.uri}/pool.parquet", seed=stage_seed(config.seed, "search"), **options)

    def continued() -> HNASSearch:
        """A searcher that knows the trials of the smaller budget that this run was extended from."""
        searcher = fresh()
        if folder.exists("searcher.json"):
            searcher.set_state(folder.read_json("searcher.json"))
        return searcher

    plan = trial_plan(
        context, config.train, total=config.search.budget, test=False, concurrency=concurrent, searcher=continued
    )
    tuned = folder / f"tune-{digest(_search_inputs(context))}"
    results = run_trials(tuned, plan, context, search=True)
    context.grids["search"] = results
    trials = write_tables(folder, tuned, results, keep_earlier=True)
    searcher = restored_searcher(tuned, fresh)
    folder.write_json("searcher.json", searcher.get_state())
    folder.write_json("objective.json", _objective(searcher))
    folder.write_parquet("asked.parquet", searcher.asked())
    best = searcher.best()
    if best is None:
        raise ArchrayError(f"none of the {len(trials)} trials has a value: {failure_reasons(trials)}")
    folder.write_json("architecture.json", {**best, "metric": METRIC})
    context.console.print(f"    found {best['architecture']}  ({METRIC} {best['value']:.4f})", soft_wrap=True)


def _concurrency(context: Context, folder: Folder) -> int:
    """Trials at a time, fixed when the search begins: what is suggested depends on it."""
    if folder.exists("concurrency.json"):
        return int(folder.read_json("concurrency.json"))
    concurrent = concurrency(_config(context).resources, limit=MAX_CONCURRENT)
    folder.write_json("concurrency.json", concurrent)
    return concurrent


# What the report reads


def _objective(searcher: HNASSearch) -> dict[str, Any]:
    """The objective's scale and ranges, and what the pool left out."""
    return {
        "proxy": searcher.proxy,
        "scale": searcher.pool.factor,
        "penalty": searcher.penalty,
        "log10_mu": list(searcher.log10_mu),
        "root_nu": [searcher.coordinates.target(0.0), searcher.coordinates.target(1.0)],
        "epsilon": searcher.epsilon,
        "pool": len(searcher.pool),
        "excluded": searcher.pool.excluded,
    }


def view(run: Run) -> RunView:
    """What the report of an HNAS run shows; a run that has not ended shows what there is."""
    config = run.config
    assert isinstance(config, HNASConfig)
    search = run.folder / "search"
    objective = search.read_json("objective.json") if search.exists("objective.json") else None
    return replace(
        run_view(run),
        proxy=config.search.proxy,
        objective=objective
        and Objective(
            scale=objective["scale"],
            penalty=objective["penalty"],
            mu_bounds=(10 ** objective["log10_mu"][0], 10 ** objective["log10_mu"][1]),
            root_nu_bounds=tuple(objective["root_nu"]),
            epsilon=objective["epsilon"],
        ),
        pool=read_table(run.folder / "pool", "pool.parquet"),
        evaluated=read_table(search, "asked.parquet"),
    )


# The recipe

_TINY = {"channels": 4, "cells": 1}

HNAS = Method(
    name="hnas",
    summary="Hybrid NAS: Bayesian optimisation over (mu, nu) of a training-free objective (Shu 2022, ch. 7)",
    config=HNASConfig,
    stages=(
        Stage("pool", "score architectures without training", _pool_inputs, _score),
        Stage("search", "train what the objective selects, and learn (mu, nu)", _search_inputs, _search),
        final_stage(),
        baseline_stage(),
        report_stage(),
    ),
    presets={
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
    },
    view=view,
    sections=HNAS_SECTIONS,
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
)
