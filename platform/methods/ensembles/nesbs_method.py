"""What NESBS and the methods of its stages share: defaults of each space, presets, flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from archray.platform.config import merge
from archray.platform.methods.ensembles.diversity import diversity_section
from archray.platform.methods.ensembles.ensemble_config import NESBSConfig
from archray.platform.methods.ensembles.ensemble_delta import ensemble_delta_section
from archray.platform.methods.ensembles.ensemble_result import ensemble_result_section
from archray.platform.methods.ensembles.ensemble_view import ensemble_view, print_ensemble
from archray.platform.methods.ensembles.estimated_true import estimated_true_section
from archray.platform.methods.ensembles.final_ensemble import final_ensemble_stage
from archray.platform.methods.ensembles.member_cells import member_cells_section
from archray.platform.methods.ensembles.particles import particles_section
from archray.platform.methods.ensembles.posterior_curves import posterior_section
from archray.platform.methods.ensembles.posterior_stage import posterior_stage
from archray.platform.methods.ensembles.sampled_ensembles import ensembles_section
from archray.platform.methods.ensembles.sampling_stage import search_stage
from archray.platform.methods.ensembles.supernet_stage import supernet_stage
from archray.platform.methods.method import Method
from archray.platform.methods.report_stage import report_stage
from archray.platform.methods.supernets.supernet_config import serves
from archray.platform.methods.supernets.supernet_method import defaults_of
from archray.platform.methods.training_stages import baseline_stage
from archray.platform.report.cell import cell_section
from archray.platform.report.curves import curves_section
from archray.platform.report.failures import failures_section
from archray.platform.report.manifest_section import manifest_section
from archray.platform.report.page import MakeSection
from archray.trainables.spaces import get_space

ENSEMBLE_SECTIONS: tuple[MakeSection, ...] = (
    cell_section,
    ensemble_result_section,
    member_cells_section,
    diversity_section,
    posterior_section,
    particles_section,
    ensembles_section,
    ensemble_delta_section,
    estimated_true_section,
    curves_section,
    failures_section,
    manifest_section,
)


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

# Small images leave no room for an auxiliary tower, and few epochs no time for dropped paths.
PLAIN: Values = {
    "network": {"auxiliary": False},
    "final": {"auxiliary_weight": 0.0, "drop_path": 0.0, "augmentation": {"cutout": 0}},
}
PRESETS: Mapping[str, Values] = {
    "smoke": merge(
        PLAIN,
        {
            "supernet": {"network": {"channels": 4, "cells": 1}, "training": {"epochs": 2}},
            "posterior": {"epochs": 2},
            "ensemble_size": 2,
            "search": {"budget": 3, "iterations": 100},
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


def nesbs_method(name: str, summary: str, *method: Values, posterior: bool = True) -> Method:
    """A method of NESBS' stages.

    Args:
        method: its options, later ones over earlier ones.
        posterior: whether it learns a posterior, and samples from it.
    """
    stages = (supernet_stage(), *((posterior_stage(),) if posterior else ()), search_stage(), final_ensemble_stage())
    return Method(
        name=name,
        summary=summary,
        config=NESBSConfig,
        stages=(*stages, baseline_stage(), report_stage((*(stage.name for stage in stages), "baseline"))),
        defaults=lambda space: ensemble_defaults(space, *method),
        presets=PRESETS,
        view=ensemble_view,
        sections=ENSEMBLE_SECTIONS,
        show=print_ensemble,
        flags=FLAGS,
        extendable=("budget", "final_epochs", "random"),
        serves=serves,
    )
