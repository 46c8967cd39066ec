"""What a sum of operations' times says of a whole network's: a line, fitted to a few networks that are timed whole.

What is run between operations, and the memory that one operation leaves cold for the next, is in no operation's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from archray.plurals import count
from archray.trainables.spaces import Space
from archray.trainables.spaces.even_architectures import even_architectures

DRAWN = 8  # random architectures beside the even ones, whose operations are looked up
NETWORKS = 6  # of all these are timed whole
SEED = 1_000_409  # of the architectures that are drawn: every process draws the same


class Line(NamedTuple):
    """latency = overhead + factor * sum. overhead: milliseconds; neither is below 0."""

    overhead: float
    factor: float

    def __call__(self, total: float) -> float:
        return self.overhead + self.factor * total


def calibration_candidates(space: Space) -> list[str]:
    """Architectures among which those that are timed whole are chosen: even ones and random ones, each once."""
    rng = np.random.default_rng(SEED)
    drawn = [space.canonical(space.sample(rng)) for _ in range(DRAWN)]
    return [space.encode(form) for form in dict.fromkeys([*even_architectures(space), *drawn])]


def spread_choice(sums: Sequence[float], number: int = NETWORKS) -> list[int]:
    """The places of `number` sums, or of all, from the least to the greatest with the steps between them as even as
    may be."""
    order = [int(place) for place in np.argsort(sums, kind="stable")]
    chosen: list[int] = []
    for aim in np.linspace(sums[order[0]], sums[order[-1]], min(number, len(order))):
        chosen.append(min((place for place in order if place not in chosen), key=lambda place: abs(sums[place] - aim)))
    return chosen


def fit_line(sums: Sequence[float], whole: Sequence[float]) -> Line:
    """The non-negative line of least squares of relative errors: what matters is by which part a latency is wrong.

    Of one sum, and where larger sums do not take longer, the factor that fits best alone.

    Args:
        sums: (n,) of operations' times. whole: (n,) of the same networks; milliseconds, above 0.
    """
    from scipy.optimize import nnls

    total, target = np.asarray(sums, dtype=float), np.asarray(whole, dtype=float)
    if len(set(total.tolist())) > 1:
        (overhead, factor), _ = nnls(np.stack([1.0 / target, total / target], axis=1), np.ones(len(target)))
        if factor > 0.0:
            return Line(float(overhead), float(factor))
    share = total / target
    return Line(0.0, float(share.sum() / (share**2).sum()))


def left_out_errors(sums: Sequence[float], whole: Sequence[float]) -> list[float]:
    """For each network, by which part of its whole time the line that was fitted to the others misses it."""
    errors = []
    for place, time in enumerate(whole):
        others = [number for number in range(len(whole)) if number != place]
        line = fit_line([sums[number] for number in others], [whole[number] for number in others])
        errors.append(abs(line(sums[place]) / time - 1.0))
    return errors


def calibration(architectures: Sequence[str], sums: Sequence[float], whole: Sequence[float]) -> dict[str, Any]:
    """The line and what it is of, as `costs/latency.json` has it: `{"overhead", "factor", "networks", "error"}`.

    `networks`: architecture -> its sum and its whole time. `error`: the median of `left_out_errors`; None of fewer
    than three networks.
    """
    line = fit_line(sums, whole)
    error = float(np.median(left_out_errors(sums, whole))) if len(whole) > 2 else None
    networks = {name: list(pair) for name, *pair in zip(architectures, sums, whole, strict=True)}
    return {**line._asdict(), "networks": networks, "error": error}


def told(record: dict[str, Any]) -> str:
    """A calibration in words."""
    error = record["error"]
    missed = "" if error is None else f"; each network by a line of the others: median error {error:.1%}"
    return (
        f"latencies by look-up: {record['overhead']:.3g} ms + {record['factor']:.3g} times the sum over operations, "
        f"from {count(len(record['networks']), 'network')} timed whole{missed}"
    )
