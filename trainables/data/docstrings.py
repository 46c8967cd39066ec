"""Docstrings of installed libraries as texts; the label is the library. Needs no download.

The texts belong to public names in a package's sources. Words that reveal the package are removed.
"""

import ast
import hashlib
import inspect
import logging
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from archray.errors import DataNotFound, InvalidInput
from archray.trainables.data.raw import RawText, cached_json
from archray.trainables.data.settings import DataSettings

SKIPPED = {"tests", "test", "testing", "_testing", "conftest.py", "externals", "_vendor", "distutils"}
PRIVATE_BUT_READ = "_core"  # NumPy's public functions are defined there
ATTACHED = ("add_newdoc", "add_docstr")  # calls that attach a docstring to a C function
PIECE_WORDS = 4  # a string with fewer words in such a call is a name

NAMES = ("numpy", "scipy", "scikit", "sklearn", "pandas", "torch")  # also within other words: from_numpy, PyTorch
ALIASES = ("np", "npt", "nx", "pd", "sp", "sk", "nn", "aten", "c10", "c10d")  # whole words and parts of snake_case

_RUN = r"[\w.\-/\\~]"  # characters of a dotted path, a file path or a host
_VERSIONED = r"versionadded|versionchanged|deprecated|version"

logger = logging.getLogger(__name__)


def package_folder(package: str) -> Path | None:
    """Returns the folder of an installed top-level package; None if it is not installed."""
    spec = PathFinder.find_spec(package)
    locations = None if spec is None else spec.submodule_search_locations
    return None if not locations else Path(next(iter(locations)))


def module_names(folder: Path) -> list[str]:
    """Returns the public modules and packages directly in a package's folder, sorted."""
    return sorted(
        path.stem
        for path in folder.iterdir()
        if path.stem.isidentifier()
        and not path.name.startswith("_")
        and (path.suffix == ".py" or (path / "__init__.py").is_file())
    )


def docstrings_of(folder: Path) -> Iterator[str]:
    """Yields docstrings without indentation, in the order of file names and lines.

    They include texts that `add_newdoc` and `add_docstr` attach to C functions. Tests, vendored packages, private
    packages (except NumPy's `_core`) and names with a leading underscore are skipped.
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
            logger.warning("docstrings: %s is skipped, because this Python cannot parse it (%s)", file, error)
            continue
        yield from _in_body(tree)


def _in_body(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if child.name.startswith("_"):
                continue
            if docstring := ast.get_docstring(child):
                yield docstring
            if isinstance(child, ast.ClassDef):
                yield from _in_body(child)
        elif isinstance(child, ast.If | ast.Try | ast.ExceptHandler):
            yield from _in_body(child)
        elif isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
            call = child.value
            if ast.unparse(call.func).rpartition(".")[2].startswith(ATTACHED):
                strings = (n.value for n in ast.walk(call) if isinstance(n, ast.Constant) and isinstance(n.value, str))
                if pieces := [string for string in strings if len(string.split()) >= PIECE_WORDS]:
                    yield inspect.cleandoc("\n".join(pieces))


def masker(modules: Iterable[str]) -> Callable[[str], str]:
    """Returns a function that masks a docstring.

    Each of these becomes one blank: a template placeholder (`{input}`, `%(klass)s`); a URL; the rest of a line from
    `import` or `from ... import` on; a word or path that contains one of NAMES, in any case; an identifier that is one
    of ALIASES or contains one between underscores, with the dotted path after it; a dotted path that starts with one of
    `modules`, such as `linalg` or `nn` in import paths; a version number.
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
        for pattern in patterns:  # in this order, no blank creates a match of an earlier pattern
            text = pattern.sub(" ", text)
        return text

    return mask


PREFIX = "docstrings:"
PACKAGES = {"numpy": "numpy", "scipy": "scipy", "scikit-learn": "sklearn", "pandas": "pandas", "torch": "torch"}
PER_LIBRARY = 2000  # NumPy has about 1,100, scikit-learn 1,500, the others more
MINIMUM_WORDS = 10  # after masking
FORMAT = 1  # version of the cached file; raise it when the selection or the mask of texts changes


def check(settings: DataSettings) -> None:
    """Raises: InvalidInput if the name does not choose two libraries; DataNotFound if one is not installed."""
    chosen_libraries(settings.name)
    for library, package in PACKAGES.items():
        if package_folder(package) is None:
            raise DataNotFound(f"docstrings: expected {library} to be installed. Run pip install {library}")


def read(settings: DataSettings) -> RawText:
    """Reads at most PER_LIBRARY masked docstrings of each library, drawn by `settings.seed`, for a 60/20/20 split."""
    libraries = chosen_libraries(settings.name)
    masked = masked_docstrings()
    texts: list[str] = []
    labels: list[int] = []
    for label, library in enumerate(libraries):
        candidates = masked[library]
        rng = np.random.default_rng([settings.seed, list(PACKAGES).index(library)])
        drawn = np.sort(rng.permutation(len(candidates))[:PER_LIBRARY])
        texts += [candidates[i] for i in drawn]
        labels += [label] * len(drawn)
    return RawText(
        train=(np.array(texts, dtype=np.object_), np.array(labels, dtype=np.int64)),
        num_classes=len(libraries),
        classes=libraries,
        validation_fraction=0.25,
    )


def chosen_libraries(name: str) -> tuple[str, ...]:
    """Parses `docstrings` (all five libraries) or `docstrings:numpy,torch`. Returns them in the order of PACKAGES.

    Raises: InvalidInput unless there are two or more distinct libraries.
    """
    if name + ":" == PREFIX:
        return tuple(PACKAGES)
    named = [library.strip() for library in name.removeprefix(PREFIX).split(",")]
    if len(named) < 2 or len(set(named)) != len(named) or not set(named) <= set(PACKAGES):
        raise InvalidInput(
            f"expected docstrings, or docstrings: with two or more of {', '.join(PACKAGES)} (docstrings:numpy,torch), "
            f"got {name!r}"
        )
    return tuple(library for library in PACKAGES if library in named)


def masked_docstrings() -> dict[str, list[str]]:
    """Returns every library's public docstrings, masked, distinct and sorted, without texts that two libraries share.

    All five libraries are always read, because the mask depends on all of them. The cache folder stores the result
    under the libraries' versions.
    """
    try:
        versions = sorted((library, version(library)) for library in PACKAGES)
    except PackageNotFoundError as error:
        raise DataNotFound(
            f"docstrings: expected {error.name} to be installed. Run pip install {error.name}"
        ) from error
    key = hashlib.sha256(repr((FORMAT, versions)).encode()).hexdigest()[:16]
    return cached_json(f"docstrings-{key}.json", extract_masked)


def extract_masked() -> dict[str, list[str]]:
    """Computes `masked_docstrings` from the installed libraries."""
    folders = {library: folder for library, name in PACKAGES.items() if (folder := package_folder(name)) is not None}
    mask = masker({name for folder in folders.values() for name in module_names(folder)})
    spellings: dict[str, str] = {}  # words with single spaces -> the first text with these words
    owners: dict[str, set[str]] = defaultdict(set)
    for library, folder in folders.items():
        for docstring in docstrings_of(folder):
            text = mask(docstring)
            words = text.split()
            if len(words) >= MINIMUM_WORDS:
                even = " ".join(words)
                spellings.setdefault(even, text)
                owners[even].add(library)
    return {
        library: sorted(spellings[even] for even, libraries in owners.items() if libraries == {library})
        for library in PACKAGES
    }
