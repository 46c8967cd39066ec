"""What the ensembles that NESBS is compared with share: defaults of each space, presets, flags, what is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from rich.console import Console

from archray.platform.config import merge
from archray.platform.engine.stage import Stage
from archray.platform.methods.ensembles.baseline_config import PooledConfig
from archray.platform.methods.ensembles.ensemble_view import ensemble_view, print_measures
from archray.platform.methods.ensembles.member_selection import STAGE as SEARCH
from archray.platform.methods.ensembles.nesbs_method import ENSEMBLE_SECTIONS, ensemble_defaults
from archray.platform.methods.ensembles.nesbs_method import PRESETS as NESBS_PRESETS
from archray.platform.methods.ensembles.trained_pool import STAGE as POOL
from archray.platform.methods.ensembles.trained_pool import pool_stage
from archray.platform.methods.method import Method, serves_networks
from archray.platform.methods.report_stage import percent, read_table, report_stage
from archray.platform.methods.training_stages import METRIC, baseline_stage
from archray.platform.report.view import RunView
from archray.platform.run.run import Run

Values = Mapping[str, Any]

SHARED = ("data", "network", "final", "ensemble_size")  # as NESBS has them, so that only the ensembles differ
FLAGS: Mapping[str, str] = {
    "ensemble_size": "ensemble_size",
    "budget": "pool",
    "epochs": "train.epochs",
    "final_epochs": "final.epochs",
    "random": "baseline",
}
_POOLS: Mapping[str, Values] = {
    "smoke": {"pool": 4, "train": {"epochs": 1}},
    "demo": {"pool": 12, "train": {"epochs": 10}},
    "paper": {},
}


def _shared(values: Values) -> dict[str, Any]:
    """Those of NESBS' options that are these methods' too; a pool is trained as its final networks are."""
    taken = {name: value for name, value in values.items() if name in SHARED}
    return merge(taken, {"train": taken["final"]}) if "final" in taken else taken


def baseline_method(
    name: str,
    summary: str,
    config: type[PooledConfig],
    search: Stage,
    final: Stage,
    *,
    options: Values | None = None,
    presets: Mapping[str, Values] | None = None,
    flags: Mapping[str, str] | None = None,
    serves: Any = serves_networks,
) -> Method:
    """A method of the stages `pool`, `search`, `final`, `baseline` and `report`.

    Args:
        search: says what the members are. final: trains them.
        options, presets, flags: over those of all such methods.
    """

    def defaults(space: str) -> dict[str, Any]:
        return merge(_shared(ensemble_defaults(space)), {"train": {"epochs": 50}}, options or {})

    stages: Sequence[Stage] = (pool_stage(), search, final, baseline_stage())
    return Method(
        name=name,
        summary=summary,
        config=config,
        stages=(*stages, report_stage([stage.name for stage in stages])),
        defaults=defaults,
        presets={
            preset: merge(_shared(values), _POOLS[preset], (presets or {}).get(preset, {}))
            for preset, values in NESBS_PRESETS.items()
        },
        view=baseline_view,
        sections=ENSEMBLE_SECTIONS,
        show=print_baseline,
        flags={**FLAGS, **(flags or {})},
        extendable=("final_epochs", "random"),
        serves=serves,
    )


def baseline_view(run: Run) -> RunView:
    """What the report shows; of a run that has not ended, what there is. The curves are the pool's and the final.

    The ensembles that NES selects as its pool grows stay in their table: the report's sections are of ensembles that
    were scored with shared weights.
    """
    view = replace(ensemble_view(run), ensembles=pd.DataFrame())
    pool = read_table(run.folder / POOL, "curves.parquet")
    if pool.empty:
        return view
    return replace(view, curves=pd.concat([pool.assign(stage=SEARCH), view.curves], ignore_index=True))


def print_baseline(run: Run, console: Console) -> None:
    """Measures of the trained ensemble, and the pool, best first."""
    print_measures(run, console)
    pool = read_table(run.folder / POOL, "trials.parquet")
    if pool.empty:
        return
    console.print("the pool, best first:")
    for row in pool.sort_values(METRIC, ascending=False).to_dict("records"):
        failure = row.get("failure") or row.get("error")
        outcome = f"failed: {failure}" if isinstance(failure, str) else f"{percent(row[METRIC]):>8}"
        console.print(f"    {outcome}  {row['architecture']}", soft_wrap=True, highlight=False, markup=False)
