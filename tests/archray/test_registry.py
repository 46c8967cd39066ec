"""Registries reject duplicates and list their entries, and references load files of the user."""

from __future__ import annotations

import importlib
import inspect
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from archray.errors import ArchrayError, InvalidInput, UnknownName
from archray.file_modules import code_files
from archray.references import file_package, is_reference, load_reference, split_reference
from archray.registry import CatalogRegistry, LazyModule, Registry


@pytest.fixture
def registry() -> Registry[int]:
    registry: Registry[int] = Registry("proxy")
    registry.register("snip", 1)
    registry.register("grasp", 2)
    return registry


def test_it_returns_the_registered_object(registry: Registry[int]) -> None:
    assert registry.get("snip") == 1
    assert registry.names() == list(registry) == ["grasp", "snip"]
    assert registry.registered() == {"snip": 1, "grasp": 2} and list(registry.registered()) == ["snip", "grasp"]
    assert "snip" in registry
    assert "fisher" not in registry
    assert registry.register("fisher", 3) == 3


def test_it_registers_a_decorated_object() -> None:
    registry: Registry[Callable[[], int]] = Registry("metric")

    @registry.register("three")
    def three() -> int:
        return 3

    assert registry.get("three") is three
    with pytest.raises(ValueError, match="metric 'three' is already registered"):
        registry.register("three")(three)


def test_it_rejects_duplicates_and_keeps_the_first(registry: Registry[int]) -> None:
    with pytest.raises(ValueError, match=r"proxy 'snip' is already registered"):
        registry.register("snip", 3)
    assert registry.get("snip") == 1


def test_an_unknown_name_lists_all_names(registry: Registry[int]) -> None:
    with pytest.raises(UnknownName, match=r"no proxy 'snipp'; did you mean 'snip'\? choose one of grasp, snip"):
        registry.get("snipp")
    with pytest.raises(UnknownName, match=r"no proxy 'snipp'"):
        registry.check("snipp")


def test_a_catalog_imports_an_entry_at_its_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "archray_test_entries.py").write_text("three = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    catalog: CatalogRegistry[int] = CatalogRegistry("number")
    catalog.declare("three", "The number three", "archray_test_entries:three")
    catalog.declare("absent", "No number", "archray_test_entries:absent")
    assert catalog.names() == ["absent", "three"] and "three" in catalog and "four" not in catalog
    assert catalog.summary("three") == "The number three" and "archray_test_entries" not in sys.modules
    assert catalog.get("three") == 3
    catalog.register("four", 4)
    assert catalog.get("four") == 4 and catalog.summary("four") == ""
    for add in (lambda: catalog.declare("four", "", "a:b"), lambda: catalog.register("three", 3)):
        with pytest.raises(ValueError, match="is already registered"):
            add()
    with pytest.raises(UnknownName, match="has no 'absent'"):
        catalog.get("absent")


def test_a_lazy_module_is_imported_at_its_first_attribute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "archray_test_lazy.py").write_text("three = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = LazyModule("archray_test_lazy")
    assert "archray_test_lazy" not in sys.modules
    assert module.three == 3 and "archray_test_lazy" in sys.modules
    with pytest.raises(AttributeError, match="has no attribute 'four'"):
        module.four  # noqa: B018


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("own_space.py:MySpace", True),
        ("package.module:attribute", True),
        ("/a/folder: with colon/space.py:MySpace", True),
        ("nasbench201", False),
        ("own_space.py", False),
        (":MySpace", False),
        ("own_space.py:", False),
        ("folder:/some/path", False),
        ("a:b-c", False),
    ],
)
def test_the_format_of_a_reference(name: str, expected: bool) -> None:
    assert is_reference(name) is expected


def test_splitting_a_reference() -> None:
    assert split_reference("/a:b/space.py:MySpace") == ("/a:b/space.py", "MySpace")
    with pytest.raises(UnknownName, match=r"module:attribute or path\.py:attribute, got 'nasbench201'"):
        split_reference("nasbench201")


def test_a_reference_to_a_module() -> None:
    assert load_reference("archray.errors:UnknownName") is UnknownName


def test_a_reference_to_a_file(tmp_path: Path) -> None:
    file = tmp_path / "own_space.py"
    file.write_text("class MySpace:\n    size = 3\n")
    space = load_reference(f"{file}:MySpace")
    assert space.size == 3
    assert load_reference(f"{file}:MySpace") is space  # imported once per process


def test_a_relative_path_refers_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "relative_space.py").write_text("size = 4\n")
    monkeypatch.chdir(tmp_path)
    assert load_reference("relative_space.py:size") == 4


