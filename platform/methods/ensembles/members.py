"""Networks trained as the members of an ensemble, each from initial parameters of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ray import tune
from ray.tune import Checkpoint

from archray.cluster.resources import concurrency
from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.tuning import listed, run_trials
from archray.platform.methods.ensembles.ensemble_config import ensemble_config
from archray.platform.methods.training_stages import (
    failure_reasons,
    training_inputs,
    trial_plan,
    write_tables,
)
from archray.platform.run.run import digest
from archray.seeds import first_seeds, stage_seed


def member_seeds(context: Context, count: int) -> list[int]:
    """The seeds of `count` networks; those of fewer are the first of them."""
    return first_seeds(stage_seed(context.run.config.seed, "final"), count)


def member_inputs(context: Context, architectures: Sequence[str]) -> dict[str, Any]:
    """What the training of the members depends on."""
    config = ensemble_config(context.run)
    return {**training_inputs(context, config.final), "members": list(architectures)}


def train_members(context: Context, folder: Folder, architectures: Sequence[str]) -> list[Checkpoint | None]:
    """Trains a network of each architecture, as Tune trials; writes the tables of the stage.

    Args:
        architectures: repeated ones make networks that differ by their seed.

    Returns: the last checkpoint of each, in their order; None for one whose training failed.
    Raises: ArchrayError if all failed; RunInterrupted.
    """
    config = ensemble_config(context.run)
    listed_members, seeds = list(architectures), member_seeds(context, len(architectures))
    plan = trial_plan(
        context,
        config.final,
        total=len(listed_members),
        test=True,
        concurrency=concurrency(config.resources),
        keys={
            "member": tune.grid_search(list(range(len(listed_members)))),
            "architecture": _of_member(listed_members),
            "seed": _of_member(seeds),
        },
    )
    tuned = folder / f"tune-{digest(member_inputs(context, architectures))}"
    results = run_trials(tuned, plan, context)
    context.grids[folder.path.rpartition("/")[2]] = results
    trials = write_tables(folder, tuned, results)
    trained: list[Checkpoint | None] = [None] * len(listed_members)
    for result in listed(results):
        if result.error is None and (result.metrics or {}).get("failure") is None:
            trained[(result.config or {})["member"]] = result.checkpoint
    if not any(trained):
        raise ArchrayError(f"no network of {len(listed_members)} was trained: {failure_reasons(trials)}")
    return trained


def _of_member(values: Sequence[Any]) -> Any:
    """A value of a trial's config that the number of its member decides."""

    def choose(spec: Any) -> Any:
        return values[spec.config.member]

    return tune.sample_from(choose)
