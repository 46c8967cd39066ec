"""The stage that trains, or solves, what a search found: once for each final seed; the best is the run's model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field
from ray import tune

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.config import SearchConfig
from archray.platform.engine.stage import Context
from archray.platform.engine.tuning import TrialPlan, TuneRun, TuneStage
from archray.platform.run.layout import MODEL
from archray.platform.run.run import Run
from archray.seeds import first_seeds

ACCURACY = "validation_accuracy"


class FinalConfig(SearchConfig):
    """A search whose result is trained, or solved, in the end.

    Fields:
        final_seeds: how many times, each from its own random numbers.
    """

    final_seeds: int = Field(1, ge=1)


def final_stage(
    title: str,
    *,
    reads: Sequence[str],
    trials: Callable[..., TrialPlan],
    write: Callable[[Folder, Path, Run[Any]], None],
) -> TuneStage[FinalConfig]:
    """Trains what the search found with each final seed, and writes the best on validation to `model/`.

    Args:
        reads: what a training depends on beside the architecture.
        trials: makes the plan, given the context, `total` and `keys`.
        write: writes a model from the folder of a trial's checkpoint.
    """

    def plan(context: Context[FinalConfig], tuned: Folder) -> TrialPlan:
        seeds = first_seeds(context.seed("final"), context.config.final_seeds)
        keys = {"architecture": context.run.architecture, "seed": tune.grid_search(seeds)}
        return trials(context, total=len(seeds), keys=keys)

    def finish(context: Context[FinalConfig], folder: Folder, run: TuneRun) -> None:
        ended = [((result.metrics or {}).get(ACCURACY, math.nan), result.checkpoint) for result in run.ended]
        trained = [(accuracy, kept) for accuracy, kept in ended if kept is not None and not math.isnan(accuracy)]
        if not trained:
            raise ArchrayError(f"the final training of {context.run.architecture} failed: {run.failures}")
        _, checkpoint = max(trained, key=lambda entry: entry[0])
        with checkpoint.as_directory() as place:
            write(folder / MODEL, Path(place), context.run)

    return TuneStage(
        name="final",
        title=title,
        reads=(*reads, "final_seeds"),
        depends=lambda context: {"architecture": context.run.architecture},
        plan=plan,
        finish=finish,
    )
