"""Modules next to a user's file: found by its import statements, and imported as submodules of one package."""

import ast
import sys
from collections.abc import Collection, Iterator, Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from types import CodeType, ModuleType
from typing import Any

from archray.errors import InvalidInput, RunFolderError

LIMIT_MIB = 10  # of the modules of one file; more is a copied package or generated data rather than a user's code
RESERVED = {*sys.stdlib_module_names, "__main__", "archray"}  # never taken from a user's folder
WORKER_FILES = "files"  # the folder of the files in the package for workers
WORKER_INIT = """import pathlib as _pathlib, sys as _sys
import archray.file_modules as _file_modules
_file_modules.add_package(_sys.modules[__name__], _pathlib.Path(__file__).parent / {folder!r} / {name!r})
"""


def code_files(file: Path) -> dict[str, Path]:
    """Returns a user's file, and the modules of its folder that it imports, directly or through each other.

    Reads import statements, also those in functions, without executing them. As for a script, a module or package of
    the folder has priority over an installed one, and a folder without `__init__.py` has not. Modules of the standard
    library and archray have priority over the folder. A package counts as a whole: all of its `.py` files.

    Returns: paths by their names relative to the folder, with `/`; the file first.
    Raises: InvalidInput if the modules have more than 10 MiB.
    """
    modules: dict[str, Path] = {}
    names, unread = RESERVED | {file.stem}, [(file, 0)]
    while unread:
        new = _imported_names(*unread.pop()) - names
        names |= new
        for name in new:
            for path in _files_of(file.parent, name):
                place = path.relative_to(file.parent)
                modules[place.as_posix()] = path
                unread.append((path, len(place.parts) - 1))
    if sum(path.stat().st_size for path in modules.values()) > LIMIT_MIB * 2**20:
        raise InvalidInput(
            f"Expected at most {LIMIT_MIB} MiB of modules that {file} imports from its folder, got more "
            f"({', '.join(sorted({place.partition('/')[0] for place in modules}))}). archray copies them into each "
            "run. Install large packages, or move the file to a folder of its own."
        )
    return {file.name: file, **dict(sorted(modules.items()))}


def check_copy(file: Path, names: Collection[str]) -> None:
    """Checks that `code_files` of a copy of a user's file are `names`, which archray signed.

    Raises: RunFolderError, for example if another user added a module to the folder.
    """
    found = code_files(file).keys()
    if found != set(names):
        raise RunFolderError(
            f"Expected the code {', '.join(names)} in {file.parent}, got {', '.join(found)}. Undo the changes in this "
            "folder."
        )


def _imported_names(file: Path, depth: int) -> set[str]:
    """Returns the names of the top-level modules that a file imports; none for a file with a syntax error.

    Args:
        depth: number of folders between the user's folder and the file, for relative imports.
    """
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the import raises an error with the line
        return set()
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level in (0, depth + 1):
            names |= {alias.name for alias in node.names} if node.module is None else {node.module}
    return {name.partition(".")[0] for name in names}


def _files_of(folder: Path, name: str) -> list[Path]:
    """Returns the `.py` files of a module or package in a folder; none if the folder does not contain it."""
    package, module = folder / name, folder / f"{name}.py"
    if (package / "__init__.py").is_file() or (not module.is_file() and package.is_dir() and not _is_installed(name)):
        files = (path for path in sorted(package.rglob("*.py")) if path.is_file())
        return [path for path in files if all(part.isidentifier() for part in path.relative_to(folder).parent.parts)]
    return [module] if module.is_file() else []


def _is_installed(name: str) -> bool:
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):  # ValueError: a loaded module without a specification
        return name in sys.modules
    return spec is not None and spec.origin is not None  # a folder without __init__.py has no origin


def add_package(package: ModuleType, file: Path) -> None:
    """Makes a user's file, and the modules of its folder that it imports, submodules of a package.

    Import statements of these files find the submodules. So neither `sys.path` nor the names of other modules change,
    and files with equal names in two folders do not meet. The submodules can be imported by name, for example by
    pickle.

    Args:
        package: an empty module.
    """
    package.__path__ = []  # only `_Finder` finds its submodules
    _FINDER.files[package.__name__] = {**code_files(file), f"{module_stem(file)}.py": file}
    if _FINDER not in sys.meta_path:
        sys.meta_path.append(_FINDER)


def module_stem(file: Path) -> str:
    """Returns the name of a user's file as a module, without the package."""
    return file.stem.replace(".", "_")


def worker_package(file: Path) -> Iterator[tuple[str, bytes]]:
    """Yields the files of a package that workers import: their names in its folder, with `/`, and their content.

    The package has the submodules of `add_package`.
    """
    yield "__init__.py", WORKER_INIT.format(folder=WORKER_FILES, name=file.name).encode()
    for name, path in code_files(file).items():
        yield f"{WORKER_FILES}/{name}", path.read_bytes()


def _code(file: Path, package: str) -> CodeType:
    """Compiles a user's file so that its import statements find the modules of the package.

    Not by a loader of Python, which writes a cache and uses it for a changed file of the same size and second.
    """
    names = {PurePosixPath(place).parts[0].removesuffix(".py") for place in _FINDER.files[package]}
    names -= RESERVED
    if _FINDER.files[package].get(file.name) == file:
        names -= {file.stem}  # `timm.py` of a user may import the installed timm
    tree = ast.parse(file.read_bytes(), file)
    return compile(ast.fix_missing_locations(_Imports(package, names).visit(tree)), file, "exec", dont_inherit=True)


class _Imports(ast.NodeTransformer):
    """Makes `import blocks` and `from blocks import conv` import submodules of a package.

    Args:
        package: name of the package.
        names: names of its submodules.
    """

    def __init__(self, package: str, names: set[str]) -> None:
        self.package, self.names = package, names

    def visit_Import(self, node: ast.Import) -> ast.Import:
        aliases = []
        for alias in node.names:
            top = alias.name.partition(".")[0]
            if top not in self.names:
                aliases.append(alias)
                continue
            aliases.append(ast.alias(f"{self.package}.{alias.name}", alias.asname or top))
            if alias.asname is None and "." in alias.name:  # `import blocks.conv` imports both, and binds `blocks`
                aliases.append(ast.alias(f"{self.package}.{top}", top))
        return ast.copy_location(ast.Import(aliases), node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        if node.level == 0 and node.module is not None and node.module.partition(".")[0] in self.names:
            node.module = f"{self.package}.{node.module}"
        return node


class _Loader(SourceFileLoader):
    """Loads a submodule of a package of users' files."""

    def get_code(self, fullname: str) -> CodeType:
        return _code(Path(self.path), fullname.partition(".")[0])


class _Finder(MetaPathFinder):
    """Finds the submodules of packages of users' files, and no other file in their folders.

    Attributes:
        files: the files of each package, by their names relative to the user's folder.
    """

    def __init__(self) -> None:
        self.files: dict[str, Mapping[str, Path]] = {}

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        files, place = self.files.get(package, {}), name.replace(".", "/")
        for candidate, is_package in ((f"{place}/__init__.py", True), (f"{place}.py", False)):
            if (file := files.get(candidate)) is not None:
                loader = _Loader(fullname, str(file))
                spec = ModuleSpec(fullname, loader, origin=str(file), is_package=is_package)
                spec.has_location = True  # without `spec_from_file_location`, which opens the folder to Python's finder
                return spec
        if any(other.startswith(f"{place}/") for other in files):
            return ModuleSpec(fullname, None, is_package=True)  # a folder without __init__.py
        return None


_FINDER = _Finder()
