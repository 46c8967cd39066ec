"""Speed of feature-map selection, with all comparisons in one run: `python benchmarks/feature_maps.py`.

Prints the seconds of four comparisons: the ridge solve against scikit-learn's on the same features, a shared solve
against a standalone solve, featurization by blocks against a loop over points, and a whole halving run against random
search. Inputs are random images with CIFAR-10's sizes. The timings take turns, and the smallest counts, because other
work on the machine disturbed it least. On a machine that is never idle, `--threads 1 --clock cpu` counts only the
seconds of this process.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from sklearn.linear_model import RidgeClassifier
from threadpoolctl import threadpool_limits

from archray.searchers import WeightSharingHalving
from archray.searchers.drive_searcher import drive
from archray.trainables.data import Dataset, Split
from archray.trainables.feature_maps.features import DenseFeatures, keep
from archray.trainables.feature_maps.fourier_features import FourierBases, FourierFeatures, row_scale
from archray.trainables.feature_maps.linear import signs
from archray.trainables.feature_maps.problems import FourierProblem, assign
from archray.trainables.feature_maps.ridge import LinearModel, solve_ridge
from archray.trainables.feature_maps.solve_settings import SolveSettings
from archray.trainables.spaces import get_space

GRAMS = ("float64", "float32", "int8")
STANDALONE = "kernel=gaussian|preprocess=normalize|gamma=0.5"  # typical accuracy on these inputs
LAM = 0.5
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
clock = time.perf_counter
NAIVE_POINTS = 1000  # points of the loop; its time is scaled to all points


def images_like_cifar(points: int, inputs: int, classes: int, seed: int) -> Split:
    """Draws random images: a class mean, 64 components with a power-law spectrum, and a little noise."""
    shapes = torch.Generator().manual_seed(0)  # the same for all splits
    means = 0.25 * torch.randn(classes, inputs, generator=shapes)
    components = torch.randn(64, inputs, generator=shapes) / torch.arange(1, 65)[:, None] ** 0.5
    draws = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (points,), generator=draws)
    images = means[labels] + 0.3 * torch.randn(points, 64, generator=draws) @ components
    images += 0.2 * torch.randn(points, inputs, generator=draws)
    side = round((inputs / 3) ** 0.5)
    return Split(images.view(points, 3, side, side), labels)


def alternating(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Returns the seconds of each function, in turns after one warm-up round."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for repeat in range(repeats + 1):
        for name, work in works.items():
            gc.collect()
            start = clock()
            work()
            if repeat:
                seconds[name].append(clock() - start)
    return seconds


def shown(seconds: Sequence[float]) -> str:
    return f"{min(seconds):7.2f}  (median {statistics.median(seconds):.2f}, most {max(seconds):.2f})"


def solves(problem: FourierProblem, dimension: int, repeats: int) -> None:
    """Compares archray's solve with scikit-learn's, on the same features of one map."""
    candidate = get_space("fourier").configuration(STANDALONE)  # type: ignore[attr-defined]
    bases = FourierBases(problem.inputs.shape[1], dimension, 0)

    def featurize(split: Split) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = split.images.flatten(1)
        features = FourierFeatures(
            inputs, [candidate], np.zeros(len(inputs), dtype=np.int64), bases, problem.statistics
        )
        return keep(features, 1000).matrix, split.labels

    matrix, labels = featurize(problem.data.train)
    held_out, _ = featurize(problem.data.validation)
    targets = signs(labels, problem.data.num_classes)
    double, numbers = matrix.double().numpy(), labels.numpy()
    models: dict[str, LinearModel] = {}
    reference = RidgeClassifier(alpha=LAM)
    single = RidgeClassifier(alpha=LAM)

    def ours(gram: str) -> None:
        solution = solve_ridge(DenseFeatures(matrix), targets, LAM, gram=gram)  # type: ignore[arg-type]
        models[gram] = solution.model

    seconds = alternating(
        {
            "scikit-learn float64": lambda: reference.fit(double, numbers),
            "scikit-learn float32": lambda: single.fit(matrix.numpy(), numbers),
            **{f"ours, gram={gram}": lambda gram=gram: ours(gram) for gram in GRAMS},  # type: ignore[misc]
        },
        repeats,
    )
    expected = reference.decision_function(held_out.double().numpy())
    print(
        f"\nridge solve, {len(matrix):,} x {dimension:,} features given; predictions on {len(held_out):,} other points"
    )
    print(f"{'':22}{'seconds, least':>34}  {'times':>6}  {'largest error':>14}  {'classes agree':>13}")
    base = min(seconds["scikit-learn float64"])
    for name, taken in seconds.items():
        if name.startswith("ours"):
            model = models[name.rpartition("=")[2]]
            decisions = (held_out.double() @ model.weights + model.intercept).numpy()
        else:
            fitted = single if name.endswith("32") else reference
            decisions = fitted.decision_function(held_out.numpy() if fitted is single else held_out.double().numpy())
        error = np.abs(decisions - expected).max() / np.abs(expected).max()
        agree = (decisions.argmax(1) == expected.argmax(1)).mean()
        print(f"{name:22}{shown(taken)}  {base / min(taken):6.2f}  {error:14.1e}  {agree:13.2%}")


def naive_features(problem: FourierProblem, candidates: list[dict], dimension: int) -> float:
    """Returns the seconds to featurize all training points one by one, each with its map, extrapolated from a part."""
    bases = FourierBases(problem.inputs.shape[1], dimension, 0)
    chosen = assign(NAIVE_POINTS, len(candidates), 0, "train")
    for kernel in ("gaussian", "laplace"):
        bases.draw((kernel,))
    start = clock()
    for point, number in enumerate(chosen):
        candidate = candidates[number]
        basis, offset = bases.draw((candidate["kernel"],))
        inputs = problem.statistics.preprocess(problem.inputs[point : point + 1], candidate["preprocess"])
        torch.cos(row_scale(candidate) * (inputs @ basis) + offset) * (2 / dimension) ** 0.5
    return (clock() - start) * len(problem.inputs) / NAIVE_POINTS


def shared_against_standalone(
    data: Dataset, candidates: list[dict], dimension: int, gram: str, repeats: int
) -> FourierProblem:
    """Compares a shared solve over all candidates with standalone solves, including all work of a trial."""
    problem = FourierProblem(data, SolveSettings(lam=LAM, gram=gram))  # type: ignore[arg-type]
    alone = [get_space("fourier").configuration(STANDALONE)]  # type: ignore[attr-defined]
    parts: dict[str, list[object]] = {"shared": [], "standalone": []}
    seconds = alternating(
        {
            "shared": lambda: parts["shared"].append(problem.solve(candidates, dimension, 0)),
            "standalone": lambda: parts["standalone"].append(problem.solve(alone, dimension, 0)),
        },
        repeats,
    )
    ratio = min(seconds["shared"]) / min(seconds["standalone"])
    for name, taken in seconds.items():
        last = parts[name][-1]
        split = ", ".join(f"{k[8:]} {getattr(last, k):.2f}" for k in vars(last) if k.startswith("seconds_"))
        print(f"gram={gram:8} {name:11}{shown(taken)}  last: {split}")
    print(f"gram={gram:8} shared / standalone {ratio:.2f}")
    return problem


def searches(problem: FourierProblem, names: list[str], solves_of_random: int, dimension: int) -> None:
    """Compares a halving run over all candidates with standalone solves of the first candidates."""
    space = get_space("fourier")

    def score(names: list[str], seed: int) -> list[float]:
        maps = [space.configuration(name) for name in names]  # type: ignore[attr-defined]
        return problem.solve(maps, dimension, seed).scores(problem.settings)

    calls: list[float] = []

    def evaluate(config: dict) -> dict:
        start = clock()
        scores = score(config["candidates"], config["seed"])
        calls.append(clock() - start)
        return {"scores": scores, "score": sum(scores) / len(scores), "weights": None}

    halving = WeightSharingHalving(names, budget=dimension, metric="score", mode="min", seed=0)
    start = clock()
    drive(halving, evaluate)
    halved = clock() - start
    start = clock()
    losses = [score([name], number)[0] for number, name in enumerate(names[:solves_of_random])]
    random = clock() - start
    best = halving.best()
    assert best is not None
    print(f"\nwhole searches with {dimension:,} features, gram={problem.settings.gram}")
    print(
        f"halving, {len(names)} candidates: {halved:7.1f} s, {len(calls)} solver calls "
        f"({', '.join(f'{call:.1f}' for call in calls)}); validation loss {best['value']:.3f}"
    )
    print(
        f"random search:           {random:7.1f} s, {solves_of_random} solver calls; validation loss {min(losses):.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--validation", type=int, default=10_000)
    parser.add_argument("--dimension", type=int, default=3_000)
    parser.add_argument("--inputs", type=int, default=3_072, help="3 x side x side")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--candidates", type=int, default=256)
    parser.add_argument("--random", type=int, default=32, help="solves of random search")
    parser.add_argument("--repeats", type=int, default=5, help="timings per comparison, in turns")
    parser.add_argument("--search-gram", choices=GRAMS, default="float64", help="Gram matrix of the whole searches")
    parser.add_argument("--threads", type=int, help="threads of BLAS and torch (default: number of CPUs)")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    options = parser.parse_args()
    global clock
    clock = CLOCKS[options.clock]
    if options.threads is not None:
        torch.set_num_threads(options.threads)
        threadpool_limits(options.threads, user_api="blas")
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, "
        f"torch {torch.__version__} with {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.2f}, "
        f"{options.clock} seconds"
    )
    train, validation = (
        images_like_cifar(points, options.inputs, options.classes, seed)
        for seed, points in enumerate((options.points, options.validation))
    )
    data = Dataset("random", train, validation, validation, options.classes, 3, train.images.shape[-1])
    space, rng = get_space("fourier"), np.random.default_rng(0)
    names = [space.encode(space.sample(rng)) for _ in range(options.candidates)]
    candidates = [space.configuration(name) for name in names]  # type: ignore[attr-defined]
    problem = FourierProblem(data, SolveSettings(lam=LAM))
    solves(problem, options.dimension, options.repeats)
    print(f"\nsolve over {options.candidates} maps against one map's, featurization and scoring included; seconds")
    for gram in GRAMS:
        made = shared_against_standalone(data, candidates, options.dimension, gram, options.repeats)
        if gram == options.search_gram:
            problem = made
    naive = naive_features(problem, candidates, options.dimension)
    print(f"featurizing point by point: {naive:.0f} s for all points (from {NAIVE_POINTS:,} of them)")
    searches(problem, names, options.random, options.dimension)


if __name__ == "__main__":
    main()
