"""Each quantity has one name and one convention in the terminal, the report, the JSON files and the tables of each
family.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from archray_test_ensemble_report import ensemble_run, repeated_ensemble_run
from archray_test_feature_map_report import feature_map_run
from archray_test_report import hnas_run, rendered, write_summaries
from archray_test_supernet_report import gradient_run, repeated_gradient_run

import archray
from archray.platform.methods import open_run
from archray.platform.quantities import (
    HEADLINE,
    QUANTITIES,
    Quantity,
    Spread,
    deciding_value,
    points_between,
    quantity_of,
)
from archray.platform.run.run import Run
from archray.platform.run.run_summary import RunSummary
from archray.platform.show import run_lines

MAKERS: dict[str, Callable[[Path], Run[Any]]] = {
    "hnas": partial(hnas_run, pool_size=10, trials=3, baseline=2, epochs=2),
    "gaea": partial(gradient_run, epochs=2),
    "gaea, repeats": repeated_gradient_run,
    "nesbs": ensemble_run,
    "nesbs, repeats": repeated_ensemble_run,
    "halving": partial(feature_map_run, repeats=1, candidates=8),
    "halving, repeats": partial(feature_map_run, repeats=2, candidates=8),
}


@pytest.fixture(scope="module", params=MAKERS)
def run_of_family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run[Any]:
    run = MAKERS[request.param](tmp_path_factory.mktemp("run") / "run")
    write_summaries(run)
    return run


@pytest.fixture(scope="module")
def page(run_of_family: Run[Any]) -> str:
    return rendered(run_of_family, [])  # the header alone


def check_headline(run: Run[Any], page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The first box of the report, the first measure of the terminal and the JSON show the same number and label."""
    shown = run.folder.read_json("architecture.json")
    key = shown[HEADLINE]
    spread = Spread.read(shown, key)
    assert spread is not None
    number, label = quantity_of(key).spread(spread), quantity_of(key).label
    card = re.search(r'<div class="card found"><strong>([^<]*)</strong><span>([^<]*)</span>', page)
    assert card is not None and card.groups() == (number, f"{label}, {spread.words}")
    archray.show(str(run.folder))
    lines = capsys.readouterr().out.splitlines()
    measures = [line for line in lines if any(line.startswith(f"{q.label}  ") for q in QUANTITIES.values())]
    assert measures[0].removeprefix(label).strip() == f"{number}, {spread.words}"


def test_the_headline_is_the_same_number_everywhere(
    run_of_family: Run[Any], page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_headline(run_of_family, page, capsys)


def test_the_headline_of_a_finished_run(
    finished_run: Callable[[str], archray.RunResult], capsys: pytest.CaptureFixture[str]
) -> None:
    result = finished_run("hnas")
    run = open_run(result.path)
    check_headline(run, rendered(run, []), capsys)
    shown = json.loads((Path(result.path) / "architecture.json").read_text())
    assert result.test_accuracy == shown["test_accuracy"]
    trials = result.trials
    search = trials[trials["stage"] == "search"]
    assert (run.found or {})["validation_accuracy"] == search["validation_accuracy"].max()


def test_the_less_favorable_of_two_values_is_the_headline(tmp_path: Path) -> None:
    for number, accuracy in enumerate((0.999, 0.5)):  # of the final solve
        final = pd.DataFrame({"repeat": range(2), "seed": 0, "test_accuracy": accuracy, "failure": None})
        run = feature_map_run(tmp_path / f"{number}", repeats=2, candidates=8, final=final)
        write_summaries(run)
        shown = run.folder.read_json("architecture.json")
        lowest = min(("test_accuracy", "search_test_accuracy"), key=lambda key: shown[key])
        assert shown[HEADLINE] == lowest == ("search_test_accuracy", "test_accuracy")[number]


def test_a_list_of_runs_shows_the_headline_of_the_run_instead_of_its_first_repeat(tmp_path: Path) -> None:
    final = pd.DataFrame({"repeat": range(2), "seed": 0, "test_accuracy": (0.80, 0.999), "failure": None})
    run = feature_map_run(tmp_path / "run", repeats=2, candidates=8, final=final)
    write_summaries(run)
    summary = RunSummary.read(str(run.folder))
    assert summary.result[HEADLINE] == "search_test_accuracy" != summary.repeats[0].result[HEADLINE]
    names, values = (re.split(" {2,}", line.strip()) for line in run_lines([summary], ""))
    shown = QUANTITIES["search_test_accuracy"].show(summary.result["search_test_accuracy"])
    assert dict(zip(names, values, strict=True))["test accuracy (search)"] == shown


def test_the_trials_of_a_stage_name_their_weights() -> None:
    assert quantity_of("validation_accuracy", "search").label == "validation accuracy (search)"
    assert quantity_of("validation_accuracy", "selection").label == "validation accuracy (selection)"
    assert quantity_of("validation_accuracy", "final").label == "validation accuracy (final training)"
    assert quantity_of("shared_accuracy", "final").label == "validation accuracy (shared weights)"
    assert quantity_of("own_accuracy").text(0.5) == "own accuracy 50.00 %"
    assert quantity_of("latency") == Quantity("latency")


def test_a_spread_is_the_standard_deviation_with_its_count() -> None:
    spread = Spread.of([0.5, 0.6, float("nan"), None], "repeat")
    assert spread is not None and (spread.mean, spread.number) == (pytest.approx(0.55), 2)
    assert spread.deviation == pytest.approx(0.1 / 2**0.5)
    assert Spread.read(spread.entries("test_accuracy"), "test_accuracy") == spread
    assert spread.words == "mean and standard deviation of 2 repeats"
    one = Spread.of([0.5], "final training")
    assert one is not None and one.deviation is None and one.words == "1 final training"
    assert Spread.of([]) is None and Spread.read({}, "test_accuracy") is None
    assert list(Spread(3.0, None, 1, "").entries("trainings")) == ["trainings"]


@pytest.mark.parametrize(
    ("gap", "words"),
    [
        (0.0, "equal to"),
        (-0.0, "equal to"),
        (4e-5, "equal to"),
        (-4e-5, "equal to"),
        (6e-5, "0.01 percentage points above"),
        (-0.125, "12.50 percentage points below"),
    ],
)
def test_a_difference_that_rounds_to_zero_is_shown_as_zero(gap: float, words: str) -> None:
    assert points_between(gap) == words


def test_the_architecture_with_the_last_training_decides() -> None:
    found = {"shared_accuracy": 0.9, "selection_accuracy": 0.5, "value": 0.5}
    assert deciding_value(found) == 0.5
    assert deciding_value({"shared_loss": 0.1}) == -math.inf


def test_an_added_attack_has_a_label_and_is_in_the_default() -> None:
    """Adds the attack before the quantities are imported, as a function in the file of the attacks does."""
    program = """
from archray.trainables.adversarial.attacks import ATTACKS, attack

ATTACKS.register("added")(attack(title="Added", norm="linf", reads=dict)(print))
from archray.platform.methods.ensembles.attack import AttackQuestion
from archray.platform.quantities import UNDER_ATTACK, quantity_of

names = ("fgsm", "pgd", "cw", "autoattack", "added")
assert AttackQuestion().attacks == names, AttackQuestion().attacks
assert UNDER_ATTACK == tuple(f"{name}_defense_accuracy" for name in names), UNDER_ATTACK
print(quantity_of("added_defense_accuracy").label, quantity_of("cw_defense_accuracy").label, sep=";")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "test accuracy (defense, Added);test accuracy (defense, CW)", done.stderr
