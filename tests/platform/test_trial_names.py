"""The names of trial folders, and the line in the terminal for each finished trial."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from archray.files import Folder
from archray.platform.durable.failed_trials import FailureLog, failed_trial, failed_trials, quiet_deaths
from archray.platform.engine.progress import TrialProgress
from archray.platform.engine.trial_plan import TrialFolder, TrialName
from archray.searchers import RandomSearch

CELL = "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"
GRID = {"seed": tune.grid_search([12, 7])}


def run_trials(
    folder: Path, named: dict[str, Any], progress: TrialProgress, keys: Mapping[str, Any] = GRID, **tuned: Any
) -> tune.ResultGrid:
    """Two trials of a supernet. The one with seed 7 fails before it reports."""

    def supernet(config: dict[str, Any]) -> None:
        if config["seed"] == 7:
            raise ValueError("no")
        tune.report({"accuracy": 0.5, "architecture": CELL})

    config = tune.TuneConfig(
        trial_name_creator=TrialName(**named),
        trial_dirname_creator=TrialFolder(**named),
        max_concurrent_trials=1,
        metric="accuracy",
        mode="max",
        **tuned,
    )
    run = tune.RunConfig(name="run", storage_path=str(folder), callbacks=[FailureLog(), progress], verbose=0)
    with quiet_deaths():  # it keeps the errors
        return tune.Tuner(supernet, param_space={"settings": {}, **keys}, tune_config=config, run_config=run).fit()


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_names_of_a_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The trial of a supernet is named by its seed and its result. An existing folder is not used again."""
    (tmp_path / "run" / "search-004-seed-12").mkdir(parents=True)
    named = {"stage": "search", "first": 4, "searched": False}
    results = run_trials(tmp_path, named, TrialProgress("search", 5, 3, "accuracy", "max"))
    folders = {Path(result.path).name for result in results}
    assert folders == {"search-004-seed-12-again-2", "search-005-seed-7"}
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("    search")]
    assert re.fullmatch(rf"    search 4/5  accuracy 50.00 %  \d+ s  seed 12: {re.escape(CELL)}", lines[0])
    assert re.fullmatch(r"    search 5/5  error: ValueError: no  \d+ s  seed 7", lines[1]) and len(lines) == 2
    [reason] = failed_trials(Folder(tmp_path / "run")).values()
    assert [failed_trial(result) for result in results if result.error] == [reason]
    assert reason.folder == "search-005-seed-7" and reason.config == {"seed": 7}


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_names_of_a_function(tmp_path: Path) -> None:
    """Tune requests the name before it calls the function that makes the seed, such as that of an ensemble's member."""
    named = {"stage": "final", "first": 1, "searched": False}
    keys = {"member": tune.grid_search([0, 1]), "seed": tune.sample_from(lambda spec: 20 + spec["config"]["member"])}
    results = run_trials(tmp_path, named, TrialProgress("final", 2, 0, "accuracy", "max"), keys)
    assert {Path(result.path).name: (result.config or {})["seed"] for result in results} == {
        "final-001": 20,
        "final-002": 21,
    }


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_names_of_a_searcher(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trial of a given architecture is named by the architecture."""
    named = {"stage": "baseline", "first": 1, "searched": True}
    search = RandomSearch(["a", "b"], budget=2)
    progress = TrialProgress("baseline", 2, 0, "accuracy", "max")
    results = run_trials(tmp_path, named, progress, {}, search_alg=search, num_samples=-1)
    seeds = search.history().set_index("number")["seed"]
    assert {Path(result.path).name for result in results} == {f"baseline-00{n}-seed-{seeds[n]}" for n in (1, 2)}
    assert all(len(Path(result.path).name) < 40 for result in results)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("    baseline")]
    assert [line.split()[1] for line in lines] == ["1/2", "2/2"] and {line[-1] for line in lines} == {"a", "b"}


def test_names_of_a_round() -> None:
    class Trial:
        experiment_tag, config = "12_round=3", {"round": 3, "replica": 1, "seed": 5}

    assert TrialName("search", first=1, searched=True)(Trial()) == "search-012-round-3-replica-1"
    of_a_repeat = TrialName("search", first=1, searched=True, run="hnas/repeat-01")
    assert of_a_repeat(Trial()) == "hnas-repeat-01-search-012-round-3-replica-1"
