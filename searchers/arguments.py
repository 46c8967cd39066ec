"""Arguments of the searchers and their checks: options, metric and mode, integers, arrays, spaces."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from archray.errors import InvalidInput
from archray.trainables.spaces import Architecture, Space, get_space

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class SearcherOptions(TypedDict, total=False):
    """The keyword arguments of every searcher; see `ArchraySearcher`."""

    seed: int
    metric: str | None
    mode: str | None
    points_to_evaluate: Sequence[Mapping[str, Any]] | None
    max_concurrent: int | None
    asynchronous: bool


def check_whole_number(name: str, value: Any, least: int = 1) -> None:
    """Raises: InvalidInput unless `value` is an integer of `least` or more."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InvalidInput(f"{name}: expected a whole number of {least} or more, got {value!r}")


def check_metric_mode(metric: Any, mode: Any) -> None:
    """Raises: InvalidInput if `metric` is neither a name nor None, or `mode` neither min nor max nor None."""
    if metric is not None and not isinstance(metric, str):
        raise InvalidInput(f"metric: expected the name of one metric, got {metric!r}")
    if mode is not None and mode not in ("min", "max"):
        raise InvalidInput(f"mode: expected 'min' or 'max', got {mode!r}")


def is_number(value: Any) -> bool:
    """Returns whether `value` is a real number. NaN and infinities count, a bool does not."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def is_finite_number(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)


class HeldSpace:
    """A space, given as an object, a name or a reference. Pickling keeps only the source and loads the space again."""

    def __init__(self, source: str | Space) -> None:
        self.source = source

    @cached_property
    def space(self) -> Space:
        """The loaded space. Raises: UnknownName if there is no such space."""
        return get_space(self.source)

    @property
    def name(self) -> str:
        """The name or reference of the space, which a saved state and the searcher that loads it must share."""
        return self.source if isinstance(self.source, str) else self.source.name

    def canonical_string(self, architecture: Architecture) -> str:
        return self.space.encode(self.space.canonical(architecture))

    def canonicalise(self, name: str) -> str:
        """Returns the string of the canonical form of the architecture `name`. Raises: InvalidArchitecture."""
        return self.canonical_string(self.space.decode(name))

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self.source}
