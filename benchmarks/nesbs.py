"""NESBS: SVGD-RD in the DARTS space against a loop over particles; evaluation of ensembles against a plain loop.

    python benchmarks/nesbs.py
    python benchmarks/nesbs.py --particles 3 10 --restarts 1 8 --iterations 1000 --repeats 5
    python benchmarks/nesbs.py --images 10000 --sizes 3 5 7 --members 50 --ensembles 1000

The posterior is random: standard normal logits for every decision of note E6. `archray` runs the work of `NESBSSearch`
for one suggestion: first particles, Algorithm 5.3, decoding. `loop` computes the same iterations one pair of particles
at a time. It is timed on a twentieth of the iterations, in which its particles must agree with archray's to 1e-8.
Seconds are CPU time of this process with one thread, the median of the repeats, in turns.

The evaluation computes loss and accuracy of ensembles of the members, on images with 10 classes, from existing
predictions. `loop` stacks and averages the members' predictions, one ensemble after another. `arranging` is archray's
one-time work per member. Losses must agree to 1e-5, and accuracies to one image.

The exit status is 1 if a result disagrees.
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

from archray.searchers.arguments import FloatArray
from archray.searchers.nesbs.posterior import Posterior, first_particles, relaxed_log_density_gradient
from archray.searchers.nesbs.samplers import MOMENTUM, STEP, SVGDRD, svgd_rd
from archray.trainables.ensembles.scores import arrange, score_ensembles
from archray.trainables.spaces import get_space

CLASSES = 10
SHARE = 20  # iterations of archray per iteration of the loop


def darts_posterior(seed: int) -> Posterior:
    """Draws standard normal logits for every decision."""
    rng = np.random.default_rng(seed)
    decisions = get_space("darts").posterior_decisions
    return Posterior({d.name: rng.standard_normal(len(d.choices)) for d in decisions}, "darts")


def loop(particles: FloatArray, posterior: Posterior, delta: float, iterations: int) -> FloatArray:
    """Runs Algorithm 5.3 literally. (n, B, C) -> (n, B, C)."""
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


def vectorized(particles: FloatArray, posterior: Posterior, delta: float, iterations: int) -> FloatArray:
    """Runs the same by `svgd_rd`."""
    shape = particles.shape

    def gradient(flat: FloatArray) -> FloatArray:
        return relaxed_log_density_gradient(flat.reshape(shape), posterior.log_probs, posterior.sizes).reshape(
            flat.shape
        )

    return svgd_rd(particles.reshape(shape[0], -1), gradient, delta, iterations).reshape(shape)


def compare_sampling(options: argparse.Namespace) -> bool:
    """Prints the table of SVGD-RD. Returns whether archray and the loop agree."""
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
            start_time, rng = time.process_time(), np.random.default_rng(repeat)
            SVGDRD(iterations=options.iterations).evolve(posterior, (restarts, n), options.delta, rng)
            ours.append((time.process_time() - start_time) / restarts)
            start_time = time.process_time()
            reference = loop(start, posterior, options.delta, few)
            theirs.append((time.process_time() - start_time) * options.iterations / few)
        difference = float(np.abs(vectorized(start, posterior, options.delta, few) - reference).max())
        agree &= difference < 1e-8
        a, b = statistics.median(ours), statistics.median(theirs)
        print(f"| {n} | {restarts} | {a:.3f} | {b:.2f} | {b / a:.1f} | {difference:.0e} |", flush=True)
    return agree


def evaluated_by_loop(
    predictions: Sequence[np.ndarray], labels: np.ndarray, ensembles: np.ndarray, how: str
) -> tuple[FloatArray, FloatArray]:
    """Returns losses and accuracies by a plain loop, (T,). predictions: (images, classes) of each member."""
    images = np.arange(len(labels))
    losses, accuracies = [], []
    for members in ensembles:
        stacked = np.stack([predictions[member] for member in members])
        if how == "probabilities":
            averaged = stacked.mean(axis=0)
        else:
            averaged = np.exp(np.log(stacked).mean(axis=0))
            averaged /= averaged.sum(axis=1, keepdims=True)
        losses.append(-np.log(averaged[images, labels]).mean())
        accuracies.append((averaged.argmax(axis=1) == labels).mean())
    return np.array(losses), np.array(accuracies)


def compare_evaluation(options: argparse.Namespace) -> bool:
    """Prints the table of evaluation. Returns whether archray and the loop agree."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, options.images)
    logits = rng.standard_normal((options.members, options.images, CLASSES)) + 2 * np.eye(CLASSES)[labels]
    predictions = list((np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)).astype(np.float32))
    print(f"\n{options.members} members, {options.images} images, {CLASSES} classes, {options.ensembles} ensembles\n")
    print(
        "| averaged | n | archray, ensembles per CPU s | loop, the same | ratio | arranging, ms | largest difference |"
    )
    print("|---|---|---|---|---|---|---|")
    agree = True
    for how, n in itertools.product(("probabilities", "logits"), options.sizes):
        ensembles = np.stack([rng.permutation(options.members)[:n] for _ in range(options.ensembles)])
        few = ensembles[: max(1, len(ensembles) // SHARE)]
        ours, theirs, once = [], [], []
        for _ in range(options.repeats):
            start = time.process_time()
            arranged = [arrange(values, labels, how) for values in predictions]
            once.append((time.process_time() - start) / len(predictions))
            start = time.process_time()
            losses, accuracies = score_ensembles(arranged, labels, ensembles, how)
            ours.append((time.process_time() - start) / len(ensembles))
            start = time.process_time()
            loop_losses, loop_accuracies = evaluated_by_loop(predictions, labels, few, how)
            theirs.append((time.process_time() - start) / len(few))
        difference = float(np.abs(losses[: len(few)] - loop_losses).max())
        agree &= difference < 1e-5 and bool(
            np.abs(accuracies[: len(few)] - loop_accuracies).max() < 1.5 / options.images
        )
        a, b, c = (statistics.median(values) for values in (ours, theirs, once))
        print(
            f"| {how} | {n} | {1 / a:,.0f} | {1 / b:,.0f} | {b / a:.1f} | {1000 * c:.2f} | {difference:.0e} |",
            flush=True,
        )
    return agree


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--particles", type=int, nargs="+", default=[10], metavar="N")
    parser.add_argument("--restarts", type=int, nargs="+", default=[1, 4], metavar="R", help="runs at once")
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--delta", type=float, default=0.5)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[3, 5, 7], metavar="N", help="members of an ensemble")
    parser.add_argument("--members", type=int, default=50, help="number of distinct members")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--ensembles", type=int, default=1000)
    options = parser.parse_args(arguments)
    with threadpool_limits(1):
        return int(not all([compare_sampling(options), compare_evaluation(options)]))


if __name__ == "__main__":
    sys.exit(main())
