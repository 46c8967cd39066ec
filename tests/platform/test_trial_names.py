"""The names of trial folders, and the line in the terminal for each finished trial."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from archray_test_tune_run import run_plan
from ray import tune

from archray.platform.durable.failed_trials import Failure
from archray.platform.engine.trial_plan import TrialName, TrialPlan
from archray.searchers import RandomSearch

CELL = "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"


def plan(**entries: Any) -> TrialPlan:
    """Two trials of a supernet. The one with seed 7 fails before it reports."""

    class Supernet(tune.Trainable):
        def step(self) -> dict[str, Any]:
            if self.config["seed"] == 7:
                raise ValueError("no")
            return {"accuracy": 0.5, "architecture": self.config.get("architecture", CELL), "done": True}

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            return True

        def save_checkpoint(self, checkpoint_dir: str) -> None: ...

    return TrialPlan(trainable=Supernet, settings={}, metric="accuracy", mode="max", **entries)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_names_of_a_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The trial of a supernet is named by its seed and its result."""
    results = run_plan(tmp_path, plan(keys={"seed": tune.grid_search([12, 7])}, total=5, before=3))
    assert [Path(result.path).name for result in results] == ["search-004-seed-12", "search-005-seed-7"]
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("    search")]
    assert re.fullmatch(rf"    search 4/5  accuracy 50.00 %  \d+ s  seed 12: {re.escape(CELL)}", lines[0])
    assert re.fullmatch(r"    search 5/5  error: ValueError: no  \d+ s  seed 7", lines[1]) and len(lines) == 2
    [failed] = [result for result in results if result.error]
    assert (failed.trial_id, failed.config) == ("00005", {"seed": 7})
    assert Failure.of(failed.trial).sentence == "ValueError: no" and "ValueError: no" in str(failed.error)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_names_of_a_searcher(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trial of a given architecture is named by the architecture."""
    search = RandomSearch(["a", "b"], budget=2)
    results = run_plan(tmp_path, plan(searcher=lambda: search, total=2), stage="baseline")
    seeds = search.history().set_index("number")["seed"]
    assert [Path(result.path).name for result in results] == [f"baseline-00{n}-seed-{seeds[n]}" for n in (1, 2)]
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("    baseline")]
    assert [line.split()[1] for line in lines] == ["1/2", "2/2"] and {line[-1] for line in lines} == {"a", "b"}


def test_names_of_a_round() -> None:
    trial = SimpleNamespace(trial_id="00012", config={"round": 3, "replica": 1, "seed": 5})
    assert TrialName("search")(trial) == "search-012-round-3-replica-1"
    assert TrialName("search", "hnas/repeat-01")(trial) == "hnas-repeat-01-search-012-round-3-replica-1"
