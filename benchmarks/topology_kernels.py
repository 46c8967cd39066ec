"""Theorem 7.4 and Table 7.2 of Shu 2022: kappa and M_Trace of wide and deep linear architectures, and of named cells.

Linear (float64, orthonormal inputs): whether the deep kernel's mean is L n^L, in standard errors, and kappa, M and
kappa/M compared with the wide architecture, with weights of variance 1 as in the theorem and of variance 1/n:

    python benchmarks/topology_kernels.py linear --draws 20000

Cells: mean and standard deviation over initializations on one batch of Gaussian images. `wide NAME` and `deep NAME`
have the operations of the cell NAME with other connections. The networks have 5 cells per stage, 17 in total:

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
from archray.trainables.spaces import Architecture, get_space
from archray.trainables.spaces.genotypes import CellEdges, Genotype, GenotypeSpace, cell_shape, widest

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
ADAPTED = (("darts", "darts-v2"), ("darts", "gaea-pc-darts"))  # cells with a wide and a deep form


def linear_table(draws: int, seed: int) -> pd.DataFrame:
    """Returns a row per n, L, m and variance. deviation: largest of the mean kernel's entries, in standard errors."""
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


def genotype_space(name: str) -> GenotypeSpace:
    """Returns the space `name`, whose cells have connections."""
    space = get_space(name)
    assert isinstance(space, GenotypeSpace)
    return space


def deepest(space: GenotypeSpace, architecture: Architecture) -> Architecture:
    """Returns the deepest cell with these operations: every node reads the two nodes before it (Shu 2022, Table 7.2).

    A node's operation on the lower source reads the earlier node. With DARTS' four nodes: width 1.5 and depth 5.
    """

    def adapt(edges: CellEdges) -> CellEdges:
        return tuple((operation, number // 2 + number % 2) for number, (operation, _) in enumerate(edges))

    normal, reduce = space.genotype(architecture)
    return space.architecture(Genotype(adapt(normal), adapt(reduce)))


def cells_table(seeds: int, channels: int, cells: int, batch: int, image_size: int) -> pd.DataFrame:
    """Returns a row per architecture: width and depth of its normal cell over the largest, M_Trace, kappa, kappa/M."""
    chosen = [(name, space, get_space(space).named[name]) for space, name in NAMED]
    for space, name in ADAPTED:
        genotypes = genotype_space(space)
        cell = genotypes.decode(genotypes.named[name])
        chosen += [(f"wide {name}", space, genotypes.encode(widest(genotypes, cell)))]
        chosen += [(f"deep {name}", space, genotypes.encode(deepest(genotypes, cell)))]
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch, 3, image_size, image_size, generator=generator)
    labels = torch.randint(10, (batch,), generator=generator)
    network = NetworkSettings(channels=channels, cells=cells)
    rows = []
    for name, space, text in chosen:
        genotypes = genotype_space(space)
        architecture = genotypes.decode(text)
        normal = genotypes.genotype(architecture).normal
        shape, nodes = cell_shape(normal), len(normal) // 2
        values = []
        for seed in range(seeds):
            net = build(
                genotypes, architecture, network=network, in_channels=3, num_classes=10, seed=seed, for_scoring=True
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
    parser.add_argument("--seeds", type=int, default=5, help="initializations of a cell's network, at least two")
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--cells", type=int, default=5, help="normal cells per stage, N; a network has 3 N + 2 cells")
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
