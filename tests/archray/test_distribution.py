"""Wheel and sdist contain every file and valid metadata. The installed wheel searches without the checkout."""

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
    """Runs `command` in `folder`, free of this process' Python paths, and returns what it printed."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(checkout_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(wheel, sdist), built with the setuptools of this environment; the wheel from the sdist, as `build` does."""
    # The files are listed first: setuptools leaves build/ and *.egg-info in the folder that it builds.
    out = tmp_path_factory.mktemp("dist")
    source = tmp_path_factory.mktemp("source") / "archray"
    shutil.copytree(checkout_copy, source)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source, folder=out)
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


def files_of(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def in_the_wheel(name: str) -> str | None:
    """Where a file of the repository lies in the wheel; None if it is in no room and not in the entrance."""
    top = name.partition("/")[0]
    if top == "archray":
        return name
    return f"archray/{name}" if top in PACKAGES else None


@pytest.mark.slow
@pytest.mark.ci
def test_the_wheel_holds_every_file_of_the_rooms_and_no_other(checkout_copy: Path, built: tuple[Path, Path]) -> None:
    expected = {place for name in files_of(checkout_copy) if (place := in_the_wheel(name))}
    with zipfile.ZipFile(built[0]) as wheel:
        found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert "archray/py.typed" in found
    assert found == expected


def test_the_sdist_holds_every_file_of_the_repository(checkout_copy: Path, built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as sdist:
        found = {member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()}
    assert files_of(checkout_copy) - NOT_SHIPPED - found == set()


def test_the_metadata_is_valid_and_the_readme_has_no_relative_links(repository: Path, built: tuple[Path, Path]) -> None:
    printed = run(sys.executable, repository / ".ci" / "check_dist.py", built[0].parent, folder=built[0].parent)
    assert printed.splitlines() == [f"{file.name}: the metadata is valid" for file in built]


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs a command of an empty environment that holds the wheel, in a given folder.

    Installing torch again would take minutes: the environment sees this one's other packages through a .pth file.
    A path added so does not get its own .pth files read, hence the editable install of archray stays unseen.
    """
    room = tmp_path_factory.mktemp("environment")
    venv.create(room, with_pip=False)
    python = room / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--no-index", "--no-deps", built[0], folder=room)
    own = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])", folder=room).strip())
    others = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    (own / "others.pth").write_text("\n".join(others) + "\n")

    def command(name: str, *arguments: str | Path, folder: Path) -> str:
        return run(room / "bin" / name, *arguments, folder=folder)

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
def test_the_wheel_searches_from_an_empty_folder(installed: Callable[..., str], tmp_path: Path) -> None:
    smallest = "--pool-size 2 --budget 1 --random 0 --final-epochs 1 --max-concurrent 1 --set resources.actors=1"
    installed("archray", "search", "hnas", "--preset", "smoke", *smallest.split(), "--out", "run", folder=tmp_path)
    assert {"manifest.json", "architecture.json", "report.html"} <= {file.name for file in (tmp_path / "run").iterdir()}
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]
