"""Names: no two files share one, a private one stays in its module, and a method's decides nothing."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from archray_test_imports import REPOSITORY, ROOMS, files_of

PRODUCTION = ("archray", *ROOMS)
EVERYTHING = (*PRODUCTION, "tests", "benchmarks", "examples")


def trees(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    """The path of every file, relative to the repository, and what is in it."""
    for folder in folders:
        for file in files_of(folder):
            yield file.relative_to(REPOSITORY).as_posix(), ast.parse(file.read_text(encoding="utf-8"))


# Files

NAMED_BY_OTHERS = ("__init__.py", "conftest.py")  # by Python and by pytest, in any folder


def test_no_two_files_have_the_same_name() -> None:
    names = Counter(file.name for folder in EVERYTHING for file in files_of(folder))
    assert [name for name, count in names.items() if count > 1 and name not in NAMED_BY_OTHERS] == []


# Private names


def private_names(tree: ast.Module) -> Iterator[str]:
    """What a file uses of other modules of archray that is called `_name` there."""
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "archray":
            yield from (f"{node.module}.{alias.name}" for alias in node.names if is_private(alias.name))
            imported |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names = [alias for alias in node.names if alias.name.partition(".")[0] == "archray"]
            imported |= {alias.asname or "archray" for alias in names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            text = ast.unparse(node)
            if text.partition(".")[0] in imported and all(part.isidentifier() for part in text.split(".")):
                yield text


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


# Private names of other modules that are still used: the list can only become shorter.
PRIVATE_NAMES_USED: list[str] = []


def test_private_names_stay_in_their_module() -> None:
    wrong = {f"{path}: {name}" for path, tree in trees(*EVERYTHING) for name in private_names(tree)}
    assert sorted(wrong) == PRIVATE_NAMES_USED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from archray.a import _x", ["archray.a._x"]),
        ("from archray.a import _x as x", ["archray.a._x"]),
        ("from archray import a\na._x()", ["a._x"]),
        ("import archray.a as b\nb._x", ["b._x"]),
        ("import archray.a\narchray.a._x", ["archray.a._x"]),
        ("from archray.a import Thing\nThing._make()", ["Thing._make"]),
        ("from archray.a import Thing\nThing.__name__\nthing = Thing()\nself._x = thing.x", []),
        ("from ray import _x\nimport torch\ntorch._C", []),
    ],
)
def test_private_names_are_seen(text: str, expected: list[str]) -> None:
    assert list(private_names(ast.parse(text))) == expected


# Methods


def comparisons_with_methods(tree: ast.Module, methods: set[str]) -> Iterator[str]:
    """Comparisons, `in` among them, and `match`es of `x.method`, or of anything with a method's name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            elements = [
                e for side in sides for e in (side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side])
            ]
            if any(asks_for_method(element, methods) for element in elements):
                yield ast.unparse(node)
        elif isinstance(node, ast.Match):
            patterns = [n.value for case in node.cases for n in ast.walk(case.pattern) if isinstance(n, ast.MatchValue)]
            if any(asks_for_method(element, methods) for element in (node.subject, *patterns)):
                yield f"match {ast.unparse(node.subject)}"


def asks_for_method(node: ast.expr, methods: set[str]) -> bool:
    if isinstance(node, ast.Constant):
        return node.value in methods
    return isinstance(node, ast.Attribute) and node.attr == "method"


def test_no_code_asks_a_method_for_its_name_to_decide_what_to_do() -> None:
    import archray.platform.methods  # not above: a few seconds  # noqa: F401
    from archray.platform.methods import METHODS

    wrong = {
        f"{path}: {text}"
        for path, tree in trees(*PRODUCTION)
        for text in comparisons_with_methods(tree, set(METHODS.names()))
    }
    assert sorted(wrong) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("config.method == 'nes-re'", ["config.method == 'nes-re'"]),
        ("run.config.method in NAMES", ["run.config.method in NAMES"]),
        ("name in ('hnas', 'nesbs')", ["name in ('hnas', 'nesbs')"]),
        ("match config.method:\n    case 'hnas': pass", ["match config.method"]),
        ("match name:\n    case 'hnas': pass", ["match name"]),
        ("name = 'hnas'\nlabel = f'{config.method}'\nkind == 'pool'", []),
    ],
)
def test_comparisons_with_methods_are_seen(text: str, expected: list[str]) -> None:
    assert list(comparisons_with_methods(ast.parse(text), {"hnas", "nesbs", "nes-re"})) == expected


def test_every_file_is_read() -> None:
    assert all(Path(REPOSITORY / folder).is_dir() and files_of(folder) for folder in EVERYTHING)
