"""Agreement of shared weights with NAS-Bench-201's table: rs-ws and halving on one supernet.

Both methods train the supernet of NAS-Bench-201 on digits for equal total epochs: rs-ws on random paths, halving in
rounds on the remaining candidates. The script scores the same architectures with the weights of each method, and
compares the scores with the table's 200-epoch test accuracy on CIFAR-10. The data differ, so the rank correlation is
lower than a comparison of digits with digits.

    python benchmarks/shared_weights_nasbench201.py nasbench201.csv.gz

The table has a row for each of the 15,625 cells, with the columns `arch` (NAS-Bench-201's string), `cifar10_test_200`
(percent) and `params_m_cifar10` (millions). Create it from the API of NAS-Bench-201
(https://github.com/D-X-Y/NAS-Bench-201): `api.arch(i)`, and over all seeds the mean of
`api.get_more_info(i, "cifar10", hp="200")["test-accuracy"]`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from archray.platform.methods.supernets.random_paths import draw_architectures
from archray.searchers import WeightSharingHalving, drive
from archray.trainables.checkpoint import read_weights
from archray.trainables.tune.scorers import SupernetScorer, arrays_of
from archray.trainables.tune.settings import SupernetOptions
from archray.trainables.tune.supernet_trainable import SupernetTrainable

SPACE, TEST, PARAMETERS = "nasbench201", "cifar10_test_200", "params_m_cifar10"
COLUMNS = ("seed", "weights of", "trained on", "epochs", "survivors, by loss", "all, by loss", "all, by accuracy")


def train(config: dict[str, Any]) -> SupernetTrainable:
    """Trains a supernet to the end. Raises: SystemExit if the training run fails."""
    trainable = SupernetTrainable(config)
    while not (result := trainable.step())["done"]:
        pass
    if result["failure"]:
        raise SystemExit(f"the supernet's training run failed: {result['failure']}")
    return trainable


def correlation(scores: Sequence[float] | pd.Series, accuracies: pd.Series) -> float:
    """Returns Spearman's rho over the architectures with a score. scores: (n,), in the order of accuracies."""
    return float(pd.Series(np.asarray(scores, dtype=float), index=accuracies.index).corr(accuracies, method="spearman"))


def over_all(settings: dict[str, Any], weights: dict[str, np.ndarray], accuracies: pd.Series) -> dict[str, float]:
    """Returns the correlations of all architectures' scores with these weights."""
    rows = pd.DataFrame(SupernetScorer(settings, weights)(list(accuracies.index)))
    return {
        "all, by loss": correlation(-rows["shared_loss"], accuracies),
        "all, by accuracy": correlation(rows["shared_accuracy"], accuracies),
    }


def random_search(settings: dict[str, Any], epochs: int, accuracies: pd.Series, seed: int) -> list[dict[str, Any]]:
    """Runs rs-ws. Returns one row."""
    training = {**settings["training"], "epochs": epochs}
    trainable = train({"settings": {**settings, "training": training}, "seed": seed})
    weights = arrays_of(trainable.trainer.supernet.state_dict())
    labels = {"seed": seed, "weights of": "rs-ws", "trained on": "random paths", "epochs": epochs}
    return [{**labels, **over_all(settings, weights, accuracies)}]


def halving(
    settings: dict[str, Any], epochs: int, accuracies: pd.Series, seed: int
) -> tuple[list[dict[str, Any]], str]:
    """Runs halving. Returns a row per round except the last, and the remaining candidate."""
    searcher = WeightSharingHalving(list(accuracies.index), budget=epochs, metric="score", mode="min", seed=seed)
    rows = []
    with tempfile.TemporaryDirectory() as folder:

        def evaluate(config: dict[str, Any]) -> dict[str, Any]:
            trainable = train({**config, "settings": {**settings, "weights_dir": folder}})
            return trainable.step()  # a trial that has ended reports its last result again

        trials = drive(searcher, evaluate)
        for trial in trials[trials["candidates"].map(len) > 1].to_dict("records"):
            survivors = accuracies.loc[trial["candidates"]]
            labels = {
                "seed": seed,
                "weights of": f"round {trial['round']}",
                "trained on": f"{len(survivors)} candidates",
                "epochs": epochs * trial["round"],
                "survivors, by loss": correlation([-score for score in trial["scores"]], survivors),
            }
            weights = arrays_of(read_weights(trial["weights"])["supernet"])
            rows.append({**labels, **over_all(settings, weights, accuracies)})
    best = searcher.best()
    assert best is not None  # no training failed
    return rows, best["candidate"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="NAS-Bench-201 as CSV, see above")
    parser.add_argument(
        "--architectures", type=int, default=200, help="architectures to score and halve (default: %(default)s)"
    )
    parser.add_argument("--epochs", type=int, default=32, help="epochs per round of halving (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="supernets per method (default: %(default)s)")
    parser.add_argument("--channels", type=int, default=4, help="channels of the first stage (default: %(default)s)")
    options = parser.parse_args(arguments)

    start = time.perf_counter()
    supernet = {
        "network": {"channels": options.channels, "cells": 1},
        "relaxation": {"name": "path"},
        "optimizer": {"name": "none"},
        "training": {"batch_size": 64, "lr": 0.1, "augmentation": None, "threads": 1},
    }
    settings = {**supernet, "space": SPACE, "data": {"name": "digits"}}
    names = draw_architectures(SPACE, SupernetOptions.model_validate(supernet), options.architectures, seed=0)
    table = pd.read_csv(options.table, usecols=["arch", TEST, PARAMETERS]).set_index("arch").loc[names]
    accuracies = table[TEST]
    rows = []
    winner_accuracies = []
    for seed in range(options.seeds):
        rounds, winner = halving(settings, options.epochs, accuracies, seed)
        rows += random_search(settings, options.epochs * len(rounds), accuracies, seed) + rounds
        winner_accuracies.append(f"{accuracies[winner]:.2f}")
    print(f"Spearman's rho with {TEST} of {len(names)} random cells; of parameters with it: ", end="")
    print(f"{correlation(table[PARAMETERS], accuracies):.2f}\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for row in rows:
        cells = [row.get(name, "") for name in COLUMNS]
        print(f"| {' | '.join(f'{cell:.2f}' if isinstance(cell, float) else str(cell) for cell in cells)} |")
    print(
        f"\nHalving found cells with {', '.join(winner_accuracies)} in the table; "
        f"the mean of all is {accuracies.mean():.2f}, ",
        end="",
    )
    print(f"the best {accuracies.max():.2f}. {time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    main()
