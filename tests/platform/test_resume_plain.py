"""A plain search whose driver was killed (SIGKILL) has the trials of an undisturbed search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import ray
from archray_test_command import ended_trials, epochs_trained, kill_when, start
from archray_test_runs import as_arguments, method_parameters

import archray
from archray.platform.methods import METHODS, get_method
from archray.platform.methods.plain.config import PlainConfig

PLAIN = [name for name in METHODS if issubclass(get_method(name).config, PlainConfig)]
OPTIONS: dict[str, Any] = {
    "preset": "smoke", "space": "nasbench201", "data": "digits", "seed": 3, "data__limit": 100, "random": 0,
    "final_epochs": 1, "max_concurrent": 1, "resources__actors": 1,
}  # fmt: skip
# Until the model exists: for the six decisions of nasbench201 after 14 trials.
LONGER: dict[str, dict[str, Any]] = {"bohb": {"budget": 18, "random_fraction": 0.0}}
TRIALS_AT_KILL = {"random": 2, "bohb": 15}  # number of finished trials at the kill, where it is not 1


def trials(run: Path) -> list[dict[str, Any]]:
    """Returns the trained architectures, their epochs and values, in the order of suggestion."""
    table = pd.read_parquet(run / "search" / "trials.parquet")
    return table[["architecture", "seed", "epoch", "validation_accuracy"]].to_dict("records")


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("method", method_parameters(PLAIN, {"asha"}))
def test_a_search_killed_in_the_middle_has_the_same_trials(method: str, tmp_path: Path) -> None:
    options = {**OPTIONS, **LONGER.get(method, {})}
    archray.search(method, **options, out=tmp_path / "undisturbed")
    run, address = tmp_path / "killed", ray.get_runtime_context().gcs_address
    process = start("search", method, *as_arguments(options), "--address", address, "--out", "killed", cwd=tmp_path)
    search = run / "search"
    enough = TRIALS_AT_KILL.get(method, 1)
    kill_when(process, lambda: len(ended_trials(search)) >= enough and not (search / "done.json").exists(), tmp_path)
    trained = epochs_trained(search)
    finished = {trial: trained[trial] for trial in ended_trials(search)}
    archray.resume(run)
    now = epochs_trained(search)
    assert finished and {trial: now[trial] for trial in finished} == finished, "no finished trial ran again"
    assert trials(run) == trials(tmp_path / "undisturbed")
