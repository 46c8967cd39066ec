"""NESBS (Shu 2022, ch. 5, Algorithm 5.1), and the ensembles that it is compared with, at the same final training.

At as many evaluations with shared weights: `urs` draws ensembles uniformly, with no posterior; `single-best` draws as
many architectures from the posterior as all ensembles of NESBS have members, and the one with the lowest validation
loss is trained once, an ensemble of one.

Without shared weights (sections 5.4.1 to 5.5.1; note E8). Of one architecture, either given by `architecture` (what
another run found) or the best of a small pool of random ones: `deep-ensemble` (Lakshminarayanan et al. 2017) trains it
n times, `snapshot` (Huang et al. 2017) once in n cycles, and `mc-droppath` (after Gal and Ghahramani 2016) once, to
drop paths in n passes. Of several: neural ensemble search (Zaidi et al. 2021) trains a pool, drawn at random by
`nes-rs` and evolved by `nes-re`, and selects n from it. They are then trained from scratch as those of NESBS, which is
the thesis' comparison; in Zaidi et al. the trained networks of the pool are the ensemble.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from archray.platform.config import merge
from archray.platform.methods.ensembles.baseline_config import (
    DROPPED,
    DropPathConfig,
    EvolvedNESConfig,
    NESConfig,
    OneArchitectureConfig,
    SnapshotConfig,
)
from archray.platform.methods.ensembles.ensemble_config import NESBSConfig, SingleBestConfig, UniformConfig
from archray.platform.methods.method import Method, Values
from archray.platform.methods.supernets.supernet_config import serves
from archray.platform.methods.supernets.supernet_method import PLAIN, defaults_of
from archray.trainables.spaces import Space, get_space
from archray.trainables.spaces.genotypes import GenotypeSpace

_RECIPES = "archray.platform.methods.ensembles.ensemble_recipes"

# The supernet is trained as section 5.4.1 says, on 70 % of the training data; validation is of the rest.
_SUPERNET: Values = {
    "data": {"validation_fraction": 0.3},
    "supernet": {
        "partial_channels": 2,
        "relaxation": {"name": "path", "draws": "architectures"},
        "optimizer": {"name": "none"},
        "training": {"epochs": 50, "batch_size": 128, "lr": 0.1, "lr_min": 0.0},
    },
}
_DARTS_FINAL: Values = {"final": {"drop_path": 0.2}}  # rising from 0 (note E8)
PRESETS: Mapping[str, Values] = {
    "smoke": merge(
        PLAIN,
        {
            "supernet": {"network": {"channels": 4, "cells": 1}, "training": {"epochs": 2}},
            "posterior": {"epochs": 2},
            "ensemble_size": 2,
            "search": {"budget": 3},
            "network": {"channels": 4, "cells": 1},
            "final": {"epochs": 2, "batch_size": 64},
        },
    ),
    "demo": merge(
        PLAIN,
        {
            "supernet": {"network": {"channels": 8, "cells": 1}, "training": {"epochs": 30, "batch_size": 64}},
            # Of some hundred images nothing is heard beside the prior at the paper's scale of 1, and its batch and
            # epochs are 80 steps. The score function has no bias, and takes half the time.
            "posterior": {
                "posterior": {"scale": "data", "estimator": "score-function", "samples": 2},
                "epochs": 40,
                "batch_size": 32,
            },
            "network": {"channels": 8, "cells": 1},
            "final": {"epochs": 20, "batch_size": 64},
        },
    ),
    "paper": {"data": {"name": "cifar10"}},
}


def _sampled_defaults(space: str, *method: Values) -> dict[str, Any]:
    """The paper's options of an ensemble's supernet and final training in a space, and those of a method over them."""
    final = _DARTS_FINAL if get_space(space).name.startswith("darts") else {}
    return defaults_of(space, _SUPERNET, final, *method)


_sampled = partial(
    Method,
    presets=PRESETS,
    flags={
        "ensemble_size": "ensemble_size",
        "sampler": "search.sampler",
        "temperature": "search.temperature",
        "delta": "search.delta",
        "budget": "search.budget",
        "epochs": "supernet.training.epochs",
        "posterior_epochs": "posterior.epochs",
        "search_channels": "supernet.network.channels",
        "search_cells": "supernet.network.cells",
        "final_epochs": "final.epochs",
        "random": "baseline",
    },
    extendable=("budget", "final_epochs", "random"),
    serves=serves,
)
_SVGD = {"search": {"sampler": {"name": "svgd-rd", "iterations": 100}}}

# Of NESBS' options those that the methods without shared weights have too, so that only the ensembles differ.
_SHARED = ("data", "network", "final", "ensemble_size")
_POOLS: Mapping[str, Values] = {
    "smoke": {"pool": 4, "train": {"epochs": 1}},
    "demo": {"pool": 12, "train": {"epochs": 10}},
    "paper": {},
}
_FLAGS = {
    "ensemble_size": "ensemble_size",
    "budget": "pool",
    "epochs": "train.epochs",
    "final_epochs": "final.epochs",
    "random": "baseline",
}


def _shared(values: Values) -> dict[str, Any]:
    """Those of NESBS' options that are these methods' too; a pool is trained as its final networks are."""
    taken = {name: value for name, value in values.items() if name in _SHARED}
    return merge(taken, {"train": taken["final"]}) if "final" in taken else taken


def _pooled_defaults(space: str, *method: Values) -> dict[str, Any]:
    return merge(_shared(_sampled_defaults(space)), {"train": {"epochs": 50}}, *method)


def _presets(**own: Values) -> dict[str, Values]:
    return {name: merge(_shared(values), _POOLS[name], own.get(name, {})) for name, values in PRESETS.items()}


def _has_paths(space: Space) -> str | None:
    """None for a space whose networks have paths to drop; else why it cannot be searched."""
    has = isinstance(space, GenotypeSpace)
    return None if has else "its networks have no paths to drop; choose darts, darts-none or nasnet"


_pooled = partial(
    Method,
    defaults=_pooled_defaults,
    presets=_presets(),
    flags=_FLAGS,
    extendable=("final_epochs", "random"),
)
_of_one = partial(
    _pooled,
    config=OneArchitectureConfig,
    defaults=lambda space: _pooled_defaults(space, {"pool": 10}),  # random architectures, where none is given
    flags=_FLAGS | {"architecture": "architecture"},
)
# Few epochs leave no time for many dropped paths; but a network that is to do without some has to have learnt it.
_DROPPED = {"final": {"drop_path": DROPPED}}

NESBS = _sampled(
    name="nesbs",
    config=NESBSConfig,
    recipe_at=f"{_RECIPES}:NESBS",
    defaults=_sampled_defaults,
    presets={**PRESETS, "smoke": merge(PRESETS["smoke"], _SVGD)},
)
URS = _sampled(
    name="urs",
    config=UniformConfig,
    recipe_at=f"{_RECIPES}:URS",
    defaults=lambda space: _sampled_defaults(space, {"search": {"sampler": "uniform"}}),
)
SINGLE_BEST = _sampled(
    name="single-best",
    config=SingleBestConfig,
    recipe_at=f"{_RECIPES}:NESBS",
    defaults=lambda space: _sampled_defaults(space, {"search": {"sampler": "mc"}}),
)
DEEP_ENSEMBLE = _of_one(name="deep-ensemble", recipe_at=f"{_RECIPES}:DEEP_ENSEMBLE")
SNAPSHOT = _of_one(name="snapshot", config=SnapshotConfig, recipe_at=f"{_RECIPES}:SNAPSHOT")
MC_DROPPATH = _of_one(
    name="mc-droppath",
    config=DropPathConfig,
    recipe_at=f"{_RECIPES}:MC_DROPPATH",
    presets=_presets(smoke=_DROPPED, demo=_DROPPED),
    serves=_has_paths,
)
NES_RS = _pooled(name="nes-rs", config=NESConfig, recipe_at=f"{_RECIPES}:NES_RS")
NES_RE = _pooled(
    name="nes-re",
    config=EvolvedNESConfig,
    recipe_at=f"{_RECIPES}:NES_RE",
    presets=_presets(
        smoke={"evolution": {"population": 2, "parents": 2}}, demo={"evolution": {"population": 4, "parents": 3}}
    ),
)
