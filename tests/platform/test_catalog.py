"""The catalog of methods: its entries point to existing code, and nothing heavy is loaded before a method runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import archray
from archray.errors import UnknownName
from archray.platform.methods import METHODS, Method, get_method

HEAVY = {"torch", "ray", "sklearn", "scipy", "pandas", "pyarrow", "matplotlib", "skopt"}

LIGHT = """
import archray
from archray.platform.methods import METHODS
from archray.platform.methods.configure import make_config
run('--help')
[run('list', kind) for kind in ('methods', 'spaces', 'datasets', 'proxies')]
[run(command, '--help') for command in ('search', 'proxies')]
[run('search', name, '--help') for name in METHODS]
[make_config(name, preset, None, {}) for name in METHODS for preset in METHODS.get(name).presets]
"""
RUN = """
import contextlib, io, json, sys
def run(*arguments):
    from archray.platform.cli import main
    sys.argv = ["archray", *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        main()
    assert shown.getvalue()
"""


def loaded_after(statement: str, folder: Path) -> set[str]:
    code = f"{RUN}\n{statement}\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_help_lists_and_presets_load_nothing_heavy(repository: Path) -> None:
    assert not loaded_after(LIGHT, repository) & HEAVY


def test_a_list_imports_no_method_and_a_search_imports_only_its_own(repository: Path) -> None:
    places = {name: get_method(name).config.__module__ for name in METHODS}
    assert not loaded_after("run('list', 'methods'); run('search', '--help')", repository) & set(places.values())
    loaded = loaded_after("run('search', 'hnas', '--help')", repository) & set(places.values())
    assert loaded == {places["hnas"]}


def test_an_entry_resolves_to_its_method_and_recipe() -> None:
    for name in METHODS:
        check_entry(name)


def check_entry(name: str) -> None:
    method = get_method(name)
    assert isinstance(method, Method) and method.name == name
    assert {"smoke", "demo", "paper"} <= set(method.presets)
    stages = [stage.name for stage in method.recipe.stages]
    assert "final" in stages and len(set(stages)) == len(stages)
    assert method.config.model_fields["method"].annotation is not None
    assert METHODS.summary(name)


def test_a_method_name_can_be_declared_only_once() -> None:
    summaries = archray.list_names("methods")
    assert set(summaries) == set(METHODS.names()) and all(summaries.values())
    with pytest.raises(ValueError, match="method 'hnas' is already registered"):
        METHODS.declare("hnas", "another", "module:attribute")
    with pytest.raises(UnknownName, match="no method 'hmas'; did you mean 'hnas'"):
        METHODS.summary("hmas")
