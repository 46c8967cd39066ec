"""SVGD-RD in the DARTS space: seconds of one core per ensemble, against a loop over particles.

    python benchmarks/nesbs.py
    python benchmarks/nesbs.py --particles 3 10 --restarts 1 8 --iterations 1000 --repeats 5

The posterior is drawn: standard normal logits for every decision of note E6. `archray` is what `NESBSSearch` runs for
one suggestion: first particles, Algorithm 5.3, decoding. `loop` computes the same iterations a pair of particles at a
time; it is timed on a twentieth of them, and its particles must agree with archray's to 1e-8 there. Seconds are CPU
time of this process with one thread, the median of the repeats, both in turns. The exit status is 1 if they disagree.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from archray.searchers.ensemble_sampling import SVGDSettings, evolve
from archray.searchers.posterior import Posterior, posterior_decisions
from archray.searchers.relaxed_posterior import first_particles, relaxed_log_density_gradient
from archray.searchers.svgd_rd import MOMENTUM, STEP, FloatArray, svgd_rd
from archray.trainables.spaces import get_space

SHARE = 20  # of the iterations, one in so many is run by the loop


def darts_posterior(seed: int) -> Posterior:
    """Standard normal logits for every decision."""
    rng = np.random.default_rng(seed)
    decisions = posterior_decisions(get_space("darts"))
    return Posterior({d.name: rng.standard_normal(len(d.choices)) for d in decisions}, "darts")


def loop(particles: FloatArray, posterior: Posterior, delta: float, iterations: int) -> FloatArray:
    """Algorithm 5.3 as it is written. (n, B, C) -> (n, B, C)."""
    n, velocity = len(particles), np.zeros_like(particles)
    for _ in range(iterations):
        apart = [float(((particles[i] - particles[j]) ** 2).sum()) for i in range(n) for j in range(i)]
        h = statistics.median(apart) / np.log(n)
        gradients = [relaxed_log_density_gradient(x, posterior.log_probs, posterior.sizes) for x in particles]
        phi = np.zeros_like(particles)
        for i in range(n):
            for j in range(n):
                difference = particles[i] - particles[j]
                k = np.exp(-(difference**2).sum() / h)
                phi[i] += (k * gradients[j] + (1 + delta) * 2 / h * k * difference) / n
        velocity = MOMENTUM * velocity + phi
        particles = particles + STEP * velocity
    return particles


def vectorised(particles: FloatArray, posterior: Posterior, delta: float, iterations: int) -> FloatArray:
    """The same by `svgd_rd`."""
    shape = particles.shape

    def gradient(flat: FloatArray) -> FloatArray:
        return relaxed_log_density_gradient(flat.reshape(shape), posterior.log_probs, posterior.sizes).reshape(
            flat.shape
        )

    return svgd_rd(particles.reshape(shape[0], -1), gradient, delta, iterations).reshape(shape)


def compare_sampling(options: argparse.Namespace) -> bool:
    """Prints the table of SVGD-RD; whether archray and the loop agree."""
    posterior = darts_posterior(0)
    few = max(1, options.iterations // SHARE)
    print(f"{len(posterior.sizes)} decisions, {posterior.sizes.sum()} coordinates, {options.iterations} iterations\n")
    print("| particles | runs at once | archray, CPU s per run | loop, CPU s per run | ratio | largest difference |")
    print("|---|---|---|---|---|---|")
    agree = True
    for n, restarts in itertools.product(options.particles, options.restarts):
        rng = np.random.default_rng(1)
        start = first_particles(posterior.draw((n,), rng), posterior.sizes, posterior.log_probs.shape[1], rng)
        ours, theirs = [], []
        for repeat in range(options.repeats):
            begun, rng = time.process_time(), np.random.default_rng(repeat)
            evolve(posterior, (restarts, n), options.delta, rng, SVGDSettings(options.iterations))
            ours.append((time.process_time() - begun) / restarts)
            begun = time.process_time()
            reference = loop(start, posterior, options.delta, few)
            theirs.append((time.process_time() - begun) * options.iterations / few)
        difference = float(np.abs(vectorised(start, posterior, options.delta, few) - reference).max())
        agree &= difference < 1e-8
        a, b = statistics.median(ours), statistics.median(theirs)
        print(f"| {n} | {restarts} | {a:.3f} | {b:.2f} | {b / a:.1f} | {difference:.0e} |", flush=True)
    return agree


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--particles", type=int, nargs="+", default=[10], metavar="N")
    parser.add_argument("--restarts", type=int, nargs="+", default=[1, 4], metavar="R", help="runs at once")
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--delta", type=float, default=0.5)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    with threadpool_limits(1):
        return int(not compare_sampling(options))


if __name__ == "__main__":
    sys.exit(main())
