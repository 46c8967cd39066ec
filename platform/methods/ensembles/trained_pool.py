"""The pool: architectures trained each on its own, drawn at random or evolved. Zaidi et al. 2021, Algorithms 1, 2."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.tuning import TrialPlan, TuneRun, TuneStage
from archray.platform.methods.ensembles.baseline_config import EvolvedNESConfig, OneArchitectureConfig, PooledConfig
from archray.platform.methods.training_stages import training_plan
from archray.platform.run.layout import TRIALS
from archray.searchers import ArchraySearcher, RandomSearch, RegularizedEvolution
from archray.trainables.data import DataSettings, load_images
from archray.trainables.ensembles import forward_selection
from archray.trainables.tune.member_trainable import MemberTrainable, read_predictions

POOL = "pool"


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


def _drawn(context: Context[PooledConfig]) -> ArchraySearcher:
    """Draws as many networks as the space has at most."""
    return RandomSearch(context.run.space, budget=context.config.pool, seed=context.seed(POOL))


def _evolved(context: Context[EvolvedNESConfig]) -> ArchraySearcher:
    config, run = context.config, context.run
    return RegularizedEvolution(
        run.space,
        budget=config.pool,
        population=config.evolution.population,
        parents=EnsembleParents(config.evolution.parents, run.data),
        keep=["predictions"],
        seed=context.seed(POOL),
    )


def _trials(context: Context[Any], tuned: Folder, searcher: Callable[[Context[Any]], ArchraySearcher]) -> TrialPlan:
    return training_plan(
        context,
        context.config.train,
        test=False,
        trainable=MemberTrainable,
        settings={"predictions_dir": (tuned / "predictions").uri},
        total=context.config.pool,
        searcher=lambda: searcher(context),
        fixed=True,
    )


def _given_or_drawn(context: Context[OneArchitectureConfig], tuned: Folder) -> TrialPlan | None:
    if context.config.architecture is not None:
        context.say("none, the architecture is given")
        return None
    return _trials(context, tuned, _drawn)


def _write_pool(context: Context[PooledConfig], folder: Folder, run: TuneRun) -> None:
    trials = run.trials
    numbers = run.searcher().history().set_index("trial_id")["number"]
    folder.write_parquet(TRIALS, trials.assign(number=trials["trial_id"].map(numbers)))
    if "predictions" not in trials or trials["predictions"].isna().all():
        raise ArchrayError(f"none of the {len(trials)} networks of the pool was trained: {run.failures}")


def _stage(plan: Callable[[Context[Any], Folder], TrialPlan | None], *reads: str) -> TuneStage[Any]:
    return TuneStage(
        name=POOL,
        title="train a pool of architectures, each on its own",
        reads=("network", "train", POOL, *reads),
        plan=plan,
        finish=_write_pool,
        search=True,
    )


DRAWN_POOL_STAGE = _stage(lambda context, tuned: _trials(context, tuned, _drawn))
EVOLVED_POOL_STAGE = _stage(lambda context, tuned: _trials(context, tuned, _evolved), "evolution")
SMALL_POOL_STAGE = _stage(_given_or_drawn, "architecture")


def trained_pool(context: Context[Any]) -> pd.DataFrame:
    """The networks of the pool that were trained to the end, in the order of suggestion. See `MemberTrainable`."""
    trials = context.run.table(POOL, TRIALS)
    return trials[trials["predictions"].notna()].sort_values("number", ignore_index=True)
