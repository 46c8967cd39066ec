"""Generator of `network.py`: the classes of a model, copied from archray with their dependencies, and `build()`."""

import ast
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from graphlib import TopologicalSorter
from importlib import import_module
from inspect import getsource
from itertools import pairwise
from pprint import pformat
from typing import Any, NamedTuple

from torch import nn

from archray.errors import InvalidInput
from archray.trainables.ensembles.ensemble import Ensemble
from archray.trainables.feature_maps.fourier_features import FourierNetwork
from archray.trainables.nets import NETWORKS, NetworkSettings
from archray.trainables.nets.build_network import network_options
from archray.trainables.nets.registry import SpaceNetwork
from archray.trainables.spaces import Space, TableSpace, get_space

WIDTH = 120  # maximum length of a line

_BUILD = '''def build() -> nn.Module:
    """Build the model in evaluation mode with random weights; `state_dict.pt` contains the trained weights."""
    return EXPRESSION.eval()
'''


def network_file(title: str, described: dict[str, Any], space: str | Space) -> str:
    """Generates the file of one network.

    Args:
        title: docstring of the file.
        described: `architecture`, `network`, `in_channels`, `num_classes`, as in the description of a model.

    Raises: InvalidInput for a network without a plain source.
    """
    network, expression = _network(described, space)
    return _file(title, [network], expression)


def ensemble_file(title: str, members: Sequence[dict[str, Any]], average: str, space: str | Space) -> str:
    """Generates the file of an ensemble.

    Args:
        members: `described` of each network.
        average: average of probabilities or logits.

    Raises: the errors of `network_file`.
    """
    networks = [_network(member, space) for member in members]
    calls = "".join(textwrap.indent(f"{expression},\n", 8 * " ") for _, expression in networks)
    ensemble = f'Ensemble(\n    [\n{calls}    ],\n    average="{average}",\n)'
    return _file(title, [*(network for network, _ in networks), Ensemble], ensemble)


def fourier_file(title: str, network: FourierNetwork) -> str:
    """Generates the file of a feature map of images and its linear model."""
    inputs, dimension = network.basis.shape
    arguments = f"{inputs}, {dimension}, {len(network.intercept)}, unit_length={network.unit_length}"
    return _file(title, [FourierNetwork], f"FourierNetwork({arguments})")


def _network(described: dict[str, Any], space: str | Space) -> tuple[type[nn.Module], str]:
    """Returns the class of a network, and the expression that builds it."""
    network = NetworkSettings(**described["network"])
    if network.normalization == "scoring":
        raise InvalidInput(
            "expected network.normalization auto or training, since a plain source normalizes by running statistics, "
            "got scoring. Choose another format"
        )
    if described.get("drop_path") is not None:
        raise InvalidInput(
            "expected a network with a plain source, got a network of mc-droppath, which drops random paths for "
            "predictions. Choose another format: torch-export, state-dict or safetensors"
        )
    space = get_space(space)
    architecture = space.decode(described["architecture"])
    if isinstance(space, TableSpace) and space.base is not None:  # as in `build`
        space = space.base
    entry = None if hasattr(space, "build") or space.name not in NETWORKS else NETWORKS.get(space.name)
    if not isinstance(entry, SpaceNetwork):
        names = ", ".join(name for name in NETWORKS if isinstance(NETWORKS.get(name), SpaceNetwork))
        instead = "Use the file that builds it, and"
        if space.package is not None:
            instead = f"Its modules belong to {space.package}. Choose"
        raise InvalidInput(
            f"expected a network of {names} for the format python, got a network of {space.name}, whose source "
            f"archray cannot write. {instead} another format: torch-export, onnx, state-dict or safetensors"
        )
    arguments = entry.arguments(space, architecture) | network_options(space, entry, network)
    arguments |= {name: described[name] for name in ("in_channels", "num_classes")}
    lines = [f"# {line}" for line in textwrap.wrap(space.encode(architecture), WIDTH - 20, break_on_hyphens=False)]
    for name, value in arguments.items():
        text = pformat(value, width=WIDTH - 32, compact=True).replace("'", '"')
        lines.append(f"{name}={textwrap.indent(text, (len(name) + 1) * ' ').lstrip()},")
    name = entry.network.__name__
    return entry.network, "\n".join([f"{name}(", textwrap.indent("\n".join(lines), "    "), ")"])


