"""The plain searches: an entry each, with its presets and flags. One more is an entry here and one in the recipes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from archray.platform.config import merge
from archray.platform.methods.method import Method, Values, serves_networks
from archray.platform.methods.plain.plain_config import (
    AshaConfig,
    BOHBConfig,
    EvolutionConfig,
    LocalSearchConfig,
    PlainConfig,
    RandomConfig,
    ReinforceConfig,
)
from archray.platform.methods.plain.zero_cost_config import WarmStartConfig, ZeroCostConfig
from archray.platform.methods.training_presets import SCORINGS, TRAININGS
from archray.trainables.spaces import Space, TableSpace

_AT = "archray.platform.methods.plain"
_OWN: Mapping[str, Values] = {
    "smoke": {
        "search": {"budget": 3},
        "train": {"epochs": 1, "batch_size": 64},
        "final": {"epochs": 2, "batch_size": 64},
        "baseline": 1,
    },
    "demo": {"search": {"budget": 16}},
    "paper": {"search": {"budget": 100}},
}
PRESETS = {preset: merge(values, _OWN[preset]) for preset, values in TRAININGS.items()}
_POOL_SIZES: Mapping[str, int] = {"smoke": 6, "demo": 300, "paper": 1000}
# Of those that look at a pool first.
POOL_PRESETS = {preset: merge(values, {"pool": {"size": _POOL_SIZES[preset]}}) for preset, values in SCORINGS.items()}
FLAGS: Mapping[str, str] = {
    "budget": "search.budget",
    "epochs": "train.epochs",
    "final_epochs": "final.epochs",
    "final_seeds": "final_seeds",
    "random": "baseline",
}
POOL_FLAGS: Mapping[str, str] = {
    "proxy": "search.proxy",
    "mu": "search.mu",
    "nu": "search.nu",
    "pool": "pool.table",
    "pool_size": "pool.size",
}
SIZES: Mapping[str, str] = {"population": "search.population", "sample_size": "search.sample_size"}
EXTENDABLE = ("budget", "final_epochs", "final_seeds", "random")


def serves(space: Space) -> str | None:
    """None for a space of networks, and for a table, which answers in the place of trainings."""
    return None if isinstance(space, TableSpace) else serves_networks(space)


def plain_method(
    name: str,
    config: type[PlainConfig],
    *,
    recipe_at: str,
    presets: Mapping[str, Values] | None = None,
    flags: Mapping[str, str] | None = None,
    extendable: tuple[str, ...] = EXTENDABLE,
    **fields: Any,
) -> Method:
    """A plain search.

    Args:
        recipe_at: where its `plain_recipe` is.
        presets, flags: over those of all plain searches.
        fields: further ones of `Method`, `searcher_at` above all.
    """
    return Method(
        name=name,
        config=config,
        recipe_at=recipe_at,
        presets={preset: merge(values, (presets or {}).get(preset, {})) for preset, values in PRESETS.items()},
        flags={**FLAGS, **(flags or {})},
        extendable=extendable,
        streams=True,
        **fields,
    )


def _own(name: str, config: type[PlainConfig], of_pool: bool = False, **fields: Any) -> Method:
    """One of archray's own, whose recipe is called as the method is."""
    fields["serves"] = serves
    own = fields.pop("presets", {})
    presets = {preset: merge(values if of_pool else {}, own.get(preset, {})) for preset, values in POOL_PRESETS.items()}
    flags = {**(POOL_FLAGS if of_pool else {}), **fields.pop("flags", {})}
    called = name.replace("-", "_")
    return plain_method(
        name, config, recipe_at=f"{_AT}.plain_recipes:{called.upper()}", presets=presets, flags=flags, **fields
    )


def _searcher(function: str) -> str:
    return f"{_AT}.plain_searchers:{function}"


_EVOLVES: Mapping[str, Values] = {
    "smoke": {"search": {"budget": 4, "population": 2, "sample_size": 2}},
    "demo": {"search": {"population": 6}},
}

RANDOM = _own("random", RandomConfig, searcher_at=_searcher("random_search"))
EVOLUTION = _own("evolution", EvolutionConfig, searcher_at=_searcher("evolution"), presets=_EVOLVES, flags=SIZES)
LOCAL_SEARCH = _own(
    "local-search",
    LocalSearchConfig,
    searcher_at=_searcher("local_search"),
    presets={"smoke": {"search": {"initial": 2}}, "demo": {"search": {"initial": 4}}},
    flags={"initial": "search.initial"},
)
REINFORCE = _own(
    "reinforce",
    ReinforceConfig,
    searcher_at=_searcher("reinforce"),
    # few trainings: at the paper's rate of 0.01 a policy of some dozen steps would still be uniform
    presets={"demo": {"search": {"learning_rate": 0.1}}},
    flags={"learning_rate": "search.learning_rate", "entropy": "search.entropy"},
)
_HALVES: Mapping[str, Values] = {
    "smoke": {"search": {"budget": 4}, "train": {"epochs": 2}, "rungs": {"reduction_factor": 2}},
    "demo": {"search": {"budget": 32}, "train": {"epochs": 8}, "rungs": {"reduction_factor": 2}},
    # the paper's eta 4; Li et al. 2020
    "paper": {"search": {"budget": 256}, "train": {"epochs": 64}},
}
_RUNGS: Mapping[str, str] = {"grace_period": "rungs.grace_period", "reduction_factor": "rungs.reduction_factor"}
_ENDED = ("final_epochs", "final_seeds", "random")  # Tune's scheduler knows nothing of a search before

ASHA = _own("asha", AshaConfig, presets=_HALVES, flags=_RUNGS, extendable=_ENDED)
BOHB = _own(
    "bohb",
    BOHBConfig,
    presets={  # eta 3, with which Falkner et al. 2018 ran it
        **_HALVES,
        "paper": {"search": {"budget": 256}, "train": {"epochs": 81}, "rungs": {"reduction_factor": 3}},
    },
    flags={**_RUNGS, "random_fraction": "search.random_fraction"},
    extendable=_ENDED,
)
ZERO_COST = _own("zero-cost", ZeroCostConfig, of_pool=True, searcher_at=_searcher("zero_cost"), by_proxy=True)
ZERO_COST_EVOLUTION = _own(
    "zero-cost-evolution",
    WarmStartConfig,
    of_pool=True,
    searcher_at=_searcher("zero_cost_evolution"),
    by_proxy=True,
    presets=_EVOLVES,
    flags=SIZES,
)
