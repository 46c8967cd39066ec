"""Rooms import only what they may; inside functions too, and by `import_module` with a literal name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ROOMS = ("platform", "searchers", "trainables", "cluster")
OTHERS = ("tests", "benchmarks", "examples", "docs", ".ci")

# Which rooms a room may import, beside itself and the entrance. DESIGN.md, "The rooms". The entrance names
# archray.platform.api only as text, for __getattr__; `platform` may import everything.
MAY_IMPORT = {
    "archray": (),
    "platform": tuple(f"archray.{room}" for room in ROOMS),
    "searchers": ("archray.searchers", "archray.trainables.spaces"),
    "trainables": ("archray.trainables",),
    "cluster": ("archray.cluster",),
}


def files_of(folder: str) -> list[Path]:
    return sorted((REPOSITORY / folder).rglob("*.py"))


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Every module that `file` imports, wherever in it, as (line, dotted name).

    `from a.b import c` gives `a.b.c`: `c` may be a module.
    """
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), filename=str(file))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} is a relative import; write the whole name"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[0]
            if called in ("import_module", "__import__") and isinstance(first, ast.Constant):
                yield node.lineno, str(first.value)


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    others = [f"archray.{other}" for other in ROOMS]
    wrong = [
        f"{file.relative_to(REPOSITORY)}:{line} imports {name}"
        for file in files_of(room)
        for line, name in imports(file)
        if any(within(name, other) for other in others)
        and not any(within(name, allowed) for allowed in MAY_IMPORT[room])
    ]
    assert wrong == []


@pytest.mark.parametrize("place", ["archray", "searchers", "trainables/__init__.py", "trainables/spaces"])
def test_where_torch_must_not_be_imported(place: str) -> None:
    files = [REPOSITORY / place] if place.endswith(".py") else files_of(place)
    assert files
    wrong = [
        f"{file.relative_to(REPOSITORY)}:{line} imports {name}"
        for file in files
        for line, name in imports(file)
        if within(name, "torch") or within(name, "torchvision")
    ]
    assert wrong == []


def test_only_the_adapter_imports_scikit_optimize() -> None:
    importing = {
        file.relative_to(REPOSITORY).as_posix()
        for folder in ("archray", *ROOMS, "benchmarks", "examples")
        for file in files_of(folder)
        for _, name in imports(file)
        if within(name, "skopt")
    }
    assert importing <= {"searchers/bo.py"}


def test_nobody_imports_a_room_as_a_top_level_name() -> None:
    wrong = [
        f"{file.relative_to(REPOSITORY)}:{line} imports {name}"
        for folder in ("archray", *ROOMS, *OTHERS)
        for file in files_of(folder)
        for line, name in imports(file)
        # `import platform` and `from platform import system` are the standard library's; its module has no parts
        # called as our files are.
        if name.partition(".")[0] in ("searchers", "trainables", "cluster") or _is_part_of_our_platform(name)
    ]
    assert wrong == []


def _is_part_of_our_platform(name: str) -> bool:
    top, _, rest = name.partition(".")
    part = rest.partition(".")[0]
    folder = REPOSITORY / "platform" / part
    return top == "platform" and bool(part) and (folder.is_dir() or folder.with_suffix(".py").is_file())


def test_the_walk_sees_every_kind_of_import(tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text(
        "import torch.nn as nn\n"
        "def lazy():\n"
        "    from archray import cluster\n"
        "    import importlib\n"
        "    return importlib.import_module('archray.platform.api')\n"
    )
    found = {name for _, name in imports(file)}
    assert found == {"torch.nn", "archray.cluster", "importlib", "archray.platform.api"}
