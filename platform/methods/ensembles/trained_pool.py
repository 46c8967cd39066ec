"""The pool: architectures trained each on its own, drawn at random or evolved. Zaidi et al. 2021, Algorithms 1, 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from archray.cluster.resources import concurrency
from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context, Stage
from archray.platform.engine.tuning import restored_searcher, run_trials
from archray.platform.methods.ensembles.baseline_config import NESConfig, OneArchitectureConfig, pooled_config
from archray.platform.methods.training_stages import (
    failure_reasons,
    training_inputs,
    trial_plan,
    write_tables,
)
from archray.platform.run.run import digest
from archray.searchers import ArchraySearcher, RandomSearch, RegularizedEvolution
from archray.seeds import stage_seed
from archray.trainables.data import DataSettings, load_images
from archray.trainables.ensembles import forward_selection
from archray.trainables.tune.member_trainable import MemberTrainable, read_predictions

STAGE = "pool"
CONCURRENCY = "concurrency.json"


class EnsembleParents:
    """Parents of NES-RE: the members of the ensemble that forward selection finds in the population.

    Args:
        size: m, members; all, of a population that has fewer.
        data: whose validation images the predictions are of.
    """

    def __init__(self, size: int, data: DataSettings) -> None:
        self.size = size
        self.data = data
        self._probabilities: dict[str, npt.NDArray[np.float32]] = {}  # by URI

    def __call__(self, population: Sequence[Mapping[str, Any]]) -> list[int]:
        """Positions. A trial that was stopped before its last epoch has no predictions, and is no parent."""
        places = [place for place, told in enumerate(population) if told["predictions"] is not None]
        uris = [population[place]["predictions"] for place in places]
        if not uris:
            return []
        self._probabilities = {uri: self._read(uri) for uri in uris}  # of the living alone
        labels = load_images(self.data).validation.labels
        chosen = forward_selection(
            np.stack([self._probabilities[uri] for uri in uris]), labels, min(self.size, len(uris))
        )
        return [places[member] for member in chosen.members]

    def _read(self, uri: str) -> npt.NDArray[np.float32]:
        known = self._probabilities.get(uri)
        return read_predictions(uri) if known is None else known

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_probabilities": {}}


def pool_inputs(context: Context) -> dict[str, Any]:
    """What the training of the pool depends on."""
    config = pooled_config(context.run)
    if isinstance(config, OneArchitectureConfig) and config.architecture is not None:
        return {"architecture": config.architecture}
    inputs = {**training_inputs(context, config.train), "pool": config.pool}
    if isinstance(config, NESConfig) and config.method == "nes-re":
        inputs["evolution"] = config.evolution.model_dump(mode="json")
    return inputs


def _searcher(context: Context) -> ArchraySearcher:
    """Draws as many networks as the space has at most, or evolves them."""
    run, config = context.run, pooled_config(context.run)
    seed = stage_seed(config.seed, STAGE)
    if isinstance(config, NESConfig) and config.method == "nes-re":
        return RegularizedEvolution(
            run.space,
            budget=config.pool,
            population=config.evolution.population,
            parents=EnsembleParents(config.evolution.parents, run.data),
            keep=["predictions"],
            seed=seed,
        )
    return RandomSearch(run.space, budget=config.pool, seed=seed)


def _train(context: Context, folder: Folder) -> None:
    config = pooled_config(context.run)
    if isinstance(config, OneArchitectureConfig) and config.architecture is not None:
        context.console.print("    none, the architecture is given")
        return
    told = digest(pool_inputs(context))
    plan = trial_plan(
        context,
        config.train,
        total=config.pool,
        test=False,
        concurrency=_concurrency(context, folder),
        searcher=lambda: _searcher(context),
    )
    plan = replace(
        plan,
        trainable=MemberTrainable,
        settings={**plan.settings, "predictions_dir": (folder / f"predictions-{told}").uri},
    )
    tuned = folder / f"tune-{told}"
    results = run_trials(tuned, plan, context, search=True)
    context.grids["search"] = results
    trials = write_tables(folder, tuned, results)
    numbers = restored_searcher(tuned, lambda: _searcher(context)).history().set_index("trial_id")["number"]
    folder.write_parquet("trials.parquet", trials.assign(number=trials["trial_id"].map(numbers)))
    if "predictions" not in trials or trials["predictions"].isna().all():
        raise ArchrayError(f"none of the {len(trials)} networks of the pool was trained: {failure_reasons(trials)}")


def _concurrency(context: Context, folder: Folder) -> int:
    """Trials at a time, fixed when the stage begins: what evolves depends on it."""
    if folder.exists(CONCURRENCY):
        return int(folder.read_json(CONCURRENCY))
    concurrent = concurrency(context.run.config.resources)
    folder.write_json(CONCURRENCY, concurrent)
    return concurrent


def pool_stage() -> Stage:
    return Stage(STAGE, "train a pool of architectures, each on its own", pool_inputs, _train)


def trained_pool(context: Context) -> pd.DataFrame:
    """The networks of the pool that were trained to the end, in the order of suggestion. See `MemberTrainable`."""
    trials = context.folder(STAGE).read_parquet("trials.parquet")
    return trials[trials["predictions"].notna()].sort_values("number", ignore_index=True)
