"""What every sampler of ensembles says of itself; an ensemble of different members, drawn by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from archray.errors import InvalidInput
from archray.plurals import count
from archray.registry import Registry
from archray.searchers.arguments import IntArray
from archray.searchers.nesbs.architecture_posterior import Posterior
from archray.settings import RegisteredSettings

SAMPLERS: Registry[type[EnsembleSampler]] = Registry("sampler")


class TooSharp(InvalidInput):
    """A posterior that gives no ensemble of different members, or none at this delta."""


class EnsembleSampler(RegisteredSettings):
    """The settings of a sampler, which draws. A subclass registers itself, by its `name`, and says `ensembles`."""

    registry = SAMPLERS
    has_delta: ClassVar[bool] = False  # whether it takes a coefficient of diversity
    of_the_posterior: ClassVar[bool] = True  # False: it draws the same whatever was learnt

    def ensembles(self, posterior: Posterior, n: int, delta: float, rng: np.random.Generator) -> Iterator[IntArray]:
        """One ensemble after another, as long as it makes sense to draw again: (n, B) numbers of choices each.

        Args:
            delta: the diversity asked for; 0 for a sampler without.
        """
        raise NotImplementedError

    def sample(self, posterior: Posterior, n: int, delta: float | None, rng: np.random.Generator) -> list[str]:
        """The first ensemble without a repeated member, as strings.

        Raises: TooSharp if there is none.
        """
        most, drawn = 0, 0
        for choices in self.ensembles(posterior, n, 0.0 if delta is None else delta, rng):
            drawn += 1
            choices = posterior.feasible(choices, rng)
            distinct = len({row.tobytes() for row in choices})
            if distinct == n:  # spelling architectures and finding their canonical forms takes longer
                members = [posterior.architecture(row) for row in choices]
                distinct = len({posterior.form(member) for member in members})
                if distinct == n:
                    return members
            most = max(most, distinct)
        mode = float(np.exp(posterior.log_probs.max(-1).sum()))
        at, advice = ("", "") if delta is None else (f" at delta {delta:g}", " or delta")
        raise TooSharp(
            f"ensemble_size: expected a posterior that gives {count(n, 'different member')}, got {most} at most in "
            f"{count(drawn, 'ensemble')} by {self.name}{at}; it is too sharp (probability {mode:.2g} of its mode): "
            f"raise temperature{advice}, or lower ensemble_size"
        )
