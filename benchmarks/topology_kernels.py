"""Theorem 7.4 and Table 7.2 of Shu 2022: kappa and M_Trace of wide and deep linear architectures, and of named cells.

Linear (float64, orthonormal inputs): whether the deep kernel's mean is L n^L, in standard errors, and what kappa, M and
kappa/M are beside the wide one's, with weights of variance 1 as in the theorem and of variance 1/n:

    python benchmarks/topology_kernels.py linear --draws 20000

Cells: mean and standard deviation over initialisations on one batch of Gaussian images; `wide` and `deep` have the
operations of the cell that is named after them, and other connections:

    python benchmarks/topology_kernels.py cells --seeds 5 --channels 8 --cells 5
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from linear_ntk import deep_kernels, expected_scale

from archray.trainables.nets import NetworkSettings, build
from archray.trainables.proxies import ProxySettings, score
from archray.trainables.spaces import get_space
from archray.trainables.spaces.cell_variants import deepest, genotype_space, widest
from archray.trainables.spaces.genotypes import cell_shape

SIZES = ((8, 2, 4), (8, 3, 8), (16, 3, 8), (16, 4, 8), (64, 3, 8))  # n, L, m
NAMED = (
    ("nasnet", "nasnet"),
    ("nasnet", "amoebanet"),
    ("nasnet", "enas"),
    ("darts", "darts-v1"),
    ("darts", "darts-v2"),
    ("darts", "snas-mild"),
    ("darts", "gaea-pc-darts"),
)
ADAPTED = (("darts", "darts-v2"), ("darts", "gaea-pc-darts"))  # of which there are a wide and a deep form


def linear_table(draws: int, seed: int) -> pd.DataFrame:
    """A row per n, L, m and variance. deviation: the largest of the mean kernel's entries, in standard errors."""
    rows = []
    for width, layers, points in SIZES:
        for variance in (1.0, 1 / width):
            deep = deep_kernels(width, layers, points, draws, variance=variance, seed=seed)
            expected = expected_scale(width, layers, variance)
            wide = math.sqrt(layers * width)
            quotient = deep.kappa / deep.trace
            rows.append(
                {
                    "n": width,
                    "L": layers,
                    "m": points,
                    "variance": variance,
                    "mean / (L n^L s^(L-1))": float(deep.mean.diagonal().mean()) / expected,
                    "deviation": float(deep.deviations(expected).abs().max()),
                    "kappa min": float(deep.kappa.min()),
                    "kappa median": float(deep.kappa.median()),
                    "M deep": float(deep.trace.median()),
                    "M wide": wide,
                    "kappa/M deep": float(quotient.median()),
                    "kappa/M wide": 1 / wide,
                    "deep below wide": float((quotient < 1 / wide).double().mean()),
                }
            )
    return pd.DataFrame(rows)


def cells_table(seeds: int, channels: int, cells: int, batch: int, image_size: int) -> pd.DataFrame:
    """A row per architecture: width and depth of its normal cell over the largest, M_Trace, kappa, kappa/M."""
    chosen = [(name, space, get_space(space).named[name]) for space, name in NAMED]
    for space, name in ADAPTED:
        found = genotype_space(get_space(space))
        own = found.decode(found.named[name])
        chosen += [(f"wide {name}", space, found.encode(widest(found, own)))]
        chosen += [(f"deep {name}", space, found.encode(deepest(found, own)))]
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch, 3, image_size, image_size, generator=generator)
    labels = torch.randint(10, (batch,), generator=generator)
    network = NetworkSettings(channels=channels, cells=cells)
    rows = []
    for name, space, text in chosen:
        found = genotype_space(get_space(space))
        architecture = found.decode(text)
        normal = found.genotype(architecture).normal
        shape, nodes = cell_shape(normal), len(normal) // 2
        values = []
        for seed in range(seeds):
            net = build(
                found, architecture, network=network, in_channels=3, num_classes=10, seed=seed, for_scoring=True
            )
            scores = score(net, images, labels, ("ntk_trace", "kappa"), ProxySettings())
            values.append([scores["ntk_trace"].value, scores["kappa"].value])
        trace, kappa = np.array(values).T
        size = sum(parameter.numel() for parameter in net.parameters())
        rows.append(
            {
                "cell": name,
                "width": f"{shape.width:g}/{nodes}",
                "depth": f"{shape.depth}/{nodes + 1}",
                **{
                    label: f"{column.mean():.3g} ± {column.std(ddof=1):.2g}"
                    for label, column in (("M_Trace", trace), ("kappa", kappa), ("kappa/M", kappa / trace))
                },
                "parameters": size,
            }
        )
        print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("linear", "cells"))
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=5, help="initialisations of a cell's network, two or more")
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--cells", type=int, default=5, help="cells of a network, two of them reduction cells")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--image-size", type=int, default=16)
    options = parser.parse_args(arguments)
    if options.what == "linear":
        table = linear_table(options.draws, seed=0)
    else:
        table = cells_table(options.seeds, options.channels, options.cells, options.batch, options.image_size)
    print(table.to_string(index=False, float_format=lambda value: f"{value:.3g}"))


if __name__ == "__main__":
    main()
