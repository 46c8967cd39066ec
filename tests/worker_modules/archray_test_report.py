"""Synthetic runs on the disk for the tests of reports, figures and comparisons."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from archray.files import Folder
from archray.platform.engine.stage import write_summary
from archray.platform.methods import get_method
from archray.platform.methods.recipe import describe, recipe_of
from archray.platform.report.page import MakeSection, render
from archray.platform.report.section import Section
from archray.platform.run.layout import DONE, FOUND, MANIFEST
from archray.platform.run.run import Run
from archray.trainables.spaces import get_space

Tables = Mapping[tuple[str, str], pd.DataFrame]  # (stage, file) -> content
Documents = Mapping[tuple[str, str], Any]

HOSTILE = "<script>alert('x')</script>&\"|+"
MISSING_NUMBER = re.compile(r"\b(nan|NaN|inf|None|NaT)\b")

DISCONNECTED = "the output does not depend on the input"
MADE_WITH = {
    "references": {},
    "arrays": False,
    "versions": {"archray": "0.1.0", "python": "3.11.2", "ray": "2.60.0", "torch": "2.15.0", "numpy": "2.4.6"},
    "hardware": {"machine": "x86_64", "system": "Linux", "cpus": 2, "memory_gib": 24.0, "gpus": []},
    "git_commit": "c38a51306d2f4b0fa0c1e8b7a3c4d5e6f7a8b9c0",
    "data_checksum": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "test_labels_checksum": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "created": "2025-03-14T15:09:26+00:00",
    "amended": [],
}


def cells(number: int, seed: int = 0) -> list[str]:
    """Returns distinct architectures of nasbench201."""
    space, rng = get_space("nasbench201"), np.random.default_rng(seed)
    return list(dict.fromkeys(space.encode(space.canonical(space.sample(rng))) for _ in range(3 * number)))[:number]


def rendered(run: Run[Any], sections: Sequence[MakeSection] | None = None) -> str:
    """Returns the page of a run with all sections of its method, or with some."""
    report = recipe_of(run).report
    return render(run, report.headline(run), report.sections if sections is None else sections)


def section_ids(page: str) -> list[str]:
    return re.findall(r'<section id="([^"]*)"', page)


def words(part: Section | str | None) -> str:
    """Returns the visible text of a section or a page, without its style, script, attributes and tags."""
    assert part is not None
    text = part if isinstance(part, str) else part.body
    text = re.sub(r"<(style|script|title)>.*?</\1>", " ", text, flags=re.S)
    return re.sub(r"[ \n\u00a0]+", " ", html.unescape(re.sub(r"<[^>]*>", " ", text.replace("<wbr>", ""))))


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
    """Writes the folder of a run with possible files of its stages, and returns the run.

    Args:
        config: the method's configuration if it is not the default; `data` is digits.
        tables: Parquet files by (stage, file); documents: JSON files by (stage, file). The stage `""` is the run's own
            folder. An empty table without columns is not written.
        manifest: entries of the manifest that are not in MADE_WITH.
        seconds: total duration of the stages; None if none has finished.
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
            (folder / stage).write_json(
                DONE, {"inputs": "", "outputs": {}, "seconds": seconds / len(stages), "finished": MADE_WITH["created"]}
            )
    manifest_and_config = {
        "config": settings.model_dump(mode="json"),
        "command": f"archray search {method} --data digits --out run",
    }
    folder.write_json(MANIFEST, {**MADE_WITH, **manifest_and_config, **(manifest or {})})
    return Run(folder, folder.read_json(MANIFEST), settings)


def write_repeats(
    place: str | Path,
    method: str,
    repeats: Sequence[tuple[Tables, Documents]],
    *,
    config: Mapping[str, Any] | None = None,
    seconds: float | None = 294.2,
) -> Run[Any]:
    """Writes a run of several repeats, each with its tables and documents. seconds: of each."""
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


def write_summaries(run: Run[Any]) -> str:
    """Writes the summaries of a finished run and its repeats, and returns the path of its folder."""
    for each in (*run.repeats, run):
        result = describe(each)["result"]
        each.folder.write_json(FOUND, result)
        titles = {name: name for name in each.folder.folders() if (each.folder / name).exists(DONE)}
        write_summary(each.folder, titles, partial(describe, each), ended=True)
    return str(run.folder)


def _stage(folder: Folder, stage: str) -> Folder:
    return folder / stage if stage else folder


def hnas_run(place: str | Path, **content: int) -> Run[Any]:
    """A synthetic run of HNAS on nasbench201. content: from `hnas_content`."""
    tables, documents = hnas_content(**content)
    config = {"space": "nasbench201", "search": {"proxy": "ntk_trace", "budget": 20}}
    return write_run(place, "hnas", config=config, tables=tables, documents=documents)


