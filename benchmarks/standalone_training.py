"""Standalone training on a CPU: against a plain PyTorch loop, and the accuracy with bfloat16.

    python benchmarks/standalone_training.py speed --data arrays:cifar10.npz
    python benchmarks/standalone_training.py spaces --data arrays:cifar10-16.npz
    python benchmarks/standalone_training.py accuracy --data arrays:cifar10-16.npz --seeds 5

`speed` trains the networks of the largest and of a mixed cell of NAS-Bench-201 at two sizes (channels, cells per
stage) with one thread. It prints images per second of CPU time and the ratio to the plain loop: the same network,
images as a float tensor, one random crop and flip per batch, SGD. All variants alternate in one process. `spaces`
prints how many times as fast bfloat16 is as float32 for random networks of each space. `accuracy` prints the test
accuracy of each cell and seed after `--epochs`, in float32 and in bfloat16.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.nn import functional

from archray.trainables.nets import NetworkSettings, build
from archray.trainables.spaces import get_space
from archray.trainables.training import Trainer
from archray.trainables.tune.standalone_trainable import StandaloneSettings, build_trainer

LARGEST = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|"
MIXED = "|skip_connect~0|+|nor_conv_1x1~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_3x3~1|none~2|"
SIZES = ((16, 5), (8, 1))  # channels, cells per stage
VARIANTS: dict[str, dict[str, Any]] = {
    "archray": {},
    "archray, default layout of torch": {"channels_last": False},
    "archray, bfloat16": {"amp": True},
}
BATCH = 64
# Options of `spaces`: space, options of the network, number of images.
SPACES: tuple[tuple[str, dict[str, int], int], ...] = (
    ("nasbench201", {"channels": 4, "cells": 1}, 400),
    ("nasbench201", {"channels": 16, "cells": 1}, 400),
    ("nasbench1shot1-1", {"channels": 16, "cells": 1}, 256),
    ("darts", {"channels": 8, "cells": 3}, 128),
    ("darts", {"channels": 16, "cells": 5}, 64),
    ("vit", {}, 256),
)


def trainer_of(
    options: argparse.Namespace, cell: str, size: tuple[int, int], images: int, seed: int = 0, **training: Any
) -> Trainer:
    settings = StandaloneSettings.model_validate(
        {
            "data": {"name": options.data, "limit": images, "flip": True},
            "network": {"channels": size[0], "cells": size[1]},
            "training": {"batch_size": BATCH, "threads": 1, **training},
        }
    )
    return build_trainer(settings, cell, seed=seed, device=torch.device("cpu"))[0]


def plain_loop(trainer: Trainer, cell: str, size: tuple[int, int]) -> Callable[[], None]:
    """Returns a plain epoch over the same images."""
    data = trainer.dataset
    shape = {"in_channels": data.in_channels, "num_classes": data.num_classes}
    network = build("nasbench201", cell, network=NetworkSettings(channels=size[0], cells=size[1]), seed=0, **shape)
    images, labels = data.train.batch(torch.arange(len(data.train))), data.train.labels
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def epoch() -> None:
        for indices in torch.randperm(len(images)).split(BATCH):
            x = functional.pad(images[indices], (4, 4, 4, 4))
            top, left = torch.randint(9, (2,)).tolist()
            x = x[..., top : top + images.shape[-2], left : left + images.shape[-1]]
            x = x.flip(-1) if torch.rand(()) < 0.5 else x
            optimizer.zero_grad()
            functional.cross_entropy(network(x), labels[indices]).backward()
            optimizer.step()

    return epoch


def speed(options: argparse.Namespace) -> pd.DataFrame:
    rows = []
    for size in SIZES:
        images = options.images // (20 if size == SIZES[0] else 1)
        for cell in (LARGEST, MIXED):
            trainers = {
                name: trainer_of(options, cell, size, images, epochs=options.repeats + 1, **training)
                for name, training in VARIANTS.items()
            }
            epochs: dict[str, Callable[[], Any]] = {"plain loop": plain_loop(trainers["archray"], cell, size)}
            epochs |= {name: trainer.epoch for name, trainer in trainers.items()}
            seconds: dict[str, list[float]] = {name: [] for name in epochs}
            for _ in range(options.repeats + 1):
                for name, epoch in epochs.items():
                    start = time.process_time()
                    epoch()
                    seconds[name].append(time.process_time() - start)
            count = len(trainers["archray"].dataset.train)
            for name, spent in seconds.items():
                rate = count / np.median(spent[1:])  # the first epoch warms up
                ratio = np.median(seconds["plain loop"][1:]) / np.median(spent[1:])
                kind = "largest" if cell == LARGEST else "mixed"
                rows.append((f"({size[0]}, {size[1]})", kind, name, rate, ratio))
    return pd.DataFrame(rows, columns=["size", "cell", "variant", "images_per_s", "ratio"])


def spaces(options: argparse.Namespace) -> pd.DataFrame:
    rng, rows = np.random.default_rng(0), []
    for name, network, images in SPACES:
        space = get_space(name)
        for number in range(options.cells):
            architecture = space.encode(space.sample(rng))
            data = {"name": options.data, "limit": images, "flip": True}
            training = {"batch_size": BATCH, "threads": 1, "epochs": options.repeats + 1}
            trainers = {}
            for amp in (False, True):
                values = {"space": name, "data": data, "network": network, "training": {**training, "amp": amp}}
                settings = StandaloneSettings.model_validate(values)
                trainers[amp] = build_trainer(settings, architecture, seed=0, device=torch.device("cpu"))[0]
            seconds: dict[bool, list[float]] = {amp: [] for amp in trainers}
            for _ in range(options.repeats + 1):
                for amp, trainer in trainers.items():
                    start = time.process_time()
                    trainer.epoch()
                    seconds[amp].append(time.process_time() - start)
            ratio = np.median(seconds[False][1:]) / np.median(seconds[True][1:])  # the first epoch warms up
            size = f"({network['channels']}, {network['cells']})" if network else "default"
            rows.append((name, size, number, ratio))
    table = pd.DataFrame(rows, columns=["space", "size", "network", "ratio"])
    grouped = table.groupby(["space", "size"], sort=False)["ratio"].agg(["mean", "min", "max", "count"])
    return grouped.rename(columns={"count": "n"}).add_prefix("ratio_").reset_index()


def accuracy(options: argparse.Namespace) -> pd.DataFrame:
    space, rng = get_space("nasbench201"), np.random.default_rng(0)
    cells = [LARGEST, MIXED, *(space.encode(space.sample(rng)) for _ in range(options.cells - 2))]
    rows = []
    for cell in cells:
        for seed in range(options.seeds):
            row: dict[str, Any] = {"architecture": cell, "seed": seed}
            for name, amp in (("float32", False), ("bfloat16", True)):
                trainer = trainer_of(options, cell, SIZES[1], options.images, seed, epochs=options.epochs, amp=amp)
                while not trainer.finished:
                    trainer.epoch()
                row[name] = 100 * trainer.evaluate(trainer.dataset.test).accuracy
            rows.append(row)
            print(row, flush=True)
    table = pd.DataFrame(rows)
    difference = table["bfloat16"] - table["float32"]
    print(f"# difference {difference.mean():.3f}, standard deviation {difference.std():.3f}, n {len(difference)}")
    return table


COMMANDS = {"speed": speed, "spaces": spaces, "accuracy": accuracy}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=list(COMMANDS))
    parser.add_argument("--data", default="cifar10", help="data set of images (default: %(default)s)")
    parser.add_argument("--images", type=int, default=8000, help="training images; a twentieth at (16, 5) for speed")
    parser.add_argument("--repeats", type=int, default=3, help="measured epochs of speed and spaces")
    parser.add_argument("--cells", type=int, default=3, help="networks of spaces and accuracy")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(COMMANDS[options.command](options).to_csv(index=False, float_format="%.4g"), end="")


if __name__ == "__main__":
    main()
