"""What fits on a cluster, and what is refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from archray.cluster.resources import ResourceSettings, actor_count, capacity, concurrency
from archray.errors import InvalidInput


@pytest.mark.parametrize(
    ("cpus", "gpus", "nodes", "fits"),
    [
        (1, 0, [(2, 0)], 2),
        (0.1, 0, [(1, 0)], 10),
        (2, 0, [(3, 0), (3, 0)], 2),  # one CPU of each node stays idle
        (1, 1, [(16, 4)], 4),
        (1, 0.5, [(16, 4)], 8),
        (1, 0.15, [(64, 8)], 48),  # Ray counts 53, but a share lies on one card
        (1, 2, [(16, 3), (16, 2)], 2),
        (1, 1, [(4, 0)], 0),
    ],
)
def test_capacity(cpus: float, gpus: float, nodes: list[tuple[float, float]], fits: int) -> None:
    assert capacity(cpus, gpus, nodes) == fits


@pytest.mark.parametrize(
    "wrong",
    [{"cpus_per_trial": 0}, {"cpus_per_trial": 1.5}, {"gpus_per_trial": 2.5}, {"max_concurrent": 0}, {"cpu": 1}],
)
def test_settings_that_ray_cannot_place_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        ResourceSettings.model_validate(wrong)


@pytest.mark.usefixtures("ray_session")
def test_concurrency_on_two_cpus() -> None:
    assert ResourceSettings().gpus() == 0
    assert concurrency(ResourceSettings()) == 2
    assert concurrency(ResourceSettings(), limit=1) == 1
    assert concurrency(ResourceSettings(max_concurrent=7), limit=4) == 7  # the user's word decides
    assert actor_count(ResourceSettings(cpus_per_trial=2)) == 1
    assert actor_count(ResourceSettings(actors=1)) == 1


@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("wrong", [{"cpus_per_trial": 64}, {"gpus_per_trial": 1}])
def test_a_trial_larger_than_every_node_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=r"more than any node has; the cluster's nodes: 2 CPUs and 0 GPUs"):
        concurrency(ResourceSettings.model_validate(wrong))
    with pytest.raises(InvalidInput, match=r"Lower cpus_per_trial or gpus_per_trial"):
        actor_count(ResourceSettings.model_validate(wrong))
