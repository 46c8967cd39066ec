"""The effect of each factor of the scoring on HNAS, over one fixed draw of NAS-Bench-201's canonical forms.

`score` appends rows to a file and rotates through the settings every ten forms. The same command resumes it. Two
processes may write different settings to different files. `report` reads the files. It prints Spearman's correlation
with 12-epoch validation / 200-epoch test accuracy, and the mean rank (1 is best) of the best form that HNAS finds with
random points. Results: docs/methods/hnas.md. POOL is the pool of the study, with C = 4, N = 5:

    OMP_NUM_THREADS=1 python benchmarks/hnas_factors.py score POOL.parquet --out one.jsonl [--settings digits]
    python benchmarks/hnas_factors.py report POOL.parquet one.jsonl [more.jsonl ...]
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from archray.searchers import HNASSearch, drive
from archray.trainables.tune.scorers import PoolScorer

VALIDATION, TEST = "cifar10_valid_12", "cifar10_test_200"
TABLE = Path(__file__).resolve().parents[2] / "shared" / "data" / "nasbench201.csv.gz"
METRICS = ("grad_norm", "snip", "ntk_trace")
BASE = "base"  # the pool's own values: C = 4, N = 5, 64 Gaussian inputs, PyTorch's initialization, seed 42
SETTINGS: dict[str, dict[str, Any]] = {
    **{f"initialization-{seed}": {"weights": seed} for seed in (1, 2, 3, 4)},
    **{f"width-{c}-depth-{n}": {"network": {"channels": c, "cells": n}} for c, n in ((4, 1), (8, 1), (8, 3))},
    "batch-32": {"batch_size": 32},
    "batch-128": {"batch_size": 128},
    "digits": {"data": {"name": "digits", "image_size": 32}},
    **{f"width-{c}-depth-{n}": {"network": {"channels": c, "cells": n}} for c, n in ((16, 1), (8, 5))},
    **{init: {"network": {"channels": 4, "cells": 5, "init": init}} for init in ("lecun-normal", "xavier", "he")},
}
AVERAGED = {f"initializations, {n} averaged": [BASE, *list(SETTINGS)[: n - 1]] for n in (3, 5)}


def draw(pool: pd.DataFrame, size: int) -> pd.DataFrame:
    """Draws `size` rows of the pool that have all values."""
    return pool.dropna(subset=[*METRICS, "kappa"]).sample(size, random_state=0)


# Scoring


def scorer(setting: str) -> PoolScorer:
    """Returns the scorer of one setting, with the pool's own values for all other factors."""
    changes = dict(SETTINGS[setting])
    weights = changes.pop("weights", None)
    data = changes.pop("data", {"name": "gaussian", "seed": 0})
    proxy = {"metrics": (*METRICS, "kappa"), "network": {"channels": 4, "cells": 5}, **changes}
    made = PoolScorer("nasbench201", data, proxy, device="cpu")
    if weights is not None:  # the batch was already drawn and does not change
        made.settings = made.settings.model_copy(update={"seed": weights})
    return made


def fill(names: Sequence[str], settings: Sequence[str], out: Path) -> None:
    """Scores every form under every setting, except the rows in `out`."""
    done = {(line["setting"], line["architecture"]) for line in map(json.loads, out.open())} if out.exists() else set()
    scorers = {setting: scorer(setting) for setting in settings}
    with out.open("a") as lines:
        for start, (setting, score) in itertools.product(range(0, len(names), 10), scorers.items()):
            for name in names[start : start + 10]:
                if (setting, name) not in done:
                    print(json.dumps({"setting": setting} | score(name)), file=lines, flush=True)
            print(f"{setting}: {min(start + 10, len(names))} of {len(names)}", flush=True)


# Report


def columns(rows: pd.DataFrame, files: Sequence[Path]) -> dict[str, pd.DataFrame]:
    """Returns M and kappa by setting, for the forms that all settings have, and the geometric means of settings."""
    scored = pd.concat([pd.read_json(file, lines=True) for file in files])
    parts = {BASE: rows.set_index("architecture")}
    parts |= {str(name): part.set_index("architecture") for name, part in scored.groupby("setting", sort=False)}
    parts = {name: part[[*METRICS, "kappa"]].replace([np.inf, -np.inf], np.nan) for name, part in parts.items()}
    kept = pd.concat(parts, axis="columns", join="inner").dropna().index
    parts = {name: part.loc[kept].astype(float) for name, part in parts.items()}
    for name, members in AVERAGED.items():
        if all(member in parts for member in members):
            parts[name] = np.exp(sum(np.log(parts[member]) for member in members) / len(members))
    return parts


