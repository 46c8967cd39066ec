"""The output of `--help` on a terminal with 80 columns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from archray.platform.cli import application
from archray.platform.commands.proxies import proxy_names
from archray.platform.methods import METHODS
from archray.trainables.proxies import PROXIES


def printed(*arguments: str) -> str:
    """Returns the output of a command."""
    app = application(list(arguments))
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "80"}, catch_exceptions=False).output


def first_words(text: str, panel: str) -> list[str]:
    """The first word of each entry of a panel."""
    lines = text.partition(f"─ {panel} ─")[2].partition("╰")[0].splitlines()[1:]
    return [match[1] for line in lines if (match := re.match(r"│ ([\w-]+)", line))]


@pytest.mark.parametrize(("command", "method"), [("search", "[METHOD]"), ("config", "METHOD")])
def test_the_argument_of_methods_is_called_method(command: str, method: str) -> None:
    text = printed(command, "--help")
    assert f"{command} [OPTIONS] {method} [OPTIONS]" in text
    assert first_words(text, "Methods") == list(METHODS.names())


@pytest.mark.parametrize("name", ["hnas", "gaea-pc-darts", "nesbs", "halving"])
def test_no_key_of_an_option_is_cut_off(name: str) -> None:
    assert "…" not in printed("search", name, "--help")


def test_all_metrics_of_archray_are_listed_once() -> None:
    assert proxy_names("snip, kappa") == ["snip", "kappa"]
    assert proxy_names("all") == PROXIES.names()
    assert proxy_names("zen,all,own.py:slope") == ["zen", *(n for n in PROXIES.names() if n != "zen"), "own.py:slope"]


@pytest.mark.parametrize("options", [(), ("--preset", "smoke"), ("--space=nasbench1shot1-1", "--budget", "3")])
def test_a_search_without_a_method_uses_the_default(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = printed("search", *options, "--dry-run", "--no-estimate")
    assert "No method given: using rank-surrogate" in text
    assert re.sub(r"-\d+-\d+", "", text.partition("\n")[2]) == re.sub(
        r"-\d+-\d+", "", printed("search", "rank-surrogate", *options, "--dry-run", "--no-estimate")
    )
    assert list(tmp_path.iterdir()) == []


def test_a_method_after_the_options_is_an_error() -> None:
    assert "unexpected extra argument" in printed("search", "--preset", "smoke", "hnas", "--dry-run")
