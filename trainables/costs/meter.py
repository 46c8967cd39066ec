"""Timing of a space's networks, in this process or on a device, and latencies as sums over operations."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from archray.errors import ArchrayError
from archray.plurals import count
from archray.registry import LazyModule
from archray.seeds import named_rng
from archray.trainables import nets
from archray.trainables.costs.registry import CostFailed
from archray.trainables.costs.settings import LatencySettings
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.spaces import Space
from archray.trainables.spaces.constrained_space import even_architectures

if TYPE_CHECKING:
    from archray.trainables.costs import measures
else:  # it imports torch
    measures = LazyModule("archray.trainables.costs.measures")

logger = logging.getLogger(__name__)

DRAWN = 8  # random candidates for the calibration, in addition to the even ones
NETWORKS = 6  # candidates that are measured whole


class Line(NamedTuple):
    """latency = overhead + factor * sum of operations' times. overhead: milliseconds; both are at least 0.

    The times of operations do not include the work between operations, nor cold caches.
    """

    overhead: float
    factor: float

    def __call__(self, total: float) -> float:
        return self.overhead + self.factor * total


def calibration_candidates(space: Space) -> list[str]:
    """Returns distinct even and random architectures. Some of them are measured as whole networks."""
    rng = named_rng(0, "latency calibration")  # the same in every process
    drawn = [space.canonical(space.sample(rng)) for _ in range(DRAWN)]
    return [space.encode(form) for form in dict.fromkeys([*even_architectures(space), *drawn])]


def spread_choice(sums: Sequence[float], number: int = NETWORKS) -> list[int]:
    """Returns the indices of `number` sums (or all), from the smallest to the largest in nearly even steps."""
    order = [int(place) for place in np.argsort(sums, kind="stable")]
    chosen: list[int] = []
    for aim in np.linspace(sums[order[0]], sums[order[-1]], min(number, len(order))):
        chosen.append(min((place for place in order if place not in chosen), key=lambda place: abs(sums[place] - aim)))
    return chosen


def fit_line(sums: Sequence[float], whole: Sequence[float]) -> Line:
    """Fits the non-negative line with the least squares of relative errors.

    The overhead is 0 for a single sum, and if larger sums do not take longer.

    Args:
        sums: (n,) sums of operations' times, in milliseconds.
        whole: (n,) times of the same networks, in milliseconds, above 0.
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
    """Returns, for each network, the relative error of the line that is fitted to the others."""
    errors = []
    for place, time in enumerate(whole):
        others = [number for number in range(len(whole)) if number != place]
        line = fit_line([sums[number] for number in others], [whole[number] for number in others])
        errors.append(abs(line(sums[place]) / time - 1.0))
    return errors


def calibration(architectures: Sequence[str], sums: Sequence[float], whole: Sequence[float]) -> dict[str, Any]:
    """Returns the line and its data for `costs/latency.json`: `{"overhead", "factor", "networks", "error"}`.

    `networks`: architecture -> its sum and its measured time. `error`: the median of `left_out_errors`; None for fewer
    than three networks.
    """
    line = fit_line(sums, whole)
    error = float(np.median(left_out_errors(sums, whole))) if len(whole) > 2 else None
    networks = {name: list(pair) for name, *pair in zip(architectures, sums, whole, strict=True)}
    return {**line._asdict(), "networks": networks, "error": error}


def _calibration_text(record: dict[str, Any]) -> str:
    error = record["error"]
    errors = "" if error is None else f". Leave-one-out: median error {error:.1%}"
    return (
        f"Latency lookup: {record['overhead']:.3g} ms + {record['factor']:.3g} times the sum over operations, "
        f"fitted to {count(len(record['networks']), 'network')} measured whole{errors}"
    )


# Timing --------------------------------------------------------------------------------------------------------------

Pair = tuple[float, float]  # milliseconds: the median, and the interquartile range


@dataclass
class LatencyMeter:
    """Builds the network of an architecture, with weights from a fixed seed, and times it in the current process."""

    space: Space | str
    network: NetworkSettings
    in_channels: int
    image_size: int
    num_classes: int
    settings: LatencySettings

    def whole(self, architecture: str) -> Pair:
        """Times the whole network."""
        timing = measures.network_latency(self._built(architecture), self._image_shape, self.settings)
        return timing.median, timing.iqr

    def operations(self, architecture: str, timed: list[str]) -> tuple[list[str], dict[str, Pair]]:
        """Returns the operations of the network, in order, and the times of operations that are not in `timed`."""
        timings = {key: measures.Timing(0.0, 0.0) for key in timed}
        keys = measures.operation_latencies(self._built(architecture), self._image_shape, self.settings, timings)
        new = set(timings) - set(timed)
        return keys, {key: (timings[key].median, timings[key].iqr) for key in sorted(new)}

    @property
    def _image_shape(self) -> tuple[int, int, int]:
        return self.in_channels, self.image_size, self.image_size

    def _built(self, architecture: str) -> Any:
        shape: dict[str, Any] = {"in_channels": self.in_channels, "num_classes": self.num_classes}
        return nets.build(self.space, architecture, network=self.network, **shape, seed=0)


