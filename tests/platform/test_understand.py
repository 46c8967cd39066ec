"""`archray understand`: a study has a run folder, resume, a report and a summary, as a search has."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from copy import copy
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import archray
from archray.errors import InvalidInput, UnknownName
from archray.platform.cli import application
from archray.platform.methods import METHODS, STUDIES, Method

# A study of a user: it counts, and fails in its second stage while a file exists.
COUNTING = '''
from pathlib import Path

import pandas as pd
from archray.platform.engine.stage import WorkStage
from archray.platform.methods.method import Method
from archray.platform.methods.recipe import Recipe, Report
from archray.platform.methods.understanding import StudyConfig
from archray.platform.report.page import Headline
from archray.platform.report.section import Section
from archray.platform.run.run_summary import Listing
from archray.settings import REPEATED
from typing import Annotated, Any

TABLE = "counts.parquet"


class CountingConfig(StudyConfig):
    """Counts.

    Fields:
        things: what is counted.
        stop_at: a file; the study cannot continue while it exists.
    """

    things: Annotated[tuple[str, ...], REPEATED] = ("one",)
    stop_at: str = ""


def _count(context: Any, folder: Any) -> None:
    rows = [{"thing": thing, "letters": len(thing)} for thing in context.config.things]
    folder.write_parquet(TABLE, pd.DataFrame(rows))


def _check(context: Any, folder: Any) -> None:
    if context.config.stop_at and Path(context.config.stop_at).exists():
        raise KeyboardInterrupt
    folder.write_json("checked.json", len(context.run.table("count", TABLE)))


def _findings(run: Any) -> list[str]:
    table = run.table("count", TABLE)
    return [] if table.empty else [f"{table['letters'].sum()} letters in all"]


RECIPE = Recipe(
    stages=(
        WorkStage(name="count", title="count", reads=("things",), work=_count, needs_ray=False),
        WorkStage(name="check", title="check", work=_check, needs_ray=False),
    ),
    report_at="counting_study:REPORT",
)
REPORT = Report(
    findings=_findings,
    headline=lambda run: Headline("count", " ".join(_findings(run))),
    sections=(lambda run: Section("counts", "Counts", "<p>counted</p>"),),
    listings=lambda run: [Listing.of("counts", run.table("count", TABLE).to_dict("records"))],
)
COUNTING = Method(
    name="counting",
    config=CountingConfig,
    recipe_at="counting_study:RECIPE",
    presets={preset: {"data": {"name": "digits"}} for preset in ("smoke", "demo", "paper")},
    flags={"thing": "things", "stop_at": "stop_at"},
    words="thing",
)
'''


@pytest.fixture(scope="module", autouse=True)
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("study")
    (folder / "counting_study.py").write_text(COUNTING)
    before = {name: copy(value) for name, value in vars(STUDIES).items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        STUDIES.declare("counting", "Counts things", "counting_study:COUNTING")
        yield
    vars(STUDIES).update(before)


def printed(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Returns the output of a command, which must succeed."""
    monkeypatch.setattr(sys, "argv", ["archray", *arguments])
    result = CliRunner().invoke(application(list(arguments)), arguments, env={"COLUMNS": "200"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_words_after_the_name_are_the_subjects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(
        "understand", "counting", "two", "three", "--thing", "four", "--out", str(tmp_path / "run"),
        monkeypatch=monkeypatch,
    )  # fmt: skip
    assert "12 letters in all" in text and "counts:" in text
    findings = json.loads((tmp_path / "run" / "findings.json").read_text())
    assert findings == {"findings": ["12 letters in all"]} and not (tmp_path / "run" / "architecture.json").exists()
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Counting on digits" in page and "<dt>Study</dt><dd>counting</dd>" in page
    assert "12 letters in all" in printed("show", str(tmp_path / "run"), monkeypatch=monkeypatch)
    assert archray.load(tmp_path / "run").findings == ("12 letters in all",)
    with pytest.raises(InvalidInput, match=r"expected runs of searches, got .*, a study \(.*counting.*\)"):
        archray.compare([tmp_path / "run"])


def test_a_finished_study_without_a_summary_counts_as_finished(tmp_path: Path) -> None:
    run = archray.understand("counting", thing=["six"], out=tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    assert archray.load(run.path).findings == ("3 letters in all",)
    archray.report(run.path)
    assert archray.show(run.path).state == "done"


def test_a_stopped_study_resumes(tmp_path: Path) -> None:
    barrier = tmp_path / "barrier"
    barrier.touch()
    with pytest.raises(archray.errors.RunInterrupted, match=r"\[2/3\] check"):
        archray.understand("counting", thing=["five"], stop_at=str(barrier), out=tmp_path / "run")
    counted = (tmp_path / "run" / "count" / "counts.parquet").stat().st_mtime_ns
    barrier.unlink()
    result = archray.resume(tmp_path / "run")
    assert result.findings == ("4 letters in all",) and result.architecture is None
    assert (tmp_path / "run" / "count" / "counts.parquet").stat().st_mtime_ns == counted
    assert pd.read_parquet(tmp_path / "run" / "count" / "counts.parquet")["thing"].tolist() == ["five"]


def test_search_rejects_studies_and_understand_rejects_methods() -> None:
    with pytest.raises(UnknownName, match="there is no method 'counting'"):
        archray.search("counting")
    with pytest.raises(UnknownName, match="there is no study 'hnas'"):
        archray.understand("hnas")
    assert not {*METHODS} & {*STUDIES}


def test_help_lists_studies_and_the_options_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Counts things." in printed("understand", "--help", monkeypatch=monkeypatch)
    text = printed("understand", "counting", "--help", monkeypatch=monkeypatch)
    assert "[THING]..." in text and "--stop-at" in text
    assert "for archray understand counting --config" in printed("config", "counting", monkeypatch=monkeypatch)
    assert archray.list_names("studies")["counting"] == "Counts things"


@pytest.mark.parametrize("name", STUDIES.names())
def test_an_entry_resolves_to_its_study_and_recipe(name: str) -> None:
    study = STUDIES.get(name)
    assert isinstance(study, Method) and study.name == name and study.config.kind == "study"
    assert {"smoke", "demo", "paper"} <= set(study.presets)
    assert study.recipe.report.findings is not None and STUDIES.summary(name)
