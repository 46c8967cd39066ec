"""What methods that train a supernet share: defaults of each space, presets, flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from archray.platform.config import merge
from archray.platform.methods.method import Method, Values
from archray.platform.methods.supernets.supernet_config import SupernetSearchConfig, serves
from archray.trainables.spaces import get_space

# Evaluation on CIFAR-10 in the space of DARTS: 20 cells, 36 channels (Liu et al. 2019, App. A.2; GAEA, C.1.2).
DARTS_EVALUATION: Values = {
    "network": {"channels": 36, "cells": 6, "auxiliary": True},
    "final": {
        "epochs": 600,
        "batch_size": 128,
        "lr": 0.025,
        "nesterov": False,
        "weight_decay": 3e-4,
        "grad_clip": 5.0,
        "auxiliary_weight": 0.4,
        "drop_path": 0.3,
        "augmentation": {"cutout": 16},
    },
}
# Supernets: 8 cells of 16 channels for DARTS; as the benchmarks have them elsewhere. `none` is left out where GAEA
# leaves it out (C.3), which is NAS-Bench-201; its standalone networks are trained as Dong and Yang (2020) do.
OF_SPACE: Mapping[str, Values] = {
    "darts": merge(DARTS_EVALUATION, {"supernet": {"network": {"channels": 16, "cells": 2}}}),
    "nasbench201": {
        "supernet": {"network": {"channels": 16, "cells": 5}, "none": False, "training": {"epochs": 25}},
        "network": {"channels": 16, "cells": 5},
        "final": {"epochs": 200},
    },
    # Zela et al. 2020: 3 stacks of 3 cells; NAS-Bench-101 trains for 108 epochs.
    "nasbench1shot1": {
        "supernet": {"network": {"channels": 16, "cells": 3}},
        "network": {"channels": 128, "cells": 3},
        "final": {"epochs": 108},
    },
}

# Small images leave no room for an auxiliary tower, and few epochs no time for dropped paths.
PLAIN: Values = {
    "network": {"auxiliary": False},
    "final": {"auxiliary_weight": 0.0, "drop_path": 0.0, "augmentation": {"cutout": 0}},
}
PRESETS: Mapping[str, Values] = {
    "smoke": merge(
        PLAIN,
        {
            "supernet": {
                "network": {"channels": 4, "cells": 1},
                "training": {"epochs": 2, "batch_size": 128, "warmup_epochs": 0},
            },
            "search_seeds": 2,
            "selection": {"epoch": 1, "keep": 1},
            "network": {"channels": 4, "cells": 1},
            "final": {"epochs": 2, "batch_size": 64},
            "baseline": 1,
        },
    ),
    "demo": merge(
        PLAIN,
        {
            "supernet": {
                "network": {"channels": 8, "cells": 1},
                "training": {"epochs": 10, "batch_size": 64, "warmup_epochs": 2},
            },
            "search_seeds": 3,
            "selection": {"epoch": 3, "keep": 1},
            "network": {"channels": 8, "cells": 1},
            "final": {"epochs": 10, "batch_size": 64},
            "final_seeds": 2,
            "baseline": 3,
        },
    ),
    "paper": {"data": {"name": "cifar10"}, "search_seeds": 5, "selection": {"epoch": 20, "keep": 3}, "final_seeds": 10},
}
RANDOM_PATHS: Values = {"supernet": {"relaxation": {"name": "path"}, "optimizer": {"name": "none"}}}
FLAGS: Mapping[str, str] = {
    "epochs": "supernet.training.epochs",
    "objective": "supernet.training.objective",
    "cost_weight": "supernet.penalty.weight",
    "cost_target": "supernet.penalty.target",
    "search_channels": "supernet.network.channels",
    "search_cells": "supernet.network.cells",
    "search_seeds": "search_seeds",
    "final_epochs": "final.epochs",
    "final_seeds": "final_seeds",
    "random": "baseline",
}


def defaults_of(space: str, *method: Values) -> dict[str, Any]:
    """The papers' options in a space, and those of a method over them.

    space: a registered name or a reference; spaces of one family have the same.
    """
    name = get_space(space).name
    family = next((known for known in OF_SPACE if name.startswith(known)), None)
    return merge(OF_SPACE[family] if family else {}, *method)


def supernet_method(
    name: str,
    recipe_at: str,
    *method: Values,
    config: type[SupernetSearchConfig] = SupernetSearchConfig,
    presets: Mapping[str, Values] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Method:
    """A method of GAEA's three stages: search, selection, final training.

    Args:
        recipe_at: where its `supernet_recipe` is.
        method: its options, later ones over earlier ones.
        presets, flags: over those of all such methods.
    """
    return Method(
        name=name,
        config=config,
        recipe_at=recipe_at,
        defaults=lambda space: defaults_of(space, *method),
        presets={preset: merge(values, (presets or {}).get(preset, {})) for preset, values in PRESETS.items()},
        flags={**FLAGS, **(flags or {})},
        extendable=("final_epochs", "final_seeds", "random"),
        serves=serves,
    )
