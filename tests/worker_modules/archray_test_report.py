"""Runs as they could be, written to disk for the tests of the report, of the figures and of comparisons."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from archray.files import Folder
from archray.platform.methods import get_method
from archray.platform.report.page import MakeSection, render
from archray.platform.report.section import Section
from archray.platform.run.run import DONE, MANIFEST, Run
from archray.trainables.spaces import get_space

Tables = Mapping[tuple[str, str], pd.DataFrame]  # (stage, file) -> what it holds
Documents = Mapping[tuple[str, str], Any]

HOSTILE = "<script>alert('x')</script>&\"|+"
MISSING_NUMBER = re.compile(r"\b(nan|NaN|inf|None|NaT)\b")

WORTH = {"nor_conv_3x3": 1.0, "nor_conv_1x1": 0.7, "skip_connect": 0.35, "avg_pool_3x3": 0.1, "none": 0.0}

MADE_WITH = {
    "references": {},
    "arrays": False,
    "versions": {"archray": "0.1.0", "python": "3.11.2", "ray": "2.60.0", "torch": "2.15.0", "numpy": "2.4.6"},
    "hardware": {"machine": "x86_64", "system": "Linux", "cpus": 2, "memory_gib": 24.0, "gpus": []},
    "git_commit": "c38a51306d2f4b0fa0c1e8b7a3c4d5e6f7a8b9c0",
    "data_checksum": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "created": "2025-03-14T15:09:26+00:00",
    "amended": [],
}


def rendered(run: Run[Any], sections: Sequence[MakeSection] | None = None) -> str:
    """The page of a run; of all its method's sections, or of some."""
    method = get_method(run.config.method)
    return render(run, method.headline(run), method.sections if sections is None else sections)


def section_ids(page: str) -> list[str]:
    return re.findall(r'<section id="([^"]*)"', page)


def words(part: Section | str | None) -> str:
    """A section, or a page, as it is read: without its style, its attributes and its tags."""
    assert part is not None
    text = part if isinstance(part, str) else part.body
    text = re.sub(r"<style>.*?</style>", " ", text, flags=re.S)
    return re.sub(r"[ \n]+", " ", html.unescape(re.sub(r"<[^>]*>", " ", text.replace("<wbr>", ""))))


def write_run(
    place: str | Path,
    method: str,
    *,
    config: Mapping[str, Any] | None = None,
    tables: Tables | None = None,
    documents: Documents | None = None,
    manifest: Mapping[str, Any] | None = None,
    seconds: float | None = 294.2,
) -> Run[Any]:
    """A run's folder with what its stages could have written, and the run.

    Args:
        config: the method's configuration where it is not the default; `data` is digits.
        tables: Parquet files by (stage, file); documents: JSON files by (stage, file). The stage `""` is the run's own
            folder. An empty table without columns is not written.
        manifest: what the manifest says that is not in MADE_WITH.
        seconds: how long the stages took, all together; None where none has ended.
    """
    folder = Folder(place)
    data = (config or {}).get("data", {"name": "digits"})
    settings = get_method(method).config.model_validate({**(config or {}), "method": method, "data": data})
    for (stage, name), frame in (tables or {}).items():
        if len(frame.columns):
            _stage(folder, stage).write_parquet(name, frame)
    for (stage, name), value in (documents or {}).items():
        _stage(folder, stage).write_json(name, value)
    stages = folder.folders()
    if seconds is not None:
        for stage in stages:
            (folder / stage).write_json(DONE, {"seconds": seconds / len(stages)})
    said = {"config": settings.model_dump(mode="json"), "command": f"archray search {method} --data digits --out run"}
    folder.write_json(MANIFEST, {**MADE_WITH, **said, **(manifest or {})})
    return Run(folder, folder.read_json(MANIFEST), settings)


def write_repeats(
    place: str | Path,
    method: str,
    repeats: Sequence[tuple[Tables, Documents]],
    *,
    config: Mapping[str, Any] | None = None,
    seconds: float | None = 294.2,
) -> Run[Any]:
    """A run of several repeats, each of its own tables and documents. seconds: of each."""
    for number, (tables, documents) in enumerate(repeats):
        seed = (config or {}).get("seed", 0) + number
        write_run(
            Path(place) / f"repeat-{number:02}",
            method,
            config={**(config or {}), "seed": seed},
            tables=tables,
            documents=documents,
            seconds=seconds,
        )
    return write_run(place, method, config={**(config or {}), "repeats": len(repeats)}, seconds=None)


def _stage(folder: Folder, stage: str) -> Folder:
    return folder / stage if stage else folder


def hnas_run(
    place: str | Path,
    *,
    pool_size: int = 300,
    trials: int = 20,
    baseline: int = 8,
    final_seeds: int = 3,
    epochs: int = 12,
    seed: int = 0,
) -> Run[Any]:
    """A run of HNAS on nasbench201 with made-up numbers that behave as real ones do."""
    tables, documents = hnas_content(pool_size, trials, baseline, final_seeds, epochs, seed)
    config = {"space": "nasbench201", "search": {"proxy": "ntk_trace", "budget": 20}}
    return write_run(place, "hnas", config=config, tables=tables, documents=documents)


