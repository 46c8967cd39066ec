"""Ensemble methods on real images at equal cost: error, NLL, calibration, outlier detection. Shu 2022, ch. 5.

Each seed trains a supernet of NAS-Bench-201 on random paths, a posterior, and networks from scratch. All methods share
the networks of a seed. The cost is counted in passes over the training images; a pass of the posterior over the
validation images counts by their number. NES-RS, NES-RE and the deep ensemble get as many networks as NESBS costs.
`single best` trains one network for as many epochs as all members of an ensemble together.

    python benchmarks/ensembles.py run --data arrays:cifar10.npz --outliers cifar100.npz --out runs --processes 2
    python benchmarks/ensembles.py report --out runs
    python benchmarks/ensembles.py bensemble --out runs         # the same members in the package bensemble 0.2

Each network is a file in OUT. The same command resumes an interrupted benchmark. `--outliers` has an array `x` of
images (n, C, H, W) of 8 bits, of classes that the data set lacks.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

from archray.files import whole_file
from archray.searchers import NESBSSearch, RandomSearch, RegularizedEvolution, drive
from archray.searchers.nesbs.posterior import Posterior
from archray.trainables.checkpoint import write_weights
from archray.trainables.data import load_images
from archray.trainables.data.dataset import Dataset, Split
from archray.trainables.ensembles.evaluator import Answer, CachedEnsembles
from archray.trainables.ensembles.measures import average, measure_ensemble
from archray.trainables.ensembles.prediction import predict
from archray.trainables.ensembles.scores import forward_selection
from archray.trainables.tune.scorers import SharedPredictions, arrays_of
from archray.trainables.tune.standalone_trainable import StandaloneSettings, build_trainer
from archray.trainables.tune.supernet_trainable import PosteriorTrainable, SupernetTrainable

SPACE = "nasbench201"
NETWORK = {"channels": 8, "cells": 1}
SUPERNET_EPOCHS, POSTERIOR_EPOCHS = 30, 20
ENSEMBLES = 5  # T, evaluated with shared weights
POPULATION, PARENTS = 4, 3
SIZES = (3, 5)
SAMPLERS = {"NESBS, SVGD-RD": "svgd-rd", "NESBS, MC": "mc", "uniform random ensembles": "uniform"}
MEASURES = ("accuracy", "loss", "calibration_error", "average_accuracy", "disagreement", "auroc")
FRACTIONS = [name for name in MEASURES if name != "loss"]  # reported in percent


@dataclass(frozen=True)
class Seed:
    """The networks of one seed, trained on demand and stored."""

    seed: int
    out: Path
    data: str
    outliers: str
    epochs: int

    @property
    def folder(self) -> Path:
        return self.out / f"seed-{self.seed}"

    def settings(self, epochs: int) -> StandaloneSettings:
        training = {"epochs": epochs, "batch_size": 64, "threads": 1}
        data = {"name": self.data, "flip": True}
        return StandaloneSettings.model_validate(
            {"space": SPACE, "data": data, "network": NETWORK, "training": training}
        )

    def predictions(self, cell: str, start: int = 0, epochs: int | None = None) -> dict[str, np.ndarray]:
        """Returns the probabilities of a trained network: validation, test, outliers. start: the initialization."""
        epochs = epochs or self.epochs
        file = self.folder / f"{cell.replace('|', '.')}-{start}-{epochs}.npz"
        if not file.exists():
            trainer, _, _ = build_trainer(
                self.settings(epochs), cell, seed=1000 * self.seed + start, device=torch.device("cpu")
            )
            while not trainer.finished:
                trainer.epoch()
            trainer.network.eval()
            dataset = trainer.dataset
            splits = {"validation": dataset.validation, "test": dataset.test, "outliers": self.shifted(dataset)}
            arrays = {name: predict(trainer.network, split) for name, split in splits.items()}
            with whole_file(file) as stream:
                np.savez(stream, **arrays)
            print(f"seed {self.seed}: {file.name}", flush=True)
        with np.load(file) as arrays:
            return {name: arrays[name] for name in arrays.files}

    def shifted(self, dataset: Dataset) -> Split:
        """Returns the outliers, normalized like the data set."""
        form = dataset.form
        images = torch.from_numpy(np.load(self.outliers)["x"]).float() / 255
        mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (form.mean, form.std))
        return Split((images - mean) / std, torch.zeros(len(images), dtype=torch.int64))


def posterior_and_supernet(seed: Seed) -> tuple[dict[str, Any], dict[str, Any], dict[str, np.ndarray]]:
    """Trains the supernet and the posterior. Returns the posterior, the supernet's settings and its weights."""
    training = {"epochs": SUPERNET_EPOCHS, "batch_size": 64, "lr": 0.1, "lr_min": 0.0, "threads": 1}
    supernet = {
        "network": NETWORK,
        "relaxation": {"name": "path", "draws": "architectures"},
        "optimizer": {"name": "none"},
        "training": training,
    }
    data = {"name": seed.data, "flip": True}
    file = seed.folder / "weights.pt"
    if not file.exists():
        trainable = finished(
            SupernetTrainable({"settings": {**supernet, "space": SPACE, "data": data}, "seed": seed.seed})
        )
        write_weights(str(seed.folder), file.name, {"supernet": trainable.trainer.supernet.state_dict()})
    weights = torch.load(file, weights_only=True)["supernet"]
    learned = seed.folder / "posterior.json"
    if not learned.exists():
        options = {
            "posterior": {"name": "posterior", "scale": "data", "estimator": "score-function", "samples": 2},
            "epochs": POSTERIOR_EPOCHS,
            "batch_size": 64,
        }
        more = {"space": SPACE, "data": data, "supernet": supernet, "weights": str(file)}
        trainable = finished(PosteriorTrainable({"settings": {**options, **more}, "seed": seed.seed}))
        with whole_file(learned) as stream:
            stream.write(trainable.step()["posterior"].encode())  # a trial that has ended reports its last result again
    return (
        json.loads(learned.read_text()),
        {**supernet, "space": SPACE, "data": data},
        arrays_of(weights),
    )


