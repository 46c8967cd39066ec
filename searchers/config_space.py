"""Sources of configs: an archray space, a list of names, a dict of Tune domains, or a user's object."""

import itertools
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from ray.tune.search.sample import Categorical, Domain, Integer, Quantized, Sampler

from archray.errors import InvalidArchitecture, InvalidInput
from archray.searchers.arguments import HeldSpace, IntArray
from archray.trainables.spaces import ConstrainedSpace, Space

Config = dict[str, Any]
DRAWS = 1000  # random draws to find a new config; then a small space is enumerated
ENUMERABLE = 10**6  # maximum number of configs of a space that is enumerated
NEIGHBORS = 100  # mutations to draw if the neighbors of a config cannot be listed
STEPS = 100  # maximum number of mutations to reach another config
SEED = "seed"  # the key that a searcher sets in every config


def without_seed(config: Mapping[str, Any]) -> Config:
    return {name: value for name, value in config.items() if name != SEED}


class ConfigSpace(ABC):
    """Base class of the sources of configs."""

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> Config: ...

    @abstractmethod
    def mutate(self, config: Mapping[str, Any], rng: np.random.Generator) -> Config:
        """Returns `config` after one mutation, or after as many mutations as it takes to reach another config."""

    def cross(self, config: Mapping[str, Any], other: Mapping[str, Any], rng: np.random.Generator) -> Config:
        """Returns a uniform crossover: each decision comes from one of two configs with equal probability.

        Returns `config` itself if the space does not contain the child, or has no separate decisions.
        """
        return without_seed(config)

    def neighbors(self, config: Mapping[str, Any], rng: np.random.Generator) -> list[Config]:
        """Returns the distinct configs one mutation away from `config`, in random order.

        These are all neighbors if they can be listed, else the results of 100 mutations.
        """
        return self.distinct((self.mutate(config, rng) for _ in range(NEIGHBORS)), config)

    def distinct(self, configs: Iterable[Config], other: Mapping[str, Any]) -> list[Config]:
        """Returns the configs in order, without duplicates and without those equal to `other`."""
        by_key: dict[str, Config] = {}
        for config in configs:
            by_key.setdefault(self.key(config), config)
        by_key.pop(self.key(other), None)
        return list(by_key.values())

    def choices(self) -> dict[str, list[Any]]:
        """Returns the values of each independent decision, by name. Raises: InvalidInput for a continuous space."""
        raise NotImplementedError

    def config_of(self, choices: Mapping[str, Any]) -> Config | None:
        """Returns the config with the given choice of each decision; None if the space does not contain it."""
        return dict(choices)

    def combinations(self) -> IntArray | None:
        """Returns the indices of every config's choices, (n, D); None if (nearly) every combination is a config."""
        return None

    def choices_of(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the choices that can be derived from a config, by decision."""
        return without_seed(config)

    @abstractmethod
    def check_point(self, point: Mapping[str, Any]) -> Config:
        """Returns the complete config of a user's point. Raises: InvalidInput, InvalidArchitecture."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Returns the settings that must equal those of a saved state. JSON-able."""

    def draws(self, rng: np.random.Generator) -> Iterator[Config]:
        """Yields configs in the order in which random search tries them, until no new config is likely."""
        for _ in range(DRAWS):
            yield self.sample(rng)

    def key(self, config: Mapping[str, Any]) -> str:
        """Returns a string that is equal for configs that differ only in their seed."""
        return json.dumps(without_seed(config), sort_keys=True)

    def prepare(self) -> None:
        """Loads a space that was given by name."""
        return

    def check_mutable(self) -> None:
        """Raises: InvalidInput if no config can be mutated."""
        return


# Tune domains

INTEGERS = 1000  # maximum number of values of a tune.randint that is treated as a categorical decision


class Domains(ConfigSpace):
    """Configs from a dict of Tune domains: `{"width": tune.choice([16, 32]), "lr": tune.loguniform(1e-3, 1)}`.

    A mutation draws another value for one key with several values.

    Raises: InvalidInput for any other argument.
    """

    def __init__(self, domains: Mapping[str, Domain]) -> None:
        if not domains:
            raise InvalidInput("Expected a Tune domain for each key, got an empty dict")
        for name, domain in domains.items():
            if not isinstance(name, str) or name == SEED:
                raise InvalidInput(
                    f"Expected strings other than {SEED!r} as keys, got {name!r}. The searcher sets {SEED!r} itself."
                )
            if not isinstance(domain, Domain) or domain.is_function() or domain.is_grid():
                raise InvalidInput(
                    f"{name}: expected a Tune domain such as tune.choice([16, 32]) or tune.uniform(0, 1), "
                    f"got {domain!r}. Put a fixed value into the Tuner's param_space."
                )
            if isinstance(domain, Categorical) and json.loads(json.dumps(domain.categories)) != domain.categories:
                raise InvalidInput(f"{name}: expected JSON values as choices, got {domain.categories!r}")
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

    def neighbors(self, config: Mapping[str, Any], rng: np.random.Generator) -> list[Config]:
        if len(self._choices) < len(self._domains):
            return super().neighbors(config, rng)
        others = [{**config, name: choice} for name, choices in self._choices.items() for choice in choices]
        rng.shuffle(others)
        return self.distinct(others, config)

    def choices(self) -> dict[str, list[Any]]:
        """Returns the values of `tune.choice` and `tune.randint`. Raises: InvalidInput for any other domain."""
        choices = {name: self._choices.get(name) or _whole_numbers(d) for name, d in self._domains.items()}
        for name, values in choices.items():
            if not values:
                raise InvalidInput(
                    f"{name}: expected a finite number of values, tune.choice([...]) or tune.randint with at most "
                    f"{INTEGERS} values, got {self._domains[name].domain_str}. List the values in tune.choice."
                )
        return {name: list(values or ()) for name, values in choices.items()}

    def check_point(self, point: Mapping[str, Any]) -> Config:
        if set(point) != set(self._domains):
            raise InvalidInput(f"Expected a point with the keys {', '.join(self._domains)}, got {point!r}")
        for name, value in point.items():
            if not self._domains[name].is_valid(value):
                raise InvalidInput(
                    f"Expected a point's {name} to be in {self._domains[name].domain_str}, got {value!r}"
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
            raise InvalidInput("Expected a domain with 2 values or more, got one value for each key")


def _whole_numbers(domain: Domain) -> list[int] | None:
    """Returns the values of a `tune.randint` with at most INTEGERS values; None for any other domain."""
    if not isinstance(domain, Integer) or isinstance(domain.get_sampler(), Quantized):
        return None
    return list(range(domain.lower, domain.upper)) if domain.upper - domain.lower <= INTEGERS else None


def _distinct(values: Sequence[Any]) -> list[Any]:
    return [value for place, value in enumerate(values) if value not in values[:place]]


def _sampler(sampler: Sampler) -> dict[str, Any]:
    """Returns a Tune sampler as JSON: its name and its numbers. A quantized sampler contains another sampler."""
    values = {n: _sampler(v) if isinstance(v, Sampler) else v for n, v in vars(sampler).items()}
    return {"name": type(sampler).__name__, **values}


# archray's spaces, lists and users' objects


@runtime_checkable
class CustomSpace(Protocol):
    """The protocol of a custom search space.

    Optional members: `encode(config) -> str`, which returns equal strings for configs of the same architecture
    (default: equal configs are the same architecture); and `decisions`, a dictionary from each key of a config to the
    list of its values, which REINFORCE needs.
    """

    def sample(self, rng: np.random.Generator) -> Mapping[str, Any]:
        """Returns a random config: a JSON-able dictionary with string keys."""
        ...

    def mutate(self, config: Mapping[str, Any], rng: np.random.Generator) -> Mapping[str, Any]:
        """Returns another config close to `config`. Random search and REINFORCE do not call it."""
        ...


SpaceSource = str | Space | Mapping[str, Domain] | CustomSpace  # a space, its name or reference; Tune domains


class Architectures(ConfigSpace):
    """Configs `{"architecture"}` with the canonical strings of a space."""

    def __init__(self, space: str | Space) -> None:
        self._held = HeldSpace(space)

    def sample(self, rng: np.random.Generator) -> Config:
        return {"architecture": self._held.canonical_string(self._held.space.sample(rng))}

    def mutate(self, config: Mapping[str, Any], rng: np.random.Generator) -> Config:
        space = self._held.space
        parent = child = space.decode(config["architecture"])
        for _ in range(STEPS):
            child = space.mutate(child, rng)
            if space.canonical(child) != space.canonical(parent):
                break
        return {"architecture": self._held.canonical_string(child)}

    def cross(self, config: Mapping[str, Any], other: Mapping[str, Any], rng: np.random.Generator) -> Config:
        space = self._held.space
        one, two = (space.decode(parent["architecture"]) for parent in (config, other))
        heads = rng.random(len(one)) < 0.5
        child = tuple(a if head else b for a, b, head in zip(one, two, heads, strict=True))
        try:
            space.check(child)
        except InvalidArchitecture:  # choices depend on each other, or a table lacks the child
            return super().cross(config, other, rng)
        if isinstance(space, ConstrainedSpace) and not space.meets(child):
            return super().cross(config, other, rng)
        return {"architecture": self._held.canonical_string(child)}

    def neighbors(self, config: Mapping[str, Any], rng: np.random.Generator) -> list[Config]:
        mutations = self._held.space.mutations(self._held.space.decode(config["architecture"]))
        if mutations is None:
            return super().neighbors(config, rng)
        forms = [{"architecture": self._held.canonical_string(architecture)} for architecture in mutations]
        rng.shuffle(forms)
        return self.distinct(forms, config)

    def choices(self) -> dict[str, list[Any]]:
        space = self._held.space
        if space.size == math.inf:
            raise InvalidInput(f"Expected a space of categorical decisions, got {space.name}, which is continuous")
        return {decision.name: list(decision.choices) for decision in space.posterior_decisions}

    def config_of(self, choices: Mapping[str, Any]) -> Config | None:
        space = self._held.space
        try:
            return {"architecture": self._held.canonical_string(space.architecture_of_decisions(choices))}
        except InvalidArchitecture:  # a table does not contain all architectures of its base space
            return None

    def combinations(self) -> IntArray | None:
        rows: IntArray | None = getattr(self._held.space, "rows_of_decisions", None)  # only a table has it
        return rows

    def choices_of(self, config: Mapping[str, Any]) -> dict[str, Any]:
        space = self._held.space
        names = [decision.name for decision in space.decisions]
        return dict(zip(names, space.decode(config["architecture"]), strict=True))

    def check_point(self, point: Mapping[str, Any]) -> Config:
        return {"architecture": self._held.canonicalise(architecture_of(point))}

    def identity(self) -> dict[str, Any]:
        return {"space": self._held.name}

    def draws(self, rng: np.random.Generator) -> Iterator[Config]:
        yield from super().draws(rng)
        space = self._held.space
        if space.size <= ENUMERABLE:
            forms = sorted({self._held.canonical_string(architecture) for architecture in space.enumerate()})
            yield from ({"architecture": forms[row]} for row in rng.permutation(len(forms)))

    def key(self, config: Mapping[str, Any]) -> str:
        return str(config["architecture"])

    def prepare(self) -> None:
        _ = self._held.space

    def check_mutable(self) -> None:
        self._held.space.check_mutable()


class Candidates(ConfigSpace):
    """Configs `{"architecture"}` with the strings of a list.

    Raises: InvalidInput for an empty list, or for repeated strings.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        if not self._names or len(set(self._names)) != len(self._names):
            raise InvalidInput(f"Expected one or more distinct candidates, got {self._names!r:.200}")

    def sample(self, rng: np.random.Generator) -> Config:
        return {"architecture": self._names[rng.integers(len(self._names))]}

    def mutate(self, config: Mapping[str, Any], rng: np.random.Generator) -> Config:
        raise NotImplementedError("The names of a list have no neighbors")

    def choices(self) -> dict[str, list[Any]]:
        return {"architecture": list(self._names)}

    def check_point(self, point: Mapping[str, Any]) -> Config:
        return {"architecture": architecture_of(point)}

    def identity(self) -> dict[str, Any]:
        return {"candidates": list(self._names)}

    def draws(self, rng: np.random.Generator) -> Iterator[Config]:
        return ({"architecture": self._names[row]} for row in rng.permutation(len(self._names)))

    def key(self, config: Mapping[str, Any]) -> str:
        return str(config["architecture"])

    def check_mutable(self) -> None:
        raise InvalidInput(
            "Expected a space with mutations, got a list of candidates. Pass a space, or use RandomSearch."
        )


class CustomConfigs(ConfigSpace):
    """Configs of a user's `CustomSpace`."""

    def __init__(self, space: CustomSpace) -> None:
        self._space = space

    def sample(self, rng: np.random.Generator) -> Config:
        return self.check_point(self._space.sample(rng))

    def mutate(self, config: Mapping[str, Any], rng: np.random.Generator) -> Config:
        child = dict(config)
        for _ in range(STEPS):
            child = self.check_point(self._space.mutate(child, rng))
            if self.key(child) != self.key(config):
                break
        return child

    def cross(self, config: Mapping[str, Any], other: Mapping[str, Any], rng: np.random.Generator) -> Config:
        decisions = getattr(self._space, "decisions", None)
        if not isinstance(decisions, Mapping):
            return super().cross(config, other, rng)
        genes = {name: other[name] for name in decisions if name in other and rng.random() < 0.5}
        return self.check_point({**super().cross(config, other, rng), **genes})

    def choices(self) -> dict[str, list[Any]]:
        decisions = getattr(self._space, "decisions", None)
        if not isinstance(decisions, Mapping) or not decisions:
            raise InvalidInput(
                f"Expected {type(self._space).__name__}.decisions to be a dictionary from each key of a config to the "
                f"list of its values, got {decisions!r}"
            )
        return {name: list(values) for name, values in decisions.items()}

    def key(self, config: Mapping[str, Any]) -> str:
        encode = getattr(self._space, "encode", None)
        if encode is None:
            return super().key(config)
        return str(encode(without_seed(config)))

    def check_point(self, point: Mapping[str, Any]) -> Config:
        if not isinstance(point, Mapping) or not point or SEED in point or not all(isinstance(k, str) for k in point):
            raise InvalidInput(
                f"Expected a config of {type(self._space).__name__}, a dictionary with string keys other than "
                f"{SEED!r}, got {point!r}"
            )
        return dict(point)

    def identity(self) -> dict[str, Any]:
        return {"space": str(getattr(self._space, "name", type(self._space).__name__))}


def config_space(source: SpaceSource | Iterable[str]) -> ConfigSpace:
    """Returns the source of configs for `source`. Raises: InvalidInput for an unsupported type."""
    if isinstance(source, str | Space):
        return Architectures(source)
    if isinstance(source, Mapping):
        return Domains(source)
    if isinstance(source, CustomSpace):
        return CustomConfigs(source)
    if isinstance(source, Iterable):
        return Candidates(list(source))
    raise InvalidInput(
        "Expected a space, its name or reference, a dict of Tune domains, or an object with sample(rng) and "
        f"mutate(config, rng), got {type(source).__name__}"
    )


def architecture_of(point: Mapping[str, Any]) -> str:
    """Returns the name in a point `{"architecture"}`. Raises: InvalidInput for any other point."""
    name = point.get("architecture")
    if not isinstance(name, str):
        raise InvalidInput(f"Expected a point with architecture (a string), got {point!r}")
    return name
