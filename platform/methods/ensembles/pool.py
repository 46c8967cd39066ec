"""A pool of trained architectures, and the selection of an ensemble from it. Zaidi et al. 2021, Algorithms 1 and 2.

The pool is random or grows by evolution. The result is its best architecture, or an ensemble by forward selection.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.run_costs import searched_space
from archray.platform.engine.stage import Context, Work, WorkStage
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.ensembles.config import EvolvedNESConfig, NESConfig, OneArchitectureConfig, PooledConfig
from archray.platform.methods.stages import ACCURACY, training_amount, training_plan
from archray.platform.quantities import quantity_of
from archray.platform.run.layout import DONE, FOUND, TRIALS
from archray.plurals import count
from archray.searchers import ArchraySearcher, RandomSearch, RegularizedEvolution
from archray.trainables.data import DataSettings, load_images
from archray.trainables.ensembles.measures import ensemble_accuracy
from archray.trainables.ensembles.scores import forward_selection
from archray.trainables.tune.standalone_trainable import MemberTrainable, read_predictions

POOL = "pool"
LOSS = "validation_loss"


class EnsembleParents:
    """Parents of NES-RE: the members of the ensemble that forward selection finds in the population.

    Args:
        size: number of members (m); a smaller population is used completely.
        data: the data set whose validation images the predictions belong to.
    """

    def __init__(self, size: int, data: DataSettings) -> None:
        self.size = size
        self.data = data
        self._probabilities: dict[str, npt.NDArray[np.float32]] = {}  # by URI

    def __call__(self, population: Sequence[Mapping[str, Any]]) -> list[int]:
        """Positions of the parents. A trial that stopped before its last epoch has no predictions and is skipped."""
        places = [place for place, parent in enumerate(population) if parent["predictions"] is not None]
        uris = [population[place]["predictions"] for place in places]
        if not uris:
            return []
        cache = self._probabilities
        self._probabilities = {
            uri: cache[uri] if uri in cache else read_predictions(uri) for uri in uris
        }  # keep only the current population
        labels = load_images(self.data).validation.labels
        chosen = forward_selection(
            np.stack([self._probabilities[uri] for uri in uris]), labels, min(self.size, len(uris))
        )
        return [places[member] for member in chosen.members]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_probabilities": {}}


def _drawn(context: Context[PooledConfig]) -> ArchraySearcher:
    """A random search; it stops early if the space has fewer networks."""
    return RandomSearch(searched_space(context), budget=context.config.pool, seed=context.seed(POOL))


def _evolved(context: Context[EvolvedNESConfig]) -> ArchraySearcher:
    config, run = context.config, context.run
    return RegularizedEvolution(
        searched_space(context),
        budget=config.pool,
        population=config.evolution.population,
        parents=EnsembleParents(config.evolution.parents, run.data),
        keep=["predictions"],
        seed=context.seed(POOL),
    )


def _write_pool(context: Context[PooledConfig], folder: Folder, run: TuneRun) -> None:
    trials = run.trials
    numbers = run.searcher().history().set_index("trial_id")["number"]
    folder.write_parquet(TRIALS, trials.assign(number=trials["trial_id"].map(numbers)))
    if "predictions" not in trials or trials["predictions"].isna().all():
        raise ArchrayError(f"training failed for all of {count(len(trials), 'network')} of the pool: {run.failures}")


def _stage(searcher: Callable[[Context[Any]], ArchraySearcher], *reads: str) -> TuneStage[Any]:
    def plan(context: Context[Any], tuned: Folder) -> TrialPlan | None:
        config = context.config
        if "architecture" in reads and config.architecture is not None:
            context.say("none: architecture is set")
            return None
        return training_plan(
            context,
            config.train,
            test=False,
            trainable=MemberTrainable,
            settings={"predictions_dir": (tuned / "predictions").uri},
            total=config.pool,
            searcher=lambda: searcher(context),
            fixed=True,
        )

    def amount(config: Any) -> str | Work:
        if "architecture" in reads and config.architecture is not None:
            return "none: architecture is set"
        return training_amount(config.pool, config.train)

    return TuneStage(
        name=POOL,
        title="train a pool of architectures",
        reads=("network", "train", POOL, *reads),
        plan=plan,
        finish=_write_pool,
        search=True,
        amount=amount,
    )


DRAWN_POOL_STAGE = _stage(_drawn)
EVOLVED_POOL_STAGE = _stage(_evolved, "evolution")
SMALL_POOL_STAGE = _stage(_drawn, "architecture")


def _trained_pool(context: Context[Any]) -> pd.DataFrame:
    """The fully trained networks of the pool, in the order of suggestion. See `MemberTrainable`."""
    trials = context.run.table(POOL, TRIALS)
    return trials[trials["predictions"].notna()].sort_values("number", ignore_index=True)


def _pool_digest(context: Context[Any]) -> dict[str, Any]:
    return {POOL: context.folder(POOL).read_json(DONE)["inputs"]}


def _take_one(context: Context[OneArchitectureConfig], folder: Folder) -> None:
    """Uses the configured architecture, or the best of the pool on validation data, for all members."""
    config = context.config
    name, value = config.architecture, None
    if name is None:
        pool = _trained_pool(context)
        best = pool.sort_values([ACCURACY, LOSS], ascending=[False, True], kind="stable").iloc[0]
        name, value = best["architecture"], float(best[ACCURACY])
        context.say(f"the best of the pool is {name}  ({quantity_of(ACCURACY).text(value)})")
    members = [name] * config.ensemble_size
    folder.write_json(FOUND, {"members": members, "value": value, "metric": ACCURACY, ACCURACY: value})


ONE_ARCHITECTURE_STAGE = WorkStage[OneArchitectureConfig](
    name="search",
    title="select the architecture of all members",
    reads=("ensemble_size", "architecture"),
    depends=_pool_digest,
    work=_take_one,
    needs_ray=False,
)


def _select(context: Context[NESConfig], folder: Folder) -> None:
    """Forward selection from the pool (Algorithm 1, line 2). The table also has the selection of every smaller pool."""
    config, pool = context.config, _trained_pool(context)
    size = config.ensemble_size
    if len(pool) < size:
        raise ArchrayError(
            f"expected at least {count(size, 'trained network')} in the pool, got {len(pool)}. See the failures in "
            "pool/trials.parquet, and lower ensemble_size or raise pool"
        )
    probabilities = np.stack([read_predictions(uri) for uri in pool["predictions"]])  # (pool, images, classes)
    labels = load_images(context.run.data).validation.labels.numpy()
    rows: list[dict[str, Any]] = []
    for trained in range(size, len(pool) + 1):
        selected = forward_selection(probabilities[:trained], labels, size)
        members = selected.members
        rows.append(
            {
                "number": trained,
                "sampler": config.method,
                "delta": math.nan,
                "temperature": math.nan,
                "members": [pool["architecture"][place] for place in members],
                LOSS: selected.losses[-1],
                ACCURACY: ensemble_accuracy(probabilities[members], labels),
                "failure": None,
            }
        )
    last = rows[-1]
    folder.write_parquet(TRIALS, pd.DataFrame(rows))
    value, accuracy = last[LOSS], last[ACCURACY]
    folder.write_json(FOUND, {"members": last["members"], "value": value, "metric": LOSS, ACCURACY: accuracy})
    context.say(f"the selected ensemble has {quantity_of(LOSS).text(last[LOSS])} with the networks of the pool")


MEMBER_SELECTION_STAGE = WorkStage[NESConfig](
    name="search",
    title="select an ensemble from the pool",
    reads=("ensemble_size",),
    depends=_pool_digest,
    work=_select,
    amount=lambda config: f"{config.ensemble_size} of {count(config.pool, 'network')}",
    needs_ray=False,
)
