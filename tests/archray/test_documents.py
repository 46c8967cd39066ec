"""What the pages promise: links lead somewhere, code imports what there is, commands are understood."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from archray_test_documents import Block, parts

from archray.errors import DataNotFound
from archray.platform.cli import application
from archray.platform.run.run import Run

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [*sorted((REPOSITORY / "docs").glob("*.md")), *sorted(REPOSITORY.glob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = re.compile(r"^(?:\.venv/bin/)?archray (.+)$")


def blocks(language: str) -> Iterator[Block]:
    return (block for page in PAGES for part in parts(page) for block in part.blocks if block.language == language)


def commands() -> list[list[str]]:
    """The arguments of every `archray ...` line in a `sh` block; what follows a # is left out."""
    lines = [line for block in blocks("sh") for line in block.text.splitlines()]
    return [shlex.split(found[1], comments=True) for line in lines if (found := COMMAND.match(line))]


def anchors(page: Path) -> set[str]:
    """Where a link into the page can lead: its headings, as GitHub names them, and its anchors."""
    headings = [re.sub(r"[^\w\- ]", "", part.heading.lower()).replace(" ", "-") for part in parts(page)]
    return {*headings, *re.findall(r'<a id="([^"]+)">', page.read_text(encoding="utf-8"))}


def label(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    broken = []
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if link.startswith(("https://", "http://")):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_is_reached_from_the_readme() -> None:
    readme = REPOSITORY / "README.md"
    linked = {(readme.parent / link).resolve() for link in LINK.findall(readme.read_text(encoding="utf-8"))}
    assert [
        label(page) for page in PAGES if page not in linked and page != readme and page.name != "CHANGELOG.md"
    ] == []


@pytest.mark.parametrize("block", [*blocks("python")], ids=lambda block: f"{label(block.page)}:{block.line}")
def test_python_imports_what_there_is(block: Block) -> None:
    shown = {b.title.removesuffix(".py").replace("/", ".") for b in blocks("python") if b.title is not None}
    for node in ast.walk(ast.parse(block.text, filename=str(block.page))):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("archray"):
            continue
        if node.module.removeprefix("archray.") in shown:
            continue  # a file that the page itself adds
        module = importlib.import_module(node.module)
        assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


class Reached(Exception):
    """A search has passed all checks."""


@pytest.mark.parametrize("arguments", commands(), ids=shlex.join)
def test_commands_are_understood(arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Options and values of every command, and the configuration of a search up to where its folder would be made."""
    name, *rest = arguments
    command = typer.main.get_command(application(arguments)).commands[name]
    with command.make_context(name, list(rest)) as context:
        assert context.command.name == name
    if name != "search":
        return

    def create(*arguments: object, **options: object) -> Run:
        raise Reached

    monkeypatch.setattr(Run, "create", create)
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    monkeypatch.chdir(tmp_path)
    with pytest.raises((Reached, DataNotFound)):
        typer.main.get_command(application(arguments)).main(arguments, standalone_mode=False)
