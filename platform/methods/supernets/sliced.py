"""A search with a sliced supernet that is trained once. Chen et al. 2021; Yu and Huang 2019.

1. The supernet is trained by the sandwich rule, or the weights of another run are used.
2. Architectures that meet the constraints are evaluated with the shared weights, in this process.
3. The best architectures are trained from scratch, as in other searches with a supernet.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from ray import tune

from archray.errors import ArchrayError, InvalidInput
from archray.files import Folder
from archray.platform.engine.run_costs import searched_space, with_costs
from archray.platform.engine.stage import Context, Stage, WorkStage
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.stages import BASELINE_STAGE, FINAL_STAGE, training_amount
from archray.platform.methods.supernets.sliced_config import STAGE, WEIGHTS, SlicedConfig, TrainedSupernet
from archray.platform.methods.supernets.stages import METRIC, SELECTION_STAGE, selection_amount, write_found
from archray.platform.methods.supernets.tables import SCORES
from archray.platform.quantities import quantity_of
from archray.plurals import count
from archray.searchers import RandomSearch, RegularizedEvolution, drive
from archray.trainables.checkpoint import read_state, write_weights
from archray.trainables.spaces import get_space
from archray.trainables.tune.scorers import SlicedScorer
from archray.trainables.tune.settings import SlicedSettings
from archray.trainables.tune.supernet_trainable import SlicedTrainable

LARGEST = "largest_accuracy"  # the metric that the terminal shows during training


@dataclass(frozen=True, kw_only=True)
class SupernetStage(TuneStage[SlicedConfig]):
    """Trains a supernet, or uses the weights of another run, which does not need Ray."""

    def requires_ray(self, context: Context[SlicedConfig]) -> bool:
        return context.config.supernet is None


def _supernet_trial(context: Context[SlicedConfig], tuned: Folder) -> TrialPlan | None:
    config, run = context.config, context.run
    if config.supernet is not None:
        source = TrainedSupernet.of_run(config.supernet)
        config.check_source(source)
        if source.data_checksum != run.data_checksum():
            raise InvalidInput(
                f"expected the data with which the supernet in {config.supernet} was trained, got other data of the "
                "same name. Use the same files"
            )
        source.weights()  # raises
        source.write(tuned.parent)
        context.say(f"using the supernet of {config.supernet}")
        return None
    settings = SlicedSettings(space=run.space, data=run.data, network=config.network, training=config.sandwich)
    return TrialPlan(
        trainable=SlicedTrainable,
        settings=settings.model_dump(mode="json"),
        metric=LARGEST,
        mode="max",
        total=1,
        keys={"seed": tune.grid_search([context.seed(STAGE)])},
        at_most=1,
        reads_checkpoints=True,
    )


def _write_trained(context: Context[SlicedConfig], folder: Folder, run: TuneRun) -> None:
    [result] = run.ended
    checkpoint = run.checkpoint(result)
    if checkpoint is None:
        raise ArchrayError(f"training the supernet failed: {run.failures}")
    with checkpoint.as_directory() as place:
        state = read_state(Path(place))
    write_weights(folder.uri, WEIGHTS, state["trainer"]["supernet"])
    config, checksum = context.run.manifest["config"], context.run.manifest["data_checksum"]
    TrainedSupernet(folder.uri, folder.sha256(WEIGHTS), state["settings"], config, checksum).write(folder)
    metrics = result.metrics or {}
    context.say(", ".join(quantity_of(name).text(metrics[name]) for name in ("smallest_accuracy", LARGEST)))


SUPERNET_STAGE = SupernetStage(
    name=STAGE,
    title="train a supernet whose slices are the networks",
    reads=("network", "sandwich", "supernet"),
    plan=_supernet_trial,
    finish=_write_trained,
    amount=lambda config: (
        f"none: weights of {config.supernet}" if config.supernet else training_amount(1, config.sandwich, "supernet")
    ),
)


def _search(context: Context[SlicedConfig], folder: Folder) -> None:
    """Evaluates architectures that meet the constraints, and keeps the best ones.

    It runs in the driver's process, on a GPU if available. A killed run restarts this stage, which is short.
    """
    config, run = context.config, context.run
    supernet = TrainedSupernet.of_run(str(run.folder))
    settings = supernet.settings | {"space": run.space, "data": run.data.model_dump(mode="json")}
    score = SlicedScorer(settings, supernet.weights())
    space, whole = searched_space(context), get_space(run.space)
    scores_of: dict[str, dict[str, Any]] = {}  # isomorphic spellings of a network are evaluated once

    def evaluate(suggested: dict[str, Any]) -> dict[str, Any]:
        form = whole.encode(whole.canonical(whole.decode(suggested["architecture"])))
        if form not in scores_of:
            [scores_of[form]] = score([form])
        return {METRIC: scores_of[form][METRIC]}

    options: dict[str, Any] = {"seed": context.seed("search"), "metric": METRIC, "mode": "max"}
    search = config.search
    if search.evolve:
        options |= {"population": search.population, "sample_size": search.sample_size}
    searcher = RegularizedEvolution if search.evolve else RandomSearch
    drive(searcher(space, search.budget, **options), evaluate)
    seed = context.seed(STAGE)
    scores = pd.DataFrame(scores_of.values()).astype({"failure": "string"}).assign(trial_id=STAGE, seed=seed)
    scores = scores.sort_values([METRIC, "shared_loss"], ascending=[False, True], kind="stable", ignore_index=True)
    folder.write_parquet(SCORES, with_costs(context, scores))
    context.say(f"evaluated {count(len(scores), 'network')} with shared weights")
    write_found(context, folder, scores[scores[METRIC].notna()].head(config.candidates).reset_index(drop=True))


SEARCH_STAGE = WorkStage[SlicedConfig](
    name="search",
    title="evaluate architectures with shared weights",
    reads=("search", "candidates", "constraints", "costs"),
    depends=lambda context: {"weights": TrainedSupernet.of_run(str(context.run.folder)).sha256},
    work=_search,
    needs_ray=False,
    amount=lambda config: f"{count(config.search.budget, 'evaluation')} with shared weights",
)


_SELECTION: Stage[Any] = SELECTION_STAGE  # it reads network, final and selection, which this configuration also has
RECIPE = Recipe[SlicedConfig](
    stages=(
        SUPERNET_STAGE,
        SEARCH_STAGE,
        replace(_SELECTION, amount=lambda config: selection_amount(config.candidates, config)),
        FINAL_STAGE,
        BASELINE_STAGE,
    ),
    report_at="archray.platform.methods.supernets.report:SLICED_REPORT",
)
