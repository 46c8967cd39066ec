"""The trials that fit on a cluster, and the resource settings that raise an error."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError

from archray.cluster.settings import (
    ResourceSettings,
    actor_count,
    capacity,
    concurrency,
    share_of_trials,
    trials_of_share,
    unused_share,
)
from archray.errors import InvalidInput


@pytest.mark.parametrize(
    ("cpus", "gpus", "nodes", "fits"),
    [
        (1, 0, [(2, 0)], 2),
        (0.1, 0, [(1, 0)], 10),
        (2, 0, [(3, 0), (3, 0)], 2),  # one CPU of each node stays idle
        (1, 1, [(16, 4)], 4),
        (1, 0.5, [(16, 4)], 8),
        (1, 0.15, [(64, 8)], 48),  # Ray counts 53, but a share lies on one GPU
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
def test_settings_that_ray_cannot_place_raise_an_error(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        ResourceSettings.model_validate(wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"gpus_per_trial": 0.6},
            "got 0.6.* 0.4 of it stays idle.* 0.5 for two",
        ),
        ({"gpus_per_trial": 0.00001}, "at least 0.0001 of a GPU"),
        ({"gpus_per_trial": 0.5, "trials_per_gpu": 2}, "got both .trials_per_gpu=2, gpus_per_trial=0.5"),
        ({"gpus_per_trial": 0, "trials_per_gpu": "auto"}, "got both .trials_per_gpu=auto, gpus_per_trial=0"),
        ({"trials_per_gpu": 0}, "auto or a whole number of trials from 1"),
        ({"trials_per_gpu": "atuo"}, "auto or a whole number of trials from 1"),
        ({"autoscales": True, "max_concurrent": 4}, "Set max_concurrent, and gpus_per_trial or a number"),
        ({"custom": {"GPUs": 1}}, "a custom resource, got 'GPUs'. Use gpus_per_trial"),
        ({"custom": {"cpu": 1}}, "a custom resource, got 'cpu'. Use cpus_per_trial"),
        ({"custom": {"disk": 0}}, "a positive amount of 'disk'"),
    ],
)
def test_ambiguous_shares_and_names_raise_an_error(wrong: dict[str, object], message: str) -> None:
    with pytest.raises((InvalidInput, ValidationError), match=message):
        ResourceSettings.model_validate(wrong)


def test_the_share_for_a_number_of_trials_fits_exactly_that_many() -> None:
    for trials in range(1, 33):
        assert trials_of_share(share_of_trials(trials)) == trials
        assert ResourceSettings(trials_per_gpu=trials).gpus() == share_of_trials(trials)
        assert unused_share(share_of_trials(trials)) is None


def test_the_message_for_a_share_that_leaves_a_part_of_a_gpu_idle() -> None:
    warning = unused_share(0.3) or ""
    assert "3 trials per GPU leave 0.1 of each GPU idle" in warning and "gpus_per_trial to 0.3333" in warning
    assert unused_share(0.33) is None


@pytest.mark.usefixtures("ray_session")
def test_concurrency_on_two_cpus() -> None:
    assert ResourceSettings().gpus() == 0
    assert ResourceSettings(trials_per_gpu="auto").gpus() == 0
    assert concurrency(ResourceSettings()) == 2
    assert concurrency(ResourceSettings(), limit=1) == 1
    assert concurrency(ResourceSettings(max_concurrent=7), limit=4) == 7  # an explicit setting has priority
    assert concurrency(ResourceSettings(), workers=2) == 1
    assert actor_count(ResourceSettings(cpus_per_trial=2)) == 1
    assert actor_count(ResourceSettings(actors=1)) == 1


@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("key", ["cpus_per_trial", "gpus_per_trial"])
def test_a_trial_larger_than_every_node_raises_an_error(key: str) -> None:
    settings = ResourceSettings.model_validate({key: 64})
    with pytest.raises(InvalidInput, match=r"more than any node has.*: 2 CPUs and 0 GPUs"):
        concurrency(settings)
    with pytest.raises(InvalidInput, match=rf"Lower {key}\.$"):
        actor_count(settings)


@pytest.mark.usefixtures("ray_session")
def test_an_autoscaling_cluster_is_not_checked_for_size() -> None:
    growing = ResourceSettings(gpus_per_trial=1, max_concurrent=8, autoscales=True)
    assert concurrency(growing, limit=4) == 8
    assert actor_count(growing) == 8


@pytest.mark.usefixtures("ray_session")
def test_more_workers_than_the_cluster_has_raise_an_error() -> None:
    with pytest.raises(InvalidInput, match="3 workers of 1 CPU and 0 GPUs each, but only 2 fit on the cluster"):
        concurrency(ResourceSettings(), workers=3)


@pytest.mark.usefixtures("ray_session")
def test_a_resource_that_no_node_has_raises_an_error() -> None:
    with pytest.raises(InvalidInput, match=r"No node of the cluster has the resource 'disc' \(resources.custom\)"):
        concurrency(ResourceSettings(custom={"disc": 1}))


def test_a_node_that_can_hold_a_trial() -> None:
    trial = ResourceSettings(cpus_per_trial=2, gpus_per_trial=0.5, custom={"disk": 1})
    node = {"CPU": 2.0, "GPU": 1.0, "disk": 1.0}
    assert trial.fit(node)
    assert not any(trial.fit({**node, name: amount}) for name, amount in (("CPU", 1.0), ("GPU", 0.0), ("disk", 0.5)))
    assert not trial.fit({})


MEMORY = """
import ray
from archray.cluster.settings import memory_per_gpu

ray.init(address="local", num_cpus=1, num_gpus=2, _memory=8e9, include_dashboard=False, log_to_driver=False,
         _node_ip_address="127.0.0.1")
print(memory_per_gpu())
"""


@pytest.mark.slow
def test_the_main_memory_of_a_node_is_divided_among_its_gpus() -> None:
    run = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    assert run.stdout == "4000000000.0\n"
