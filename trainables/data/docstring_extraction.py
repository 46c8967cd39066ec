"""The docstrings of a package's public classes, functions and methods, from its sources; nothing is imported."""

from __future__ import annotations

import ast
import inspect
import logging
import warnings
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

SKIPPED = {"tests", "test", "testing", "_testing", "conftest.py", "externals", "_vendor", "distutils"}
PRIVATE_BUT_READ = "_core"  # NumPy's public functions are defined there
ATTACHED = ("add_newdoc", "add_docstr")  # calls that give a docstring to what is written in C
PIECE_WORDS = 4  # a string of fewer words in such a call is a name

logger = logging.getLogger(__name__)


def package_folder(package: str) -> Path | None:
    """Where a top-level package is installed; None if it is not."""
    spec = PathFinder.find_spec(package)
    locations = None if spec is None else spec.submodule_search_locations
    return None if not locations else Path(next(iter(locations)))


def module_names(folder: Path) -> list[str]:
    """The public modules and packages directly in a package's folder, sorted."""
    return sorted(
        path.stem
        for path in folder.iterdir()
        if path.stem.isidentifier()
        and not path.name.startswith("_")
        and (path.suffix == ".py" or (path / "__init__.py").is_file())
    )


def docstrings_of(folder: Path) -> Iterator[str]:
    """Docstrings, cleaned of indentation, in the order of the files' names and of their lines.

    Left out are tests, what is vendored, private packages (but NumPy's `_core`), and names with a leading underscore.
    Also taken are the texts that `add_newdoc` and `add_docstr` attach to functions written in C.
    """
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder).parts
        private = len(parts) > 1 and parts[0].startswith("_") and parts[0] != PRIVATE_BUT_READ
        if private or not SKIPPED.isdisjoint(parts):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes in old docstrings
                tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError) as error:
            logger.warning("docstrings: %s is left out, it is no Python that this interpreter reads (%s)", file, error)
            continue
        yield from _in_body(tree)


def _in_body(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if child.name.startswith("_"):
                continue
            docstring = ast.get_docstring(child)
            if docstring:
                yield docstring
            if isinstance(child, ast.ClassDef):
                yield from _in_body(child)
        elif isinstance(child, ast.If | ast.Try | ast.ExceptHandler):
            yield from _in_body(child)
        elif isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
            yield from _attached(child.value)


def _attached(call: ast.Call) -> Iterator[str]:
    name = ast.unparse(call.func).rpartition(".")[2]
    if name.startswith(ATTACHED):
        strings = (n.value for n in ast.walk(call) if isinstance(n, ast.Constant) and isinstance(n.value, str))
        pieces = [string for string in strings if len(string.split()) >= PIECE_WORDS]
        if pieces:
            yield inspect.cleandoc("\n".join(pieces))
