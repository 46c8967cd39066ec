"""What random search and evolution ask of whatever they draw from: configs, of which each may have neighbours.

A config is a dictionary, JSON-able, that a trial's config will hold.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

Config = dict[str, Any]
DRAWS = 1000  # in search of a config that is new; then a small space is enumerated
ENUMERABLE = 10**6  # configs of a space small enough to enumerate
STEPS = 100  # of mutation in search of another config; a space where they are not enough is one config
SEED = "seed"  # of every trial: a searcher sets it


class ConfigSpace(ABC):
    """What a searcher asks of whatever it was given."""

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> Config: ...

    @abstractmethod
    def mutate(self, config: Mapping[str, Any], rng: np.random.Generator) -> Config:
        """`config` after one mutation, or after as many as it takes to be another one."""

    @abstractmethod
    def check_point(self, point: Mapping[str, Any]) -> Config:
        """A config that the user names, made whole. Raises: InvalidInput, InvalidArchitecture."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What a saved state must share with the searcher that loads it. JSON-able."""

    def draws(self, rng: np.random.Generator) -> Iterator[Config]:
        """Configs in the order that random search tries them; ends when there is none left that may be new."""
        for _ in range(DRAWS):
            yield self.sample(rng)

    def key(self, config: Mapping[str, Any]) -> str:
        """The same of equal configs, whatever their seed."""
        return json.dumps({name: value for name, value in config.items() if name != SEED}, sort_keys=True)

    def prepare(self) -> None:
        """Opens what is held by name only; here nothing is."""
        return

    def check_mutable(self) -> None:
        """Raises: InvalidInput if there is nothing that one config could become."""
        return
