"""The study of activations: random teachers, searches and trainings, and what follows. Roberts et al. 2022."""

from __future__ import annotations

from ray import tune

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.understanding.activations.activation_rows import (
    ACTIVATION_ROWS,
    AGREEMENTS,
    PAIRS,
    agreement_rows,
    rows_of_activations,
    rows_of_pairs,
)
from archray.platform.methods.understanding.activations.activations_config import ActivationsConfig, amount
from archray.platform.methods.understanding.activations.activations_findings import findings
from archray.platform.methods.understanding.activations.activations_report import SECTIONS, headline, listings
from archray.platform.methods.understanding.activations.teacher_stage import TEACHER_STAGE
from archray.trainables.activations.activation_settings import ActivationSettings
from archray.trainables.tune.activation_trainable import ActivationTrainable


def _trials(context: Context[ActivationsConfig], tuned: Folder) -> TrialPlan:
    config = context.config
    settings = ActivationSettings(
        **dict(config.problem), data=context.run.data, seeds=config.seeds_at_once, instances=config.seeds
    )
    firsts = list(range(0, config.seeds, config.seeds_at_once))
    return TrialPlan(
        trainable=ActivationTrainable,
        settings=settings.model_dump(mode="json"),
        metric="mixture_risk",
        mode="min",
        total=len(firsts) * len(config.labels),
        keys={
            "labels": tune.grid_search(list(config.labels)),
            "first": tune.grid_search(firsts),
            "seed": context.seed("shared"),
        },
    )


def _write_rows(context: Context[ActivationsConfig], folder: Folder, run: TuneRun) -> None:
    """Raises: ArchrayError if no trial has ended well."""
    curves = run.curves
    instances = curves[curves["phase"].eq("instance")].sort_values(["labels", "number"], ignore_index=True)
    if instances.empty:
        raise ArchrayError(f"no training of the activations ended well: {run.failures}")
    rows = rows_of_activations(instances, context.config.problem.activations)
    pairs = rows_of_pairs(rows)
    folder.write_parquet(ACTIVATION_ROWS, rows)
    folder.write_parquet(PAIRS, pairs)
    folder.write_parquet(AGREEMENTS, agreement_rows(rows, pairs, context.seed("random-rankings")))


RECIPE = Recipe(
    stages=(
        TEACHER_STAGE,
        TuneStage[ActivationsConfig](
            name="shared",
            title="search alpha with shared weights, and train each activation alone",
            reads=("problem", "labels", "seeds", "seeds_at_once"),
            plan=_trials,
            finish=_write_rows,
            search=True,
            amount=amount,
        ),
    ),
    findings=findings,
    headline=headline,
    sections=SECTIONS,
    listings=listings,
)
