"""Theorem 3.1 of Khodak et al. 2020 over seeds: measured gaps of feature-map selection compared with its bounds.

Each seed splits digits into training, validation and test points, draws candidates and a basis, solves for every
candidate alone, and selects the smallest validation error. This solves the bilevel problem exactly. The comparison is
halving with shared weights on the same candidates and the same loss, followed by a standalone solve for its winner:

    python benchmarks/selection_costs.py --seeds 40 --candidates 64 --dimension 200
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from archray.platform.methods.feature_maps.tables import gap_bound, hoeffding_bound, selection_bound
from archray.searchers import WeightSharingHalving, drive
from archray.trainables.data import DataSettings, load_images
from archray.trainables.feature_maps.problems import FourierProblem
from archray.trainables.feature_maps.solve_settings import SolveSettings
from archray.trainables.spaces import get_space


def one_seed(seed: int, candidates: int, dimension: int, limit: int | None) -> list[dict[str, float]]:
    """Returns rows of 0-1 loss: the least validation error of the first 1, 4, 16, ... candidates, and halving."""
    space, rng = get_space("fourier"), np.random.default_rng(seed)
    names = list(dict.fromkeys(space.encode(space.canonical(space.sample(rng))) for _ in range(candidates)))
    data = load_images(DataSettings(name="digits", seed=seed, limit=limit))
    problem = FourierProblem(data, SolveSettings(score="accuracy"))
    solves = [problem.solve([space.configuration(name)], dimension, seed) for name in names]
    validation = np.array([1 - solved.accuracies[0] for solved in solves])
    test = np.array([1 - problem.test(solved, 0).accuracy for solved in solves])
    points = len(data.validation)

    def row(rule: str, size: int, best: int) -> dict[str, float]:
        entropy = math.log(size)
        bounds = {"bound": gap_bound(1, points, entropy), "Hoeffding": hoeffding_bound(1, points, entropy)}
        bounds["Theorem 3.1"] = selection_bound(1, points, entropy)
        gaps = {"gap": test[best] - validation[best], "excess": test[best] - test[:size].min()}
        return {"rule": rule, "|C|": size, "|V|": points, **gaps, **bounds}  # type: ignore[dict-item]

    rows = []
    for size in (size for size in (1, 4, 16, 64, 256) if size <= len(names)):
        rows.append(row("least validation error", size, int(validation[:size].argmin())))

    def solve(config: dict[str, object]) -> dict[str, object]:
        maps = [space.configuration(name) for name in config["candidates"]]  # type: ignore[attr-defined]
        solved = problem.solve(maps, dimension, seed)
        return {"scores": solved.scores(problem.settings), "score": float(np.mean(solved.accuracies))}

    search = WeightSharingHalving(names, budget=dimension, metric="score", mode="max", seed=seed)
    drive(search, solve)
    winner = search.best()
    assert winner is not None
    rows.append(row("halving", len(names), names.index(winner["candidate"])))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--candidates", type=int, default=64)
    parser.add_argument("--dimension", type=int, default=200)
    parser.add_argument("--limit", type=int, help="maximum number of points per part (default: all)")
    options = parser.parse_args(arguments)
    rows = [
        row
        for seed in range(options.seeds)
        for row in one_seed(seed, options.candidates, options.dimension, options.limit)
    ]
    frame = pd.DataFrame(rows)
    table = frame.groupby(["rule", "|C|"], sort=True).agg(
        points=("|V|", "mean"),
        gap=("gap", "mean"),
        largest=("gap", "max"),
        bound=("bound", "mean"),
        Hoeffding=("Hoeffding", "mean"),
        excess=("excess", "mean"),
        largest_excess=("excess", "max"),
        theorem=("Theorem 3.1", "mean"),
    )
    broken = frame.assign(
        gap_broken=frame["gap"] > frame["bound"],
        hoeffding_broken=frame["gap"] > frame["Hoeffding"],
        excess_broken=frame["excess"] > frame["Theorem 3.1"],
    ).groupby(["rule", "|C|"])[["gap_broken", "hoeffding_broken", "excess_broken"]]
    print(f"percent, over {options.seeds} seeds; the last three: how often a bound was broken")
    shown = 100 * table.drop(columns="points")
    print(pd.concat([table[["points"]], shown, broken.sum()], axis=1).to_string(float_format=lambda v: f"{v:.2f}"))


if __name__ == "__main__":
    main()
