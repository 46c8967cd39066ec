"""The upper problem of a bilevel search by an eigenvector, against gradient ascent on the same objective (note U7).

The script has two forms. Low rank: y = alpha*^T X w* + noise, X (h, p) standard normal. Multiple kernels: h kernels of
Gaussian features. It computes the spectral solution, and gradient ascent on the sphere with Barzilai and Borwein's
steps, from a random point until the gradient along the sphere is below 1e-9 of the whole. Ascent passes through all
validation points at every step, as a bilevel search does. Both solve the same problem on the same data. The table
contains, per size, medians of seconds in turns, their ratio, ascent's steps, and the largest difference of the
solutions. The exit status is 1 if a solution differs by more than 1e-6 of its largest weight.

    OMP_NUM_THREADS=1 python benchmarks/spectral_upper_problem.py --parameters 8 32 --points 100 1000 --repeats 5
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import torch

from archray.trainables.validation_split.spectral import KernelAlignment, RankOneAlignment

SAME = 1e-6
STEPS = 5000


def problems(
    h: int, points: int, features: int, train: int, noise: float, seed: int
) -> dict[str, RankOneAlignment | KernelAlignment]:
    """Returns the problems of both forms, on the same points."""
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    alpha, w = (torch.nn.functional.normalize(normal(n), dim=0) for n in (h, features))
    x, held_out = normal(h, train, features), normal(h, points, features)
    labels = [(torch.tensordot(alpha, one, 1) @ w + noise * normal(one.shape[1]))[:, None] for one in (x, held_out)]
    return {
        "low rank": RankOneAlignment(x, labels[0], held_out, labels[1], torch.eye(h, dtype=torch.float64)),
        "kernels": KernelAlignment(held_out @ x.mT, *labels),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=int, nargs="+", default=[8, 32], metavar="H")
    parser.add_argument("--points", type=int, nargs="+", default=[100, 1000], metavar="N")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--train", type=int, default=60)
    parser.add_argument("--noise", type=float, default=0.3)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    print(f"{options.features} features, {options.train} training points, torch {torch.__version__}\n")
    print("| form | h | validation points | eigenvector, ms | ascent, ms | ratio | steps | largest difference |")
    print("|---|---|---|---|---|---|---|---|")
    same = True
    for h in options.parameters:
        for points in options.points:
            rows: dict[str, list[tuple[float, float, int, float]]] = {}
            for seed in range(options.repeats):
                of_seed = problems(h, points, options.features, options.train, options.noise, seed)
                for form, problem in of_seed.items():
                    start = torch.randn(h, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
                    start_time = time.perf_counter()
                    spectral = problem.spectral()
                    between = time.perf_counter()
                    limit, ascent = problem.ascent(start, STEPS)
                    seconds = between - start_time, time.perf_counter() - between
                    difference = float((spectral - limit).abs().max() / spectral.abs().max())
                    rows.setdefault(form, []).append((*seconds, ascent.steps, difference))
            for form, values in rows.items():
                fast, slow, steps = (statistics.median(column) for column in list(zip(*values, strict=True))[:3])
                ratio = statistics.median(value[1] / value[0] for value in values)
                difference = max(value[3] for value in values)
                same &= difference <= SAME
                print(
                    f"| {form} | {h} | {points} | {1e3 * fast:.2f} | {1e3 * slow:.2f} | {ratio:.1f} | {steps:g} | "
                    f"{difference:.1e} |"
                )
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
