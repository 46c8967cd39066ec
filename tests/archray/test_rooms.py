"""Imports point one way: between rooms, between the parts of a room, and never in a circle.

Imports inside functions count, and those by `import_module` with a literal name. What counts as an edge of the graph
in which circles are looked for:

- From a file to the module that an import names; of `from package import name`, that is the package's `__init__`
  unless `name` is a module.
- From a file to the `__init__` of every package above that module which is not above the file too: loading the module
  loads them first, and they may lead back to the file. Not those above both: they have begun already, and an
  `__init__` that collects the names of its own modules is no circle. Of imports inside functions only the module
  counts, since everything is loaded when they run.
- Nothing under `if TYPE_CHECKING`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from archray_test_imports import (
    REPOSITORY,
    ROOMS,
    Import,
    circles,
    files_of,
    import_graph,
    imports,
    modules_of_archray,
    within,
)

OTHERS = ("tests", "benchmarks", "examples", "docs", ".ci")

# Which rooms a room may import, beside itself and the entrance. docs/architecture.md. The entrance names
# archray.platform.api only as text, for __getattr__; `platform` may import everything.
MAY_IMPORT = {
    "archray": (),
    "platform": tuple(f"archray.{room}" for room in ROOMS),
    "searchers": ("archray.searchers", "archray.trainables.spaces"),
    "trainables": ("archray.trainables",),
    "cluster": ("archray.cluster",),
}

# What a part of `platform` may import of `platform`, beside itself: bench -> methods -> engine, models, report -> run.
# A method may know what a bench tells its searcher of a table (`bench.bench_problem`), and nothing else of a bench. The
# files at the top of the room (`api`, `cli`, ...) may import all of it, and no part may import them; `config` is what
# every run has, and WORDS is how every part says a number.
WORDS = ("quantities",)
PARTS = {
    "run": ("config", *WORDS),
    "engine": ("config", *WORDS, "run"),
    "models": ("config", *WORDS, "run"),
    "report": ("config", *WORDS, "run"),
    "methods": ("config", *WORDS, "run", "engine", "models", "report", "bench.bench_problem"),
    "bench": (*WORDS, "run.heartbeat", "methods", "engine", "report"),
    "commands": ("api", "config", "show", "quantities", "run", "engine", "methods", "models", "bench"),
}


def places(folder: str, *unwanted: str) -> list[str]:
    """The imports of the modules `unwanted` in a folder, or a file, as text."""
    files = [REPOSITORY / folder] if folder.endswith(".py") else files_of(folder)
    assert files
    return [
        told(file, imported)
        for file in files
        for imported in imports(file)
        if any(within(imported.name, name) for name in unwanted)
    ]


def told(file: Path, imported: Import) -> str:
    return f"{file.relative_to(REPOSITORY)}:{imported.line} imports {imported.name}"


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    others = [f"archray.{other}" for other in ROOMS]
    wrong = [
        told(file, imported)
        for file in files_of(room)
        for imported in imports(file)
        if any(within(imported.name, other) for other in others)
        and not any(within(imported.name, allowed) for allowed in MAY_IMPORT[room])
    ]
    assert wrong == []


# The imports that are still to go: the list can only become shorter.
AGAINST_THE_ARROWS: dict[str, list[str]] = {}


def test_every_part_of_the_platform_has_its_arrows() -> None:
    folders = [folder for folder in (REPOSITORY / "platform").iterdir() if list(folder.glob("*.py"))]
    assert {folder.name for folder in folders} == set(PARTS)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_the_platform_imports_only_what_it_may(part: str) -> None:
    allowed = [f"archray.platform.{name}" for name in (part, *PARTS[part])]
    wrong = {
        f"{file.relative_to(REPOSITORY)} imports {imported.name}"
        for file in files_of(f"platform/{part}")
        for imported in imports(file)
        if within(imported.name, "archray.platform") and not any(within(imported.name, name) for name in allowed)
    }
    assert sorted(wrong) == AGAINST_THE_ARROWS.get(part, [])


# The modules that are still in a circle: the list can only become shorter.
IN_A_CIRCLE: list[list[str]] = []


def test_no_module_imports_itself_in_a_circle() -> None:
    assert circles(import_graph(modules_of_archray())) == IN_A_CIRCLE


@pytest.mark.parametrize("place", ["archray", "searchers", "trainables/__init__.py", "trainables/spaces"])
def test_where_torch_must_not_be_imported(place: str) -> None:
    assert places(place, "torch", "torchvision") == []


def test_only_the_adapter_imports_scikit_optimize() -> None:
    files = [file for folder in ("archray", *ROOMS, "benchmarks", "examples") for file in files_of(folder)]
    importing = {
        file.relative_to(REPOSITORY).as_posix() for file in files for i in imports(file) if within(i.name, "skopt")
    }
    assert importing == {"searchers/bayesian_optimization.py"}


def test_nobody_imports_a_room_as_a_top_level_name() -> None:
    wrong = [
        told(file, imported)
        for folder in ("archray", *ROOMS, *OTHERS)
        for file in files_of(folder)
        for imported in imports(file)
        # `import platform` and `from platform import system` are the standard library's; its module has no parts
        # called as our files are.
        if imported.name.partition(".")[0] in ("searchers", "trainables", "cluster")
        or _is_part_of_our_platform(imported.name)
    ]
    assert wrong == []


def _is_part_of_our_platform(name: str) -> bool:
    top, _, rest = name.partition(".")
    part = rest.partition(".")[0]
    folder = REPOSITORY / "platform" / part
    return top == "platform" and bool(part) and (folder.is_dir() or folder.with_suffix(".py").is_file())


# What the tests above see


def test_the_walk_sees_every_kind_of_import(tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text(
        "import torch.nn as nn\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    import pandas\n"
        "else:\n"
        "    import numpy\n"
        "def lazy():\n"
        "    from archray import cluster\n"
        "    import importlib\n"
        "    return importlib.import_module('archray.platform.api')\n"
    )
    assert list(imports(file)) == [
        Import(1, "torch.nn"),
        Import(2, "typing.TYPE_CHECKING"),
        Import(4, "pandas", for_types=True),
        Import(6, "numpy"),
        Import(8, "archray.cluster", in_function=True),
        Import(9, "importlib", in_function=True),
        Import(10, "archray.platform.api", in_function=True),
    ]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a": "import b", "b": "import c", "c": ""}, []),
        ({"a": "import b", "b": "import c", "c": "import a", "d": "import a"}, [["a", "b", "c"]]),
        ({"a": "import b", "b": "def f():\n    import a"}, [["a", "b"]]),
        ({"a": "import b", "b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a"}, []),
        ({"a": "import b", "b": "import a", "c": "import d", "d": "import c"}, [["a", "b"], ["c", "d"]]),
        # An __init__ that collects the names of its modules, which import one another.
        ({"p": "from p.a import x", "p.a": "from p.b import x", "p.b": "x = 1"}, []),
        # One whose module asks it for a name.
        ({"p": "from p.a import x", "p.a": "from p import y"}, [["p", "p.a"]]),
        # p.b has nothing to do with q, but loading it loads p, which leads to q.
        ({"p": "from p.a import x", "p.a": "import q", "p.b": "", "q": "from p.b import y"}, [["p", "p.a", "q"]]),
        # When the function runs, p has been loaded.
        ({"p": "from p.a import x", "p.a": "import q", "p.b": "", "q": "def f():\n    from p.b import y"}, []),
    ],
)
def test_circles_are_found_and_no_others(tmp_path: Path, files: dict[str, str], expected: list[list[str]]) -> None:
    modules = {}
    for number, (name, text) in enumerate(files.items()):
        modules[name] = tmp_path / f"{number}.py"
        modules[name].write_text(text)
    assert circles(import_graph(modules)) == expected