def finished(trainable: Any) -> Any:
    """Trains to the end. Raises: RuntimeError if the training fails."""
    while not (result := trainable.step())["done"]:
        pass
    if result["failure"]:
        raise RuntimeError(result["failure"])
    return trainable


def sampled(
    log_probabilities: dict[str, list[float | None]],
    predict_members: Callable[..., Any],
    labels: np.ndarray,
    seed: int,
    size: int,
    sampler: str,
) -> list[str]:
    """Returns the best of the sampled ensembles, evaluated with shared weights. None marks an impossible choice."""
    if sampler == "uniform":
        log_probabilities = {
            name: [None if value is None else 0.0 for value in row] for name, row in log_probabilities.items()
        }
    posterior = Posterior(log_probabilities, SPACE)  # type: ignore[arg-type]
    budget = ENSEMBLES * SIZES[0] if size == 1 else ENSEMBLES
    search = NESBSSearch(posterior, ensemble_size=size, sampler=sampler, budget=budget, seed=seed)
    drive(search, CachedEnsembles(labels, predict_members))
    best = search.best()
    assert best is not None  # no prediction failed
    members: list[str] = best["members"]
    return members


def networks_of(size: int, seed: Seed) -> int:
    """Returns how many networks cost as much as NESBS with this size, in passes over the training images."""
    data = load_images(seed.settings(1).data)
    passes = 2 * POSTERIOR_EPOCHS * len(data.validation) / len(data.train) / 3  # two forward passes without backward
    return round((SUPERNET_EPOCHS + passes) / seed.epochs) + size


