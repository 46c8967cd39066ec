"""HNAS on NAS-Bench-201's table: 20 evaluations of 12-epoch validation, judged by 200-epoch test accuracy.

The setting of Shu (2022), 7.5.2 to 7.5.4: a pool scored without images, and searches that read a table instead of
training. Results: docs/methods/hnas.md.

    archray proxies --space nasbench201 --data gaussian --channels 4 --cells 5 --out POOL.parquet \
        --proxies grad_norm,snip,grasp,ntk_trace,knas,synflow,kappa
    python benchmarks/hnas_nasbench201.py correlations POOL.parquet
    python benchmarks/hnas_nasbench201.py searches POOL.parquet [--objective cifar100_valid_12]
    python benchmarks/hnas_nasbench201.py pools POOL.parquet
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, spearmanr

from archray.searchers import HNASSearch, RandomSearch, RankSurrogateSearch, drive
from archray.searchers.base import ArchraySearcher
from archray.searchers.hnas.objective import PoolCoordinates, build_pool, distance

VALIDATION, TEST = "cifar10_valid_12", "cifar10_test_200"
ACCURACIES = [VALIDATION, TEST, "cifar100_valid_12", "imagenet16_valid_12"]
COSTS = {"params_m_cifar10": "params", "flops_m_cifar10": "flops"}
TABLE = Path(__file__).resolve().parents[2] / "shared" / "data" / "nasbench201.csv.gz"
METRICS = ("grad_norm", "snip", "grasp", "ntk_trace", "knas", "synflow")
SETTINGS: dict[str, dict[str, Any]] = {
    "selections (the default)": {},
    "Bayesian over (mu, nu)": {"points": "bayesian"},
    "random points": {"points": "uniform"},
    "selections, absolute": {"penalty": "absolute"},
    "random points, reuse": {"points": "uniform", "on_repeat": "reuse"},
    "paper-code": {"preset": "paper-code"},
    "paper-code, random points": {"preset": "paper-code", "points": "uniform"},
    "paper-code, selections": {"preset": "paper-code", "points": "selections"},
}
CHEAP = [name for name in SETTINGS if name not in ("Bayesian over (mu, nu)", "paper-code")]  # the others take 3 s each


@dataclass(frozen=True)
class Outcome:
    """The best form of a search: its objective, its result, and the rank of its objective (1 is best)."""

    objective: float
    result: float
    rank: int


@dataclass(frozen=True)
class Problem:
    """A scored pool with the table's values of its rows. `path`: file of the pool for the searchers."""

    path: Path
    pool: pd.DataFrame
    objective: str
    result: str
    budget: int

    def outcome(self, names: Sequence[str]) -> Outcome:
        """Returns the outcome of a search that evaluated `names`: the best by the objective."""
        rows = self.pool.set_index("architecture")
        best = rows.loc[list(names), self.objective].idxmax()
        rank = 1 + int((rows[self.objective] > rows[self.objective][best]).sum())
        return Outcome(float(rows[self.objective][best]), float(rows[self.result][best]), rank)

    def search(self, searcher: ArchraySearcher) -> Outcome:
        values = dict(zip(self.pool["architecture"], self.pool[self.objective], strict=True))
        return self.outcome(drive(searcher, lambda config: values[config["architecture"]])["architecture"])

    def first(self, column: str) -> Outcome:
        """Evaluates the rows with the largest values of `column`."""
        return self.outcome(self.pool.nlargest(self.budget, column)["architecture"].tolist())

    def hnas(self, metric: str, seed: int, setting: str) -> Outcome:
        run: dict[str, Any] = {"budget": self.budget, "metric": "value", "mode": "max", "seed": seed}
        return self.search(HNASSearch(self.path, metric, **run, **SETTINGS[setting]))

    def rank_surrogate(self, metrics: Sequence[str], seed: int) -> Outcome:
        """Searches with the metrics and -kappa."""
        run: dict[str, Any] = {"budget": self.budget, "metric": "value", "mode": "max", "seed": seed}
        return self.search(RankSurrogateSearch(self.path, [*metrics, "-kappa"], **run))

    def random(self, seed: int) -> Outcome:
        names = self.pool["architecture"].tolist()
        return self.search(RandomSearch(names, budget=self.budget, metric="value", mode="max", seed=seed))


def spread(values: Sequence[float]) -> str:
    """Formats `mean ± standard deviation (n - 1)`."""
    return f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else f"{values[0]:.2f}"


