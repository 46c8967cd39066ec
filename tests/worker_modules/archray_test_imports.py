"""Who imports whom: the files of archray, their imports, and the circles among them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ROOMS = ("platform", "searchers", "trainables", "cluster")


@dataclass(frozen=True)
class Import:
    """One name that a file imports.

    Args:
        name: dotted; of `from a.b import c` it is `a.b.c`, since `c` may be a module.
        in_function: it runs when the function does, not when the file is loaded.
        for_types: it stands under `if TYPE_CHECKING`, and never runs.
    """

    line: int
    name: str
    in_function: bool = False
    for_types: bool = False


def files_of(folder: str) -> list[Path]:
    return sorted((REPOSITORY / folder).rglob("*.py"))


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def imports(file: Path) -> Iterator[Import]:
    """Everything that `file` imports, wherever in it; by `import_module` with a literal name, too."""
    yield from _imports(ast.parse(file.read_text(encoding="utf-8"), filename=str(file)), str(file), False, False)


def _imports(node: ast.AST, file: str, in_function: bool, for_types: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(node.lineno, alias.name, in_function, for_types) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{file}:{node.lineno} is a relative import; write the whole name"
        names = (f"{node.module}.{alias.name}" for alias in node.names)
        yield from (Import(node.lineno, name, in_function, for_types) for name in names)
    elif isinstance(node, ast.Call) and node.args:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        first = node.args[0]
        if called in ("import_module", "__import__") and isinstance(first, ast.Constant):
            yield Import(node.lineno, str(first.value), in_function, for_types)
    inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    typing = isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
    for child in ast.iter_child_nodes(node):
        never_runs = typing and isinstance(node, ast.If) and child in node.body
        yield from _imports(child, file, inside, for_types or never_runs)


def modules_of_archray() -> dict[str, Path]:
    """Dotted name -> file, of every file of the package; a package's is its `__init__`."""
    files = [(room, file) for room in ("archray", *ROOMS) for file in files_of(room)]
    return {module_name(file.relative_to(REPOSITORY), room): file for room, file in files}


def module_name(path: Path, room: str) -> str:
    """`searchers/hnas/__init__.py` -> `archray.searchers.hnas`; what lies in `archray/` is there already."""
    dotted = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    return dotted if room == "archray" else f"archray.{dotted}"


def import_graph(modules: Mapping[str, Path]) -> dict[str, set[str]]:
    """Module -> the modules that it imports, of those in `modules`. See `test_rooms` for what counts."""
    graph: dict[str, set[str]] = {}
    for module, file in modules.items():
        targets: set[str] = set()
        for imported in imports(file):
            target = next((name for name in _prefixes(imported.name) if name in modules), None)
            if target is None or imported.for_types:
                continue
            targets.add(target)
            if not imported.in_function:  # loading a module loads the packages above it first
                targets |= {name for name in _prefixes(target) if name in modules and not within(module, name)}
        graph[module] = targets - {module}
    return graph


def _prefixes(name: str) -> Iterator[str]:
    """`a.b.c`, `a.b`, `a`."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module, sorted; by Tarjan's algorithm."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    components: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        path.append(module)
        for target in sorted(graph[module]):
            if target not in order:
                visit(target)
                lowest[module] = min(lowest[module], lowest[target])
            elif target in path:
                lowest[module] = min(lowest[module], order[target])
        if lowest[module] == order[module]:
            component = path[path.index(module) :]
            del path[path.index(module) :]
            if len(component) > 1:
                components.append(sorted(component))

    for module in sorted(graph):
        if module not in order:
            visit(module)
    return sorted(components)