def ensembles(seed: Seed) -> Iterator[tuple[str, int, list[dict[str, np.ndarray]]]]:
    """Yields method, size and the members' predictions."""
    posterior, settings, weights = posterior_and_supernet(seed)
    shared = SharedPredictions(settings, weights, "cpu")
    labels = load_images(seed.settings(1).data).validation.labels.numpy()

    def predict_members(members: Sequence[str]) -> Iterator[list[Answer]]:
        yield [Answer(member, shared(member)) for member in members]

    for size in SIZES:
        for name, sampler in SAMPLERS.items():
            members = sampled(posterior, predict_members, labels, seed.seed, size, sampler)
            yield name, size, [seed.predictions(cell, start) for start, cell in enumerate(members)]
        count = networks_of(size, seed)
        drawn = drive(
            RandomSearch(SPACE, budget=networks_of(max(SIZES), seed), seed=seed.seed, metric="x", mode="min"),
            lambda config: 0.0,
        )
        pool = [seed.predictions(cell) for cell in drawn["architecture"].iloc[:count]]
        yield "NES-RS", size, chosen(pool, labels, size)
        yield "NES-RE", size, chosen(evolved(seed, labels, count), labels, size)
        losses = [
            -np.log(member["validation"][np.arange(len(labels)), labels]).mean() for member in pool[: count - size]
        ]
        best = drawn["architecture"].iloc[int(np.argmin(losses))]
        yield "deep ensemble", size, [seed.predictions(best, start) for start in range(size)]
        [cell] = sampled(posterior, predict_members, labels, seed.seed, 1, "mc")
        yield "single best", size, [seed.predictions(cell, 0, size * seed.epochs)]


def chosen(pool: list[dict[str, np.ndarray]], labels: np.ndarray, size: int) -> list[dict[str, np.ndarray]]:
    members = forward_selection(np.stack([member["validation"] for member in pool]), labels, size).members
    return [pool[member] for member in members]


def evolved(seed: Seed, labels: np.ndarray, count: int) -> list[dict[str, np.ndarray]]:
    """Returns the pool of NES-RE: mutations of the members of the population's best ensemble."""
    pool: dict[int, dict[str, np.ndarray]] = {}

    def parents(population: Sequence[dict[str, Any]]) -> list[int]:
        stacked = np.stack([seed.predictions(parent["architecture"])["validation"] for parent in population])
        return forward_selection(stacked, labels, min(PARENTS, len(population))).members

    def evaluate(config: dict[str, Any]) -> float:
        pool[len(pool)] = seed.predictions(config["architecture"])
        return 0.0

    search = RegularizedEvolution(
        SPACE, budget=count, population=POPULATION, parents=parents, seed=seed.seed, metric="x", mode="min"
    )
    drive(search, evaluate)
    return list(pool.values())


def measured(members: list[dict[str, np.ndarray]], labels: np.ndarray) -> dict[str, float]:
    """Returns MEASURES on the test images. auroc: of the largest probability, test images against outliers."""
    test = np.stack([member["test"] for member in members])
    values = measure_ensemble(test, labels)
    outliers = average(np.stack([member["outliers"] for member in members]))
    confidence = np.concatenate([average(test).max(axis=1), outliers.max(axis=1)])
    inside = np.repeat([1, 0], [len(labels), len(outliers)])
    return {**{name: values[name] for name in MEASURES[:-1]}, "auroc": float(roc_auc_score(inside, confidence))}


def run(seed: Seed) -> Seed:
    """Trains a seed's networks, and writes a row for each method and size."""
    torch.set_num_threads(1)
    seed.folder.mkdir(parents=True, exist_ok=True)
    labels = load_images(seed.settings(1).data).test.labels.numpy()
    rows = [
        {"method": name, "size": size, "seed": seed.seed, **measured(members, labels)}
        for name, size, members in ensembles(seed)
    ]
    with whole_file(seed.folder / "ensembles.csv") as stream:
        stream.write(pd.DataFrame(rows).to_csv(index=False).encode())
    return seed


def report(out: Path) -> None:
    """Prints means and standard deviations, and paired differences to NESBS with SVGD-RD; writes `ensembles.csv`."""
    rows = pd.concat([pd.read_csv(file) for file in sorted(out.glob("seed-*/ensembles.csv"))], ignore_index=True)
    rows[FRACTIONS] *= 100
    first = rows[rows["method"] == next(iter(SAMPLERS))].set_index(["size", "seed"])
    paired = rows.set_index(["size", "seed"])
    for name in MEASURES:
        rows[f"{name}_difference"] = (paired[name] - first[name].reindex(paired.index)).to_numpy()
    columns = [*MEASURES, *(f"{name}_difference" for name in MEASURES)]
    table = rows.groupby(["size", "method"], sort=False)[columns].agg(["mean", "std", "count"])
    table.columns = [f"{name}_{'n' if part == 'count' else part}" for name, part in table.columns]
    table.reset_index().to_csv(out / "ensembles.csv", index=False, float_format="%.4g")
    print(table.T.to_string(float_format="%.4f"))