def hnas_content(
    pool_size: int = 300, trials: int = 20, baseline: int = 8, final_seeds: int = 3, epochs: int = 12, seed: int = 0
) -> tuple[dict[tuple[str, str], pd.DataFrame], dict[tuple[str, str], Any]]:
    """Returns the tables and documents of a run of HNAS."""
    rng = np.random.default_rng(seed)
    pool = _pool(pool_size, rng)
    finite = pool[pool["failure"].isna()]
    names, kappa = finite["architecture"].to_numpy(), finite["kappa"].to_numpy()
    scale = float(finite["ntk_trace"].max())
    m = (finite["ntk_trace"] / scale).to_numpy()
    strength = dict(zip(names, rng.random(len(names)), strict=True))
    curves: dict[str, list[pd.DataFrame]] = {"search": [], "final": [], "baseline": []}

    def trained(stage: str, number: int, name: str, epochs: int) -> float:
        """Replaces its last accuracy and keeps the curve."""
        curve = _curve(strength[name], epochs, rng)
        curves[stage].append(curve.assign(trial_id=f"{stage}-{number}", architecture=name))
        return float(curve["validation_accuracy"].iloc[-1])

    rows, known = [], {}
    for number in range(trials):
        mu, nu = 10 ** rng.uniform(1, 6), rng.random() ** 2
        name = names[int(np.argmin(kappa / m + mu * (m**2 - nu) ** 2))]
        row = {"number": number, "architecture": name, "mu": mu, "nu": nu, "repeat": name in known, "failure": None}
        if name not in known:
            known[name] = trained("search", number, name, epochs)
        rows.append({**row, "value": known[name]})
    if trials > 8:
        rows[7].update(value=np.nan, failure="train_loss is NaN at epoch 3", repeat=False)
    evaluated = pd.DataFrame(rows)
    found = evaluated.loc[evaluated["value"].idxmax(), "architecture"]
    final = [
        {"seed": number, "test_accuracy": trained("final", number, found, 2 * epochs) - 0.004, "failure": None}
        for number in range(final_seeds)
    ]
    random = [
        {"architecture": name, "test_accuracy": trained("baseline", number, name, 2 * epochs) - 0.004, "failure": None}
        for number, name in enumerate(rng.choice(names, baseline))
    ]
    tables = {
        ("pool", "pool.parquet"): pool,
        ("search", "suggestions.parquet"): evaluated,
        ("final", "trials.parquet"): pd.DataFrame(final),
        ("baseline", "trials.parquet"): pd.DataFrame(random),
        **{(stage, "curves.parquet"): pd.concat(own, ignore_index=True) for stage, own in curves.items()},
    }
    objective = {
        "proxy": "ntk_trace",
        "scale": scale,
        "penalty": "square",
        "log10_mu": [1.0, 6.0],
        "root_nu": [0.0, 1.0],
        "epsilon": 0.0,
    }
    best = {"architecture": found, "value": float(evaluated["value"].max()), "metric": "validation_accuracy"}
    stages = {"objective.json": objective, "architecture.json": best}
    documents = {**{("search", name): document for name, document in stages.items()}, ("", "architecture.json"): best}
    return tables, documents


@cache
def _forms() -> list[str]:
    """Returns the canonical forms of nasbench201."""
    space = get_space("nasbench201")
    return list(dict.fromkeys(space.encode(space.canonical(cell)) for cell in space.enumerate()))


def _pool(size: int, rng: np.random.Generator) -> pd.DataFrame:
    names = rng.permutation(_forms())[:size]
    n = len(names)
    pool = pd.DataFrame({"architecture": names, "ntk_trace": 12 * np.exp(rng.normal(1.4, 0.7, n))})
    pool["kappa"] = 10 ** (1.8 + abs(rng.normal(0, 0.6, n)))
    chance = rng.random(n)
    pool["failure"] = np.select([chance < 0.02, chance < 0.04], [DISCONNECTED, "lambda_min <= 0"], None)
    pool.loc[chance < 0.02, "ntk_trace"] = np.nan
    pool.loc[chance < 0.04, "kappa"] = np.nan
    return pool.assign(seconds=0.2, parameters=73_000)


def _curve(strength: float, epochs: int, rng: np.random.Generator) -> pd.DataFrame:
    epoch = np.arange(1, epochs + 1)
    top = 0.86 + 0.12 * strength + rng.normal(0, 0.004)
    pace = 2.5 + 3 * (1 - strength)
    accuracy = np.clip(top - 0.75 * np.exp(-epoch / pace) + rng.normal(0, 0.02 * np.exp(-epoch / 8)), 0, 1)
    loss = 0.05 + 2.2 * np.exp(-epoch / pace) * np.exp(rng.normal(0, 0.05, epochs))
    return pd.DataFrame({"epoch": epoch, "validation_accuracy": accuracy, "train_loss": loss})
