"""A sliced supernet of vision transformers: its shared weights against standalone training runs, and many constraints.

    python benchmarks/sliced_supernet.py --out sliced.json --epochs 30

The script trains one supernet by the sandwich rule, and 12 architectures alone with the same settings. Then it searches
under ten constraints on FLOPs with the supernet's weights. The baselines are the largest feasible architecture and
random feasible ones. Times are processor times of one thread, which do not depend on other work on the machine.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

from archray.searchers import RegularizedEvolution, drive
from archray.trainables.costs import NetworkCosts, Violation
from archray.trainables.data import DataSettings, load_images
from archray.trainables.nets import NetworkSettings, build, count_parameters
from archray.trainables.spaces import ConstrainedSpace, get_space
from archray.trainables.spaces.constrained_space import parse_constraints
from archray.trainables.supernets.elastic import SandwichTrainer, build_sliced, score_slices
from archray.trainables.supernets.settings import SandwichSettings
from archray.trainables.training import Trainer
from archray.trainables.training_settings import TrainingSettings

CONSTRAINTS = 10
SAMPLE = 40  # feasible random architectures, from which the largest is taken
ALONE = (2, 7)  # constraints, counted from 0, whose found architecture is trained alone


class Study:
    """One supernet and its measurements; written after every part."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.space = options, get_space("vit")
        self.network = NetworkSettings(channels=options.channels, cells=1)
        self.data = load_images(
            DataSettings(name=options.data, limit=options.limit), device=torch.device(options.device)
        )
        self.shape = {"in_channels": self.data.in_channels, "num_classes": self.data.num_classes}
        costs = NetworkCosts(self.space, ["flops"], network=self.network, image_size=self.data.image_size, **self.shape)
        self.costs = costs
        self.result: dict[str, Any] = {"options": vars(options), "images": len(self.data.train)}

    def write(self, **more: Any) -> None:
        self.result |= more
        Path(self.options.out).write_text(json.dumps(self.result, indent=1))

    def train(self) -> None:
        """Trains the supernet. Records seconds of training, and accuracies of the extremes."""
        settings = SandwichSettings(epochs=self.options.epochs, batch_size=self.options.batch_size)
        supernet = build_sliced(self.space, self.network, seed=self.options.seed, **self.shape)
        self.trainer = SandwichTrainer(supernet, self.data, settings, seed=self.options.seed)
        start = time.process_time()
        while not self.trainer.finished:
            self.trainer.epoch()
        seconds = time.process_time() - start
        smallest, largest = self.trainer.score([self.trainer.smallest, self.trainer.largest])
        self.write(
            supernet={
                "seconds": seconds,
                "parameters": count_parameters(supernet),
                "smallest": smallest.accuracy,
                "largest": largest.accuracy,
            }
        )
        print(f"supernet: {seconds:.0f} s, {smallest.accuracy:.3f} to {largest.accuracy:.3f}", flush=True)

    def alone(self, architecture: str, seed: int = 1) -> dict[str, float]:
        """Trains an architecture alone with the supernet's settings. Returns both accuracies, and the seconds."""
        network = build(self.space, architecture, network=self.network, seed=seed, **self.shape)
        settings = TrainingSettings(
            epochs=self.options.epochs, batch_size=self.options.batch_size, lr=0.1, grad_clip=1.0
        )
        trainer = Trainer(network, self.data, settings, seed=seed)
        start = time.process_time()
        while not trainer.finished:
            trainer.epoch()
        seconds = time.process_time() - start
        validation, test = trainer.evaluate(self.data.validation), trainer.evaluate(self.data.test)
        return {"validation": validation.accuracy, "test": test.accuracy, "seconds": seconds}

    def shared(self, architecture: str) -> dict[str, float]:
        """Returns validation and test accuracy with the shared weights."""
        choices, supernet = [self.space.decode(architecture)], self.trainer.supernet
        [validation] = score_slices(supernet, choices, self.data.validation, 512)
        [test] = score_slices(supernet, choices, self.data.test, 512)
        return {"validation": validation.accuracy, "test": test.accuracy}

    def agreement(self) -> None:
        """Compares shared and standalone accuracy of the extremes and ten random architectures."""
        rng = np.random.default_rng(self.options.seed)
        chosen = [self.trainer.smallest, self.trainer.largest, *(self.space.sample(rng) for _ in range(10))]
        rows = []
        for choices in chosen:
            name = self.space.encode(self.space.canonical(choices))
            rows.append({"architecture": name, "flops": self.costs(name)["flops"], "shared": self.shared(name)})
            rows[-1]["alone"] = self.alone(name)
            print(f"{rows[-1]['flops']:.3g} {rows[-1]['shared']} {rows[-1]['alone']}", flush=True)
            self.write(subnetworks=rows)
        shared = [row["shared"]["validation"] for row in rows]
        alone = [row["alone"]["validation"] for row in rows]
        flops = [row["flops"] for row in rows]
        self.write(
            agreement={
                "rho": float(spearmanr(shared, alone)[0]),
                "rho_flops_alone": float(spearmanr(flops, alone)[0]),
                "gap": float(np.mean(np.subtract(alone, shared))),
                "seconds_alone": float(np.mean([row["alone"]["seconds"] for row in rows])),
            }
        )
        print(self.result["agreement"], flush=True)

    def constrained(self) -> None:
        """Searches by evolution on the shared weights under ten constraints on FLOPs."""
        ends = [self.costs(choices)["flops"] for choices in (self.trainer.smallest, self.trainer.largest)]
        bounds = np.geomspace(ends[0] * 1.3, ends[1] * 0.8, CONSTRAINTS)
        rows = []
        for number, bound in enumerate(bounds):
            constraints = parse_constraints([f"flops <= {bound:.0f}"])
            space = ConstrainedSpace(self.space, Violation(constraints, self.costs), f"flops <= {bound:.0f}")
            start = time.process_time()
            searcher = RegularizedEvolution(
                space, self.options.budget, population=self.options.budget // 4, sample_size=10, seed=number
            )
            evaluations = drive(
                searcher, lambda config: self._validation(config["architecture"]), metric="value", mode="max"
            )
            seconds = time.process_time() - start
            best = str(evaluations["architecture"][evaluations["value"].argmax()])
            rng = np.random.default_rng(number)
            drawn = [self.space.encode(self.space.canonical(space.sample(rng))) for _ in range(SAMPLE)]
            largest = max(drawn, key=lambda name: self.costs(name)["flops"])
            row: dict[str, Any] = {"bound": bound, "seconds": seconds}
            for key, name in (("found", best), ("largest", largest)):
                row[key] = {"architecture": name, "flops": self.costs(name)["flops"], **self.shared(name)}
            tests = [self.shared(name) for name in drawn[:10]]
            row["random"] = {key: float(np.mean([test[key] for test in tests])) for key in ("validation", "test")}
            rows.append(row)
            print(json.dumps(row), flush=True)
            self.write(constraints=rows)
        for number in ALONE:
            for key in ("found", "largest"):
                rows[number][key]["alone"] = self.alone(rows[number][key]["architecture"], seed=2)
            rng = np.random.default_rng(100 + number)
            constraints = parse_constraints([f"flops <= {rows[number]['bound']:.0f}"])
            space = ConstrainedSpace(self.space, Violation(constraints, self.costs), "")
            some = [self.space.encode(space.sample(rng)) for _ in range(1)]
            rows[number]["random"]["alone"] = [self.alone(name, seed=2) for name in some]
            print(json.dumps(rows[number]), flush=True)
            self.write(constraints=rows)

    def _validation(self, architecture: str) -> float:
        [metrics] = self.trainer.score([self.space.decode(architecture)])
        return metrics.accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="sliced_supernet.json")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--limit", type=int, help="maximum number of training images")
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--budget", type=int, default=60, help="evaluations of a search")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    torch.set_num_threads(1)
    study = Study(parser.parse_args())
    study.train()
    study.constrained()
    study.agreement()


if __name__ == "__main__":
    main()