def hnas_content(
    pool_size: int = 300, trials: int = 20, baseline: int = 8, final_seeds: int = 3, epochs: int = 12, seed: int = 0
) -> tuple[dict[tuple[str, str], pd.DataFrame], dict[tuple[str, str], Any]]:
    """The tables and documents of a run of HNAS."""
    rng = np.random.default_rng(seed)
    space = get_space("nasbench201")
    pool = _pool(space, pool_size, rng)
    finite = pool[pool["failure"].isna()]
    scale = float(finite["ntk_trace"].abs().max())
    m, kappa = (finite["ntk_trace"] / scale).to_numpy(), finite["kappa"].to_numpy()
    strength = dict(zip(finite["architecture"], finite["strength"], strict=True))
    names = finite["architecture"].to_numpy()
    mu_low, mu_high = 10.0, 1e6
    rows, known, curves = [], {}, []
    for number in range(trials):
        near = number >= 5 and rows
        best = max(rows, key=lambda row: row["value"]) if near else None
        root = float(np.clip(rng.normal(best["nu"] ** 0.5, 0.2), 0, 1)) if best else (number % 5 + 0.5) / 5
        mu = float(np.exp(rng.normal(np.log(best["mu"]), 2.5))) if best else 1e4
        mu = float(np.clip(mu, mu_low, mu_high))
        name = names[int(np.argmin(kappa / m + mu * (m**2 - root**2) ** 2))]
        repeat = name in known
        if not repeat:
            curve = _curve(strength[name], epochs, rng)
            known[name] = float(curve["validation_accuracy"].iloc[-1])
            curves.append(curve.assign(trial_id=f"search-{number}", stage="search", architecture=name))
        rows.append(
            {
                "number": number,
                "architecture": name,
                "mu": mu,
                "nu": root**2,
                "value": known[name],
                "repeat": repeat,
                "failure": None,
            }
        )
    if trials > 8:
        rows[7].update(value=np.nan, failure="train_loss is NaN at epoch 3", repeat=False)
    evaluated = pd.DataFrame(rows)
    found = evaluated.loc[evaluated["value"].idxmax(), "architecture"] if trials else None
    final, random = [], []
    for number in range(final_seeds):
        curve = _curve(strength[found], 2 * epochs, rng)
        curves.append(curve.assign(trial_id=f"final-{number}", stage="final", architecture=found))
        final.append({"seed": number, "test_accuracy": curve["validation_accuracy"].iloc[-1] - 0.004, "failure": None})
    for number in range(baseline):
        name = names[rng.integers(len(names))]
        curve = _curve(strength[name], 2 * epochs, rng)
        curves.append(curve.assign(trial_id=f"baseline-{number}", stage="baseline", architecture=name))
        random.append(
            {"architecture": name, "test_accuracy": curve["validation_accuracy"].iloc[-1] - 0.004, "failure": None}
        )
    all_curves = pd.concat(curves, ignore_index=True) if curves else pd.DataFrame(columns=["stage"])
    tables = {
        ("pool", "pool.parquet"): pool.drop(columns="strength"),
        ("search", "asked.parquet"): evaluated,
        ("final", "trials.parquet"): pd.DataFrame(final),
        ("baseline", "trials.parquet"): pd.DataFrame(random),
    }
    for stage in ("search", "final", "baseline"):
        own = all_curves[all_curves["stage"] == stage].drop(columns="stage").reset_index(drop=True)
        tables[stage, "curves.parquet"] = own if len(own) else pd.DataFrame()
    objective = {
        "proxy": "ntk_trace",
        "scale": scale,
        "penalty": "square",
        "log10_mu": [float(np.log10(mu_low)), float(np.log10(mu_high))],
        "root_nu": [0.0, 1.0],
        "epsilon": 0.0,
    }
    documents: dict[tuple[str, str], Any] = {("search", "objective.json"): objective}
    if found is not None:
        best = {"architecture": found, "value": float(evaluated["value"].max()), "metric": "validation_accuracy"}
        documents |= {("search", "architecture.json"): best, ("", "architecture.json"): best}
    return tables, documents


@cache
def _forms(space: str) -> list[tuple[str, ...]]:
    """The canonical forms of a space's architectures."""
    known = get_space(space)
    return list(dict.fromkeys(known.canonical(architecture) for architecture in known.enumerate()))


def _pool(space, size: int, rng: np.random.Generator) -> pd.DataFrame:
    forms = _forms(space.name)
    drawn = rng.permutation(len(forms))[:size]
    chosen = {space.encode(forms[i]): forms[i] for i in drawn}
    rows = []
    for name, ops in chosen.items():
        dead = all(op == "none" for op in (ops[3], ops[4], ops[5]))
        strength = sum(WORTH[op] for op in ops) / 6 + rng.normal(0, 0.06)
        convolutions = sum(op.startswith("nor_conv") for op in ops)
        trace = 12 * np.exp(0.45 * convolutions + rng.normal(0, 0.35))
        kappa = 10 ** (1.3 + 0.25 * convolutions - 0.25 * (ops[3] == "skip_connect") + abs(rng.normal(0, 0.5)))
        failure = None
        if dead:
            failure, trace, kappa = "the output does not depend on the input", np.nan, np.nan
        elif rng.random() < 0.01:
            failure, kappa = "lambda_min <= 0", np.nan
        rows.append(
            {
                "architecture": name,
                "ntk_trace": trace,
                "kappa": kappa,
                "failure": failure,
                "seconds": 0.2,
                "parameters": 73_000,
                "strength": float(np.clip(strength, 0.02, 1)),
            }
        )
    return pd.DataFrame(rows)


def _curve(strength: float, epochs: int, rng: np.random.Generator) -> pd.DataFrame:
    epoch = np.arange(1, epochs + 1)
    top = 0.86 + 0.12 * strength + rng.normal(0, 0.004)
    pace = 2.5 + 3 * (1 - strength)
    accuracy = np.clip(top - 0.75 * np.exp(-epoch / pace) + rng.normal(0, 0.02 * np.exp(-epoch / 8)), 0, 1)
    loss = 0.05 + 2.2 * np.exp(-epoch / pace) * np.exp(rng.normal(0, 0.05, epochs))
    return pd.DataFrame({"epoch": epoch, "validation_accuracy": accuracy, "train_loss": loss})
