"""What the pages promise: links lead somewhere, code imports what there is, commands are understood."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from archray_test_documents import Block, blocks_of, pages, parts, write_files

import archray
import archray.searchers
from archray.errors import DataNotFound, InvalidPool, InvalidTable, MissingExtra
from archray.platform.cli import application
from archray.platform.methods import METHODS
from archray.platform.run.run import Run
from archray.references import load_reference
from archray.trainables.data import DATASETS
from archray.trainables.proxies import PROXIES
from archray.trainables.spaces import SPACES

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = pages()
DOCS = REPOSITORY / "docs"
MADE = {DOCS / "quantities.md", *(DOCS / "configuration" / f"{name}.md" for name in METHODS)}  # as the site is built
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = re.compile(r"^(?:\.venv/bin/)?archray (.+)$")


def blocks(language: str) -> Iterator[Block]:
    return (block for page in PAGES for block in blocks_of(page) if block.language == language)


def commands() -> list[Any]:
    """The page and the arguments of every `archray ...` line in a `sh` block; what follows a # or a > is left out."""
    lines = [(block.page, line.partition(" > ")[0]) for block in blocks("sh") for line in block.text.splitlines()]
    found = [(page, shlex.split(match[1], comments=True)) for page, line in lines if (match := COMMAND.match(line))]
    return [pytest.param(*command, id=f"{label(command[0])}: {shlex.join(command[1])}") for command in found]


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
        if target in MADE:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_the_readme_leads_to_the_documentation() -> None:
    links = LINK.findall((REPOSITORY / "README.md").read_text(encoding="utf-8"))
    assert {"docs/index.md", "docs/tutorial.md", "CONTRIBUTING.md"} <= set(links)


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


def test_the_api_page_has_every_public_name() -> None:
    headings = re.findall(r"heading: archray\.(\w+)", (REPOSITORY / "docs" / "api" / "index.md").read_text())
    assert sorted(headings) == sorted(name for name in archray.__all__ if not name.startswith("_"))


@pytest.mark.parametrize(
    "package",
    ["searchers", "searchers.testing", *(f"trainables.{name}" for name in ("spaces", "data", "proxies", "supernets"))],
)
def test_the_api_pages_have_every_class_and_function(package: str) -> None:
    module = importlib.import_module(f"archray.{package}")
    public = [
        name
        for name in module.__all__
        if inspect.isclass(getattr(module, name)) or inspect.isfunction(getattr(module, name))
    ]
    text = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    assert [name for name in public if f".{name}\n" not in text] == []


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("methods", METHODS.names()),
        ("methods/index.md", [name.partition(":")[0] for name in (*DATASETS.names(), *SPACES.names())]),
        ("searchers.md", [name for name in archray.searchers.__all__ if name.endswith(("Search", "Halving"))]),
    ],
)
def test_the_pages_tell_of_all_that_is_registered(page: str, names: list[str]) -> None:
    place = REPOSITORY / "docs" / page
    files = sorted(place.glob("*.md")) if place.is_dir() else [place]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    assert [name for name in names if f"`{name}" not in text and f"`-{name[-1]}`" not in text] == []


def test_a_page_has_a_table_of_all_metrics() -> None:
    page = load_reference(f"{DOCS / 'hooks' / 'registry_tables.py'}:on_page_markdown")(
        (DOCS / "proxies.md").read_text()
    )
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert [name for name in PROXIES if not any(line.startswith(f"| `{name}` | ") for line in rows)] == []
    assert any(line.startswith("| `kappa` | ") and "| smaller |" in line for line in rows)


class Reached(Exception):
    """A search has passed all checks."""


@pytest.mark.parametrize(("page", "arguments"), commands())
def test_commands_are_understood(
    page: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Options and values of every command, and the configuration of a search up to where its folder would be made."""
    name, *rest = arguments
    command = typer.main.get_command(application(arguments)).commands[name]
    if "--help" in rest:
        return
    with command.make_context(name, list(rest)) as context:
        assert context.command.name == name
    if name != "search" or "--dry-run" in rest:
        return  # a dry run makes no folder; tests/platform/test_page_blocks.py runs it, with the file it is given
    if any("://" in word for word in rest):
        return  # whether there is a run already is asked of an object store, which is not there

    def create(*arguments: object, **options: object) -> Run:
        raise Reached

    monkeypatch.setattr(Run, "create", create)
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    for part in parts(page):
        write_files(part, tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises((Reached, DataNotFound, InvalidPool, InvalidTable, MissingExtra)):
        typer.main.get_command(application(arguments)).main(arguments, standalone_mode=False)
