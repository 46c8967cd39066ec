"""A dict of Tune domains to draw from: the keys of a trial's config."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from ray.tune.search.sample import Categorical, Domain, Integer, Quantized, Sampler

from archray.errors import InvalidInput
from archray.searchers.config_space import ENUMERABLE, SEED, STEPS, Config, ConfigSpace

INTEGERS = 1000  # values of a tune.randint that are still decided one by one


class Domains(ConfigSpace):
    """The keys of a dict of Tune domains: `{"width": tune.choice([16, 32]), "lr": tune.loguniform(1e-3, 1)}`.

    A mutation draws another value for one key, of those with more than one value. Raises: InvalidInput for what is no
    domain.
    """

    def __init__(self, domains: Mapping[str, Domain]) -> None:
        if not domains:
            raise InvalidInput("expected a Tune domain for each key, got an empty dict")
        for name, domain in domains.items():
            if not isinstance(name, str) or name == SEED:
                raise InvalidInput(f"expected strings for keys, and none called {SEED!r}, which is the trial's own")
            if not isinstance(domain, Domain) or domain.is_function() or domain.is_grid():
                raise InvalidInput(
                    f"{name}: expected a Tune domain, as tune.choice([16, 32]) or tune.uniform(0, 1), got {domain!r}; "
                    "a fixed value goes into the Tuner's param_space"
                )
            if isinstance(domain, Categorical) and json.loads(json.dumps(domain.categories)) != domain.categories:
                raise InvalidInput(f"{name}: expected choices that JSON can hold, got {domain.categories!r}")
        self._domains = dict(domains)
        self._choices = {n: _distinct(d.categories) for n, d in domains.items() if isinstance(d, Categorical)}
        self._free = [name for name in domains if len(self._choices.get(name, "ab")) > 1]

    def sample(self, rng: np.random.Generator) -> Config:
        return {name: domain.sample(random_state=rng) for name, domain in self._domains.items()}

    def mutate(self, config: Mapping[str, Any], rng: np.random.Generator) -> Config:
        name = self._free[rng.integers(len(self._free))]
        value = config[name]
        if name in self._choices:
            others = [choice for choice in self._choices[name] if choice != value]
            return {**config, name: others[rng.integers(len(others))]}
        values = (self._domains[name].sample(random_state=rng) for _ in range(STEPS))
        return {**config, name: next((other for other in values if other != value), value)}

    def cross(self, config: Mapping[str, Any], other: Mapping[str, Any], rng: np.random.Generator) -> Config:
        heads = rng.random(len(self._domains)) < 0.5
        return {name: (config if head else other)[name] for name, head in zip(self._domains, heads, strict=True)}

    def neighbours(self, config: Mapping[str, Any], rng: np.random.Generator) -> list[Config]:
        if len(self._choices) < len(self._domains):
            return super().neighbours(config, rng)
        others = [{**config, name: choice} for name, choices in self._choices.items() for choice in choices]
        rng.shuffle(others)
        return self.distinct(others, config)

    def choices(self) -> dict[str, list[Any]]:
        """Of `tune.choice` its values, of `tune.randint` the numbers. Raises: InvalidInput for any other domain."""
        choices = {name: self._choices.get(name) or _whole_numbers(d) for name, d in self._domains.items()}
        for name, values in choices.items():
            if not values:
                raise InvalidInput(
                    f"{name}: expected a finite number of values, tune.choice([...]), or tune.randint over at most "
                    f"{INTEGERS}, got {self._domains[name].domain_str}; name the values to choose from"
                )
        return {name: list(values or ()) for name, values in choices.items()}

    def check_point(self, point: Mapping[str, Any]) -> Config:
        if set(point) != set(self._domains):
            raise InvalidInput(f"expected a point with the keys {', '.join(self._domains)}, got {point!r}")
        for name, value in point.items():
            if not self._domains[name].is_valid(value):
                raise InvalidInput(
                    f"expected a point's {name} to be of {self._domains[name].domain_str}, got {value!r}"
                )
        return {name: point[name] for name in self._domains}

    def identity(self) -> dict[str, Any]:
        described = {n: [type(d).__name__, d.domain_str, _sampler(d.get_sampler())] for n, d in self._domains.items()}
        return {"space": described}

    def draws(self, rng: np.random.Generator) -> Iterator[Config]:
        yield from super().draws(rng)
        sizes = [len(choices) for choices in self._choices.values()]
        if len(sizes) == len(self._domains) and np.prod(sizes, dtype=float) <= ENUMERABLE:
            rows = list(itertools.product(*self._choices.values()))
            yield from (dict(zip(self._choices, rows[row], strict=True)) for row in rng.permutation(len(rows)))

    def check_mutable(self) -> None:
        if not self._free:
            raise InvalidInput("expected a domain with 2 values or more, got one value for each key")


def _whole_numbers(domain: Domain) -> list[int] | None:
    """The values of a `tune.randint`, if there are few enough; None for anything else."""
    if not isinstance(domain, Integer) or isinstance(domain.get_sampler(), Quantized):
        return None
    return list(range(domain.lower, domain.upper)) if domain.upper - domain.lower <= INTEGERS else None


def _distinct(values: Sequence[Any]) -> list[Any]:
    return [value for place, value in enumerate(values) if value not in values[:place]]


def _sampler(sampler: Sampler) -> dict[str, Any]:
    """A sampler of Tune's, as JSON: its name and its numbers; one that rounds holds another."""
    values = {n: _sampler(v) if isinstance(v, Sampler) else v for n, v in vars(sampler).items()}
    return {"name": type(sampler).__name__, **values}