def summary(outcomes: Sequence[Outcome], same: bool) -> str:
    """Formats the result over seeds, and the mean rank. same: whether the objective is the result."""
    values = [outcome.objective if same else outcome.result for outcome in outcomes]
    return f"{spread(values)} (rank {np.mean([outcome.rank for outcome in outcomes]):.1f})"


def row(name: str, entries: Sequence[str]) -> None:
    print(f"| {name} | {' | '.join(entries)} |", flush=True)


# Sections


def searches(problem: Problem, metrics: Sequence[str], settings: Sequence[str], seeds: int) -> None:
    """Prints a row per setting, and the baselines: random search, largest first, each metric first."""
    same = problem.objective == problem.result
    best = problem.pool.loc[problem.pool[problem.objective].idxmax()]
    print(
        f"{len(problem.pool)} forms; searched by {problem.objective}, judged by {problem.result}: best form "
        f"{best[problem.result]:.2f}, maximum {problem.pool[problem.result].max():.2f}; {problem.budget} evaluations, "
        f"{seeds} seeds.\n"
    )
    row("searched by", metrics)
    print(f"|---|{'---|' * len(metrics)}")
    for setting in settings:
        row(setting, [summary([problem.hnas(m, seed, setting) for seed in range(seeds)], same) for m in metrics])
    row("the metric first", [summary([problem.first(metric)], same) for metric in metrics])
    alone = {"random search": summary([problem.random(seed) for seed in range(10 * seeds)], same)}
    alone["rank-surrogate"] = summary([problem.rank_surrogate(metrics, seed) for seed in range(seeds)], same)
    firsts = {"params": "params", "flops": "flops", "synflow": "synflow", "kappa": "-kappa"}
    alone |= {f"{c} first": summary([problem.first(column)], same) for c, column in firsts.items() if c in problem.pool}
    for name, entry in alone.items():
        row(name, [entry, *[""] * (len(metrics) - 1)])


def pools(problem: Problem, metrics: Sequence[str], seeds: int, count: int, settings: Sequence[str]) -> None:
    """Prints, for disjoint pools, the difference of each setting to random points, paired over seeds."""
    order = np.random.default_rng(0).permutation(len(problem.pool))
    best_form = problem.pool["architecture"][problem.pool[problem.objective].idxmax()]
    names = [name for name in settings if name != "random points"]
    row("pool", ["forms", "contains the best form", "its best", "random points", *[f"{n}, difference" for n in names]])
    print(f"|---|{'---|' * (4 + len(names))}")
    gains: dict[str, list[float]] = {name: [] for name in names}
    ranks: dict[str, list[float]] = {name: [] for name in ("random points", *names)}
    with tempfile.TemporaryDirectory() as folder:
        for number, part in enumerate(np.array_split(order, count)):
            rows = problem.pool.iloc[part].reset_index(drop=True)
            rows.to_parquet(path := Path(folder) / f"pool-{number}.parquet")
            part_problem = Problem(path, rows, problem.objective, problem.result, problem.budget)
            outcomes_by_setting = {
                name: [part_problem.hnas(m, s, name) for m in metrics for s in range(seeds)] for name in ranks
            }
            results = {name: np.array([o.result for o in outcomes]) for name, outcomes in outcomes_by_setting.items()}
            for name in ranks:
                ranks[name].append(float(np.mean([o.rank for o in outcomes_by_setting[name]])))
            entries = []
            for name in names:
                gains[name].append(float(np.mean(results[name] - results["random points"])))
                entries.append(f"{gains[name][-1]:+.2f} (rank {ranks[name][-1]:.1f})")
            holds = "yes" if best_form in set(rows["architecture"]) else "no"
            at_best = rows[problem.result][rows[problem.objective].idxmax()]
            first = f"{results['random points'].mean():.2f} (rank {ranks['random points'][-1]:.1f})"
            row(str(number), [str(len(rows)), holds, f"{at_best:.2f}", first, *entries])
    for name in names:
        ahead = sum(gain > 0 for gain in gains[name])
        by_rank = np.array(ranks["random points"]) - np.array(ranks[name])
        print(f"\n{name}, less random points: {spread(gains[name])} over {count} pools, ahead in {ahead};")
        print(f"rank better by {spread(by_rank.tolist())}, ahead in {(by_rank > 0).sum()}.")