class Trained:
    """A search space of `bensemble` that returns trained networks one after another."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        self._networks, self._rest = networks, iter(range(len(networks)))

    def sample(self) -> dict[str, int]:
        return {"number": next(self._rest)}

    def build(self, config: dict[str, int]) -> nn.Module:
        return self._networks[config["number"]]


class Stored(nn.Module):
    """A network whose logits are stored log-probabilities; its input are the numbers of images, (n,)."""

    def __init__(self, probabilities: np.ndarray) -> None:
        super().__init__()
        self.logits = torch.from_numpy(np.log(np.maximum(probabilities, 1e-30)))

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.logits[numbers]


def compared(seed: Seed) -> list[dict[str, Any]]:
    """Runs the searches of `bensemble` on the pool of NES-RS. Returns a row each, next to archray's selection."""
    from bensemble.search.bayesian import NESBayesianSampler  # an optional package
    from bensemble.search.nes import RandomSearcher

    data = load_images(seed.settings(1).data)
    labels, truth = data.validation.labels, data.test.labels.numpy()
    drawn = drive(
        RandomSearch(SPACE, budget=networks_of(max(SIZES), seed), seed=seed.seed, metric="x", mode="min"),
        lambda config: 0.0,
    )
    pool = [seed.predictions(cell) for cell in drawn["architecture"]]
    rows = []
    for size in SIZES:
        networks = [Stored(member["validation"]) for member in pool]

        options = {"train_fn": lambda model: None, "pool_size": len(pool), "ensemble_size": size}
        loader = [(torch.arange(len(labels)), labels)]
        torch.manual_seed(seed.seed)
        random.seed(seed.seed)
        results = {
            "bensemble NES-RS": RandomSearcher(Trained(networks), **options).search(loader),
            "bensemble NESBS, MC": NESBayesianSampler(Trained(networks), **options).sample_mc(loader),
            "bensemble NESBS, SVGD": NESBayesianSampler(Trained(networks), **options).sample_svgd(loader),
        }
        numbers = {id(network): number for number, network in enumerate(networks)}
        for name, ensemble in results.items():
            members = [pool[numbers[id(model)]] for model in ensemble.members.models]
            rows.append({"method": name, "size": size, "seed": seed.seed, **measured(members, truth)})
        selected = chosen(pool, labels.numpy(), size)
        rows.append(
            {"method": "archray NES-RS, same pool", "size": size, "seed": seed.seed, **measured(selected, truth)}
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "report", "bensemble"])
    parser.add_argument("--out", type=Path, required=True, help="folder of the networks; finished ones are reused")
    parser.add_argument("--data", default="cifar10", help="data set of images (default: %(default)s)")
    parser.add_argument("--outliers", default="", help="an .npz file, see above")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=8, help="of each member (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args(arguments)
    one = Seed(0, options.out, options.data, options.outliers, options.epochs)
    seeds = [replace(one, seed=seed) for seed in range(options.seeds)]
    if options.command == "report":
        report(options.out)
    elif options.command == "bensemble":
        table = pd.DataFrame([row for seed in seeds for row in compared(seed)])
        table[FRACTIONS] *= 100
        table = table.groupby(["size", "method"], sort=False)[list(MEASURES)].agg(["mean", "std", "count"])
        table.columns = [f"{name}_{'n' if part == 'count' else part}" for name, part in table.columns]
        table.reset_index().to_csv(options.out / "bensemble.csv", index=False, float_format="%.4g")
        print(table.T.to_string(float_format="%.4f"))
    else:
        with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
            for done in as_completed([pool.submit(run, seed) for seed in seeds]):
                print(f"seed {done.result().seed} done", flush=True)


if __name__ == "__main__":
    main()
