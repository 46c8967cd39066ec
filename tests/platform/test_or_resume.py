"""One command that begins a search or goes on with the one it began: what a job runs that may be started again."""

import shutil

import pytest
from archray_test_runs import RUNS

import archray
from archray.errors import InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.methods.configure import make_config
from archray.platform.run.run import Run, check_same_search


@pytest.fixture
def ended(finished_run, tmp_path):
    """A copy of a run that has ended."""
    return shutil.copytree(finished_run("hnas").path, tmp_path / "run")


def test_what_has_ended_is_not_done_again(ended):
    before = {file: file.stat().st_mtime_ns for file in ended.glob("*/done.json")}
    result = archray.search("hnas", **RUNS["hnas"], out=ended, or_resume=True)
    assert result.architecture == Folder(ended).read_json("architecture.json")["architecture"]
    assert before and {file: file.stat().st_mtime_ns for file in before} == before


def test_where_it_runs_may_have_changed(ended):
    archray.search("hnas", **RUNS["hnas"], cluster__dashboard=False, out=ended, or_resume=True)
    assert Folder(ended).read_json("manifest.json")["config"]["cluster"]["dashboard"] is False


def test_another_search_is_refused_with_what_differs(ended):
    with pytest.raises(RunFolderError, match=r"there search.budget is 4, not 5; seed is 3, not 4\. C"):
        archray.search("hnas", **{**RUNS["hnas"], "seed": 4, "budget": 5}, out=ended, or_resume=True)


def test_a_changed_file_of_the_users_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "metric.py").write_text("def width(network, images, labels):\n    return 1.0\n")
    asked = {"preset": "smoke", "proxy": "metric.py:width"}
    config = make_config("hnas", "smoke", None, {"proxy": asked["proxy"]})
    run = Run.create("run", config)
    check_same_search(run, config)
    (tmp_path / "metric.py").write_text("def width(network, images, labels):\n    return 2.0\n")
    with pytest.raises(RunFolderError, match=r"metric\.py differs from its present content"):
        archray.search("hnas", **asked, out="run", or_resume=True)


def test_it_needs_a_folder():
    with pytest.raises(InvalidInput, match="expected --out with --or-resume"):
        archray.search("hnas", preset="smoke", or_resume=True)


def test_what_a_kill_left_before_it_was_a_run_is_no_hindrance_and_another_file_is(tmp_path):
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
