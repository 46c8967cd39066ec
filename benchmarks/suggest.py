"""Median and worst time of a searcher's `suggest`, over a table as large as NAS-Bench-201.

    python benchmarks/suggest.py [--trials 100] [--rows 15625] [--searchers random evolution ...]
    python benchmarks/suggest.py --trials 1000 --rows 1000000 --searchers rank-surrogate

Each searcher makes `--trials` suggestions, one at a time, and receives results without cost: over the space
nasbench201, or over a pool of `--rows` rows with synthetic metrics. Times are processor times of this process
(`time.process_time`), so other work on the machine has little effect. The last column divides by random search in the
same run. `last ms` is the mean of the last tenth of the suggestions. The last line is the peak memory of the process.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ray.tune.search import Searcher

from archray import searchers
from archray.searchers import HNASSearch, LocalSearch, MetricFirst, RandomSearch, RegularizedEvolution, ReinforceSearch
from archray.searchers.testing import hashed_score
from archray.trainables.spaces import get_space

TOLD: dict[str, Any] = {"metric": "score", "mode": "max"}
METRICS = ("grad_norm", "snip", "synflow", "nwot")


def invented_pool(folder: Path, rows: int) -> Path:
    """Draws a table with an architecture per row, correlated metrics, and costs."""
    rng = np.random.default_rng(0)
    names = [get_space("nasbench201").encode(cell) for cell in get_space("nasbench201").enumerate()][:rows]
    if rows > len(names):  # ten decisions of five choices
        names = ["|".join(np.base_repr(number, 5).zfill(10)) for number in range(rows)]
    quality = rng.standard_normal(rows)
    table = pd.DataFrame({"architecture": names, "kappa": rng.lognormal(3, 1, rows)})
    for metric in METRICS:
        table[metric] = np.exp(quality + rng.standard_normal(rows))
    table["flops"] = np.exp(rng.standard_normal(rows))
    table.to_parquet(folder / "pool.parquet")
    return folder / "pool.parquet"


def searchers_over(pool: Path, trials: int) -> dict[str, Callable[[], Searcher]]:
    """Returns every searcher of archray whose trial is one architecture, by name."""
    over: dict[str, Any] = {"budget": trials, **TOLD}
    made: dict[str, Callable[[], Searcher]] = {
        "random": lambda: RandomSearch("nasbench201", **over),
        "evolution": lambda: RegularizedEvolution("nasbench201", population=max(1, trials // 4), sample_size=5, **over),
        "local-search": lambda: LocalSearch("nasbench201", **over),
        "reinforce": lambda: ReinforceSearch("nasbench201", **over),
        "metric-first": lambda: MetricFirst(pool, "synflow", **over),
        "hnas": lambda: HNASSearch(pool, proxy="grad_norm", **over),
        "hnas, uniform points": lambda: HNASSearch(pool, proxy="grad_norm", points="uniform", **over),
    }
    for name, method in (("RankSurrogateSearch", "rank-surrogate"), ("RoBoTSearch", "robot")):
        if name in searchers.__all__:
            made[method] = lambda name=name: getattr(searchers, name)(pool, metrics=METRICS, **over)
    return made


def milliseconds(searcher: Searcher, trials: int) -> np.ndarray:
    """Returns the milliseconds of each suggestion, (n,), n at most `trials`."""
    times = []
    searcher.set_search_properties(None, None, {})
    for number in range(trials):
        start = time.process_time()
        config: Any = searcher.suggest(f"t{number}")
        times.append(1000 * (time.process_time() - start))
        if not isinstance(config, dict):
            break
        searcher.on_trial_complete(
            trial_id=f"t{number}", result={"score": hashed_score({"architecture": config["architecture"]})}
        )
    return np.array(times)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line, and prints a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--rows", type=int, default=15_625)
    parser.add_argument("--searchers", nargs="*", help="names of searchers (default: all)")
    options = parser.parse_args(arguments)
    get_space("nasbench201").canonical(("none",) * 6)  # the first call goes through the whole space
    with tempfile.TemporaryDirectory() as folder:
        made = searchers_over(invented_pool(Path(folder), options.rows), options.trials)
        unknown = set(options.searchers or ()) - set(made)
        if unknown:
            raise SystemExit(f"expected searchers of {', '.join(made)}, got {', '.join(sorted(unknown))}")
        random = np.median(milliseconds(made["random"](), options.trials))
        print("| searcher | median ms | worst ms | last ms | median, times random's |\n|---|---|---|---|---|")
        for name in options.searchers or made:
            times = milliseconds(made[name](), options.trials)
            median, last = np.median(times), times[len(times) * 9 // 10 :].mean()
            print(f"| {name} | {median:.2f} | {times.max():.2f} | {last:.2f} | {median / random:.1f} |", flush=True)
        print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
