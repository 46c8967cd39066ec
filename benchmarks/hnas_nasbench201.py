"""HNAS against NAS-Bench-201's real table: 20 looks at 12-epoch validation, judged by 200-epoch test accuracy.

The thesis' setting (Shu 2022, 7.5.4) in small: a pool scored without any image, `archray proxies --space nasbench201
--data gaussian` at (C, N) = (4, 5), then searches that read `cifar10_valid_12` from the table instead of training.

    python benchmarks/hnas_nasbench201.py POOL.parquet --table nasbench201.csv.gz
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from archray.searchers import HNASSearch, RandomSearch, drive
from archray.searchers.base import ArchraySearcher
from archray.trainables.spaces import get_space

VALIDATION, TEST = "cifar10_valid_12", "cifar10_test_200"
TABLE = Path(__file__).resolve().parents[2] / "shared" / "data" / "nasbench201.csv.gz"
METRICS = ("grad_norm", "snip", "ntk_trace")
SETTINGS: dict[str, dict[str, Any]] = {
    "tell, square": {"on_repeat": "tell", "penalty": "square"},
    "tell, absolute": {"on_repeat": "tell", "penalty": "absolute"},
    "next-best, square": {"on_repeat": "next-best", "penalty": "square"},
    "next-best, absolute": {"on_repeat": "next-best", "penalty": "absolute"},
    "paper-code": {"preset": "paper-code"},
}
# Measured before, by another program on another draw of 900 forms (Gaussian inputs, C = 4, N = 5): the ones to reach.
REFERENCE = {
    "next-best": {"grad_norm": "94.15 ± 0.20", "snip": "94.14 ± 0.11", "ntk_trace": "94.00 ± 0.48"},
    "tell": {"grad_norm": "94.03", "snip": "94.08", "ntk_trace": "94.13"},
    "random": "93.2",
}


@dataclass(frozen=True)
class Outcome:
    """A search: the 200-epoch test accuracy of its answer, in percent, and how many questions were asked."""

    accuracy: float
    asked: int


def look_up(table: Path, architectures: Sequence[str]) -> pd.DataFrame:
    """The table's rows of the pool's canonical forms, indexed by architecture; accuracies in percent.

    Raises: SystemExit if the table lacks one: it is not NAS-Bench-201's.
    """
    accuracies = pd.read_csv(table, usecols=["arch", VALIDATION, TEST]).set_index("arch")
    missing = [name for name in architectures if name not in accuracies.index]
    if missing:
        raise SystemExit(f"{table} does not hold {len(missing)} of the pool's architectures, among them {missing[0]}")
    return accuracies.loc[list(architectures)]


def search(searcher: ArchraySearcher, accuracies: pd.DataFrame, concurrency: int) -> Outcome:
    """Runs a search on the table and looks its answer up."""
    validation = accuracies[VALIDATION].to_dict()
    drive(searcher, lambda config: validation[config["architecture"]] / 100, concurrency=concurrency)
    best = searcher.best()
    assert best is not None  # every architecture has an accuracy
    asked = len(searcher.asked()) if isinstance(searcher, HNASSearch) else len(searcher.history())
    return Outcome(float(accuracies[TEST][best["architecture"]]), asked)


def repeat(make: Callable[[int], ArchraySearcher], seeds: int, accuracies: pd.DataFrame, concurrency: int) -> str:
    """`mean ± standard deviation (questions per search)` over seeds."""
    outcomes = [search(make(seed), accuracies, concurrency) for seed in range(seeds)]
    found = [outcome.accuracy for outcome in outcomes]
    return f"{np.mean(found):.2f} ± {np.std(found):.2f} ({np.mean([o.asked for o in outcomes]):.0f})"


def spellings(table: Path, architectures: Sequence[str]) -> str:
    """How far the table's accuracies lie apart over the spellings of one canonical form."""
    space = get_space("nasbench201")
    frame = pd.read_csv(table, usecols=["arch", TEST])
    frame["form"] = [space.encode(space.canonical(space.decode(name))) for name in frame["arch"]]
    spread = frame[frame["form"].isin(architectures)].groupby("form")[TEST].agg(["count", "std"])
    deviation = spread["std"][spread["count"] > 1].median()
    return f"{spread['count'].sum()} cells, test accuracy of one form's spellings ± {deviation:.2f} (median)"


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pool", type=Path, help="table of architecture, the metrics and kappa (archray proxies)")
    parser.add_argument("--table", type=Path, default=TABLE, help="NAS-Bench-201 as CSV (default: %(default)s)")
    parser.add_argument("--budget", type=int, default=20, help="architectures looked up (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=10, help="searches per entry (default: %(default)s)")
    parser.add_argument("--metrics", nargs="+", default=list(METRICS), help="columns of the pool")
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS), metavar="SETTING")
    parser.add_argument("--concurrency", type=int, default=1, help="trials in flight (default: %(default)s)")
    options = parser.parse_args(arguments)

    start = time.perf_counter()
    pool = pd.read_parquet(options.pool)
    accuracies = look_up(options.table, pool["architecture"])
    run = {"budget": options.budget, "metric": "validation_accuracy", "mode": "max"}
    print(f"{len(pool)} forms, {spellings(options.table, pool['architecture'])}.")
    for metric in options.metrics:
        usable = pool[metric].abs() > 0
        rho, by_kappa = (
            values[usable].corr(accuracies[TEST].set_axis(pool.index)[usable], method="spearman")
            for values in (pool[metric], -pool["kappa"] / pool[metric].abs())
        )
        tail = pool[metric].abs().max() / pool[metric].abs().median()
        print(f"- {metric}: Spearman with test accuracy {rho:.2f}, of -kappa/M {by_kappa:.2f}; max/median {tail:.0f}")
    best = accuracies[TEST][accuracies[VALIDATION].idxmax()]
    print(f"- the best 12-epoch validation has {best:.2f}, the best test {accuracies[TEST].max():.2f}\n")
    print(f"| setting | {' | '.join(options.metrics)} |\n|---|{'---|' * len(options.metrics)}")
    for name in options.settings:
        entries = []
        for metric in options.metrics:

            def make(seed: int, metric: str = metric, name: str = name) -> ArchraySearcher:
                return HNASSearch(options.pool, metric, seed=seed, **run, **SETTINGS[name])

            entries.append(repeat(make, options.seeds, accuracies, options.concurrency))
        print(f"| {name} | {' | '.join(entries)} |", flush=True)
    names = pool["architecture"].tolist()
    random = repeat(
        lambda seed: RandomSearch(names, seed=seed, **run), 10 * options.seeds, accuracies, options.concurrency
    )
    print(f"| random search | {' | '.join([random] * len(options.metrics))} |")
    for name in ("next-best", "tell"):
        print(f"| before: {name} | {' | '.join(REFERENCE[name].get(m, '') for m in options.metrics)} |")  # type: ignore[union-attr]
    print(f"| before: random search | {' | '.join([str(REFERENCE['random'])] * len(options.metrics))} |")
    print(f"\nMean ± standard deviation over seeds (questions asked). {time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    main()
