"""A supernet at several weights of the expected cost in its loss: the expected and the real cost of what it finds.

    python benchmarks/cost_weights.py [--method gaea-darts] [--weights 0 0.3 3] [--seeds 2] [--epochs 10]

NAS-Bench-201 without `none`, digits, 8 channels, one cell a stage; the method's own relaxation and optimizer, in this
process, without Ray. The cost is flops, counted; accuracies are of the validation data with shared weights.
"""

from __future__ import annotations

import argparse

import pandas as pd
import torch

from archray.platform.methods.configure import make_config
from archray.trainables.costs import NetworkCosts
from archray.trainables.costs.edge_costs import edge_costs
from archray.trainables.data import DataSettings, load_images
from archray.trainables.spaces import get_space
from archray.trainables.supernets import SupernetTrainer, build_mixing
from archray.trainables.supernets.cost_penalty import CostPenalty
from archray.trainables.supernets.cost_penalty_settings import CostPenaltySettings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", default="gaea-darts")
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.3, 3.0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    flags = {"epochs": options.epochs, "search_channels": 8, "channels": 8, "space": "nasbench201"}
    config = make_config(options.method, "smoke", None, flags)
    supernet_options, space = config.supernet, get_space("nasbench201")  # type: ignore[attr-defined]
    data = load_images(DataSettings(name="digits"))
    shape = {"in_channels": data.in_channels, "num_classes": data.num_classes}
    network = config.network  # type: ignore[attr-defined]
    costs = NetworkCosts(space, ("flops",), network=network, image_size=data.image_size, **shape)
    groups = supernet_options.groups(space)
    table = edge_costs(space, groups, lambda name: costs(name)["flops"])
    rows = []
    for weight in options.weights:
        for seed in range(options.seeds):
            supernet = supernet_options.build(space, seed=seed, **shape)
            mixing = build_mixing(supernet, supernet_options.relaxation, supernet_options.optimizer, seed=seed)
            penalty = CostPenalty(CostPenaltySettings(weight=weight), table, {g.name: g.shape for g in groups})
            trainer = SupernetTrainer(supernet, data, mixing, supernet_options.training, seed=seed, penalty=penalty)
            for _ in range(options.epochs):
                trainer.epoch()
            found = trainer.derive()
            assert found is not None  # a mixture of operations was learnt
            expected = float(table.expected(mixing.probabilities()))  # type: ignore[attr-defined]
            accuracy = trainer.score([found])[0].accuracy
            row = {"weight": weight, "seed": seed, "expected": expected, "real": costs(found)["flops"]}
            rows.append(row | {"shared accuracy": accuracy, "architecture": found})
            print(rows[-1], flush=True)
    frame = pd.DataFrame(rows)
    print(frame.groupby("weight")[["expected", "real", "shared accuracy"]].agg(["mean", "min", "max"]).to_string())


if __name__ == "__main__":
    main()
