"""`archray understand topology`: the input that it rejects, the statistics of its tables, and a complete study that was
killed once.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from archray_test_report import rendered
from archray_test_topology import topology_run
from archray_test_wide_cells import wide_run
from scipy.stats import spearmanr
from torch import nn

import archray
from archray import plots
from archray.errors import ArchrayError, InvalidInput, RunInterrupted
from archray.platform.methods.configure import check_config, make_config
from archray.platform.methods.understanding.topology.config import CellPlaneSettings
from archray.platform.methods.understanding.topology.stages import MEASURES, measures_of
from archray.platform.methods.understanding.topology.tables import (
    UNDECIDED,
    VARIANTS,
    claims,
    negative,
    no_gain,
    positive,
    spearman_within,
)
from archray.platform.report.statistics import FAILS, HOLDS
from archray.trainables.checkpoint import write_weights
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.spaces import get_space
from archray.trainables.spaces.genotypes import cell_space
from archray.trainables.tune.cell_trainable import COLUMNS, LandscapeWorker, items_of, trained_cell

NB201 = "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"
SMALL = {"channels": 2, "cells": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"architecture": ["darts-v3"]}, "a genotype or the folder of a run, got 'darts-v3'"),
        ({"architecture": ["runs/none"]}, "got 'runs/none', which has no manifest.json"),
        ({"architecture": [NB201]}, "expected the genotype of two cells"),
        ({"architecture": ["darts-v2", "darts-v2"]}, "expected distinct architectures, got a duplicate"),
        ({"architecture": []}, "expected one or more architectures, got none"),
        ({"points": 0}, "expected plane.points to be at least 3, got 0. Set --points"),
        ({"space": "nasbench201"}, "not cells with a width and a depth. Choose darts, darts-none or nasnet"),
        ({"learning_rate": [0.1, 10.0]}, "distinct positive factors that include 1"),
        ({"points": -1}, "plane.points to be at least 3, got -1"),
    ],
)
def test_bad_input_prints_a_paragraph_before_the_start(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_config(make_config("topology", "smoke", None, options))
    assert message in str(caught.value) and "\n\n" not in str(caught.value)


def test_cells_have_their_names_and_their_spaces() -> None:
    v2 = get_space("darts").named["darts-v2"]
    config = make_config("topology", "smoke", None, {"architecture": ["enas", v2]})
    assert [(name, space.name) for name, space, _ in config.cells] == [("enas", "nasnet"), ("darts-v2", "darts")]
    assert cell_space(config.cells[1][2]).name == "darts"


# Statistics of the tables


def test_the_correlation_within_cells_is_spearmans_and_ignores_differences_between_cells() -> None:
    rng = np.random.default_rng(0)
    one = pd.DataFrame({"cell": "a", "width": rng.integers(0, 4, 30), "loss": rng.normal(size=30)})
    value, low, high = spearman_within(one, "width", "loss")
    assert value == pytest.approx(spearmanr(one["width"], one["loss"]).statistic)
    assert low < value < high
    falling = pd.DataFrame({"width": np.arange(8.0), "loss": -np.arange(8.0)})
    both = pd.concat([falling.assign(cell="a"), (falling + 100).assign(cell="b")])
    assert spearmanr(both["width"], both["loss"]).statistic > 0.4
    assert spearman_within(both, "width", "loss")[0] == pytest.approx(-1)
    assert np.isnan(spearman_within(one.head(11), "width", "loss")).all()
    assert np.isnan(spearman_within(one.assign(width=1), "width", "loss")).all()


def test_the_interval_has_its_nominal_coverage() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(60):
        table = pd.DataFrame({"cell": np.repeat(["a", "b"], 20), "x": rng.normal(size=40), "y": rng.normal(size=40)})
        _, low, high = spearman_within(table, "x", "y")
        covered += low < 0 < high
    assert covered >= 50


def test_verdicts() -> None:
    assert (positive(0.1, 0.2), positive(-0.2, -0.1), positive(-0.1, 0.1)) == (HOLDS, FAILS, UNDECIDED)
    assert (negative(0.1, 0.2), negative(-0.2, -0.1), negative(-0.1, 0.1)) == (FAILS, HOLDS, UNDECIDED)
    assert (no_gain(-0.2, 0.2), no_gain(0.1, 0.6), no_gain(-0.2, 0.5)) == (HOLDS, FAILS, UNDECIDED)
    assert {rule(math.nan, math.nan) for rule in (positive, negative, no_gain)} == {UNDECIDED}


@pytest.mark.slow
def test_a_cell_without_variants_is_drawn_alone(tmp_path: Path) -> None:
    run = topology_run(tmp_path / "run")
    table = run.table("variants", VARIANTS)
    run.folder.write_parquet(f"variants/{VARIANTS}", table[table["kind"] == "cell"])
    for name in ("topology_planes", "topology_gradient_planes"):
        shown = [axes.get_title("left") for axes in getattr(plots, name)(run).axes if axes.get_title("left")]
        assert [title.splitlines()[0] for title in shown] == ["darts-v2", "snas-mild"]
    assert 'id="planes"' in rendered(run)


@pytest.mark.slow
def test_a_run_in_which_only_width_matters_confirms_the_claims(tmp_path: Path) -> None:
    outcome = {claim.text: claim for claim in claims(wide_run(tmp_path / "run"))}
    for text in ("wider cells converge faster", "wider cells have a smoother loss landscape"):
        assert outcome[text].verdict == HOLDS and outcome[text].high < 0
    assert outcome["wider cells have a smaller gradient variance"].value == pytest.approx(-1)
    assert outcome["operations matter less than connections"].verdict == HOLDS
    assert outcome["wider cells are not more accurate"].verdict != FAILS


# The loss around trained weights


def kept_network(folder: Path, name: str = "darts-v2") -> tuple[str, str, nn.Module]:
    space = get_space("darts")
    text = space.encode(space.decode(space.named[name]))
    network = build(space, text, network=NetworkSettings(**SMALL), in_channels=1, num_classes=10, seed=0).eval()
    state = {"architecture": text, "network": network.state_dict(), "settings": NetworkSettings(**SMALL).model_dump()}
    uri = write_weights(str(folder), f"{name}.pt", state | {"in_channels": 1, "num_classes": 10})
    return text, uri, network


@pytest.mark.slow
def test_a_plane_and_its_variance_equal_those_of_a_loop(tmp_path: Path) -> None:
    text, uri, network = kept_network(tmp_path)
    worker = LandscapeWorker(
        {text: uri}, {"name": "digits"}, points=3, radius=0.5, images=6, gradient_points=1, seed=1, device="cpu"
    )
    outcome = pd.DataFrame([worker(item) for item in items_of(text, 3, 1)])
    assert list(outcome) == list(COLUMNS) and len(outcome) == 1 + 3 + 1
    row = measures_of(outcome, CellPlaneSettings(points=3, radius=0.5, images=6, gradient_points=1))
    assert set(row) == {*MEASURES, "seconds", "failure"}
    plane = np.array(json.loads(row["plane"]))
    assert json.loads(worker(f"losses 0 {text}")["values"]) == plane[0].tolist()
    loss = nn.functional.cross_entropy
    assert plane.shape == (3, 3)
    assert (
        plane[1, 1] == pytest.approx(row["center"]) == pytest.approx(loss(network(worker.images), worker.labels).item())
    )
    gradients = []
    for image, label in zip(worker.images, worker.labels, strict=True):
        network.zero_grad()
        loss(network(image[None]), label[None]).backward()
        gradients.append(torch.cat([p.grad.flatten().double() for p in network.parameters()]))
    stacked = torch.stack(gradients)
    expected = (stacked - stacked.mean(0)).square().sum(1).mean().item()
    assert row["gradient_variance"] == pytest.approx(expected, rel=1e-4)
    assert row["plane_variance"] == pytest.approx(row["gradient_variance"])


def test_weights_that_do_not_fit_raise_an_error(tmp_path: Path) -> None:
    _, _, network = kept_network(tmp_path)
    other = get_space("darts").named["gaea-pc-darts"]
    state = {"architecture": other, "network": network.state_dict(), "settings": SMALL, "in_channels": 1}
    wrong = write_weights(str(tmp_path), "wrong.pt", state | {"num_classes": 10})
    with pytest.raises(InvalidInput, match=r"expected the weights of .*, got others: Missing key"):
        trained_cell(wrong)


# Complete study


@pytest.mark.slow
def test_a_study_killed_in_two_stages_is_resumed(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from archray.platform.methods.understanding.topology import stages
    from archray.trainables import checkpoint

    options: dict[str, Any] = {"architecture": ["darts-v2", "enas"], "connections": 1, "operations": 1, "epochs": 1}
    out, keep, planes = tmp_path / "run", checkpoint.write_weights, stages.score_in_shards

    def stops(*arguments: Any, **words: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "write_weights", stops)
    with pytest.raises(RunInterrupted, match=r"\[2/5\] trainings"):
        archray.understand("topology", preset="smoke", out=out, **options)
    monkeypatch.setattr(checkpoint, "write_weights", keep)
    monkeypatch.setattr(stages, "score_in_shards", stops)
    with pytest.raises(RunInterrupted, match=r"\[3/5\] planes"):
        archray.resume(out)
    trained = (out / "trainings" / "trials.parquet").read_bytes()
    monkeypatch.setattr(stages, "score_in_shards", planes)
    result = archray.resume(out)
    assert (out / "trainings" / "trials.parquet").read_bytes() == trained
    assert len(result.findings) > 8
    assert all(any(f": {verdict} (" in text for verdict in (HOLDS, FAILS, UNDECIDED)) for text in result.findings)
    variants, planes_table = (
        pd.read_parquet(out / place) for place in ("variants/variants.parquet", "planes/planes.parquet")
    )
    assert set(planes_table["architecture"]) == set(variants["architecture"])
    assert planes_table["failure"].isna().all() and (planes_table["gradient_variance"] > 0).all()
    page = (out / "report.html").read_text()
    assert all(f'id="{anchor}"' in page for anchor in ("claims", "cells", "convergence", "trends", "planes", "linear"))
    with pytest.raises(ArchrayError):
        archray.understand("topology", preset="smoke", out=out)