def spearman(values: pd.Series, accuracies: pd.DataFrame) -> str:
    """Formats Spearman's correlation with the validation / with the test accuracy."""
    return " / ".join(f"{values.corr(accuracies[column], 'spearman'):.2f}" for column in (VALIDATION, TEST))


def mean_rank(metric: pd.Series, kappa: pd.Series, validation: pd.Series, budget: int, seeds: int) -> float:
    """Returns the mean rank of the best form that HNAS finds with random points."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pool.parquet"
        pd.DataFrame({"architecture": metric.index, "m": metric.values, "kappa": kappa.values}).to_parquet(path)
        ranks = []
        for seed in range(seeds):
            search = HNASSearch(path, "m", points="uniform", budget=budget, metric="value", mode="max", seed=seed)
            looks = drive(search, lambda config: float(validation[config["architecture"]]))["architecture"]
            ranks.append(1 + (validation > validation[looks].max()).sum())
    return float(np.mean(ranks))


def report(parts: dict[str, pd.DataFrame], accuracies: pd.DataFrame, budget: int, seeds: int) -> None:
    """Prints a Markdown table: the settings with HNAS's ranks, then M of one setting with kappa of another."""
    accuracies = accuracies.loc[parts[BASE].index]
    print(f"{len(accuracies)} forms; HNAS: {budget} evaluations, {seeds} seeds.\n")
    print(
        f"| setting | {' | '.join(METRICS)} | -kappa | {' | '.join(f'-kappa/{m}' for m in METRICS)} | HNAS, by each |"
    )
    print(f"|---|{'---|' * 8}")
    pairs = [(name, name) for name in parts]
    pairs += [pair for name in parts if name != BASE and name not in AVERAGED for pair in ((name, BASE), (BASE, name))]
    for of_metric, of_kappa in pairs:
        metrics, kappa = parts[of_metric], parts[of_kappa]["kappa"]
        alone = [spearman(metrics[metric], accuracies) for metric in METRICS]
        bounds = [spearman(-kappa / metrics[metric], accuracies) for metric in METRICS]
        name, ranks = f"M {of_metric}, kappa {of_kappa}", []
        if of_metric == of_kappa:
            name = of_metric
            ranks = [mean_rank(metrics[metric], kappa, accuracies[VALIDATION], budget, seeds) for metric in METRICS]
        cells = [*alone, spearman(-kappa, accuracies), *bounds, ", ".join(f"{rank:.1f}" for rank in ranks)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", choices=["score", "report"])
    parser.add_argument("pool", type=Path, help="table of architecture, the metrics and kappa (archray proxies)")
    parser.add_argument("files", type=Path, nargs="*", help="files of `score`")
    parser.add_argument("--out", type=Path, help="file to which `score` appends rows")
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS), metavar="SETTING")
    parser.add_argument("--size", type=int, default=250, help="number of forms to draw (default: %(default)s)")
    parser.add_argument("--table", type=Path, default=TABLE, help="NAS-Bench-201 as CSV (default: %(default)s)")
    parser.add_argument("--budget", type=int, default=10, help="evaluations of a search (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=20, help="searches per entry (default: %(default)s)")
    options = parser.parse_args(arguments)
    if (options.section == "score") == (options.out is None or bool(options.files)):
        parser.error("expected --out FILE with `score`, and files with `report`")

    rows = draw(pd.read_parquet(options.pool), options.size)
    if options.section == "score":
        fill(rows["architecture"].tolist(), options.settings, options.out)
    else:
        accuracies = pd.read_csv(options.table, usecols=["arch", VALIDATION, TEST]).set_index("arch")
        report(columns(rows, options.files), accuracies, options.budget, options.seeds)


if __name__ == "__main__":
    main()
