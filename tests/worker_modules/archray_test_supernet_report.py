"""Synthetic runs of searches with a supernet."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from archray_test_report import cells, write_repeats, write_run

from archray.platform.methods.nasi.figures import METRICS
from archray.platform.run.run import Run

SEEDS = (2968811710, 3677149159, 745650761, 2884920346, 1503136570)
OPERATIONS = 5
FAILED = 3  # the position of the search that fails

_FILES = {
    "found": ("search", "found.parquet"),
    "curves": ("search", "curves.parquet"),
    "entropies": ("search", "entropies.parquet"),
    "scores": ("search", "scores.parquet"),
    "rounds": ("search", "rounds.parquet"),
    "agreement": ("agreement", "agreement.parquet"),
    "table": ("table", "table.parquet"),
    "selection": ("selection", "selected.parquet"),
    "selection_curves": ("selection", "curves.parquet"),
    "final": ("final", "trials.parquet"),
    "final_curves": ("final", "curves.parquet"),
    "baseline": ("baseline", "trials.parquet"),
}


CELLS = cells(4)
RESULTS = [CELLS[0], CELLS[1], CELLS[2], None, CELLS[3]]  # by the five seeds


def gradient_run(
    place: str | Path, *, epochs: int = 12, groups: tuple[str, ...] = ("normal", "reduce"), **replaced: Any
) -> Run[Any]:
    """A search with five supernets, of which the fourth fails. The selection drops after epoch 6 and chooses the second
    result.

    replaced: tables in place of those of `gradient_tables`; `chosen`: another chosen architecture.
    """
    chosen = replaced.pop("chosen", CELLS[1])
    tables, documents = _content({**gradient_tables(epochs, groups), **replaced}, chosen)
    return write_run(
        place, "gaea-darts", config={"space": "nasbench201"}, tables=tables, documents=documents, seconds=3611.0
    )


def repeated_gradient_run(place: str | Path) -> Run[Any]:
    """Two repeats. The second is better; it chose the last architecture, which its three seeds found."""
    first = gradient_tables(2, ("cell",))
    second = {**first, "found": first["found"].head(3).assign(architecture=CELLS[3])}
    content = [_content(first, CELLS[1], 0.5), _content(second, CELLS[3], 0.6)]
    return write_repeats(place, "gaea-darts", content, config={"space": "nasbench201"})


def gradient_tables(epochs: int = 12, groups: tuple[str, ...] = ("normal", "reduce")) -> dict[str, pd.DataFrame]:
    """Returns the tables of such a run."""
    rng = np.random.default_rng(0)
    found, curves, entropies, selection, trainings = [], [], [], [], []
    for number, (seed, name) in enumerate(zip(SEEDS, RESULTS, strict=True)):
        key = {"trial_id": f"s-{number}", "seed": seed}
        last = 0.7 + 0.01 * number
        failure = "train_loss is NaN at epoch 1" if name is None else None
        value, mixture = (math.nan, math.nan) if failure else (last - 0.2, last)
        found.append(
            {**key, "architecture": name, "shared_accuracy": value, "mixture_accuracy": mixture, "failure": failure}
        )
        for epoch in range(1, epochs + 1):
            share = epoch / epochs
            if failure and epoch > 1:
                break
            accuracy = math.nan if failure else last * share**0.5
            curves.append(
                {
                    **key,
                    "architecture": name,
                    "epoch": epoch,
                    "mixture_accuracy": accuracy,
                    "shared_accuracy": accuracy * 0.5,
                    "train_loss": math.nan if failure else 2.3 - share,
                }
            )
            for group in groups:
                for edge in range(6):
                    pace = (1 + 0.2 * number) * (2 if group == "reduce" else 1)
                    entropy = math.log(OPERATIONS) * math.exp(-pace * (epoch - 1) / 4)
                    row = {**key, "epoch": epoch, "group": group, "edge": edge, "entropy": entropy}
                    entropies.append({**row, "operations": OPERATIONS})
    for number, name in enumerate(CELLS):
        kept = number in (0, 1, 3)
        last = (0.9 if kept else 0.71) + 0.02 * (number == 1) + 0.001 * number
        until = 20 if kept else 6
        curve = last - 0.6 * np.exp(-np.arange(1, until + 1) / 3) + rng.normal(0, 0.004, until)
        curve[-1] = last
        key = {"trial_id": f"t-{number}", "architecture": name}
        trainings += [{**key, "epoch": e + 1, "validation_accuracy": v} for e, v in enumerate(curve)]
        row = {"architecture": name, "epochs": until, "accuracy_at_cut": float(curve[5]), "failure": None}
        selection.append({**row, "selection_accuracy": last, "kept": kept})
    final = {"seed": [1, 2], "test_accuracy": [0.93, 0.94], "parameters": 3_349_342, "multiply_adds": 5.452e8}
    return {
        "found": pd.DataFrame(found),
        "curves": pd.DataFrame(curves),
        "entropies": pd.DataFrame(entropies),
        "selection": pd.DataFrame(selection),
        "selection_curves": pd.DataFrame(trainings),
        "final": pd.DataFrame(final),
        "baseline": pd.DataFrame({"architecture": CELLS, "test_accuracy": [0.9, 0.91, 0.92, 0.905]}),
    }


def scored_run(place: str | Path, *, scored: int = 200, **replaced: Any) -> Run[Any]:
    """Random search with weight sharing: three supernets, each of which scored different architectures."""
    tables = {**scored_tables(scored), **replaced}
    chosen = tables.pop("chosen", tables["found"]["architecture"][1])
    tables, documents = _content(tables, chosen)
    return write_run(place, "rs-ws", config={"space": "nasbench201"}, tables=tables, documents=documents)


def scored_tables(scored: int = 200) -> dict[str, pd.DataFrame]:
    """Returns the tables of such a run."""
    rng = np.random.default_rng(1)
    found, scores = [], []
    for number, seed in enumerate(SEEDS[:3]):
        names = cells(scored, seed=number)
        accuracy = rng.normal(0.5, 0.08, len(names))
        key = {"trial_id": f"s{number}", "seed": seed}
        best = int(accuracy.argmax())
        if len(names) > 1:
            accuracy[best - 1] = math.nan
        scores.append(
            pd.DataFrame({**key, "architecture": names, "shared_loss": -np.log(accuracy), "shared_accuracy": accuracy})
        )
        row = {**key, "architecture": names[best], "shared_accuracy": accuracy[best]}
        found.append({**row, "mixture_accuracy": math.nan, "failure": None})
    return {"found": pd.DataFrame(found), "scores": pd.concat(scores, ignore_index=True)}


def nasi_run(place: str | Path, *, steps: int = 20) -> Run[Any]:
    """A search of NASI with two seeds, the trace norms of ten architectures, and the accuracies of a table."""
    rng = np.random.default_rng(2)
    found = []
    for number, (seed, name) in enumerate(zip(SEEDS, CELLS[:2], strict=False)):
        traces, trace = rng.lognormal(2.0, 0.5, steps), 7.0 - number
        constant = {"architecture": name, "trace": trace, "parameters": 9000}
        tried = [{"nu": nu, "mu": mu, **constant} for mu in (0.0, 1.0) for nu in (4.0, 8.0)]
        texts = {
            "distribution": json.dumps({"edge": [0.5, 0.5]}),
            "samples": json.dumps({"trace": traces.tolist(), "nu": [8.0] * steps}),
            "constants": json.dumps(tried),
        }
        key = {"trial_id": f"n{number}", "seed": seed, "architecture": name}
        found.append({**key, "found_trace": trace, "found_reward": trace, "nu": 8.0, **texts, "failure": None})
    exact = rng.lognormal(1.0, 0.5, 10)
    names = ("samples", "batch_4", "batch_8", "batch", "random_labels", "random_inputs")
    compared = {name: exact * rng.uniform(0.8, 1.2, 10) for name in names}
    own = gradient_tables(6)
    tables = {name: own[name] for name in ("selection", "selection_curves", "final", "baseline")}
    tables |= {"found": pd.DataFrame(found), "agreement": pd.DataFrame({"exact": exact, **compared, "failure": None})}
    metrics = {name: rng.lognormal(1.0, 0.5, 12) for name in METRICS}
    scored = {"architecture": cells(12), **metrics, "parameters": 9000, "result": rng.uniform(80, 94, 12)}
    tables["table"] = pd.DataFrame({**scored, "drawn": True, "failure": None})
    tables, documents = _content(tables, CELLS[1])
    documents["table", "table.json"] = {"column": "test_accuracy", "mode": "max", "best": 94.4}
    return write_run(place, "nasi", config={"space": "nasbench201"}, tables=tables, documents=documents)


def _content(
    tables: dict[str, pd.DataFrame], chosen: str, value: float = 0.5
) -> tuple[dict[tuple[str, str], pd.DataFrame], dict[tuple[str, str], Any]]:
    """Returns the files of a run."""
    stage, key = ("selection", "selection_accuracy") if "selection" in tables else ("search", "shared_accuracy")
    best = {"architecture": chosen, "value": value, "metric": key, key: value}
    documents = {(stage, "architecture.json"): best, ("", "architecture.json"): best}
    return {_FILES[name]: table for name, table in tables.items()}, documents
