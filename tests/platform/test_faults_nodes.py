"""Nodes that leave and join during a search: raylets on this machine with four simulated GPUs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from archray_test_command import PATIENCE
from archray_test_faults import SIDE_BY_SIDE, STAGE, results_of_run, steps_trained
from archray_test_runs import method_parameters

import archray

WORKER_MODULES = Path(__file__).resolve().parents[1] / "worker_modules"


def run_search(method: str, event: str, folder: Path) -> dict[str, Any]:
    """Runs the search in which a node leaves or joins, in `folder/run`, and returns the nodes of its trials."""
    with open(folder / "log.txt", "w") as log:
        command = [sys.executable, str(WORKER_MODULES / "archray_test_nodes.py"), method, str(folder / "run"), event]
        ended = subprocess.run(command, stdout=log, stderr=log, timeout=2 * PATIENCE)
    assert ended.returncode == 0, (folder / "log.txt").read_text()
    outcome: dict[str, Any] = json.loads((folder / "run.json").read_text())
    assert len(outcome["changed"]) == 1
    return outcome


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("method", method_parameters(("hnas", "halving")))
def test_a_node_that_leaves_costs_no_trial(
    method: str, undisturbed: Callable[..., archray.RunResult], tmp_path: Path
) -> None:
    """Eight trials run on the four GPUs of two nodes.

    One node dies, and the results are those of an undisturbed run.
    """
    outcome = run_search(method, "leaves", tmp_path)
    run, expected = tmp_path / "run", Path(undisturbed(method).path)
    cards = {tuple(places[0]) for places in outcome["places"].values()}
    moved = [trial for trial, places in outcome["places"].items() if len({node for node, _ in places}) > 1]
    # A trial of halving has a single step, and the first may finish before the last has a GPU.
    assert len({node for node, _ in cards}) == 2 and (len(cards) == 4 or method == "halving"), "trials were spread"
    assert moved, "trials resumed at the other node"
    assert results_of_run(run) == results_of_run(expected)
    trained = steps_trained(run / STAGE[method])
    epochs = Counter(steps_trained(expected / STAGE[method]).values()).most_common(1)[0][0]
    assert all(trained[trial] <= epochs + (trial in moved) for trial in trained), "one epoch at most is repeated"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_node_that_joins_gets_work(undisturbed: Callable[..., archray.RunResult], tmp_path: Path) -> None:
    """Eight trials, four of which wait for a GPU until another node joins."""
    outcome = run_search("gaea-darts", "joins", tmp_path)
    nodes = Counter(places[0][0] for places in outcome["places"].values())
    assert len(outcome["places"]) == SIDE_BY_SIDE
    assert nodes[outcome["changed"][0]] >= 1 and len(nodes) == 2
    assert results_of_run(tmp_path / "run") == results_of_run(Path(undisturbed("gaea-darts").path))
