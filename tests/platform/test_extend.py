"""A finished run resumes with a larger budget."""

import json
import shutil
from pathlib import Path

import pytest
from archray_test_command import epochs_trained, found_values

import archray


@pytest.mark.slow
@pytest.mark.ci
def test_a_finished_run_is_extended(finished_run, tmp_path, capsys):
    """`resume` with a larger budget continues where the search finished, with the trials of a longer search."""
    whole, run = Path(finished_run("hnas").path), tmp_path / "run"
    manifest = json.loads((whole / "manifest.json").read_text())
    budget = manifest["config"]["search"]["budget"]
    manifest["config"]["search"]["budget"] = budget - 2
    run.mkdir()
    (run / "manifest.json").write_text(json.dumps(manifest))
    shutil.copytree(whole / "pool", run / "pool")  # scored with any budget

    archray.resume(run, trust=True)  # the test edited its manifest
    before = epochs_trained(run / "search")
    assert len(before) == budget - 2
    capsys.readouterr()
    archray.resume(run, budget=budget)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if "    search" in line]
    assert sorted(line[1] for line in lines) == [f"{budget - 1}/{budget}", f"{budget}/{budget}"]
    names = [place.name for place in (run / "search").glob("tune-*/*/search-*")]
    assert sorted(name.split("-")[1] for name in names) == [f"{number:03d}" for number in range(1, budget + 1)]
    now = epochs_trained(run / "search")
    assert {trial: now[trial] for trial in before} == before and len(now) == budget
    assert found_values(run) == found_values(whole)
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["config"]["search"]["budget"] == budget
    assert manifest["amended"][0]["replaced"]["search"]["budget"] == budget - 2