def correlations(pool: pd.DataFrame, metrics: Sequence[str], columns: Sequence[str]) -> None:
    """Prints Spearman / Kendall with each column, as in Table 7.5. mu, nu: fitted on 12-epoch CIFAR-10 validation."""
    for name in (*metrics, "params", "flops", *(m for m in ("naswot", "fisher") if m in pool)):
        values = -pool["kappa"] if name == "kappa" else pool[name]
        row(name, ["as it is", *[agreement(values.to_numpy(), pool[c].to_numpy()) for c in columns]])
    row("kappa", ["-kappa", *[agreement(-pool["kappa"].to_numpy(), pool[c].to_numpy()) for c in columns]])
    for metric in metrics:
        rows = build_pool(pool, metric)
        kept = pool.set_index("architecture").loc[list(rows.architectures)]
        square = PoolCoordinates(rows, "square", PoolCoordinates.default_log10_mu)
        points = [square.mu_nu([u, v]) for u in np.linspace(0, 1, 21) for v in np.linspace(*square.log10_mu, 13)]
        parts: dict[str, Callable[[float], Any]] = {
            "1/M": lambda weight, rows=rows: 1 / rows.metric,  # type: ignore[misc]
            "kappa/M": lambda weight, rows=rows: rows.kappa / rows.metric,  # type: ignore[misc]
        }
        for name, part in parts.items():
            scale = np.median(part(0)) / np.median(rows.kappa / rows.metric)  # mu has the scale of kappa/M
            row(f"{metric}: {name}", ["", *[agreement(-part(0), kept[c].to_numpy()) for c in columns]])
            bounds = [part(0) + scale * mu * distance(rows.metric, nu) for mu, nu in points]
            fit = max(bounds, key=lambda bound: spearmanr(-bound, kept[VALIDATION]).statistic)
            row(f"{metric}: {name} + trade-off", ["fitted", *[agreement(-fit, kept[c].to_numpy()) for c in columns]])


def agreement(values: Any, accuracies: Any) -> str:
    """Formats `Spearman / Kendall`."""
    kept = np.isfinite(values)
    values, accuracies = values[kept], accuracies[kept]
    return f"{spearmanr(values, accuracies).statistic:.3f} / {kendalltau(values, accuracies).statistic:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line, and prints tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", choices=["searches", "pools", "correlations"])
    parser.add_argument("pool", type=Path, help="table of architecture, the metrics and kappa (archray proxies)")
    parser.add_argument("--table", type=Path, default=TABLE, help="NAS-Bench-201 as CSV (default: %(default)s)")
    parser.add_argument("--objective", default=VALIDATION, help="column that a search reads (default: %(default)s)")
    parser.add_argument("--budget", type=int, default=20, help="evaluations of a search (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=20, help="searches per entry (default: %(default)s)")
    parser.add_argument("--metrics", nargs="+", default=list(METRICS), help="columns of the pool")
    parser.add_argument("--settings", nargs="+", default=CHEAP, choices=list(SETTINGS), metavar="SETTING")
    parser.add_argument("--count", type=int, default=10, help="number of disjoint pools (default: %(default)s)")
    options = parser.parse_args(arguments)

    start = time.process_time()
    pool = pd.read_parquet(options.pool)
    accuracies = (
        pd.read_csv(options.table, usecols=["arch", *ACCURACIES, *COSTS]).rename(columns=COSTS).set_index("arch")
    )
    missing = [name for name in pool["architecture"] if name not in accuracies.index]
    if missing:
        raise SystemExit(f"{options.table} lacks {len(missing)} of the pool's architectures, among them {missing[0]}")
    pool = pool.join(accuracies, on="architecture")
    pool["-kappa"] = -pool["kappa"]
    result = TEST if options.objective == VALIDATION else options.objective
    problem = Problem(options.pool, pool, options.objective, result, options.budget)
    if options.section == "searches":
        searches(problem, options.metrics, options.settings, options.seeds)
    elif options.section == "pools":
        pools(problem, options.metrics, options.seeds, options.count, options.settings)
    else:
        row("", ["", *ACCURACIES])
        print(f"|---|{'---|' * (1 + len(ACCURACIES))}")
        correlations(pool, options.metrics, ACCURACIES)
    print(f"\n{time.process_time() - start:.0f} s of processor time.")


if __name__ == "__main__":
    main()
