"""The configuration of the plain searches over networks: random search, evolution, and what else is one searcher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from archray.errors import InvalidInput
from archray.platform.config import SearchConfig, merge
from archray.platform.methods.method import Method, Values
from archray.platform.methods.trained_config import TrainedSearchConfig
from archray.plurals import count
from archray.settings import Settings
from archray.trainables.training_settings import TrainingSettings


class PlainOptions(Settings):
    """What the searcher of a plain search is told; see there.

    Fields:
        budget: trainings of the search.
    """

    budget: int = Field(100, ge=1)


class PlainConfig(TrainedSearchConfig):
    """The configuration of a plain search.

    Fields:
        search: what the searcher is told.
        train: the short training that gives a trial its value.
    """

    search: PlainOptions = PlainOptions()
    train: TrainingSettings = TrainingSettings(epochs=12)

    def check_extends(self, before: SearchConfig) -> None:
        if isinstance(before, PlainConfig) and self.search.budget < before.search.budget:
            raise InvalidInput(
                f"expected a budget of more than the {count(before.search.budget, 'training')} that the run has, "
                f"got {self.search.budget}"
            )


class RandomConfig(PlainConfig):
    """The configuration of random search: architectures drawn from the space, none of them twice."""

    method: Literal["random"] = "random"


class EvolutionOptions(PlainOptions):
    """What `RegularizedEvolution` is told; see there. Real et al. 2019, section 3.3, has 100 and 25.

    Fields:
        population: how many are alive, P: the first of them are drawn at random. None: a quarter of the budget, but no
            more than the paper's 100.
        sample_size: of the population, how many are drawn to choose a parent from, S. None: a quarter of the
            population, which is the paper's share.
    """

    population: int | None = Field(None, ge=1)
    sample_size: int | None = Field(None, ge=1)


class EvolutionConfig(PlainConfig):
    """The configuration of ageing evolution."""

    method: Literal["evolution"] = "evolution"
    search: EvolutionOptions = EvolutionOptions()

    def check(self) -> None:
        super().check()
        check_population(self.search.population, self.search.budget)


def check_population(population: int | None, budget: int) -> None:
    """Raises: InvalidInput if nothing would be left to evolve."""
    if population is not None and population >= budget:
        raise InvalidInput(
            f"expected search.population to be below the budget, {count(budget, 'training')}, got {population}: those "
            "are drawn at random, and only what comes after them evolves; lower it, or use the method random"
        )


# Presets and flags

_TINY = {"channels": 4, "cells": 1}
PRESETS: Mapping[str, Values] = {
    "smoke": {
        "network": _TINY,
        "search": {"budget": 4},
        "train": {"epochs": 1, "batch_size": 64},
        "final": {"epochs": 2, "batch_size": 64},
        "baseline": 1,
    },
    "demo": {
        "network": {"channels": 8, "cells": 1},
        "search": {"budget": 16},
        # after some 20 epochs nearly every cell has learnt these small digits, and there is nothing to compare
        "train": {"epochs": 4, "batch_size": 64},
        "final": {"epochs": 10, "batch_size": 64},
        "final_seeds": 3,
        "baseline": 8,
    },
    # NAS-Bench-201's networks and trainings, of 12 epochs in the search (Dong and Yang 2020)
    "paper": {
        "data": {"name": "cifar10"},
        "network": {"channels": 16, "cells": 5},
        "search": {"budget": 100},
        "train": {"epochs": 12},
        "final": {"epochs": 200},
        "final_seeds": 3,
    },
}
FLAGS: Mapping[str, str] = {
    "budget": "search.budget",
    "epochs": "train.epochs",
    "final_epochs": "final.epochs",
    "final_seeds": "final_seeds",
    "random": "baseline",
}
_AT = "archray.platform.methods.plain"


def plain_method(
    name: str,
    config: type[PlainConfig],
    *,
    recipe_at: str,
    presets: Mapping[str, Values] | None = None,
    flags: Mapping[str, str] | None = None,
    extendable: tuple[str, ...] = ("budget", "final_epochs", "final_seeds", "random"),
    **fields: Any,
) -> Method:
    """A plain search.

    Args:
        recipe_at: where its `plain_recipe` is.
        presets, flags: over those of all plain searches.
        fields: further ones of `Method`.
    """
    return Method(
        name=name,
        config=config,
        recipe_at=recipe_at,
        presets={preset: merge(values, (presets or {}).get(preset, {})) for preset, values in PRESETS.items()},
        flags={**FLAGS, **(flags or {})},
        extendable=extendable,
        **fields,
    )


RANDOM = plain_method("random", RandomConfig, recipe_at=f"{_AT}.plain_recipes:RANDOM")
EVOLUTION = plain_method(
    "evolution",
    EvolutionConfig,
    recipe_at=f"{_AT}.plain_recipes:EVOLUTION",
    presets={"smoke": {"search": {"population": 2}}},
    flags={"population": "search.population", "sample_size": "search.sample_size"},
)
