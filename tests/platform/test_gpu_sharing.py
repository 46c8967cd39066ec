"""How many trials share a GPU: the computation, the measurement, and the message on a machine without CUDA."""

import subprocess
import sys

import pytest
import torch
from archray_test_command import PATIENCE, finish, start
from archray_test_models import a_run
from archray_test_runs import as_arguments
from ray import tune

from archray.cluster.connect import ClusterError
from archray.cluster.settings import ResourceSettings
from archray.platform.engine import trial_plan
from archray.platform.engine.trial_plan import (
    AT_MOST,
    GB,
    TRIALS_PER_GPU,
    TrialPlan,
    first_configs,
    sharing_words,
    trials_that_fit,
)
from archray.searchers import RandomSearch
from archray.trainables.devices import CONTEXT_BYTES, allocator_fraction, limit_memory, memory_share
from archray.trainables.tune.standalone_trainable import StandaloneSettings, StandaloneTrainable
from archray.trainables.tune.trial import BATCHES, MemoryProbe, short_epochs

BYTES = {"taken": 3_100_000_000, "gpu": 24_000_000_000, "resident": 2_000_000_000, "memory": 64_000_000_000}
MEASURED = {"trials_per_gpu": 6, **BYTES, "failure": None}
WORDS = "a trial uses 3.1 of 24 GB GPU memory, and 2.0 of 64 GB main memory per GPU; 6 per GPU"


@pytest.mark.parametrize(
    ("taken", "gpu", "memory", "trials"),
    [
        (3.1, 24, 64, 6),  # 21.6 GB / 3.6 GB
        (10, 24, 64, 2),
        (20, 24, 64, 1),
        (30, 24, 64, 1),  # the trial did run on this GPU
        (0, 24, 64, 16),
        (4.0, 80, 64, 16),
        (8.5, 80, 64, 8),
        (3.1, 24, 9, 4),  # 9 GB / 2 GB of main memory
        (3.1, 24, 1, 1),  # the trial did run on this node
    ],
)
def test_as_many_trials_as_fit_with_a_margin(taken: float, gpu: float, memory: float, trials: int) -> None:
    assert trials_that_fit(round(taken * GB), round(gpu * GB), 2 * GB, memory * GB) == trials <= AT_MOST


def test_the_measurement_is_described() -> None:
    assert sharing_words(MEASURED) == WORDS
    failed = {**MEASURED, "trials_per_gpu": 1, "taken": None, "failure": "the training loss is nan"}
    assert sharing_words(failed) == (
        "the memory of a trial is unknown, since it failed: the training loss is nan; 1 per GPU"
    )


def plan(**fields: object) -> TrialPlan:
    return TrialPlan(trainable=StandaloneTrainable, settings={}, metric="accuracy", mode="max", total=9, **fields)


def test_the_measured_trials_are_the_first_of_the_plan() -> None:
    grid = plan(keys={"architecture": "a", "seed": tune.grid_search([3, 1, 2])})
    assert first_configs(grid, 2) == [{"architecture": "a", "seed": 3}, {"architecture": "a", "seed": 1}]

    def searcher() -> RandomSearch:
        return RandomSearch("nasbench201", budget=3, seed=1)

    suggested = first_configs(plan(searcher=searcher))
    assert len(suggested) == 3 == len({config["architecture"] for config in suggested})
    assert suggested[0]["architecture"] == searcher_first(searcher())


def searcher_first(searcher: RandomSearch) -> str:
    searcher.set_search_properties("accuracy", "max", {})
    return searcher.suggest("a")["architecture"]


def test_a_measured_epoch_is_a_few_batches() -> None:
    settings = StandaloneSettings(training={"batch_size": 256}).model_dump(mode="json")
    assert short_epochs(settings)["data"]["limit"] == BATCHES * 256
    assert StandaloneSettings.model_validate(short_epochs(settings)).training.batch_size == 256
    settings["data"]["limit"] = 100
    assert short_epochs(settings) == settings
    assert short_epochs({"dimension": 9}) == {"dimension": 9}


