"""Wheel and sdist contain every file, and the installed wheel runs a search without the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

PACKAGES = ("platform", "searchers", "trainables", "cluster")
NOT_SHIPPED = {".gitignore"}


def run(*command: str | Path, folder: Path) -> str:
    """Runs `command` in `folder` without the Python paths of this process, and returns its output."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(checkout_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(wheel, sdist), built with the setuptools of this environment; the wheel from the sdist, as `build` does."""
    # The files are listed first because setuptools leaves build/ and *.egg-info in the folder.
    out = tmp_path_factory.mktemp("dist")
    source = tmp_path_factory.mktemp("source") / "archray"
    shutil.copytree(checkout_copy, source)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source, folder=out)
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


def files_of(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def in_the_wheel(name: str) -> str | None:
    """Returns the path in the wheel of a file of the repository, or None if it is in no package."""
    top = name.partition("/")[0]
    if top == "archray":
        return name
    return f"archray/{name}" if top in PACKAGES else None


@pytest.mark.slow
@pytest.mark.ci
def test_the_wheel_has_exactly_the_files_of_the_packages(checkout_copy: Path, built: tuple[Path, Path]) -> None:
    expected = {place for name in files_of(checkout_copy) if (place := in_the_wheel(name))}
    with zipfile.ZipFile(built[0]) as wheel:
        found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert "archray/py.typed" in found
    assert found == expected


def test_the_sdist_has_every_file_of_the_repository(checkout_copy: Path, built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as sdist:
        found = {member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()}
    assert files_of(checkout_copy) - NOT_SHIPPED - found == set()


def test_the_metadata_is_valid_and_the_readme_has_no_relative_links(repository: Path, built: tuple[Path, Path]) -> None:
    printed = run(sys.executable, repository / ".ci" / "check_dist.py", built[0].parent, folder=built[0].parent)
    assert printed.splitlines() == [f"{file.name}: the metadata is valid" for file in built]


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs a command of an empty environment with the wheel, in a given folder.

    Installing torch again would take minutes, so a .pth file adds the other packages of this environment. Python does
    not read .pth files in a path added this way, so the editable install of archray stays invisible.
    """
    venv_folder = tmp_path_factory.mktemp("environment")
    venv.create(venv_folder, with_pip=False)
    python = venv_folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--no-index", "--no-deps", built[0], folder=venv_folder)
    own = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])", folder=venv_folder).strip()
    )
    others = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    (own / "others.pth").write_text("\n".join(others) + "\n")

    def command(name: str, *arguments: str | Path, folder: Path) -> str:
        return run(venv_folder / "bin" / name, *arguments, folder=folder)

    return command


@pytest.mark.slow
def test_the_wheel_imports_without_the_checkout(
    installed: Callable[..., str], repository: Path, tmp_path: Path
) -> None:
    code = "import archray, archray.platform, archray.cluster; print(archray.__file__, *archray.platform.__path__)"
    places = [Path(place) for place in installed("python", "-c", code, folder=tmp_path).split()]
    assert not any(place.is_relative_to(repository) for place in places)
    assert places[1] == places[0].parent / "platform"


@pytest.mark.slow
@pytest.mark.ci
def test_the_wheel_runs_a_search_from_an_empty_folder(installed: Callable[..., str], tmp_path: Path) -> None:
    smallest = "--pool-size 2 --budget 1 --random 0 --final-epochs 1 --max-concurrent 1 --set resources.actors=1"
    installed("archray", "search", "hnas", "--preset", "smoke", *smallest.split(), "--out", "run", folder=tmp_path)
    assert {"manifest.json", "architecture.json", "report.html"} <= {file.name for file in (tmp_path / "run").iterdir()}
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]
