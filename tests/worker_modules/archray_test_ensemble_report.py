"""A synthetic run of NESBS on the disk for the tests of its report and figures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from archray_test_report import Documents, Tables, cells, write_repeats, write_run

from archray.platform.methods.ensembles.tables import ATTACK, ENDED, QUESTION, write_tables
from archray.platform.run.run import Run
from archray.trainables.spaces import get_space

SPACE = get_space("nasbench201")
CONFIG = {"space": "nasbench201", "ensemble_size": 3}


CELLS = cells(12)


def sampled_trials(seed: int = 0, number: int = 16) -> pd.DataFrame:
    """Ensembles of three, sampled at eight deltas in turn. The third ensemble failed, and the best delta is 0.2."""
    rng, rows = np.random.default_rng(seed), []
    for trial, delta in zip(range(number), np.tile(np.linspace(-2, 1, 8), 4), strict=False):
        members = [CELLS[i] for i in rng.choice(len(CELLS), 3, replace=False)]
        loss = 0.5 + 0.05 * (delta - 0.2) ** 2 + 0.005 * rng.random()
        failed = trial == 2
        row = {"number": trial, "sampler": "svgd-rd", "delta": float(delta), "temperature": 0.5, "members": members}
        row |= {"shared_loss": math.nan if failed else loss, "shared_accuracy": 1 - 0.3 * loss}
        rows.append(row | {"failure": "out of memory" if failed else None})
    return pd.DataFrame(rows)


def ensemble_tables() -> Tables:
    sampled = sampled_trials()
    alone = pd.DataFrame({"architecture": CELLS, "shared_accuracy": 0.8 - 0.02 * np.arange(len(CELLS))})
    return {
        ("search", "trials.parquet"): sampled,
        ("search", "members.parquet"): alone,
        ("posterior", "curves.parquet"): posterior_curves(),
        ("final", "curves.parquet"): training_curves(),
    }


def training_curves() -> pd.DataFrame:
    """Curves of three members with six epochs each."""
    epoch = np.arange(1, 7)
    curves = [
        pd.DataFrame({"trial_id": f"member-{i}", "epoch": epoch, "validation_accuracy": 0.9 - (0.5 + 0.1 * i) / epoch})
        for i in range(3)
    ]
    return pd.concat([curve.assign(train_loss=2 / epoch) for curve in curves], ignore_index=True)


def posterior_curves() -> pd.DataFrame:
    rows = []
    for place, decision in enumerate(SPACE.decisions):
        for epoch in range(1, 11):
            curve_row = {"epoch": epoch, "elbo": -2.0 / epoch, "kl": 0.3 * epoch**0.5, "decision": decision.name}
            rows.append(curve_row | {"entropy": math.log(5) * (0.85 + 0.02 * place) ** epoch})
    return pd.DataFrame(rows)


def posterior() -> dict[str, list[float]]:
    rng = np.random.default_rng(1)
    return {
        decision.name: np.log(rng.dirichlet(np.ones(len(decision.choices)))).tolist() for decision in SPACE.decisions
    }


def ensemble_documents(members: tuple[str, ...] | None = None, higher: float = 0.0) -> Documents:
    """The results and measures of `members`, by default of the best ensemble. higher: added to all accuracies."""
    sampled = sampled_trials()
    best = int(sampled["shared_loss"].idxmin())
    members = tuple(sampled["members"][best]) if members is None else members
    found = {
        "members": list(members),
        "value": float(sampled["shared_loss"][best]),
        "metric": "shared_loss",
        "shared_accuracy": float(sampled["shared_accuracy"][best]),
    }
    measures = {
        "members": [
            {"architecture": name, "test_accuracy": 0.94 - 0.004 * i + higher, "test_nll": 0.2, "ece": 0.03}
            for i, name in enumerate(members)
        ],
        "test_accuracy": 0.95 + higher,
        "test_nll": 0.15,
        "ece": 0.012,
        "members_test_accuracy": 0.936 + higher,
        "ppd": 0.08 - higher if len(members) > 1 else None,
    }
    return {
        ("search", "architecture.json"): found,
        ("", "architecture.json"): found,
        ("posterior", "posterior.json"): posterior(),
        ("final", "ensemble.json"): measures,
    }


def ensemble_run(place: str | Path, tables: Tables | None = None, documents: Documents | None = None) -> Run[Any]:
    """A run that found three members.

    tables, documents: replacements in `ensemble_tables` and `ensemble_documents`. An empty table, or None, is left out.
    """
    all_documents = {**ensemble_documents(), **(documents or {})}
    return write_run(
        place,
        "nesbs",
        config=CONFIG,
        tables={**ensemble_tables(), **(tables or {})},
        documents={key: value for key, value in all_documents.items() if value is not None},
        seconds=611.0,
    )


def repeated_ensemble_run(place: str | Path) -> Run[Any]:
    """Two repeats. The second sampled 12 ensembles and found other members with higher test accuracies."""
    first: tuple[Tables, Documents] = (ensemble_tables(), ensemble_documents())
    second = {**ensemble_tables(), ("search", "trials.parquet"): sampled_trials(5, number=12)}
    repeats = [first, (second, ensemble_documents(tuple(CELLS[:3]), 0.01))]
    return write_repeats(place, "nesbs", repeats, config=CONFIG)


def attacked_run(place: str | Path) -> Run[Any]:
    """A run with three members, each attacked twice on 20 images. The ensemble is more accurate than each member."""
    run, rng = ensemble_run(place), np.random.default_rng(2)
    labels, parts = np.arange(20) % 10, {}
    for attack, right in (("fgsm", 0.4), ("pgd", 0.2)):
        for member in range(3):
            shares = {"benign_member": 0.9, "benign_ensemble": 0.95, "attacked_member": right}
            shares |= {"attacked_ensemble": right + 0.3, "noise_member": 0.85, "noise_ensemble": 0.9}
            predicted = {name: np.where(rng.random(20) < share, labels, labels + 1) for name, share in shares.items()}
            sizes = {"transfer": right + 0.2, "linf": 8 / 255, "l2": 0.5, "seconds": 0.01}
            parts[attack, member] = pd.DataFrame({"label": labels, **predicted, **sizes})
    folder = run.folder / ATTACK
    write_tables(folder, parts)
    folder.write_json(QUESTION, {"settings": {"epsilon": 8 / 255}})
    folder.write_json(ENDED, {})
    return run
