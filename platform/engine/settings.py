"""Pool of architectures to score without training (Shu 2022, Alg. 7.1, line 1), and options of the caller for Tune."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field, field_validator

from archray.errors import InvalidInput, expect
from archray.files import local_path
from archray.plurals import count
from archray.settings import Settings
from archray.trainables.spaces import Space, get_space

if TYPE_CHECKING:  # a caller that passes options has imported it
    from ray import tune

ENUMERABLE = 10**6  # archray enumerates a space up to this size, to draw a pool uniformly from canonical forms
DRAWS_PER_ROW = 100  # in a larger space: draws per architecture before the space counts as exhausted
DRAWS_AT_ONCE = 10_000  # bounds the memory of a draw


class PoolSettings(Settings):
    """Pool of architectures to score.

    Attributes:
        size: number of architectures, at most every distinct architecture (canonical form) of the space; None: every
            one.
        chunk: architectures per task of an actor; None: as many as take about five seconds. A killed run loses the
            chunks in flight.
        table: a table from `archray proxies` to use instead of new scores.
    """

    size: int | None = Field(default=None, ge=1)
    chunk: int | None = Field(default=None, ge=1)
    table: str | None = None

    @field_validator("table")
    @classmethod
    def _absolute(cls, table: str | None) -> str | None:
        """Makes the path absolute, since a run may be resumed from another folder."""
        return None if table is None else str(local_path(table))


def within(number: int, space: str | Space) -> int:
    """Returns the number of architectures to draw: the requested number, or the size of a smaller space."""
    size = get_space(space).size
    return number if number <= size else int(size)


def fewer(number: int, requested: int | None, space: str) -> str | None:
    """Returns the line for the user if a draw from a space has fewer architectures than requested; None otherwise."""
    if requested is None or number >= requested:
        return None
    return f"{count(number, 'architecture')} (requested: {requested:,}): {space} has no other"


def candidates(space: str | Space, size: int | None, seed: int) -> list[str]:
    """Returns distinct canonical forms as strings: all of a space, or a random draw.

    Args:
        space: name of a space, or a space.
        size: number of forms to draw; None, or more than the space has: all. The draw is uniform over canonical forms
            in a space of up to ENUMERABLE architectures, and over architectures in a larger space, where it may find
            fewer.
        seed: seed of the draw.

    Raises: InvalidInput if the space is too large to score all.
    """
    space = get_space(space)
    rng = np.random.default_rng(seed)
    if space.size > ENUMERABLE:
        if size is None:
            message = f"{space.name} has {space.size:.3g} architectures, too many to score all. Set the pool size"
            raise InvalidInput(message)
        drawn: dict[str, None] = {}
        remaining = DRAWS_PER_ROW * size
        while remaining > 0 and len(drawn) < size:
            draws = min(size - len(drawn), remaining, DRAWS_AT_ONCE)
            remaining -= draws
            drawn.update((space.encode(space.canonical(draw)), None) for draw in space.samples(draws, rng))
        return list(drawn)
    forms = space.canonical_forms()
    if size is not None and size < len(forms):
        forms = [forms[i] for i in rng.choice(len(forms), size, replace=False)]
    return [space.encode(form) for form in forms]


def all_forms(space: Space, at_most: int) -> list[str] | None:
    """Returns the canonical forms of a space as strings; None if they are more than `at_most`."""
    forms: dict[str, None] = {}
    for architecture in space.enumerate() if space.size <= ENUMERABLE else ():
        forms[space.encode(space.canonical(architecture))] = None
        if len(forms) > at_most:
            break
    return list(forms) if 0 < len(forms) <= at_most else None


def distinct(number: int, space: Space, pool: PoolSettings | None = None) -> int:
    """Returns the number of distinct architectures to train: the requested number, or all of a smaller space or pool.

    Args:
        pool: pool from which the architectures are selected; a pool in a table is not counted.
    """
    if pool is not None and pool.table is None and pool.size is not None:
        number = min(number, pool.size)
    forms = all_forms(space, number)
    return number if forms is None else len(forms)


def exhausted(number: int, requested: int) -> str | None:
    """Returns the line for the user if a search has fewer training runs than requested; None otherwise."""
    if number >= requested:
        return None
    return f"{count(number, 'training run')} (requested: {requested:,}): the search has no other suggestion"


@dataclass(frozen=True)
class TuneOptions:
    """The caller's options for Ray Tune: `run_config`, `tune_config`, `callbacks` and `time_budget_s`.

    Raises: InvalidInput for a field that archray sets itself.
    """

    run_config: "tune.RunConfig | None" = None
    tune_config: "tune.TuneConfig | None" = None
    callbacks: "Sequence[tune.Callback]" = ()
    time_budget_s: float | None = None

    def __post_init__(self) -> None:
        expect("callbacks", self.callbacks, list, tuple)
        if self.callbacks:
            from ray.tune import Callback  # slow to import, but already loaded if there is a callback

            for callback in self.callbacks:
                expect("callbacks", callback, Callback)
        expect("time_budget_s", self.time_budget_s, int, float, type(None))
        if self.time_budget_s is not None and not 0 < self.time_budget_s < math.inf:
            raise InvalidInput(f"time_budget_s: expected a number of seconds above 0, got {self.time_budget_s}")
        for config, fields in (
            (self.run_config, ("name", "storage_path", "storage_filesystem", "checkpoint_config")),
            (self.tune_config, ("metric", "mode", "search_alg", "num_samples")),
        ):
            if config is not None and not hasattr(config, fields[0]):
                raise InvalidInput(f"expected a RunConfig and a TuneConfig of Ray Tune, got {config!r}")
            names = [name for name in fields if config and getattr(config, name) != getattr(type(config)(), name)]
            if names:
                raise InvalidInput(
                    f"expected {type(config).__name__} without {', '.join(names)}, which archray sets itself. Use the "
                    "arguments of archray.search instead"
                )
