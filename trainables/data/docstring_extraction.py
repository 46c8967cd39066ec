"""The docstrings of a package's public names, out of its sources, and what tells the package taken out of them."""

from __future__ import annotations

import ast
import inspect
import logging
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path

SKIPPED = {"tests", "test", "testing", "_testing", "conftest.py", "externals", "_vendor", "distutils"}
PRIVATE_BUT_READ = "_core"  # NumPy's public functions are defined there
ATTACHED = ("add_newdoc", "add_docstr")  # calls that give a docstring to what is written in C
PIECE_WORDS = 4  # a string of fewer words in such a call is a name

NAMES = ("numpy", "scipy", "scikit", "sklearn", "pandas", "torch")  # also inside other words: from_numpy, PyTorch
ALIASES = ("np", "npt", "nx", "pd", "sp", "sk", "nn", "aten", "c10", "c10d")  # whole words and parts of snake_case

_RUN = r"[\w.\-/\\~]"  # what a dotted path, a path of files or a host is made of
_VERSIONED = r"versionadded|versionchanged|deprecated|version"

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


def masker(modules: Iterable[str]) -> Callable[[str], str]:
    """A function from a docstring to its masked text.

    Each of these becomes one blank: a placeholder of a template (`{input}`, `%(klass)s`); a URL; a line from `import`
    or `from ... import` on; a word or path that holds one of NAMES, in any case; an identifier that is one of ALIASES
    or holds one between underscores, with the dotted path behind it; a dotted path that begins with one of `modules`,
    which stand behind a library's name in import paths (`linalg`, `nn`); a version number.
    """
    firsts = "|".join(sorted((re.escape(module) for module in modules), key=lambda name: (-len(name), name)))
    patterns = [
        re.compile(r"\{\w+\}|%\(\w+\)s"),
        re.compile(r"\w+://\S+|\bwww\.\S+"),
        re.compile(r"\b(?:from\s+[\w.]+\s+)?import\b.*"),
        re.compile(rf"(?<!{_RUN}){_RUN}*?(?:{'|'.join(NAMES)}){_RUN}*", re.IGNORECASE),
        re.compile(rf"\b(?:[^\W_]*_)*(?:{'|'.join(ALIASES)})(?![^\W_])\w*(?:\.\w+)*\.?"),
        re.compile(rf"\b(?:{firsts})(?:\.\w+)+"),
        re.compile(rf"(?<=::) *v?\d+(?:\.\d+)+\w*|\b(?:{_VERSIONED})\s+v?\d+(?:\.\d+)+\w*|\bv?\d+\.\d+\.\d+\w*"),
    ]

    def mask(text: str) -> str:
        for pattern in patterns:  # in this order no blank gives an earlier pattern something new to find
            text = pattern.sub(" ", text)
        return text

    return mask
