"""A finished run in a new process: load, show, runs, and the modules that they do not import."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html import escape
from pathlib import Path

import pandas as pd
import pytest
from archray_test_models import a_run
from typer.testing import CliRunner

import archray
from archray.errors import RunFolderError
from archray.platform.cli import application
from archray.platform.run.layout import SUMMARY
from archray.platform.run.run_summary import RunSummary
from archray.platform.show import head_of

HEAVY = {"ray", "torch", "numpy", "pandas", "pyarrow", "sklearn", "scipy", "matplotlib"}


@pytest.fixture
def result(finished_run: Callable[[str], archray.RunResult]) -> archray.RunResult:
    return finished_run("hnas")


@pytest.fixture
def copied(result: archray.RunResult, tmp_path: Path) -> Path:
    """A copy of the run that a test may change."""
    return Path(shutil.copytree(result.path, tmp_path / "runs" / "copy"))


def command(*arguments: str) -> str:
    outcome = CliRunner().invoke(application(arguments), arguments)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def change_summary(run: Path, **values: object) -> None:
    summary = json.loads((run / SUMMARY).read_text())
    (run / SUMMARY).write_text(json.dumps({**summary, **values}))


def test_a_loaded_run_equals_the_returned_one(result: archray.RunResult) -> None:
    loaded = archray.load(result.path)
    assert replace(loaded, grids=result.grids) == result and isinstance(loaded, archray.RunResult)
    assert loaded.trials.equals(result.trials) and loaded.summary.method == "hnas"
    assert loaded.model().state_dict().keys() == result.model().state_dict().keys()


@pytest.mark.parametrize(
    "code",
    [
        "archray.load(PATH)",
        "archray.show(PATH)",
        "archray.runs(PATH)",
        "archray.watch(PATH)",
        "import archray.platform.cli as c; sys.argv[1:] = ['show', PATH, '--json']; c.main()",
    ],
)
def test_a_finished_run_is_read_without_the_modules_that_made_it(result: archray.RunResult, code: str) -> None:
    program = (
        "import sys, archray, atexit\n"
        f"atexit.register(lambda: print(*({HEAVY!r} & set(sys.modules)), file=sys.stderr))\n" + code
    )
    done = subprocess.run(
        [sys.executable, "-c", program.replace("PATH", repr(result.path))], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_a_notebook_shows_the_lines_about_a_run_escaped(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copied.parent)
    manifest = json.loads((copied / "manifest.json").read_text())
    manifest["config"]["space"] = "<script>alert(1)</script>.py:'Own\""
    (copied / "manifest.json").write_text(json.dumps(manifest))
    result = archray.load(copied)
    page = result._repr_html_()
    assert page is not None and "<script" not in page
    for label, text in head_of(result.summary):
        assert f">{escape(label)}</th>" in page and f">{escape(text)}</td>" in page
    assert f'<a href="copy/report.html">{copied}/report.html</a>' in page
    shutil.rmtree(copied)
    assert result._repr_html_() is None


def test_the_size_and_the_costs_of_the_found_network(result: archray.RunResult, tmp_path: Path) -> None:
    assert result.parameters == result.summary.result["parameters"] and result.costs == {}
    run = a_run(tmp_path / "run", "nasbench201", cost=["flops", "latency_ms"], constraint=["peak_memory <= 1G"])
    columns = {"flops": [3.0, 1.0, 2.0], "peak_memory": [6, 4, 5], "latency_ms": [0.5, float("nan"), float("nan")]}
    run.folder.write_parquet("trials.parquet", pd.DataFrame({"architecture": ["a", "b", "b"], **columns}))
    assert archray.RunResult(run.folder.uri, "b", None).costs == {"flops": 1.0, "peak_memory": 4.0}
    assert archray.RunResult(run.folder.uri, "a", None).costs == {"flops": 3.0, "latency_ms": 0.5, "peak_memory": 6.0}


def test_an_unfinished_run_is_not_loaded(copied: Path) -> None:
    change_summary(copied, state="interrupted", reason="[2/5] search: stopped")
    with pytest.raises(RunFolderError, match=r"has not ended \(\[2/5\] search: stopped\).*archray resume .*copy$"):
        archray.load(copied)
    change_summary(copied, state="failed", reason="ValueError: no")
    with pytest.raises(RunFolderError, match="ValueError: no"):
        archray.load(copied)


def test_show_returns_the_text_that_it_prints(result: archray.RunResult, capsys: pytest.CaptureFixture[str]) -> None:
    summary = archray.show(result.path)
    printed = capsys.readouterr().out
    assert summary == RunSummary.read(result.path) and summary.state == "done"
    assert [stage.name for stage in summary.stages] == ["pool", "search", "final", "baseline", "report"]
    [trials] = summary.listings
    accuracies = [row["validation_accuracy"] for row in trials.rows]
    assert accuracies == sorted(accuracies, reverse=True) and len(accuracies) == 4
    assert all(
        row["architecture"] in printed and f"{100 * row['validation_accuracy']:.2f} %" in printed for row in trials.rows
    )
    assert result.architecture in printed and f"{result.path}/report.html" in printed
    assert f"{100 * result.test_accuracy:.2f} %" in printed


def test_show_names_a_missing_report_and_how_to_rewrite_it(copied: Path) -> None:
    (copied / "report.html").unlink()
    assert f"missing; rewrite it with: archray report {copied}" in command("show", str(copied))
    assert f"{copied}/report.html" not in command("resume", str(copied))
    command("report", str(copied))
    assert f"{copied}/report.html" in command("show", str(copied))


def test_show_as_json(result: archray.RunResult) -> None:
    outcome = json.loads(command("show", result.path, "--json"))
    assert outcome == json.loads(json.dumps(RunSummary.read(result.path).to_dict()))
    assert outcome["result"]["architecture"] == result.architecture and outcome["state"] == "done"
    assert outcome["result"]["test_accuracy"] == result.test_accuracy


def test_runs_of_a_folder(copied: Path, tmp_path: Path) -> None:
    shutil.copytree(copied, copied.parent / "second")
    change_summary(copied.parent / "second", state="interrupted", reason="[2/5] search: stopped")
    (copied.parent / "no-run").mkdir()
    found = archray.runs(copied.parent)
    assert {(Path(summary.path).name, summary.state) for summary in found} == {
        ("copy", "done"),
        ("second", "interrupted"),
    }
    printed = command("runs", str(copied.parent))
    assert "copy" in printed and "second" in printed and "no-run" not in printed
    rows = [re.split(" {2,}", line.strip()) for line in printed.splitlines()]
    assert {tuple(row[1:5]) for row in rows[1:]} == {
        ("hnas", "nasbench201", "digits (at most 200 points per part)", state) for state in ("done", "interrupted")
    }
    assert len(json.loads(command("runs", str(copied.parent), "--json"))) == 2
    assert "no runs in" in command("runs", str(copied.parent / "no-run"))
    for place in (tmp_path / "nowhere", copied / "manifest.json"):
        with pytest.raises(RunFolderError, match="there is no folder"):
            archray.runs(place)


def test_report_writes_a_missing_summary(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = json.loads((copied / SUMMARY).read_text())
    (copied / SUMMARY).unlink()
    archray.show(copied)
    assert "has no summary.json" in capsys.readouterr().out
    assert archray.load(copied).test_accuracy == before["result"]["test_accuracy"]
    archray.report(copied)
    after = json.loads((copied / SUMMARY).read_text())
    assert (after["result"], after["listings"], after["state"]) == (before["result"], before["listings"], "done")
    assert "summary.json" not in str(archray.show(copied).reason)


@pytest.mark.parametrize("name", ["search", "resume", "show", "compare", "runs", "watch", "load"])
def test_console_and_command_are_not_public_arguments(name: str) -> None:
    assert not {"console", "command"} & set(inspect.signature(getattr(archray, name)).parameters)


def test_the_command_is_stored(result: archray.RunResult) -> None:
    assert json.loads((Path(result.path) / "manifest.json").read_text())["command"] is None, "it was called from Python"
    assert isinstance(archray.load(result.path).trials, pd.DataFrame)
