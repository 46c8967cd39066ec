"""A supernet trial with a cost in its objective and a constraint on its result, resumed in the middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from archray.trainables.costs.networks import BoundSettings, NetworkCosts, edge_costs
from archray.trainables.data import DataSettings
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import get_space
from archray.trainables.supernets.settings import CostPenaltySettings
from archray.trainables.tune.settings import SupernetOptions, SupernetSettings
from archray.trainables.tune.supernet_trainable import SupernetTrainable

SMALL = NetworkSettings(channels=4, cells=1)


def settings(penalty: CostPenaltySettings, constraint: str) -> dict[str, Any]:
    space = get_space("nasbench201")
    options = SupernetOptions(network=SMALL, none=False, penalty=penalty)
    costs = NetworkCosts(space, ("flops",), network=SMALL, in_channels=1, image_size=8)
    table = edge_costs(space, options.groups(space), lambda name: costs(name)["flops"])
    training = options.training.model_copy(update={"epochs": 2, "batch_size": 64})
    return SupernetSettings(
        **{**dict(options), "training": training},
        data=DataSettings(name="digits", limit=120),
        bounds=BoundSettings(constraints=(constraint,), network=SMALL),
        edge_costs={"flops": table},
    ).model_dump(mode="json")


@pytest.mark.slow
def test_a_trial_with_a_target_and_a_constraint_resumes_identically(tmp_path: Path) -> None:
    penalty = CostPenaltySettings(cost="flops", target=1e5, rate=0.5)
    config = {"settings": settings(penalty, "flops <= 100k"), "seed": 3}
    whole = SupernetTrainable(config=config)
    first, last = whole.train(), whole.train()
    assert first["failure"] is None and last["failure"] is None
    assert last["cost_weight"] > first["cost_weight"] > 0  # the uniform mixture costs more than the target
    costs = NetworkCosts("nasbench201", ("flops",), network=SMALL, in_channels=1, image_size=8)
    assert costs(last["architecture"])["flops"] <= 1e5
    interrupted = SupernetTrainable(config=config)
    interrupted.train()
    interrupted.save_checkpoint(str(tmp_path))
    resumed = SupernetTrainable(config=config)
    resumed.load_checkpoint(str(tmp_path))
    again = resumed.train()
    assert again["expected_cost"] == pytest.approx(last["expected_cost"], rel=1e-6)
    assert (again["cost_weight"], again["architecture"]) == (pytest.approx(last["cost_weight"]), last["architecture"])


@pytest.mark.slow
def test_a_constraint_that_no_nearby_architecture_meets_is_a_failure_with_the_reason() -> None:
    config = {"settings": settings(CostPenaltySettings(), "flops <= 10"), "seed": 0}
    trial = SupernetTrainable(config=config)
    trial.train()
    last = trial.train()
    assert "meets flops <= 10" in last["failure"] and "the nearest" in last["failure"]