def test_two_files_with_one_stem_are_separate_modules(tmp_path: Path) -> None:
    for folder, value in (("one", 1), ("two", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same_stem.py").write_text(f"value = {value}\n")
    one, two = tmp_path / "one" / "same_stem.py", tmp_path / "two" / "same_stem.py"
    assert file_package(one) != file_package(two)
    assert [load_reference(f"{file}:value") for file in (one, two, one)] == [1, 2, 1]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "changing.py"
    file.write_text("value = 1\n")
    assert load_reference(f"{file}:value") == 1
    file.write_text("value = 2\n")
    assert load_reference(f"{file}:value") == 2


# Modules next to a user's file

MODULES = {
    "own_space.py": "import layers, blocks.conv\nfrom blocks import pool as p\nimport blocks.conv as c\n"
    "value = layers.value + blocks.conv.value + p.value + c.value\n"
    "def later():\n    from lazily import value\n    return value\n",
    "layers.py": "from units import value\nimport random\n",
    "units.py": "value = 1\nimport own_space\n",
    "lazily.py": "value = 5\n",
    "blocks/__init__.py": "",
    "blocks/conv.py": "from . import deep, outside\nvalue = 5 * (deep.value + outside.value)\nclass Conv: pass\n",
    "blocks/deep.py": "from outside import value\n",
    "blocks/outside.py": "from outside import value\n",
    "blocks/pool.py": "value = 100\n",
    "blocks/.hidden/copy.py": "",
    "outside.py": "value = 3\n",
    "random.py": "raise AssertionError('the standard library has priority')\n",
    "unused.py": "",
    "numpy/plot.py": "",  # a folder without __init__.py
}


def write_modules(folder: Path, **changes: str) -> Path:
    """Writes MODULES to a new folder; returns the path of the user's file."""
    for name, text in (MODULES | {f"{stem}.py": text for stem, text in changes.items()}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "own_space.py"


def test_a_file_imports_modules_of_its_folder(tmp_path: Path) -> None:
    path, names = list(sys.path), set(sys.modules)
    file = write_modules(tmp_path)
    assert load_reference(f"{file}:value") == 1 + 30 + 100 + 30
    assert load_reference(f"{file}:later")() == 5  # an import in a function
    package = file_package(file)
    assert sys.path == path and all(new.startswith(package) for new in set(sys.modules) - names)
    Conv = load_reference(f"{file}:c").Conv
    assert pickle.loads(pickle.dumps(Conv)) is Conv and Conv.__module__ == f"{package}.blocks.conv"
    assert inspect.getsource(Conv) == "class Conv: pass\n"
    assert not list(tmp_path.rglob("__pycache__"))


def test_the_modules_of_a_file_are_those_that_it_imports(tmp_path: Path) -> None:
    file = write_modules(tmp_path, numpy_user="import numpy, random, archray\n")
    modules = ["blocks/__init__.py", "blocks/conv.py", "blocks/deep.py", "blocks/outside.py", "blocks/pool.py"]
    assert list(code_files(file)) == ["own_space.py", *modules, "layers.py", "lazily.py", "outside.py", "units.py"]
    user = tmp_path / "numpy_user.py"
    assert code_files(user) == {user.name: user}
    (tmp_path / "numpy" / "__init__.py").touch()  # as for a script, a package has priority over an installed one
    assert list(code_files(user)) == [user.name, "numpy/__init__.py", "numpy/plot.py"]


def test_a_file_with_the_name_of_an_installed_module_imports_that_module(tmp_path: Path) -> None:
    for name in ("numpy", "random"):
        (tmp_path / f"{name}.py").write_text(f"import {name}\nvalue = {name}\n")
        assert load_reference(f"{tmp_path}/{name}.py:value") is importlib.import_module(name)


def test_modules_with_equal_names_in_two_folders_are_separate(tmp_path: Path) -> None:
    one, two = write_modules(tmp_path / "one"), write_modules(tmp_path / "two", lazily="value = 7\n")
    assert file_package(one) != file_package(two)
    assert [load_reference(f"{file}:later")() for file in (one, two, one)] == [5, 7, 5]
    (tmp_path / "one" / "units.py").write_text("value = 2\n")
    assert load_reference(f"{one}:value") == 2 + 30 + 100 + 30


def test_a_failing_module_of_the_folder_is_named_each_time(tmp_path: Path) -> None:
    file = write_modules(tmp_path, units="value = 1 / 0\n")
    for _ in range(2):
        with pytest.raises(UnknownName, match=r"own_space\.py:value.*ZeroDivisionError: .*units\.py, line 1\)"):
            load_reference(f"{file}:value")
    file = write_modules(tmp_path, units="value = (\n")
    with pytest.raises(UnknownName, match=r"own_space\.py:value.*SyntaxError: .*units\.py, line 1\)"):
        load_reference(f"{file}:value")


def test_more_than_source_code_next_to_a_file_raises_an_error(tmp_path: Path) -> None:
    file = write_modules(tmp_path)
    with (tmp_path / "units.py").open("wb") as stream:
        stream.truncate(11 * 2**20)
    with pytest.raises(InvalidInput, match=r"at most 10 MiB of modules that .*own_space\.py imports"):
        load_reference(f"{file}:value")


def test_a_file_that_does_not_exist_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"absent\.py, which does not exist\. Check the path"):
        load_reference(f"{tmp_path / 'absent.py'}:MySpace")


def test_a_module_that_cannot_be_imported_raises_an_error() -> None:
    with pytest.raises(UnknownName, match=r"the module 'no_such_module', which cannot be imported"):
        load_reference("no_such_module:thing")


def test_an_attribute_that_does_not_exist_raises_an_error(tmp_path: Path) -> None:
    file = tmp_path / "attributes.py"
    file.write_text("first = 1\nsecond = 2\n_hidden = 3\n")
    with pytest.raises(UnknownName, match=r"has no 'third'; it has first, second$"):
        load_reference(f"{file}:third")


def test_a_file_that_fails_raises_an_error_each_time(tmp_path: Path) -> None:
    file = tmp_path / "failing.py"
    file.write_text("value = 1 / 0\n")
    for _ in range(2):  # the incomplete module is not kept
        with pytest.raises(UnknownName, match=r"ZeroDivisionError: .*failing\.py, line 1"):
            load_reference(f"{file}:value")


def test_an_error_inside_archray_names_the_line_of_the_user(tmp_path: Path) -> None:
    file = tmp_path / "calling.py"
    file.write_text("from archray.plurals import count\n\nvalue = count(None, 3)\n")
    with pytest.raises(UnknownName, match=r"TypeError: .*calling\.py, line 3\)\. Fix the import"):
        load_reference(f"{file}:value")


def test_all_errors_of_archray_have_one_base_class() -> None:
    assert issubclass(UnknownName, InvalidInput)
    assert issubclass(InvalidInput, ArchrayError)
    assert issubclass(InvalidInput, ValueError)
