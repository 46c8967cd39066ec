"""Networks trained as the members of an ensemble, each from initial parameters of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ray import tune
from ray.tune import Checkpoint

from archray.errors import ArchrayError
from archray.platform.engine.stage import Context
from archray.platform.engine.tuning import TrialPlan, TuneRun
from archray.platform.methods.ensembles.ensemble_config import EnsembleConfig
from archray.platform.methods.training_stages import training_plan
from archray.seeds import first_seeds


def found_members(context: Context[Any]) -> list[str]:
    """The architectures of the ensemble that the search found."""
    found = context.run.found
    assert found is not None  # the search stage is done
    members: list[str] = found["members"]
    return members


def member_seeds(context: Context[Any], count: int) -> list[int]:
    """The seeds of `count` networks; those of fewer are the first of them."""
    return first_seeds(context.seed("final"), count)


def member_trials(context: Context[EnsembleConfig], architectures: Sequence[str]) -> TrialPlan:
    """A network of each architecture. Repeated ones make networks that differ by their seed."""
    members, seeds = list(architectures), member_seeds(context, len(architectures))
    return training_plan(
        context,
        context.config.final,
        test=True,
        total=len(members),
        keys={
            "member": tune.grid_search(list(range(len(members)))),
            "architecture": _of_member(members),
            "seed": _of_member(seeds),
        },
    )


def trained_members(run: TuneRun) -> list[Checkpoint | None]:
    """The last checkpoint of each member, in their order; None of one whose training failed.

    Raises: ArchrayError if all failed.
    """
    trained: list[Checkpoint | None] = [None] * run.plan.total
    for result in run.ended:
        trained[(result.config or {})["member"]] = run.checkpoint(result)
    if not any(trained):
        raise ArchrayError(f"no network of {len(trained)} was trained: {run.failures}")
    return trained


def _of_member(values: Sequence[Any]) -> Any:
    """A value of a trial's config that the number of its member decides."""

    def choose(spec: Any) -> Any:
        return values[spec.config.member]

    return tune.sample_from(choose)
