"""Exponentiated against projected gradient on a stochastic linear objective over the simplex (note G2).

GAEA (Li et al. 2021, section 3.1) prefers exponentiated gradient for its rate: log(k) / eps^2 steps to eps on the
k-simplex, against k / eps^2 for projected gradient. These are worst-case rates, so the geometry matters in the
objective here: f(w) = <E[c], w>. The entries of every drawn c are +1 or -1. Their means are 0, except one: -gap. Every
c has the largest norm that its entries allow, sqrt(k).

Both methods start at the uniform point and step with `MirrorDescent`, at the rate that minimizes their bound on the
mean regret of T steps:

    entropy     eta = sqrt(2 log k / T)           bound sqrt(2 log k / T)
    euclidean   eta = sqrt((1 - 1/k) / (k T))     bound sqrt((1 - 1/k) k / T)

(log k and (1 - 1/k) / 2 bound the divergences of a vertex from the start; 1 and sqrt(k) the gradients in the dual
norms.) The table contains f - min f at the average of the iterates, to which the bounds apply, and at the last
iterate: mean and standard deviation over seeds. The rows `x m` give the projected gradient m times its rate, to show
the effect of a rate chosen in hindsight. The exit status is 1 if the entropy is not ahead at its average, at equal
steps and theoretical rates, for some (k, T).

    python benchmarks/exponentiated_gradient.py --operations 1000 --steps 100 1000 10000 --seeds 5
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from typing import Literal

import torch

from archray.trainables.supernets.optimizers import MirrorDescent

Geometry = Literal["entropy", "euclidean"]


def theory(dgf: Geometry, k: int, steps: int) -> tuple[float, float]:
    """Returns the rate that minimizes the bound on the mean regret of `steps` steps, and the bound."""
    if dgf == "entropy":
        return math.sqrt(2.0 * math.log(k) / steps), math.sqrt(2.0 * math.log(k) / steps)
    distance = 1.0 - 1.0 / k  # squared, from the uniform point to a vertex
    return math.sqrt(distance / (k * steps)), math.sqrt(distance * k / steps)


def gaps(dgf: Geometry, rate: float, k: int, steps: int, gap: float, seed: int) -> tuple[float, float]:
    """Returns f - min f at the average and at the last iterate. A seed draws the same costs for every method."""
    generator = torch.Generator().manual_seed(seed)
    best = int(torch.randint(k, (1,), generator=generator))
    plus = torch.full((k,), 0.5)
    plus[best] -= gap / 2.0
    weights = torch.full((k,), 1.0 / k, requires_grad=True)
    optimizer = MirrorDescent([weights], rate, dgf)
    mean = 0.0  # mean weight of the iterates on the best operation
    for _ in range(steps):
        mean += float(weights.detach()[best]) / steps
        weights.grad = torch.where(torch.rand(k, generator=generator) < plus, 1.0, -1.0)
        optimizer.step()
    return gap * (1.0 - mean), gap * (1.0 - float(weights.detach()[best]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, nargs="+", default=[1000], metavar="K")
    parser.add_argument("--steps", type=int, nargs="+", default=[100, 1000, 10000], metavar="T")
    parser.add_argument("--multiples", type=float, nargs="*", default=[0.1, 0.3, 3.0], metavar="M")
    parser.add_argument("--gap", type=float, default=0.3)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()

    print(f"gap {options.gap}, {options.seeds} seeds, torch {torch.__version__}\n")
    print("| k | T | method | rate | bound | f - min f, average iterate | last iterate |")
    print("|---|---|---|---|---|---|---|")
    behind = False
    for k in options.operations:
        for steps in options.steps:
            methods: list[tuple[Geometry, float]] = [("entropy", 1.0), ("euclidean", 1.0)]
            methods += [("euclidean", multiple) for multiple in options.multiples]
            averages = {}
            for dgf, multiple in methods:
                rate, bound = theory(dgf, k, steps)
                runs = [gaps(dgf, multiple * rate, k, steps, options.gap, seed) for seed in range(options.seeds)]
                average, last = ([run[i] for run in runs] for i in (0, 1))
                averages[dgf, multiple] = statistics.mean(average)
                name, shown = (dgf, f"{bound:.3f}") if multiple == 1.0 else (f"{dgf} x {multiple:g}", "")
                cells = [f"{statistics.mean(v):.4f} ± {statistics.pstdev(v):.4f}" for v in (average, last)]
                print(f"| {k} | {steps} | {name} | {multiple * rate:.2g} | {shown} | {' | '.join(cells)} |", flush=True)
            behind |= averages["entropy", 1.0] >= averages["euclidean", 1.0]
    return int(behind)


if __name__ == "__main__":
    sys.exit(main())
