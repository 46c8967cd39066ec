"""The method bohb: the rungs that its model receives, and the error without its packages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ray.tune.schedulers import AsyncHyperBandScheduler

import archray
from archray.errors import InvalidInput
from archray.platform.methods.configure import make_config


@pytest.mark.parametrize(
    ("epochs", "grace_period", "reduction_factor", "rungs"),
    [(8, 1, 2, [1, 2, 4, 8]), (12, 1, 4, [1, 4, 12]), (81, 1, 3, [1, 3, 9, 27, 81]), (5, 4, 4, [4, 5])],
)
def test_the_model_receives_the_rungs_of_tunes_scheduler(
    epochs: int, grace_period: int, reduction_factor: int, rungs: list[int]
) -> None:
    flags = {"epochs": epochs, "grace_period": grace_period, "reduction_factor": reduction_factor}
    config = make_config("bohb", "smoke", None, flags)
    assert config.searcher_options["budgets"] == rungs
    scheduler = AsyncHyperBandScheduler(max_t=epochs, grace_period=grace_period, reduction_factor=reduction_factor)
    milestones = [int(milestone) for milestone, _ in reversed(scheduler._brackets[0]._rungs)]
    assert sorted({*milestones, epochs}) == rungs


def test_missing_packages_raise_before_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hpbandster", None)
    with pytest.raises(InvalidInput, match=r"hpbandster.* cannot be imported.*pip install '\.\[bohb\]'"):
        archray.search("bohb", preset="smoke", data="digits", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
