"""Which architectures are scored without training. Shu 2022, Alg. 7.1, line 1."""

import numpy as np
from pydantic import Field, field_validator

from archray.errors import InvalidInput
from archray.files import local_path
from archray.plurals import count
from archray.settings import Settings
from archray.trainables.spaces import Space, get_space

ENUMERABLE = 10**6  # a space up to this size is enumerated, so that a pool is drawn uniformly from canonical forms
DRAWS_PER_ROW = 100  # in a larger space: draws per architecture wanted before the space counts as exhausted


class PoolSettings(Settings):
    """Which architectures are scored.

    Attributes:
        size: rows; None: every canonical form of the space.
        chunk: architectures an actor gets at a time; None: as many as take about five seconds. A killed run loses
            the chunks that were in flight.
        table: a table that was scored before (`archray proxies`), taken instead of scoring one.
    """

    size: int | None = Field(default=None, ge=1)
    chunk: int | None = Field(default=None, ge=1)
    table: str | None = None

    @field_validator("table")
    @classmethod
    def _absolute(cls, table: str | None) -> str | None:
        """A run may be resumed from another folder."""
        return None if table is None else str(local_path(table))


def candidates(space: str | Space, size: int | None, seed: int) -> list[str]:
    """Distinct canonical forms, as strings: all of a space, or `size` of them drawn from the seed.

    Up to ENUMERABLE architectures the draw is uniform over canonical forms; in a larger space over architectures.

    Raises: InvalidInput if the space has fewer forms than `size`, or is too large to score whole.
    """
    space = get_space(space)
    if size is not None and size > space.size:
        raise InvalidInput(f"{space.name} has {count(int(space.size), 'architecture')}; a pool of {size} is too large")
    rng = np.random.default_rng(seed)
    if space.size > ENUMERABLE:
        if size is None:
            raise InvalidInput(
                f"{space.name} has {space.size:.3g} architectures, too many to score all; give a pool size"
            )
        drawn: dict[tuple[str, ...], None] = {}
        for _ in range(DRAWS_PER_ROW * size):
            drawn[space.canonical(space.sample(rng))] = None
            if len(drawn) == size:
                return [space.encode(form) for form in drawn]
        raise InvalidInput(
            f"{count(DRAWS_PER_ROW * size, 'draw')} from {space.name} gave "
            f"{count(len(drawn), 'different architecture')} of {size}"
        )
    forms = list(dict.fromkeys(space.canonical(architecture) for architecture in space.enumerate()))
    if size is not None:
        if size > len(forms):
            there = count(len(forms), "different architecture")
            raise InvalidInput(f"{space.name} has {there}; a pool of {size} is too large")
        forms = [forms[i] for i in rng.choice(len(forms), size, replace=False)]
    return [space.encode(form) for form in forms]
