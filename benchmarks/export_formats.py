"""Exported models against the networks themselves: `python benchmarks/export_formats.py` (needs the extra export).

Prints, for each space and an ensemble, the largest difference between the outputs of an export and of the network, by
format, and the sizes of the files. The inputs are random images, one at a time and seven at once. Networks have the
sizes of their papers (NAS-Bench-201: 16 channels, 5 cells per stage; DARTS: 16 channels, 8 cells; NAS-Bench-1Shot1: 16
channels, 3 cells per stack) for 32 x 32 images, with random weights and running statistics of random images.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from archray.platform.models.formats import onnx_prediction
from archray.platform.models.network_source import network_file
from archray.trainables.ensembles.ensemble import Ensemble
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.nets.exported_program import exported_program, onnx_graph
from archray.trainables.spaces import get_space

SHAPE = (3, 32, 32)
CLASSES = 10
NETWORKS = {
    "nasbench201": {"channels": 16, "cells": 5},
    "darts": {"channels": 16, "cells": 2},
    "darts-none": {"channels": 16, "cells": 2},
    "nasbench1shot1-1": {"channels": 16, "cells": 3},
    "nasbench1shot1-2": {"channels": 16, "cells": 3},
    "nasbench1shot1-3": {"channels": 16, "cells": 3},
    "vit": {"channels": 16, "cells": 1},
}


def network_of(space: str, seed: int) -> tuple[nn.Module, str]:
    """Returns a network in evaluation mode, with running statistics of images, and the text of its plain source."""
    architecture = get_space(space).encode(get_space(space).sample(np.random.default_rng(seed)))
    settings = NetworkSettings(**NETWORKS[space])
    network = build(space, architecture, network=settings, in_channels=SHAPE[0], num_classes=CLASSES, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _ in range(20):  # updates the running statistics
            network(torch.randn(32, *SHAPE, generator=generator))
    described = {"architecture": architecture, "network": NETWORKS[space], "in_channels": SHAPE[0]}
    return network.eval(), network_file("A network.", {**described, "num_classes": CLASSES}, space)


def compare(name: str, network: nn.Module, source: str | None) -> None:
    graph = onnx_graph(network, SHAPE)
    buffer = io.BytesIO()
    torch.export.save(exported_program(network, SHAPE), buffer)
    buffer.seek(0)
    models = {"onnx": onnx_prediction(graph), "torch-export": torch.export.load(buffer).module()}
    if source is not None:
        scope: dict[str, Callable[[], nn.Module]] = {"__name__": "network"}  # type: ignore[dict-item]
        exec(compile(source, "network.py", "exec"), scope)
        models["python"] = scope["build"]()
        models["python"].load_state_dict(network.state_dict())
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        worst = dict.fromkeys(models, 0.0)
        for n in (1, 7):
            images = torch.randn(n, *SHAPE, generator=generator)
            outputs = network(images)
            for format_name, model in models.items():
                worst[format_name] = max(worst[format_name], float((model(images) - outputs).abs().max()))
    cells = [
        f"{worst[format_key]:.1e}" if format_key in worst else "" for format_key in ("onnx", "torch-export", "python")
    ]
    sizes = [f"{len(graph) / 1e6:.2f}", f"{buffer.getbuffer().nbytes / 1e6:.2f}"]
    largest = f"{outputs.abs().max():.2g}"
    print("|", " | ".join([name, *cells, largest, *sizes]), "|", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spaces", nargs="*", default=list(NETWORKS))
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print("| | onnx | torch-export | python | largest output | onnx, MB | program, MB |")
    print("|---|---|---|---|---|---|---|")
    for space in arguments.spaces:
        network, source = network_of(space, 0)
        compare(space, network, source)
    members = [network_of("nasbench201", seed)[0] for seed in range(3)]
    compare("ensemble of three, nasbench201", Ensemble(members).eval(), None)


if __name__ == "__main__":
    main()
