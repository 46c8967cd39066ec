"""What a search for an ensemble shows: its report's view, and the sampled ensembles in the terminal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from archray.platform.methods.ensembles.ensemble_config import ensemble_config
from archray.platform.methods.ensembles.posterior_stage import CURVES, POSTERIOR
from archray.platform.methods.ensembles.posterior_stage import STAGE as POSTERIOR_STAGE
from archray.platform.methods.ensembles.sampling_stage import MEMBERS, METRIC, TRIALS
from archray.platform.methods.ensembles.sampling_stage import STAGE as SEARCH
from archray.platform.methods.ensembles.supernet_stage import STAGE as SUPERNET
from archray.platform.methods.report_stage import ENSEMBLE, found, percent, read_table, run_view
from archray.platform.report.view import RunView
from archray.platform.run.run import Run
from archray.searchers.nesbs.posterior import Posterior
from archray.trainables.spaces import get_space, posterior_decisions


def ensemble_view(run: Run) -> RunView:
    """What the report shows; of a run that has not ended, what there is."""
    folders = {name: run.folder / name for name in (SUPERNET, POSTERIOR_STAGE, SEARCH, "final")}
    view = run_view(run)
    supernet = read_table(folders[SUPERNET], "curves.parquet").assign(stage="search")
    told = folders["final"].read_json(ENSEMBLE) if folders["final"].exists(ENSEMBLE) else None
    return replace(
        view,
        metric=METRIC,
        mode="min",
        curves=pd.concat([table for table in (supernet, view.curves) if len(table)] or [view.curves]),
        posterior=_posterior(run),
        posterior_curves=read_table(folders[POSTERIOR_STAGE], CURVES),
        ensembles=read_table(folders[SEARCH], TRIALS).assign(repeat=0),
        estimated_true=_estimated_true(run, told),
        diversity=_diversity(run, told),
        ensemble=ensemble_table(told),
    )


def _posterior(run: Run) -> pd.DataFrame:
    """A row per decision and choice: see `RunView.posterior`."""
    folder = run.folder / POSTERIOR_STAGE
    if not folder.exists(POSTERIOR):
        return pd.DataFrame()
    posterior = Posterior(folder.read_json(POSTERIOR), run.space)
    rows = [
        {"decision": decision.name, "choice": choice, "probability": float(np.exp(value))}
        for decision, values in zip(posterior_decisions(get_space(run.space)), posterior.log_probs, strict=True)
        for choice, value in zip(decision.choices, values, strict=False)
    ]
    return pd.DataFrame(rows)


def ensemble_table(told: dict[str, Any] | None) -> pd.DataFrame:
    """A row per member and one of the ensemble: see `RunView.ensemble`. told: what `ensemble.json` holds."""
    if told is None:
        return pd.DataFrame()
    members = [
        {
            "kind": "member",
            "name": f"member {number}",
            "architecture": member.get("architecture"),
            "test_error": member["test_error"],
            "nll": member["test_nll"],
            "ece": member["ece"],
        }
        for number, member in enumerate(told["members"], start=1)
    ]
    own = {
        "kind": "ensemble",
        "name": f"ensemble of {len(members)}",
        "test_error": told["test_error"],
        "nll": told["test_nll"],
        "ece": told["ece"],
        "ate": told["ate"],
        "ppd": told["ppd"],
    }
    return pd.DataFrame([*members, own])


def _estimated_true(run: Run, told: dict[str, Any] | None) -> pd.DataFrame:
    """Validation errors with shared weights beside test errors after training: see `RunView.estimated_true`."""
    shared, chosen = read_table(run.folder / SEARCH, MEMBERS), found(run)
    if told is None or shared.empty or chosen is None:
        return pd.DataFrame()
    errors = dict(zip(shared["architecture"], shared["error"], strict=True))
    rows = [
        {
            "kind": "member",
            "name": member["architecture"],
            "estimated": errors.get(member["architecture"], np.nan),
            "true": member["test_error"],
        }
        for member in told["members"]
    ]
    if len(told["members"]) == len(chosen["members"]) > 1:
        estimated = 1 - chosen["validation_accuracy"]
        rows.append({"kind": "ensemble", "name": "found", "estimated": estimated, "true": told["test_error"]})
    return pd.DataFrame(rows)


def _diversity(run: Run, told: dict[str, Any] | None) -> pd.DataFrame:
    """The trained ensemble as a row: see `RunView.diversity`."""
    if told is None:
        return pd.DataFrame()
    row = {
        "method": run.config.method,
        "members": len(told["members"]),
        "ate": told["ate"],
        "ppd": told["ppd"],
        "test_error": told["test_error"],
        "nll": told["test_nll"],
        "ece": told["ece"],
    }
    return pd.DataFrame([row])


def print_measures(run: Run, console: Console) -> None:
    """Measures of the trained ensemble and of its members; nothing before it is trained."""
    final = run.folder / "final"
    if final.exists(ENSEMBLE):
        told = final.read_json(ENSEMBLE)
        disagree = "" if told["ppd"] is None else f", members disagree on {percent(told['ppd'])}"
        console.print(
            f"test NLL            {told['test_nll']:.4f}, ECE {percent(told['ece'])}{disagree}", soft_wrap=True
        )
        for member in told["members"]:
            console.print(
                f"    {percent(member['test_error']):>8}  {member.get('architecture')}",
                soft_wrap=True,
                highlight=False,
                markup=False,
            )


def print_ensemble(run: Run, console: Console) -> None:
    """Measures of the trained ensemble, and the ensembles that were sampled, best first."""
    print_measures(run, console)
    trials = read_table(run.folder / SEARCH, TRIALS)
    if METRIC not in trials:
        return
    several = f"{ensemble_config(run).ensemble_size} members" if run.config.method != "single-best" else "one member"
    console.print(
        f"sampled, of {several} each (validation loss, error with shared weights), best first:", soft_wrap=True
    )
    for row in trials.sort_values(METRIC).to_dict("records"):
        where = "" if pd.isna(row["delta"]) else f", delta {row['delta']:g}"
        if pd.isna(row[METRIC]):
            console.print(f"    failed: {row['failure']}{where}", soft_wrap=True, highlight=False, markup=False)
            continue
        console.print(
            f"    {row[METRIC]:.4f}  {percent(row['validation_error']):>8}{where}", soft_wrap=True, highlight=False
        )
