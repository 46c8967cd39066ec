"""Ensembles of different architectures from a posterior: Monte Carlo sampling and SVGD-RD. Shu 2022, Alg. 5.2, 5.3."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from archray.errors import InvalidInput
from archray.searchers.arguments import check_whole_number
from archray.searchers.array_types import FloatArray, IntArray
from archray.searchers.nesbs.posterior import Posterior
from archray.searchers.nesbs.relaxed_posterior import first_particles, nearest_choices, relaxed_log_density_gradient
from archray.searchers.nesbs.svgd_rd import ITERATIONS, MOMENTUM, STEP, svgd_rd

DRAWS = (1, 15, 240, 3840)  # ensembles drawn at once, until one has no repeated member
RUNS = (1, 3, 9)  # runs of SVGD-RD at once, likewise; the first is nearly always enough


class TooSharp(InvalidInput):
    """A posterior that gives no ensemble of different members, or none at this delta."""


@dataclass(frozen=True)
class SVGDSettings:
    """How SVGD-RD runs; the defaults are those of section 5.3.4.

    Args:
        iterations: L.
        bandwidth: h of the kernel exp(-||x - x'||^2 / h); None: `median_bandwidth`.
        step, momentum: of the particles' SGD.

    Raises: InvalidInput for values that cannot be used.
    """

    iterations: int = ITERATIONS
    bandwidth: float | None = None
    step: float = STEP
    momentum: float = MOMENTUM

    def __post_init__(self) -> None:
        check_whole_number("iterations", self.iterations)
        if self.bandwidth is not None and not 0 < self.bandwidth < math.inf:
            raise InvalidInput(f"bandwidth: expected a number above 0, or None, got {self.bandwidth!r}")
        if not 0 < self.step < math.inf:
            raise InvalidInput(f"step: expected a number above 0, got {self.step!r}")
        if not 0 <= self.momentum < 1:
            raise InvalidInput(f"momentum: expected 0 <= momentum < 1, got {self.momentum!r}")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def draw_ensemble(posterior: Posterior, n: int, rng: np.random.Generator) -> list[str]:
    """Algorithm 5.2: n independent draws; an ensemble with a repeated member is rejected, and drawn again.

    Raises: TooSharp if none of sum(DRAWS) ensembles is without one.
    """
    drawn = (choices for count in DRAWS for choices in posterior.draw((count, n), rng))
    return _first_without_repeats(posterior, n, drawn, f"{sum(DRAWS)} times {n} draws", "raise temperature")


def evolve_ensemble(
    posterior: Posterior, n: int, delta: float, rng: np.random.Generator, settings: SVGDSettings | None = None
) -> list[str]:
    """Algorithm 5.3 from fresh particles; an ensemble with a repeated member is rejected, and another one run.

    Raises: TooSharp if none of sum(RUNS) runs gives n different members.
    """
    used = settings or SVGDSettings()
    runs = (choices for count in RUNS for choices in evolve(posterior, (count, n), delta, rng, used))
    tried = f"{sum(RUNS)} runs of SVGD-RD at delta {delta:g}"
    return _first_without_repeats(posterior, n, runs, tried, "raise temperature or delta")


def evolve(
    posterior: Posterior, shape: tuple[int, ...], delta: float, rng: np.random.Generator, settings: SVGDSettings
) -> IntArray:
    """Choices at the particles of independent runs of SVGD-RD, repeated members and all (Eq. 5.9).

    Decisions with one choice are left out of the particles: there is nothing to sample, and their coordinates would
    only take part in the kernel.

    Args:
        shape: (..., n).

    Returns: (..., n, B) numbers of choices.
    """
    choices = posterior.draw(shape, rng)  # (..., n, B)
    free = posterior.sizes > 1
    sizes, log_probs = posterior.sizes[free], posterior.log_probs[free]
    if not len(sizes):
        return choices
    block = log_probs.shape

    def gradient(flat: FloatArray) -> FloatArray:
        return relaxed_log_density_gradient(flat.reshape(*shape, *block), log_probs, sizes).reshape(flat.shape)

    particles = first_particles(choices[..., free], sizes, block[1], rng).reshape(*shape, -1)  # (..., n, B C)
    particles = svgd_rd(
        particles, gradient, delta, settings.iterations, settings.bandwidth, settings.step, settings.momentum
    )
    choices[..., free] = nearest_choices(particles.reshape(*shape, *block), log_probs)
    return choices


def _first_without_repeats(
    posterior: Posterior, n: int, ensembles: Iterable[IntArray], tried: str, advice: str
) -> list[str]:
    most = 0
    for choices in ensembles:  # (n, B) each
        distinct = len({row.tobytes() for row in choices})
        if distinct == n:  # spelling architectures and finding their canonical forms takes longer
            members = [posterior.architecture(row) for row in choices]
            distinct = len({posterior.form(member) for member in members})
            if distinct == n:
                return members
        most = max(most, distinct)
    mode = float(np.exp(posterior.log_probs.max(-1).sum()))
    raise TooSharp(
        f"ensemble_size: expected a posterior that gives {n} different members, got {most} at most in {tried}; it is "
        f"too sharp (probability {mode:.2g} of its mode): {advice}, or lower ensemble_size"
    )
