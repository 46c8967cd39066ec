"""Synthetic runs of searches for a feature map, with realistic numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from archray_test_report import write_repeats, write_run

from archray.platform.run.run import Run
from archray.trainables.spaces import get_space

_FILES = {
    "progress": ("oracle", "progress.parquet"),
    "correlation": ("correlation", "correlation.parquet"),
    "rounds": ("search", "rounds.parquet"),
    "final": ("final", "trials.parquet"),
}


def feature_map_run(
    place: str | Path,
    *,
    repeats: int = 3,
    candidates: int = 64,
    maps: int = 16,
    dimensions: tuple[int, ...] = (250, 1000),
    seed: int = 0,
    found: str | None = None,
    **replaced: pd.DataFrame,
) -> Run[Any]:
    """A run of halving over random Fourier features; its first repeat is the best.

    Args:
        found: a feature map in place of the one that the first repeat found.
        replaced: tables in place of those of `feature_map_tables`, for all repeats.
    """
    tables = {**feature_map_tables(repeats, candidates, maps, dimensions, seed), **replaced}
    content = []
    for repeat in range(repeats):
        own = {_FILES[name]: _of_repeat(table, repeat) for name, table in tables.items()}
        ended, _ = _halving(np.random.default_rng([seed, repeat]), repeat, candidates)
        architecture = found or ended["architecture"].iloc[-1]
        best = {"architecture": architecture, "value": 0.97 - 0.01 * repeat, "metric": "validation_accuracy"}
        content.append((own, {("search", "architecture.json"): best, ("", "architecture.json"): best}))
    config = {"space": "fourier", "dimension": 2000}
    if repeats > 1:
        return write_repeats(place, "halving", content, config=config, seconds=83.0)
    return write_run(place, "halving", config=config, tables=content[0][0], documents=content[0][1], seconds=83.0)


def feature_map_tables(
    repeats: int = 3, candidates: int = 64, maps: int = 16, dimensions: tuple[int, ...] = (250, 1000), seed: int = 0
) -> dict[str, pd.DataFrame]:
    """Returns `progress`, `correlation`, `rounds` and `final` of such a run for all repeats, with a column `repeat`."""
    searches = [_halving(np.random.default_rng([seed, r]), r, candidates) for r in range(repeats)]
    progress = pd.concat([progress for progress, _ in searches], ignore_index=True)
    found = progress["architecture"].iloc[len(searches[0][0]) - 1]
    return {
        "progress": progress,
        "correlation": _correlation(np.random.default_rng(seed), repeats, maps, dimensions, found),
        "rounds": pd.concat([rounds for _, rounds in searches], ignore_index=True),
        "final": pd.DataFrame({"repeat": range(repeats), "seed": 0, "test_accuracy": 0.979, "failure": None}),
    }


def _of_repeat(table: pd.DataFrame, repeat: int) -> pd.DataFrame:
    return table[table["repeat"] == repeat].drop(columns="repeat") if "repeat" in table else table


def method_progress(method: str, repeats: int = 3, seed: int = 0) -> pd.DataFrame:
    """Returns synthetic progress of one of the five methods."""
    tables = [_method_progress(method, np.random.default_rng([seed, r, len(method)]), r) for r in range(repeats)]
    return pd.concat(tables, ignore_index=True)


def _method_progress(method: str, rng: np.random.Generator, repeat: int) -> pd.DataFrame:
    if method in ("halving", "fast-halving"):
        progress, _ = _halving(rng, repeat, 256, growth=2**0.5 if method == "fast-halving" else 1.0)
        return progress
    sizes = {
        "random-maps": [2000] * 32,
        "successive-halving": [32] * 64 + [125] * 16 + [500] * 4 + [2000],
        "hyperband": [32] * 64 + [125] * 16 + [500] * 4 + [2000] + [125] * 22 + [500] * 5 + [2000] * 5,
    }[method]
    errors = np.minimum.accumulate([_error(_map(rng), size) for size in sizes])
    return pd.DataFrame(
        {
            "repeat": repeat,
            "calls": np.arange(1, len(sizes) + 1),
            "seconds": np.cumsum([_seconds(size, rng) for size in sizes]),
            "architecture": [_map(rng) for _ in sizes],
            "dimension": sizes,
            "candidates": 1,
            "score": 10 * errors,
            "search_test_accuracy": 1 - errors,
            "final": False,
        }
    )


def _map(rng: np.random.Generator) -> str:
    space = get_space("fourier")
    return space.encode(space.canonical(space.sample(rng)))


def _error(name: str, dimension: int) -> float:
    """Returns 1 - the test accuracy of a map. It is lower the closer gamma is to 0.01."""
    gamma = get_space("fourier").configuration(name)["gamma"]
    return float(0.02 + 0.1 * abs(np.log10(gamma) + 2) + 6 / (dimension + 200))


def _seconds(dimension: int, rng: np.random.Generator) -> float:
    return float((0.02 + dimension**2 * 3e-8) * np.exp(rng.normal(0, 0.15)))


def _halving(
    rng: np.random.Generator, repeat: int, candidates: int, growth: float = 1.0
) -> tuple[pd.DataFrame, pd.DataFrame]:
    remaining = [_map(rng) for _ in range(candidates)]
    total, number, seconds = int(np.ceil(np.log2(candidates))), 0, 0.0
    rows, rounds = [], []
    while remaining:
        number += 1
        final = len(remaining) == 1
        dimension = int(np.ceil(2000 * growth ** min(number - total, 0)))
        noise = 0.012 * np.log2(len(remaining))
        scores = np.array([2 * _error(name, dimension) + 0.2 + rng.normal(0, noise) for name in remaining])
        scores[rng.random(len(remaining)) < (0.01 if len(remaining) > 4 else 0)] = np.nan
        order = np.argsort(scores)  # NaN last
        kept = order[: 1 if final else len(remaining) // 2]
        seconds += _seconds(dimension, rng) * (1 if final else 1.25)
        leader = remaining[order[0]]
        rows.append(
            {
                "repeat": repeat,
                "calls": number,
                "seconds": seconds,
                "architecture": leader,
                "dimension": dimension,
                "candidates": len(remaining),
                "score": scores[order[0]],
                "search_test_accuracy": 1 - _error(leader, 2000),
                "final": final,
            }
        )
        for i, name in enumerate(remaining):
            rounds.append(
                {
                    "repeat": repeat,
                    "round": number,
                    "candidate": name,
                    "score": scores[i],
                    "kept": bool(i in kept),
                    "failure": "its score is NaN" if np.isnan(scores[i]) else None,
                    "budget": dimension,
                    "replicas": 1 if final else 1 + (number != 2),
                    "lost": int(number == 2),
                }
            )
        remaining = [] if final else [remaining[i] for i in sorted(kept)]
    return pd.DataFrame(rows), pd.DataFrame(rounds)


def _correlation(
    rng: np.random.Generator, repeats: int, maps: int, dimensions: tuple[int, ...], found: str
) -> pd.DataFrame:
    rows = []
    for repeat in range(repeats):
        names = [found, *(_map(rng) for _ in range(maps - 1))]
        for bases, loss in (("shared", 0.03), ("independent", 0.12)):
            for dimension in dimensions:
                table = pd.DataFrame({"repeat": repeat, "bases": bases, "dimension": dimension, "architecture": names})
                alone = 1 - np.array([_error(name, dimension) for name in names])
                noise = rng.normal(0, loss + 10 / dimension, len(names))
                rows.append(table.assign(shared_accuracy=np.clip(alone**1.6 + noise, 0, 1), standalone_accuracy=alone))
    return pd.concat(rows, ignore_index=True)


def solve_with_leader(
    number: int, remaining: int, validation: float, test: float, points: int, leader: str
) -> dict[str, Any]:
    """A trial of round `number` with `remaining` candidates, the lowest errors, and the number of points."""
    return {
        "trial_id": f"t{number}",
        "round": number,
        "candidates_left": remaining,
        "leader": leader,
        "leader_points": points,
        "leader_validation_error": validation,
        "leader_test_error": test,
        "leader_validation_clipped": 10 * validation,
        "leader_test_clipped": 10 * test,
        "loss_bound": 40.0,
        "train_points": 1000,
        "test_points": 360,
        "weight_norm": 20.0,
        "dimension": 100,
        "architecture": leader if remaining == 1 else None,
        "test_accuracy": 1 - test if remaining == 1 else math.nan,
        "score": 2.0 - 0.1 * number,
    }


def leaders_run(place: str | Path, rows: list[dict[str, Any]] | None = None, method: str = "halving") -> Run[Any]:
    """A run whose solves report their leaders. rows: from `solve_with_leader`."""
    trials = pd.DataFrame(LEADERS if rows is None else rows)
    oracle = pd.DataFrame({"architecture": ["b"], "dimension": [100], "test_accuracy": [0.97]})
    tables = {("search", "trials.parquet"): trials, ("search", "curves.parquet"): trials}
    if method == "halving":
        tables[("oracle", "trials.parquet")] = oracle
    return write_run(place, method, config={"space": "fourier", "dimension": 100}, tables=tables, documents={})


LEADERS = [
    solve_with_leader(1, 4, 0.10, 0.12, 300, "a"),
    solve_with_leader(2, 2, 0.08, 0.11, 300, "b"),
    solve_with_leader(3, 1, 0.03, 0.05, 300, "a"),
]
