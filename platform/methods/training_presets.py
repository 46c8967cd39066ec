"""What the presets of searches that train what they propose have in common: networks, trainings, pools' scoring."""

from __future__ import annotations

from collections.abc import Mapping

from archray.platform.methods.method import Values

TINY: Values = {"channels": 4, "cells": 1}
TRAININGS: Mapping[str, Values] = {
    "smoke": {"network": TINY},
    "demo": {
        "network": {"channels": 8, "cells": 1},
        # after some 20 epochs nearly every cell has learnt the digits, and there is nothing to compare
        "train": {"epochs": 4, "batch_size": 64},
        "final": {"epochs": 10, "batch_size": 64},
        "final_seeds": 3,
        "baseline": 8,
    },
    # NAS-Bench-201's networks and trainings, of 12 epochs in the search (Dong and Yang 2020)
    "paper": {
        "data": {"name": "cifar10"},
        "network": {"channels": 16, "cells": 5},
        "train": {"epochs": 12},
        "final": {"epochs": 200},
        "final_seeds": 3,
    },
}
# Of those that look at a pool first. Abdelfattah et al. 2021 score with the networks that are trained, on one batch.
SCORINGS: Mapping[str, Values] = {
    "smoke": {"proxies": {"network": TINY, "batch_size": 16}},
    "demo": {"proxies": {"network": {"channels": 4, "cells": 3}, "batch_size": 64}},
    "paper": {"proxies": {"network": {"channels": 16, "cells": 5}, "batch_size": 64}},
}
