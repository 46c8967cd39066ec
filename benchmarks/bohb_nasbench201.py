"""BOHB on NAS-Bench-201, with and without halving: the accuracies of its suggestions as Markdown tables over seeds.

    python benchmarks/bohb_nasbench201.py ../shared/data/nasbench201.csv.gz --seeds 20 --budget 100

The table needs the columns arch, cifar10_valid_12 and cifar10_test_200. The script needs hpbandster:
pip install '.[bohb]'.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler

from archray.searchers import ArchraySearcher, BOHBSearch, RandomSearch, drive
from archray.searchers import bohb_search as model
from archray.trainables.spaces import get_space

EPOCHS = {12: "cifar10_valid_12", 200: "cifar10_test_200"}
REDUCTION_FACTOR = 4  # trials at 12 epochs per trial at 200 epochs
SPACE = get_space("nasbench201")
Make = Callable[[int, int], ArchraySearcher]  # budget, seed


class AsItComes(BOHBSearch):
    """BOHB with hpbandster's densities, which come from statsmodels."""

    def propose(self, number: int) -> Any:
        ours, model.fitted = model.fitted, lambda kde, sizes: kde
        try:
            return super().propose(number)
        finally:
            model.fitted = ours


SEARCHERS: dict[str, Make] = {
    "random": lambda budget, seed: RandomSearch(SPACE, budget, seed=seed, metric="value", mode="max"),
    "hpbandster's densities": lambda budget, seed: AsItComes(SPACE, budget, **_options(seed)),
    "BOHBSearch": lambda budget, seed: BOHBSearch(SPACE, budget, **_options(seed)),
}


def _options(seed: int) -> dict[str, Any]:
    return {"seed": seed, "metric": "value", "mode": "max", "time_attr": "epoch", "budgets": (1, *EPOCHS)}


def read(place: Path) -> dict[int, dict[str, float]]:
    """Returns the accuracies in percent by epoch and canonical string."""
    table = pd.read_csv(place)
    names = [SPACE.encode(SPACE.canonical(SPACE.decode(name))) for name in table["arch"]]
    return {epoch: table.groupby(names)[column].mean().to_dict() for epoch, column in EPOCHS.items()}


def at_one_budget(make: Make, value: Callable[[str], float], budget: int, seed: int) -> list[float]:
    """Returns the values in the order of suggestion."""
    frame = drive(make(budget, seed), lambda config: {"value": value(config["architecture"]), "epoch": 1})
    return frame["value"].tolist()


def halved(make: Make, values: dict[int, dict[str, float]], budget: int, seed: int) -> list[float]:
    """Returns the values of the trials that Tune's ASHA completes, one trial at a time."""
    first, last = EPOCHS
    scheduler = AsyncHyperBandScheduler("epoch", "value", "max", last, first, REDUCTION_FACTOR)
    searcher, whole = make(budget, seed), []
    for number in range(budget):
        trial = SimpleNamespace(trial_id=f"t{number}")
        config: Any = searcher.suggest(trial.trial_id)
        scheduler.on_trial_add(None, trial)
        result = {"value": values[first][config["architecture"]], "epoch": first}
        if scheduler.on_trial_result(None, trial, result) == TrialScheduler.CONTINUE:
            searcher.on_trial_result(trial.trial_id, result)
            result = {"value": values[last][config["architecture"]], "epoch": last}
            whole.append(result["value"])
        searcher.on_trial_complete(trial.trial_id, result)
    return whole


def row(name: str, searches: Sequence[Sequence[float]]) -> str:
    """Formats the best value, the mean of the last quarter, and the number of values, averaged over the searches."""
    best = np.array([max(values) for values in searches])
    late = np.mean([np.mean(values[-len(values) // 4 :]) for values in searches])
    length = np.mean([len(values) for values in searches])
    return f"| {name} | {best.mean():.2f} ± {best.std(ddof=1):.2f} | {late:.2f} | {length:.1f} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budget", type=int, default=100)
    options = parser.parse_args(arguments)
    values = read(options.table)
    seeds = range(options.seeds)
    tables: dict[str, Callable[[Make, int], list[float]]] = {
        "12-epoch validation accuracy, one budget": lambda make, seed: at_one_budget(
            make, values[12].__getitem__, options.budget, seed
        ),
        "3x3 convolutions of 6, one budget": lambda make, seed: at_one_budget(
            make, lambda name: name.count("nor_conv_3x3"), options.budget, seed
        ),
        "200-epoch test accuracy, after halving at 12": lambda make, seed: halved(make, values, options.budget, seed),
    }
    for title, search in tables.items():
        print(f"\n| {title} | best | mean of the last quarter | values |\n|---|---|---|---|")
        for name, make in SEARCHERS.items():
            print(row(name, [search(make, seed) for seed in seeds]), flush=True)


if __name__ == "__main__":
    logging.getLogger("archray").setLevel(logging.ERROR)  # hides warnings about densities that are not finite
    warnings.simplefilter("ignore")
    main()
