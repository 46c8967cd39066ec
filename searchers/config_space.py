"""What a searcher asks of whatever it draws from: configs, of which each may have neighbours and decisions.

A config is a dictionary, JSON-able, that a trial's config will hold.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from archray.searchers.arguments import IntArray

Config = dict[str, Any]
DRAWS = 1000  # in search of a config that is new; then a small space is enumerated
ENUMERABLE = 10**6  # configs of a space small enough to enumerate
NEIGHBOURS = 100  # mutations drawn where the neighbours of a config cannot be listed
STEPS = 100  # of mutation in search of another config; a space where they are not enough is one config
SEED = "seed"  # of every trial: a searcher sets it


class ConfigSpace(ABC):
    """What a searcher asks of whatever it was given."""

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> Config: ...

    @abstractmethod
    def mutate(self, config: Mapping[str, Any], rng: np.random.Generator) -> Config:
        """`config` after one mutation, or after as many as it takes to be another one."""

    def cross(self, config: Mapping[str, Any], other: Mapping[str, Any], rng: np.random.Generator) -> Config:
        """Of each decision the choice of one of two configs, by a fair coin: uniform crossover.

        `config` itself where the space has no such architecture, or where decisions cannot be told apart.
        """
        return {name: value for name, value in config.items() if name != SEED}

    def neighbours(self, config: Mapping[str, Any], rng: np.random.Generator) -> list[Config]:
        """The configs that one mutation may make of `config`, distinct, in random order; `config` is none of them.

        All of them where they can be listed; else what 100 mutations give.
        """
        return self.distinct((self.mutate(config, rng) for _ in range(NEIGHBOURS)), config)

    def distinct(self, configs: Iterable[Config], other: Mapping[str, Any]) -> list[Config]:
        """The first of equal ones, in order, and none that equals `other`."""
        by_key: dict[str, Config] = {}
        for config in configs:
            by_key.setdefault(self.key(config), config)
        by_key.pop(self.key(other), None)
        return list(by_key.values())

    def choices(self) -> dict[str, list[Any]]:
        """The values of each independent decision, by its name. Raises: InvalidInput where there are none."""
        raise NotImplementedError

    def chosen(self, choices: Mapping[str, Any]) -> Config | None:
        """The config of a choice for each decision; None where there is none such."""
        return dict(choices)

    def existing(self) -> IntArray | None:
        """(n, D) the places of the choices of every config there is; None where (nearly) every combination is one."""
        return None

    def choices_of(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The choices that can be read off a config, by decision."""
        return {name: value for name, value in config.items() if name != SEED}

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
