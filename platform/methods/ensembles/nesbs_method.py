"""NESBS (Shu 2022, ch. 5, Algorithm 5.1), and what samples otherwise at as many evaluations.

`urs` draws ensembles uniformly, with no posterior. `single-best` draws as many architectures from the posterior as all
ensembles of NESBS have members, and the one with the lowest validation loss is trained once: an ensemble of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from archray.platform.config import merge
from archray.platform.methods.ensembles.ensemble_config import NESBSConfig, SingleBestConfig, UniformConfig
from archray.platform.methods.ensembles.ensemble_report import (
    SAMPLED_SECTIONS,
    headline_of_sampled,
    measured,
    show_sampled,
)
from archray.platform.methods.ensembles.final_ensemble import FINAL_ENSEMBLE_STAGE
from archray.platform.methods.ensembles.posterior_stage import POSTERIOR_STAGE, SUPERNET_STAGE
from archray.platform.methods.ensembles.sampling_stage import SAMPLING_STAGE
from archray.platform.methods.method import METHODS, Method
from archray.platform.methods.supernets.supernet_config import serves
from archray.platform.methods.supernets.supernet_method import PLAIN, defaults_of
from archray.platform.methods.training_stages import BASELINE_STAGE
from archray.trainables.spaces import get_space

Values = Mapping[str, Any]

# The supernet is trained as section 5.4.1 says, on 70 % of the training data; validation is of the rest.
SUPERNET: Values = {
    "data": {"validation_fraction": 0.3},
    "supernet": {
        "partial_channels": 2,
        "relaxation": {"name": "path", "draws": "architectures"},
        "optimizer": {"name": "none"},
        "training": {"epochs": 50, "batch_size": 128, "lr": 0.1, "lr_min": 0.0},
    },
}
DARTS_FINAL: Values = {"final": {"drop_path": 0.2}}  # rising from 0 (note E8)

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
_NESBS_PRESETS: Mapping[str, Values] = {
    **PRESETS,
    "smoke": merge(PRESETS["smoke"], {"search": {"sampler": {"name": "svgd-rd", "iterations": 100}}}),
}
FLAGS: Mapping[str, str] = {
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
}


def ensemble_defaults(space: str, *method: Values) -> dict[str, Any]:
    """The paper's options of an ensemble's supernet and final training in a space, and those of a method over them."""
    final = DARTS_FINAL if get_space(space).name.startswith("darts") else {}
    return defaults_of(space, SUPERNET, final, *method)


def _register(
    name: str,
    summary: str,
    config: type[NESBSConfig],
    *method: Values,
    presets: Mapping[str, Values] = PRESETS,
    posterior: bool = True,
) -> None:
    """method: its options, later ones over earlier ones. posterior: whether it learns one, and samples from it."""
    learnt = (POSTERIOR_STAGE,) if posterior else ()
    METHODS.register(
        name,
        Method(
            name=name,
            summary=summary,
            config=config,
            stages=(SUPERNET_STAGE, *learnt, SAMPLING_STAGE, FINAL_ENSEMBLE_STAGE, BASELINE_STAGE),
            defaults=lambda space: ensemble_defaults(space, *method),
            presets=presets,
            results=measured,
            headline=headline_of_sampled,
            sections=SAMPLED_SECTIONS,
            show=show_sampled,
            flags=FLAGS,
            extendable=("budget", "final_epochs", "random"),
            serves=serves,
        ),
    )


_register(
    "nesbs",
    "NESBS: ensembles sampled from a posterior by mc or svgd-rd (Shu 2022, ch. 5)",
    NESBSConfig,
    presets=_NESBS_PRESETS,
)
_register(
    "urs",
    "Ensembles drawn uniformly, and scored with shared weights as those of NESBS",
    UniformConfig,
    {"search": {"sampler": "uniform"}},
    posterior=False,
)
_register(
    "single-best",
    "The single architecture that is best with shared weights, at as many evaluations as NESBS",
    SingleBestConfig,
    {"search": {"sampler": "mc"}},
)