class Times(Protocol):
    """A `LatencyMeter`, or a proxy of one in another process."""

    def whole(self, architecture: str) -> Pair: ...

    def operations(self, architecture: str, timed: list[str]) -> tuple[list[str], dict[str, Pair]]: ...


def is_noise(median: Any, iqr: Any) -> Any:
    """Returns whether the interquartile range of a latency exceeds its median; for arrays, of each latency."""
    return iqr > median


class Latencies:
    """Function from an architecture to its latency.

    It times each network once, or with `lookup` each distinct operation.

    Args:
        times: Function that creates the meter for the first measurement.
        model: `whole`, or `lookup`: a linear function of the sum over the operations of the network's program, fitted
            to a few networks that are measured whole.
        record: Earlier measurements, `{"whole", "operations", "networks", "calibration"}`.
        save: Function of the record that is called after each measurement, so that a resumed run repeats none.
        candidates: Function that returns architectures, some of which are measured whole before the first lookup, for
            the line (default: the sum is the latency).
        announce: Function of the text that describes the line after it is fitted.
        bounded: Whether the latency is bounded: a warning then names the first network whose latency is noise.
    """

    def __init__(
        self,
        times: Callable[[], Times],
        model: Literal["whole", "lookup"],
        record: dict[str, Any] | None = None,
        save: Callable[[Mapping[str, Any]], None] = lambda record: None,
        *,
        candidates: Callable[[], Sequence[str]] | None = None,
        announce: Callable[[str], None] = logger.info,
        bounded: bool = False,
    ) -> None:
        self._make, self.model, self._save = times, model, save
        self._candidates, self._announce, self._warns = candidates, announce, bounded
        self.record: dict[str, Any] = {"whole": {}, "operations": {}, "networks": {}, "calibration": None}
        self.record |= record or {}

    def __call__(self, architecture: str) -> Pair:
        """Returns milliseconds per batch: the median, and the interquartile range."""
        if self.model == "whole":
            median, iqr = self.whole(architecture)
        else:
            line = self.line
            total, iqr = self.sum(architecture)
            median, iqr = line(total), line.factor * iqr
        if self._warns and is_noise(median, iqr):
            self._warns = False
            self._announce(
                f"warning: the latency of {architecture} is {median:.3g} ms, with an interquartile range of {iqr:.3g} "
                "ms: the bound on the latency compares noise. Measure on an idle machine"
            )
        return median, iqr

    @cached_property
    def times(self) -> Times:
        return self._make()

    def whole(self, architecture: str) -> Pair:
        """Times the whole network, once."""
        if architecture not in self.record["whole"]:
            self.record["whole"][architecture] = list(self.times.whole(architecture))
            self._save(self.record)
        median, iqr = self.record["whole"][architecture]
        return median, iqr

    def sum(self, architecture: str) -> Pair:
        """Sums over the network's operations; combines spreads as if they were independent."""
        operations: dict[str, list[float]] = self.record["operations"]
        if architecture not in self.record["networks"]:
            keys, new = self.times.operations(architecture, list(operations))
            operations |= {key: list(pair) for key, pair in new.items()}
            numbers = {key: number for number, key in enumerate(operations)}
            self.record["networks"][architecture] = [numbers[key] for key in keys]
            self._save(self.record)
        pairs = list(operations.values())
        terms = [pairs[number] for number in self.record["networks"][architecture]]
        return sum(median for median, _ in terms), sum(iqr**2 for _, iqr in terms) ** 0.5

    @property
    def line(self) -> Line:
        """The line from sums to latencies, calibrated at first use.

        Raises: CostFailed if no candidate can be timed.
        """
        if self._candidates is None:
            return Line(0.0, 1.0)
        record = self.record["calibration"]
        if record is None:
            self.record["calibration"] = record = self._calibrated(self._candidates())
            self._save(self.record)
            self._announce(_calibration_text(record))
        return Line(record["overhead"], record["factor"])

    def _calibrated(self, candidates: Sequence[str]) -> dict[str, Any]:
        sums: dict[str, float] = {}
        reason = "no candidates"
        for name in candidates:
            try:
                sums[name] = self.sum(name)[0]
            except ArchrayError:  # an error of the device, not of this network
                raise
            except Exception as error:  # a custom network can fail in any way
                reason = f"{name}: {type(error).__name__}: {error}"
                logger.warning(
                    "archray cannot time a network for the calibration of latencies and skips it: %s", reason
                )
        if not sums:
            raise CostFailed(
                f"expected a network that can be timed, to calibrate the lookup of latencies; got: {reason}"
            )
        names = list(sums)
        chosen = [names[place] for place in spread_choice(list(sums.values()))]
        return calibration(chosen, [sums[name] for name in chosen], [self.whole(name)[0] for name in chosen])
