"""`archray understand split`: its report and findings, a killed and resumed run, and bad input."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ray
from archray_test_command import ended_trials, kill_when, start
from archray_test_run_files import undescribed_names
from archray_test_runs import as_arguments

import archray
from archray import plots
from archray.errors import ArchrayError, InvalidInput
from archray.platform.methods.configure import check_config, make_config
from archray.platform.methods.understanding.split.tables import OPEN, below, points, rows_of, shown
from archray.platform.report.statistics import FAILS, HOLDS
from archray.trainables.validation_split.measures import Interval

FIGURES = ("split_losses", "split_gradients", "split_points_needed", "split_spectral", "split_rank_one")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"problem": {"validation_sizes": [0, 8]}}, "the first at least 1"),
        ({"problem": {"validation_sizes": [8]}}, "two or more increasing sizes"),
        ({"problem": {"validation_sizes": [16, 8]}}, "increasing sizes"),
        ({"parameters": [1, 2]}, "parameters of at least 2, got 1"),
        ({"parameters": [4, 2]}, "in increasing order"),
        ({"parameters": [2, 99]}, "expected at most as many parameters as candidates, 24 .*, got 99"),
        ({"train_size": 128, "width": 128}, "expected fewer training points than features, .*got 128 and 128"),
        ({"problem": {"activations": ["relu", "swosh"]}, "parameters": [2], "spectral_parameters": 2}, "swosh"),
        ({"problem": {"activations": ["relu", "relu"]}}, "distinct"),
        ({"data": "digits", "problem": {"validation_sizes": [8, 4096]}}, "points for training and up to 4096"),
        ({"data": "digits", "test_size": 100_000}, "Set test_size to"),
        ({"space": "nasbench201"}, "its architectures are networks, and the study supports only activations"),
        ({"ridge": -1.0}, "ridge"),
        ({"form": "mixture"}, "form"),
    ],
)
def test_bad_input_raises_before_the_start(options: dict[str, Any], message: str) -> None:
    config = {name: options.pop(name) for name in ("problem",) if name in options}
    with pytest.raises(ArchrayError, match=message) as caught:
        check_config(make_config("split", "demo", config, options))
    assert "\n" not in str(caught.value)


def test_verdicts_are_based_on_intervals() -> None:
    assert below(Interval(-0.5, -0.6, -0.4), -0.35) == HOLDS
    assert below(Interval(1.5, 1.2, 2.0), 1.0) == FAILS
    assert below(Interval(0.9, 0.6, 1.4), 1.0) == OPEN
    assert points(Interval(math.inf, 8, math.inf)) == "more than were measured"
    assert points(Interval(20, 8, math.inf)) == "20 (8 to ∞)"
    assert shown(Interval(math.nan, 0, 0)) == "unknown" and shown(Interval(-0.5, -0.6, -0.4))[0] == "\N{MINUS SIGN}"


def test_a_failed_trial_has_no_rows() -> None:
    trials = pd.DataFrame(
        {"parameters": [2, 2], "seed": [1, 2], "rows": ['[{"points": 8}]', "[]"], "whole": ['{"best": 0.1}', "{}"]}
    )
    assert rows_of(trials).to_dict("records") == [{"parameters": 2, "seed": 1, "points": 8, "best": 0.1}]


@pytest.mark.slow
def test_it_reports_a_sufficient_number_of_points_on_a_teacher_and_on_images(tmp_path: Path) -> None:
    run = archray.understand("split", preset="smoke", out=tmp_path / "run")
    assert run.findings[0].startswith("A test loss within 5 % of the best architecture's required")
    verdicts = [finding for finding in run.findings if "limit of gradient ascent" in finding]
    assert len(verdicts) == 3 and all(": holds (" in finding for finding in verdicts)
    assert "The training loss is 0 for every architecture, so it cannot select one: holds" in run.findings[1]
    assert undescribed_names(tmp_path / "run") == []
    page = (tmp_path / "run" / "report.html").read_text()
    for anchor in ("claims", "losses", "gradients", "needed", "spectral", "rank-one", "failures"):
        assert f'<section id="{anchor}">' in page
    for name in FIGURES:
        assert getattr(plots, name)(tmp_path / "run").axes
    measures = pd.read_parquet(tmp_path / "run" / "measures" / "measures.parquet")
    assert len(measures) == 2 * 2 * 3 and np.isfinite(measures.drop(columns="teacher").to_numpy(float)).all()
    own = {"parameters": (2,), "seeds": 1}
    images = archray.understand(
        "split", preset="smoke", config=own, data="digits", form="kernels", out=tmp_path / "own"
    )
    assert images.findings
    assert pd.read_parquet(tmp_path / "own" / "measures" / "measures.parquet")["teacher"].isna().all()


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_a_killed_and_resumed_study_equals_an_undisturbed_one(tmp_path: Path) -> None:
    """The rows of a trial depend only on h and the seed, so the tables are equal cell by cell."""
    whole = archray.understand("split", preset="smoke", max_concurrent=1, out=tmp_path / "whole")
    run, address = tmp_path / "killed", ray.get_runtime_context().gcs_address
    options = as_arguments({"preset": "smoke", "max_concurrent": 1})
    process = start("understand", "split", *options, "--address", address, "--out", "killed", cwd=tmp_path)
    stage = run / "measures"
    kill_when(process, lambda: len(ended_trials(stage)) >= 1 and not (stage / "done.json").exists(), tmp_path)
    assert not (stage / "measures.parquet").exists()
    resumed = archray.resume(run)
    tables = [pd.read_parquet(tmp_path / folder / "measures" / "measures.parquet") for folder in ("killed", "whole")]
    pd.testing.assert_frame_equal(*tables)
    findings = [(tmp_path / folder / "findings.json").read_bytes() for folder in ("killed", "whole")]
    assert findings[0] == findings[1] and json.loads(findings[0])["findings"] == list(whole.findings)
    assert list(resumed.findings) == list(whole.findings)


def test_the_paper_preset_can_run() -> None:
    for preset in ("smoke", "demo", "paper"):
        check_config(make_config("split", preset, {}, {}))
    with pytest.raises(InvalidInput, match="is invalid"):
        make_config("split", "smoke", {"seeds": 0}, {})
