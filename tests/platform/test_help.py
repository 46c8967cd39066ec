"""What `--help` shows, on a terminal of 80 columns."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from archray.platform.cli import application
from archray.platform.commands.proxies import proxy_names
from archray.platform.methods import METHODS
from archray.trainables.proxies import PROXIES


def shown(*arguments: str) -> str:
    """What a command prints."""
    app = application(list(arguments))
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "80"}, catch_exceptions=False).output


def first_words(text: str, panel: str) -> list[str]:
    """The first word of each entry of a panel."""
    lines = text.partition(f"─ {panel} ─")[2].partition("╰")[0].splitlines()[1:]
    return [match[1] for line in lines if (match := re.match(r"│ ([\w-]+)", line))]


def test_commands_stand_in_the_order_of_a_first_day() -> None:
    assert first_words(shown("--help"), "Commands") == (
        [
            "search",
            "watch",
            "show",
            "runs",
            "resume",
            "report",
            "compare",
            "export",
            "predict",
            "attack",
            "list",
            "proxies",
            "submit",
            "bench",
            "understand",
            "config",
        ]
    )


@pytest.mark.parametrize("command", ["search", "config"])
def test_methods_are_called_methods(command: str) -> None:
    text = shown(command, "--help")
    assert f"{command} [OPTIONS] METHOD [OPTIONS]" in text
    assert first_words(text, "Methods") == list(METHODS.names())


@pytest.mark.parametrize("name", METHODS.names())
def test_no_key_of_an_option_is_cut(name: str) -> None:
    assert "…" not in shown("search", name, "--help")


def test_an_option_says_its_values_in_its_text() -> None:
    text = " ".join(re.sub("[│╭╰─╮╯]", " ", shown("search", "gaea-darts", "--help")).split())
    assert "One of bilevel, bilevel-second-order, erm. (supernet.training.objective, default bilevel)" in text


def test_a_list_of_nothing_says_of_what_there_are_lists() -> None:
    assert "spaces|architectures|datasets|proxies|methods|studies" in shown("list")


def test_all_metrics_are_archrays_own_each_once() -> None:
    assert proxy_names("snip, kappa") == ["snip", "kappa"]
    assert proxy_names("all") == PROXIES.names()
    assert proxy_names("zen,all,own.py:slope") == ["zen", *(n for n in PROXIES.names() if n != "zen"), "own.py:slope"]
