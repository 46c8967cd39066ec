"""What searchers over a space draw from: a space, names, a dict of Tune domains, or an object of the user's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from ray.tune.search.sample import Domain

from archray.errors import InvalidArchitecture, InvalidInput
from archray.searchers.arguments import HeldSpace, IntArray
from archray.searchers.config_space import ENUMERABLE, SEED, STEPS, Config, ConfigSpace
from archray.searchers.tune_domains import Domains
from archray.trainables.spaces import ConstrainedSpace, Space


@runtime_checkable
class OwnSpace(Protocol):
    """The small protocol: what a search space of the user's defines."""

    def sample(self, rng: np.random.Generator) -> Mapping[str, Any]:
        """A random config: a dictionary with strings for keys, JSON-able."""
        ...

    def mutate(self, config: Mapping[str, Any], rng: np.random.Generator) -> Mapping[str, Any]:
        """Another config, near to `config`. Random search and REINFORCE do not ask for it."""
        ...

    # And, where it has them:
    #   encode(config) -> str: configs of one string are one architecture; without it, equal configs are.
    #   decisions: a dictionary from each key of a config to the list of its values; REINFORCE needs it.


class Architectures(ConfigSpace):
    """`{"architecture"}`, a string of a space, in its canonical form."""

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
            possible = not isinstance(space, ConstrainedSpace) or space.meets(child)
        except InvalidArchitecture:  # choices that mean something together only; a table has not all of its base's
            possible = False
        if not possible:
            return super().cross(config, other, rng)
        return {"architecture": self._held.canonical_string(child)}

    def neighbours(self, config: Mapping[str, Any], rng: np.random.Generator) -> list[Config]:
        mutations = self._held.space.mutations(self._held.space.decode(config["architecture"]))
        if mutations is None:
            return super().neighbours(config, rng)
        forms = [{"architecture": self._held.canonical_string(architecture)} for architecture in mutations]
        rng.shuffle(forms)
        return self.distinct(forms, config)

    def choices(self) -> dict[str, list[Any]]:
        space = self._held.space
        if space.size == math.inf:
            raise InvalidInput(f"expected a space of categorical decisions, got {space.name}, which is continuous")
        return {decision.name: list(decision.choices) for decision in space.posterior_decisions}

    def chosen(self, choices: Mapping[str, Any]) -> Config | None:
        space = self._held.space
        try:
            return {"architecture": self._held.canonical_string(space.architecture_of_decisions(choices))}
        except InvalidArchitecture:  # a table has not all of its base's
            return None

    def existing(self) -> IntArray | None:
        rows: IntArray | None = getattr(self._held.space, "rows_of_decisions", None)  # of a table
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


class Listed(ConfigSpace):
    """`{"architecture"}`, one of a list of strings. Raises: InvalidInput if one comes twice, or there is none."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        if not self._names or len(set(self._names)) != len(self._names):
            raise InvalidInput("expected candidates that are distinct, and at least one")

    def sample(self, rng: np.random.Generator) -> Config:
        return {"architecture": self._names[rng.integers(len(self._names))]}

    def mutate(self, config: Mapping[str, Any], rng: np.random.Generator) -> Config:
        raise NotImplementedError("the names of a list have no neighbours")

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
        raise InvalidInput("expected a space, whose architectures can be mutated, got a list of candidates")


class Own(ConfigSpace):
    """What an `OwnSpace` of the user's says."""

    def __init__(self, space: OwnSpace) -> None:
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
        taken = {name: other[name] for name in decisions if name in other and rng.random() < 0.5}
        return self.check_point({**super().cross(config, other, rng), **taken})

    def choices(self) -> dict[str, list[Any]]:
        decisions = getattr(self._space, "decisions", None)
        if not isinstance(decisions, Mapping) or not decisions:
            raise InvalidInput(
                f"expected {type(self._space).__name__} to have decisions, a dictionary from each key of a config to "
                f"the list of its values, got {decisions!r}"
            )
        return {name: list(values) for name, values in decisions.items()}

    def key(self, config: Mapping[str, Any]) -> str:
        encode = getattr(self._space, "encode", None)
        if encode is None:
            return super().key(config)
        return str(encode({name: value for name, value in config.items() if name != SEED}))

    def check_point(self, point: Mapping[str, Any]) -> Config:
        if not isinstance(point, Mapping) or not point or SEED in point or not all(isinstance(k, str) for k in point):
            raise InvalidInput(
                f"expected a config of {type(self._space).__name__}: a dictionary with strings for keys and no "
                f"{SEED!r}, got {point!r}"
            )
        return dict(point)

    def identity(self) -> dict[str, Any]:
        return {"space": str(getattr(self._space, "name", type(self._space).__name__))}


def config_space(source: str | Space | Mapping[str, Domain] | Iterable[str] | OwnSpace) -> ConfigSpace:
    """What draws from `source`. Raises: InvalidInput if nothing can."""
    if isinstance(source, str | Space):
        return Architectures(source)
    if isinstance(source, Mapping):
        return Domains(source)
    if isinstance(source, OwnSpace):
        return Own(source)
    if isinstance(source, Iterable):
        return Listed(list(source))
    raise InvalidInput(
        "expected a space, its name or reference, a dict of Tune domains, or an object with sample(rng) and "
        f"mutate(config, rng), got {type(source).__name__}"
    )


def architecture_of(point: Mapping[str, Any]) -> str:
    """The name in a point `{"architecture"}`. Raises: InvalidInput."""
    name = point.get("architecture")
    if not isinstance(name, str):
        raise InvalidInput(f"expected a point with architecture, a string, got {point!r}")
    return name
