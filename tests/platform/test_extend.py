"""A run that has ended goes on with a larger budget."""

import json

import pytest
from archray_test_command import epochs_trained, found_values

import archray


@pytest.mark.timeout(600)
def test_a_finished_run_is_extended(ray_session, tmp_path):
    """`resume` with a larger budget goes on where the search ended, with the trials that it would have had."""
    options = {"preset": "smoke", "seed": 3, "pool_size": 16, "random": 1, "max_concurrent": 2}
    archray.search("hnas", **options, budget=5, out=tmp_path / "long")
    archray.search("hnas", **options, budget=3, out=tmp_path / "run")
    before = epochs_trained(tmp_path / "run" / "search")
    archray.resume(tmp_path / "run", budget=5)
    now = epochs_trained(tmp_path / "run" / "search")
    assert {trial: now[trial] for trial in before} == before and len(now) == 5
    assert found_values(tmp_path / "run") == found_values(tmp_path / "long")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["config"]["search"]["budget"] == 5
    assert manifest["amended"][0]["replaced"]["search"]["budget"] == 3
