"""The study of validation sets: validation and test losses by size, and spectral solutions. Oymak et al. 2021."""

from collections.abc import Sequence

from ray import tune

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.understanding.split.config import (
    MEASURES,
    MEASURES_TABLE,
    SPECTRAL,
    SPECTRAL_TABLE,
    SplitConfig,
)
from archray.plurals import count
from archray.seeds import first_seeds
from archray.trainables.tune.split_trainable import SplitTrainable, SplitTrialSettings


def _plan(context: Context[SplitConfig], parameters: Sequence[int], *, spectral: bool) -> TrialPlan:
    """The plan of a trial per h and seed. The problems of a seed have the same samples for every h."""
    config = context.config
    seeds = first_seeds(context.seed(MEASURES), config.seeds)
    settings = SplitTrialSettings(data=context.run.data, **config.problem.model_dump())
    keys = {"parameters": tune.grid_search(list(parameters)), "seed": tune.grid_search(seeds), "spectral": spectral}
    return TrialPlan(
        trainable=SplitTrainable,
        settings=settings.model_dump(mode="json"),
        metric="score",
        mode="min",
        total=len(parameters) * len(seeds),
        keys=keys,
    )


def _write(folder: Folder, run: TuneRun, name: str) -> None:
    """Writes the rows of all trials. Raises: ArchrayError if there are none."""
    from archray.platform.methods.understanding.split.tables import rows_of  # matplotlib

    table = rows_of(run.trials)
    if table.empty:
        raise ArchrayError(f"all of {count(len(run.trials), 'problem')} failed: {run.failures}")
    folder.write_parquet(name, table.sort_values(["parameters", "seed"], kind="stable", ignore_index=True))


MEASURES_STAGE = TuneStage[SplitConfig](
    name=MEASURES,
    title="compare validation and test loss at every size of the validation set",
    reads=("problem", "parameters", "seeds"),
    plan=lambda context, tuned: _plan(context, context.config.parameters, spectral=False),
    finish=lambda context, folder, run: _write(folder, run, MEASURES_TABLE),
    search=True,
    amount=lambda config: count(config.seeds * len(config.parameters), "problem"),
)

SPECTRAL_STAGE = TuneStage[SplitConfig](
    name=SPECTRAL,
    title="solve the upper-level problem by eigenvectors and by gradient ascent",
    reads=("problem", "spectral_parameters", "seeds"),
    plan=lambda context, tuned: _plan(context, (context.config.spectral_parameters,), spectral=True),
    finish=lambda context, folder, run: _write(folder, run, SPECTRAL_TABLE),
    amount=lambda config: count(config.seeds, "problem"),
)

RECIPE = Recipe[SplitConfig](
    stages=(MEASURES_STAGE, SPECTRAL_STAGE),
    report_at="archray.platform.methods.understanding.split.report:REPORT",
)
