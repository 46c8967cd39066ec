"""`--or-resume` starts a search or resumes it if the folder has one, for jobs that a scheduler may restart."""

import linecache
import shutil

import pytest
from archray_test_runs import RUNS

import archray
from archray.errors import InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.methods.configure import make_config
from archray.platform.run.run import Run, check_same_search


@pytest.fixture
def finished_copy(finished_run, tmp_path):
    """Returns a copy of a finished run."""
    return shutil.copytree(finished_run("hnas").path, tmp_path / "run")


def test_a_finished_run_is_not_repeated(finished_copy):
    before = {file: file.stat().st_mtime_ns for file in finished_copy.glob("*/done.json")}
    result = archray.search("hnas", **RUNS["hnas"], out=finished_copy, or_resume=True)
    assert result.architecture == Folder(finished_copy).read_json("architecture.json")["architecture"]
    assert before and {file: file.stat().st_mtime_ns for file in before} == before


def test_the_place_of_execution_may_change(finished_copy):
    archray.search("hnas", **RUNS["hnas"], cluster__dashboard=False, out=finished_copy, or_resume=True)
    assert Folder(finished_copy).read_json("manifest.json")["config"]["cluster"]["dashboard"] is False


def test_another_search_raises_an_error_with_the_differences(finished_copy):
    with pytest.raises(RunFolderError, match=r"there search.budget is 4, not 5; seed is 3, not 4\. C"):
        archray.search("hnas", **{**RUNS["hnas"], "seed": 4, "budget": 5}, out=finished_copy, or_resume=True)


def test_a_changed_file_of_the_user_raises_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "metric.py").write_text("def width(network, images, labels):\n    return 1.0\n")
    options = {"preset": "smoke", "proxy": "metric.py:width"}
    config = make_config("hnas", "smoke", None, {"proxy": options["proxy"]})
    run = Run.create("run", config)
    check_same_search(run, config)
    (tmp_path / "metric.py").write_text("def width(network, images, labels):\n    return 2.0\n")
    with pytest.raises(RunFolderError, match=r"metric\.py differs from its present content"):
        archray.search("hnas", **options, out="run", or_resume=True)


def test_a_changed_function_of_a_notebook_raises_an_error(tmp_path):
    def config(kernels):
        source = f"""
from torch import nn
from archray import Choice
def network(in_channels, num_classes):
    layer = Choice({{str(k): nn.Conv2d(in_channels, 4, k, padding=k // 2) for k in {kernels}}}, name="layer")
    return nn.Sequential(layer, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, num_classes))
"""
        cell: dict = {"__name__": "__main__"}
        filename = f"cell of {kernels}"
        exec(compile(source, filename, "exec"), cell)
        linecache.cache[filename] = len(source), None, source.splitlines(keepends=True), filename  # as IPython does
        return make_config("random", "smoke", None, {"space": cell["network"], "data__limit": 60})

    run = Run.create(str(tmp_path / "run"), config((1, 3)))
    assert run.config.space == "object:space:network"
    check_same_search(run, config((1, 3)))
    with pytest.raises(RunFolderError, match=r"network\.py differs from its present content"):
        check_same_search(run, config((1, 5)))


def test_it_needs_a_folder():
    with pytest.raises(InvalidInput, match="expected --out with --or-resume"):
        archray.search("hnas", preset="smoke", or_resume=True)


def test_files_of_a_run_killed_at_its_start_are_accepted_and_others_are_not(tmp_path):
    config = make_config("hnas", "smoke", None, {})
    (tmp_path / "code" / "space").mkdir(parents=True)
    with pytest.raises(RunFolderError, match="not empty"):
        Run.create(str(tmp_path), config)
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(RunFolderError, match="not empty"):
        archray.search("hnas", preset="smoke", out=tmp_path, or_resume=True)
    (tmp_path / "thesis.tex").unlink()
    Run.create(str(tmp_path), config, again=True)
    assert (tmp_path / "manifest.json").exists()