def _file(title: str, classes: Sequence[type[nn.Module]], expression: str) -> str:
    """Generates a file: imports, the classes with their dependencies, and `build()`, which evaluates the expression."""
    copy = _Copy()
    copy.imports["torch"].add("nn")  # for `build`
    for network in classes:
        copy.add(network.__module__, network.__name__)
    modules = list(TopologicalSorter(copy.uses).static_order())
    origin = textwrap.fill(f"The classes are copied from {', '.join(modules)}.", WIDTH)
    docstring = f'"""{title.rstrip()}\n\n{origin}\n"""'
    head = f"{docstring}\n\nfrom __future__ import annotations\n\n{copy.import_lines()}"
    build = _BUILD.replace("EXPRESSION", textwrap.indent(expression, "    ").lstrip())
    text = "\n\n\n".join([head, copy.text(modules), build])
    return re.sub(r"\bInvalidInput\b", "ValueError", text)  # its base class


class _Statement(NamedTuple):
    """A statement of a module: its text with the comment above, and the names that it uses."""

    text: str
    names: frozenset[str]
    is_assignment: bool


class _Source(NamedTuple):
    """A module's top-level statements, the numbers of statements that bind a name, and its imports by name."""

    statements: list[_Statement]
    numbers: dict[str, int]
    imports: dict[str, tuple[str, str]]  # the module and the imported name; empty: the module itself


@lru_cache
def _source(module: str) -> _Source:
    text = getsource(import_module(module))
    lines = text.splitlines()
    source = _Source([], {}, {})
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import):
            source.imports.update({alias.name: (alias.name, "") for alias in node.names})
        elif isinstance(node, ast.ImportFrom):
            names = {alias.asname or alias.name: (str(node.module), ast.unparse(alias)) for alias in node.names}
            source.imports.update(names)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Assign | ast.AnnAssign):
            start = min(part.lineno for part in (node, *getattr(node, "decorator_list", [])))
            while lines[start - 2].startswith("#"):
                start -= 1
            used = frozenset(part.id for part in ast.walk(node) if isinstance(part, ast.Name))
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                bound = [node.name]
            else:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                bound = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
            source.numbers.update(dict.fromkeys(bound, len(source.statements)))
            is_assignment = isinstance(node, ast.Assign | ast.AnnAssign)
            source.statements.append(_Statement("\n".join(lines[start - 1 : node.end_lineno]), used, is_assignment))
    return source


class _Copy:
    """The statements to copy from archray's modules.

    Attributes:
        uses: modules of archray whose names a module uses, by module.
        imports: imported names by module of another package; an empty name means the module itself.
    """

    def __init__(self) -> None:
        self.uses: dict[str, dict[str, None]] = {}  # ordered, so that the text is reproducible
        self.imports: dict[str, set[str]] = defaultdict(set)
        self._numbers: dict[str, set[int]] = defaultdict(set)  # statements by module

    def add(self, module: str, name: str) -> None:
        """Adds the statement of a module that binds a name, with its dependencies; does nothing for a builtin."""
        source = _source(module)
        uses = self.uses.setdefault(module, {})
        if name in source.imports:
            origin, imported = source.imports[name]
            if origin == InvalidInput.__module__:
                return
            if origin.startswith("archray."):
                uses[origin] = None
                self.add(origin, imported)
            else:
                self.imports[origin].add(imported)
        elif name in source.numbers and source.numbers[name] not in self._numbers[module]:
            self._numbers[module].add(source.numbers[name])
            for used in sorted(source.statements[source.numbers[name]].names):
                self.add(module, used)

    def text(self, modules: Sequence[str]) -> str:
        """Returns the statements of modules in order, without blank lines between assignments."""
        numbers = [(module, number) for module in modules for number in sorted(self._numbers[module])]
        statements = [_source(module).statements[number] for module, number in numbers]
        text = statements[0].text
        for before, statement in pairwise(statements):
            text += "\n" if before.is_assignment and statement.is_assignment else "\n\n\n"
            text += statement.text
        return text

    def import_lines(self) -> str:
        """Returns the import lines, with the standard library first."""
        lines = {f"import {module}": module for module, names in self.imports.items() if "" in names}
        for module, names in self.imports.items():
            if named := ", ".join(sorted(names - {""})):
                lines[f"from {module} import {named}"] = module
        blocks: dict[bool, list[str]] = {True: [], False: []}  # key: whether the module is in the standard library
        for line in sorted(lines, key=lambda line: (line.startswith("from"), line)):
            blocks[lines[line].partition(".")[0] in sys.stdlib_module_names].append(line)
        return "\n\n".join("\n".join(block) for block in blocks.values() if block)
