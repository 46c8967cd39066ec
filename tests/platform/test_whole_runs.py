"""Every method with the preset smoke, from its search to its report, and the typical uses of the run."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from archray_test_run_files import undescribed_names
from archray_test_runs import ONE_AT_A_TIME, method_parameters

import archray
from archray.platform.methods import METHODS, get_method
from archray.trainables.spaces import get_space

SECTION = re.compile('<section id="([^"]+)"')
SMALL: dict[str, Any] = {"preset": "smoke", "seed": 1, **ONE_AT_A_TIME}
# The space of a run: the first of these that the method supports.
SPACES = {
    "nasbench201": {"data": "digits", "data__limit": 200},
    "darts": {"data": "digits", "data__limit": 60},
    "vit": {"data": "digits", "data__limit": 200},
}
MAPS = {"fourier": {"data": "digits", "data__limit": 200}, "ngrams": {"data": "docstrings", "data__limit": 200}}
OPTIONS: dict[str, dict[str, Any]] = {  # cases that the preset alone does not cover
    "gaea-darts": {"search_seeds": 3, "selection__keep": 1, "selection__epoch": 1},
    "halving": {"correlation": 3, "repeats": 2},
    "fast-halving": {"space": "ngrams", **MAPS["ngrams"]},
}


def options_of(method: str) -> dict[str, Any]:
    serves = get_method(method).serves
    space = next(name for name in (*SPACES, *MAPS) if serves(get_space(name)) is None)
    return {**SMALL, "space": space, **(SPACES | MAPS)[space], **OPTIONS.get(method, {})}


# Tests of other families in CI include a complete run: NASI, NESBS, supernets, several objectives, studies.
IN_CI = ("random",)  # the blocks of README run rank-surrogate, and .ci/run runs hnas


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("method", method_parameters(METHODS.names(), IN_CI))
def test_a_whole_run(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = archray.search(method, **options_of(method), out=tmp_path / "run")
    run = Path(result.path)
    found = result.members or (result.architecture,)
    assert 0 <= result.test_accuracy <= 1

    folders = sorted(run.glob("repeat-*")) or [run]
    assert [problem for folder in folders for problem in undescribed_names(folder)] == []

    capsys.readouterr()
    summary = archray.show(run)
    printed = capsys.readouterr().out
    assert summary.state == "done" and method in printed and all(architecture in printed for architecture in found)

    loaded = archray.load(run)
    assert (loaded.members or (loaded.architecture,)) == found and loaded.test_accuracy == result.test_accuracy
    assert not loaded.trials.empty

    written = SECTION.findall((run / "report.html").read_text())
    (run / "report.html").unlink()
    archray.report(run)
    assert written and SECTION.findall((run / "report.html").read_text()) == written

    archray.export(run, tmp_path / "export")
    loaders = runpy.run_path(str(tmp_path / "export" / "load_model.py"))
    inputs = inputs_of(method)
    with torch.no_grad():
        expected = loaded.model()(inputs)
        if "build_model" in loaders:
            torch.testing.assert_close(loaders["build_model"]()(inputs), expected)
        exported = loaders["load_model"]()(inputs)
    if method == "mc-droppath":  # the program draws dropped paths from torch's generator
        assert exported.shape == expected.shape and exported.isfinite().all()
    else:
        torch.testing.assert_close(exported, expected)


def inputs_of(method: str) -> Any:
    """Returns some images of the test split on which a method was measured."""
    from archray.trainables.data import DataSettings, load_data

    options = options_of(method)
    test = load_data(DataSettings(name=options["data"], limit=options["data__limit"])).test
    return test.images[:3] if hasattr(test, "images") else test.texts[:3]
