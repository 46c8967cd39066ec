"""The pages: links of README lead to files, code imports existing names, and commands parse.

`make docs` checks other links.
"""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer
from archray_test_documents import blocks_of, pages, parts, write_files

import archray
from archray.errors import DataNotFound, InvalidPool, InvalidTable, MissingExtra
from archray.platform.cli import application
from archray.platform.run.run import Run
from archray.trainables.proxies import PROXIES

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = pages()
ALL = {page: blocks_of(page) for page in PAGES}
COMMAND = re.compile(r"^(?:\.venv/bin/)?archray (.+)$")


def label(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


def commands(page: Path) -> list[list[str]]:
    """Returns the arguments of every `archray ...` line in a `sh` block, without comments and redirections."""
    shell = [block for block in ALL[page] if block.language == "sh"]
    lines = [line.partition(" > ")[0] for block in shell for line in block.text.splitlines()]
    return [shlex.split(match[1], comments=True) for line in lines if (match := COMMAND.match(line))]


@pytest.mark.parametrize("page", sorted(REPOSITORY.glob("*.md")), ids=label)
def test_links_between_files_of_the_repository(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s#]+)[^)\s]*\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md", "docs/notes.md"])
def test_named_modules_exist(page: str) -> None:
    """These pages name only files of the repository, unlike the pages that show the reader's own files."""
    text = re.sub(r"```.*?```", "", (REPOSITORY / page).read_text(encoding="utf-8"), flags=re.S)
    named = set(re.findall(r"`([\w/-]+\.py)`", text))
    folders = ("archray", "benchmarks", "cluster", "docs", "platform", "searchers", "tests", "trainables")
    files = [f"/{file.relative_to(REPOSITORY)}" for folder in folders for file in (REPOSITORY / folder).rglob("*.py")]
    assert named and [name for name in sorted(named) if not any(file.endswith(f"/{name}") for file in files)] == []


def test_the_api_page_has_every_public_name() -> None:
    headings = re.findall(r"heading: archray\.(\w+)", (REPOSITORY / "docs" / "api" / "index.md").read_text())
    assert sorted(headings) == sorted(name for name in archray.__all__ if not name.startswith("_"))


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_python_blocks_import_existing_names(page: Path) -> None:
    python = [block for block in ALL[page] if block.language == "python"]
    shown = {block.title.removesuffix(".py").replace("/", ".") for block in python if block.title is not None}
    for block in python:
        for node in ast.walk(ast.parse(block.text, filename=f"{page}:{block.line}")):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("archray"):
                continue
            if node.module.removeprefix("archray.") in shown:
                continue  # a file that the page adds
            module = importlib.import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == [], block.line


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    sys.path.insert(0, str(REPOSITORY / "docs" / "generate"))
    try:
        return importlib.import_module("pages")
    finally:
        sys.path.pop(0)


def test_generated_tables_and_charts_are_current(generator: ModuleType) -> None:
    outdated, charts = [], {}
    for page in generator.pages():
        text, drawn = generator.generated(page)
        outdated += [label(page)] * (text != page.read_text(encoding="utf-8"))
        charts |= drawn
    files = {file.name: file.read_text(encoding="utf-8") for file in generator.CHARTS.iterdir()}
    outdated += [name for name, chart in charts.items() if chart.digest not in files.get(name, "")]
    assert outdated + sorted(files.keys() - charts.keys()) == [], "run make docs-tables"


def test_a_page_has_a_table_of_all_metrics() -> None:
    page = (REPOSITORY / "docs" / "proxies.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert [name for name in PROXIES if not any(line.startswith(f"| `{name}` | ") for line in rows)] == []
    assert any(line.startswith("| `kappa` | ") and "| smaller |" in line for line in rows)


def test_a_page_has_every_command_with_its_options() -> None:
    page = (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8")
    app = typer.main.get_command(application([]))
    inner = [f"### `archray bench {name}`" for name in app.commands["bench"].commands]
    headings = [f"## `archray {name}`" for name in app.commands]
    assert [heading for heading in (*headings, *inner) if f"\n{heading}\n" not in page] == []
    assert "` | Total number of training runs, or of sampled ensembles. |  |" in page  # the option begins with its name
    assert "and can share their pools. | `seed` |" in page


class Reached(Exception):
    """Signals that a search has passed all checks."""


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=label)
def test_commands_parse(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Parses options and values of every command, and the configuration of a search before its folder is created."""

    def create(*arguments: object, **options: object) -> Run:
        raise Reached

    monkeypatch.setattr(Run, "create", create)
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    for part in parts(page):
        write_files(part, tmp_path)
    monkeypatch.chdir(tmp_path)
    for arguments in commands(page):
        name, *rest = arguments
        command = typer.main.get_command(application(arguments)).commands[name]
        if "--help" in rest:
            continue
        with command.make_context(name, list(rest)) as context:
            assert context.command.name == name
        # A dry run creates no folder (test_page_blocks.py runs it), and no object store is available here.
        if name != "search" or "--dry-run" in rest or any("://" in word for word in rest):
            continue
        if "--weights" in rest:
            Path(rest[rest.index("--weights") + 1]).touch()  # a program of the page writes it
        with pytest.raises((Reached, DataNotFound, InvalidPool, InvalidTable, MissingExtra)):
            typer.main.get_command(application(arguments)).main(arguments, standalone_mode=False)