def test_the_part_of_a_gpu_that_a_trial_may_use() -> None:
    assert [memory_share(gpus) for gpus in (None, 0.0, 0.25, 1.0, 4.0)] == [1, 1, 0.25, 1, 1]
    limit_memory(torch.device("cpu"), 0.25)  # torch has no memory limit for this device


@pytest.mark.skipif(torch.cuda.is_available(), reason="tests the message without a CUDA device")
def test_nothing_is_measured_without_cuda() -> None:
    measured = MemoryProbe().measure(StandaloneTrainable, {}, [{}])
    assert measured.pop("resident") > 0
    assert measured == {"gpu": None, "taken": None, "failures": []}


def test_the_main_memory_of_a_process_is_measured() -> None:
    """In a new process, which releases the memory before the measurement."""
    script = "from archray.trainables.tune.trial import resident_peak; len(b'x' * (2 * 10**9)); print(resident_peak())"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert 2 * GB < int(run.stdout) < 4 * GB


def test_a_missing_worker_is_an_error(ray_session: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster has no GPU, so that Ray starts no worker with a GPU."""
    monkeypatch.setattr(trial_plan, "START_SECONDS", 1)
    words = r"expected 1 CPU and 1 GPU from a worker within 1 s for trials_per_gpu=auto, got no answer\. Check"
    with pytest.raises(ClusterError, match=words):
        trial_plan._measured(plan(), ResourceSettings(trials_per_gpu="auto"))


def test_a_share_reserves_the_memory_of_its_cuda_context() -> None:
    share, gpu = 0.25, 24 * GB
    assert 4 * (allocator_fraction(share, gpu) * gpu + CONTEXT_BYTES) == gpu
    assert allocator_fraction(1 / 16, 8 * GB) == 1 / 32, "a share of the size of a context"


CONFIG = {"architecture": "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|none~2|", "seed": 1}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_trial_on_a_gpu_is_measured_and_limited_to_its_share() -> None:
    settings = {"data": {"name": "digits"}, "training": {"epochs": 1, "batch_size": 64}}
    measured = MemoryProbe().measure(StandaloneTrainable, settings, [CONFIG])
    assert measured["failures"] == []
    assert 0 < measured["taken"] < measured["gpu"]
    device = torch.device("cuda")
    try:
        limit_memory(device, 0.01)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(measured["gpu"] // 50, dtype=torch.uint8, device=device)
    finally:
        limit_memory(device, None)
    torch.empty(measured["gpu"] // 50, dtype=torch.uint8, device=device)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a simulated GPU")
def test_a_simulated_gpu_is_reported_and_an_explicit_number_is_used(tmp_path) -> None:
    options = {
        "budget": 2, "random": 0, "max_concurrent": 2, "trials_per_gpu": "auto",
        "cluster__num_gpus": 1, "cluster__dashboard": False,
    }  # fmt: skip
    command = ("search", "random", "--data", "digits", "--preset", "smoke", *as_arguments(options), "--out", "rejected")
    assert start(*command, cwd=tmp_path).wait(timeout=PATIENCE) == 2
    log = (tmp_path / "log.txt").read_text()
    assert "Traceback" not in log
    assert "torch sees no GPU in a worker to which Ray assigned one. Set a number (--trials-per-gpu 2)" in log
    assert not (tmp_path / "rejected" / "manifest.json").exists()

    run = a_run(tmp_path / "run", "nasbench201", **options)
    for stage in ("search", "final"):
        (run.folder / stage).write_json(TRIALS_PER_GPU, MEASURED)
    finish("resume", "run", cwd=tmp_path)
    log = (tmp_path / "log.txt").read_text()
    assert log.count(WORDS) == 2
    assert log.count("1 CPU and 0.1666 GPUs each") == 2
