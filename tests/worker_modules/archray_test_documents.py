"""Extracts and runs the code in a Markdown page: files into a folder, snippets one after another.

A comment before a block changes its test (several changes are separated by semicolons):

    <!-- test: not run, a cluster -->              why the block cannot run here
    <!-- test: "budget=20" becomes "budget=2" -->  a smaller value
    <!-- test: given runs/hnas, hnas -->           the folder for a finished run of a method
    <!-- test: needs wandb -->                     a package without which the page's test is skipped
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any
from unittest import mock

import pytest

from archray.registry import Registry, import_modules

HEADING = re.compile(r"^(#{1,6}) +(.+?) *$")
FENCE = re.compile(r"^```(\w*) *(.*?) *$")
TITLE = re.compile(r'title="([^"]+)"')
REMARK = re.compile(r"^<!-- test: (.+) -->$")
NOT_RUN = re.compile(r"not run, (.+)")
BECOMES = re.compile(r'"(.+)" becomes "(.*)"')
GIVEN = re.compile(r"given (\S+), (\S+)")
NEEDS = re.compile(r"needs (\S+)")
REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("platform", "searchers", "trainables", "cluster")
REGISTRIES = (  # the modules that hold one
    "archray.platform.methods",
    "archray.searchers.nesbs.samplers",
    "archray.trainables.adversarial.attacks",
    "archray.trainables.costs",
    "archray.trainables.data",
    "archray.trainables.nets.build_network",
    "archray.trainables.proxies",
    "archray.trainables.supernets",
    "archray.trainables.supernets.networks",
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        language: `python`, `sh`, ...
        title: path of the file that the block shows; None for a snippet.
        line: line of the page at which the text starts, from 1.
        remarks: instructions for the test in the comment before the block.
        text: the text without the fences.
    """

    page: Path
    language: str
    title: str | None
    line: int
    remarks: tuple[str, ...]
    text: str

    @property
    def not_run(self) -> str | None:
        """The reason why the block cannot run here; None if it can."""
        return next((found[1] for found in self.remarked(NOT_RUN)), None)

    @property
    def shrunk(self) -> str:
        """The text with the replacements of its remarks.

        Raises:
            ValueError: the text does not contain a string to replace.
        """
        text = self.text
        for found in self.remarked(BECOMES):
            if found[1] not in text:
                raise ValueError(f"{self.page}:{self.line}: there is no {found[1]!r} to be replaced")
            text = text.replace(found[1], found[2])
        return text

    def remarked(self, pattern: re.Pattern[str]) -> list[re.Match[str]]:
        return [found for remark in self.remarks if (found := pattern.fullmatch(remark))]

    def compiled(self) -> CodeType:
        """The compiled snippet, with line numbers of the page in tracebacks.

        Raises:
            SyntaxError: the snippet is not valid Python.
        """
        return compile("\n" * (self.line - 1) + self.shrunk, str(self.page), "exec", dont_inherit=True)


@dataclass(frozen=True)
class Part:
    """The content under one heading of a page: its prose and its blocks, without those of deeper headings."""

    heading: str
    prose: str
    blocks: tuple[Block, ...]


def parts(page: Path) -> list[Part]:
    """Splits the page by its headings, in order.

    Raises:
        ValueError: a fence is not closed.
    """
    found: list[tuple[str, list[str], list[Block]]] = [("", [], [])]
    opened: tuple[str, str | None, int, tuple[str, ...]] | None = None
    text: list[str] = []
    remarks: tuple[str, ...] = ()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is None and fence:
            title = TITLE.search(fence[2])
            opened, text, remarks = (fence[1], title[1] if title else None, number + 1, remarks), [], ()
        elif opened is not None and line.rstrip() == "```":
            found[-1][2].append(Block(page, *opened, "\n".join(text) + "\n"))
            opened = None
        elif opened is not None:
            text.append(line)
        elif heading := HEADING.match(line):
            found.append((heading[2], [], []))
        elif remark := REMARK.match(line):
            remarks = tuple(remark[1].split("; "))
        else:
            found[-1][1].append(line)
    if opened is not None:
        raise ValueError(f"{page}:{opened[2]}: a fence is not closed")
    return [Part(heading, "\n".join(prose), tuple(blocks)) for heading, prose, blocks in found]


def blocks_of(page: Path) -> list[Block]:
    """Returns all blocks of a page, in order."""
    return [block for part in parts(page) for block in part.blocks]


def pages() -> list[Path]:
    """Returns every Markdown page of the repository for readers."""
    return [*sorted((REPOSITORY / "docs").rglob("*.md")), *sorted(REPOSITORY.glob("*.md"))]


def write_files(part: Part, folder: Path) -> list[Path]:
    """Writes the titled blocks of the part under `folder` and returns their relative paths."""
    for block in part.blocks:
        if block.title is not None:
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text(block.text, encoding="utf-8")
    return [Path(block.title) for block in part.blocks if block.title is not None]


def run_snippets(part: Part) -> None:
    """Runs the untitled Python blocks of a part in one namespace, in order. They check themselves with `assert`."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in part.blocks:
        if block.language == "python" and block.title is None:
            exec(block.compiled(), namespace)


@contextmanager
def added_to_archray(files: list[Path], folder: Path, repository: Path) -> Iterator[None]:
    """Makes files in the packages under `folder` (`trainables/proxies/mine.py`) modules of archray.

    Other files can be imported by their names, and `folder` is the current folder. At the end, all of these modules and
    their registrations are removed.
    """
    from archray.platform.report.figures import FIGURES  # which loads matplotlib

    for holder in REGISTRIES:  # so that all registries can be restored, with their lazily loaded entries
        importlib.import_module(holder)
    before = set(sys.modules)
    registries = registries_of_archray()
    kept = [{key: copy(value) for key, value in vars(registry).items()} for registry in registries]
    try:
        with pytest.MonkeyPatch.context() as patch, mock.patch.dict(FIGURES):
            patch.syspath_prepend(folder)
            patch.chdir(folder)
            packages = []
            for package in dict.fromkeys(package_of(file, repository) for file in files if file.parts[0] in PACKAGES):
                module = importlib.import_module(".".join(("archray", *package.parts)))
                patch.setattr(module, "__path__", [*module.__path__, str(folder / package)])
                packages.append(module)
            for module in packages:
                if hasattr(module, "import_modules"):  # it imports all its modules, which register themselves
                    import_modules(module.__name__)
            yield
    finally:
        for registry, attributes in zip(registries, kept, strict=True):
            vars(registry).clear()
            vars(registry).update(attributes)
        for name in set(sys.modules) - before:
            if is_within(sys.modules[name], folder):
                forget(name)


def module_is_inside(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def registries_of_archray() -> list[Registry[Any]]:
    """Returns the registries in the loaded modules of archray, without `gc`, which skips objects that a trial has
    frozen.
    """
    modules = [module for name, module in sys.modules.items() if module_is_inside(name, "archray")]
    values = [value for module in modules for value in vars(module).values() if issubclass(type(value), Registry)]
    return list({id(value): value for value in values}.values())


def package_of(file: Path, repository: Path) -> Path:
    """Returns the innermost folder of the repository for a new file."""
    return next(parent for parent in file.parents if (repository / parent).is_dir())


def is_within(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).is_relative_to(folder)


def forget(name: str) -> None:
    """Removes a module and the attribute of its package that refers to it."""
    package, _, last = name.rpartition(".")
    del sys.modules[name]
    if package in sys.modules:
        vars(sys.modules[package]).pop(last, None)
