"""Every code block of README and the pages in docs runs, one after another, in an empty folder.

Files are written first (a block with a title is a file), Python blocks share one namespace, and bash runs shell lines.
This process runs lines `archray ...` because its Ray is warm. README and lines with a file of the user use the real
command. Searches have the preset `smoke` and one process for trials. A comment before a block names other reductions
and blocks that cannot run here (tests/worker_modules/archray_test_documents.py). The blocks of docs/extending.md run in
tests/archray/test_extending.py.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import typer
from archray_test_documents import GIVEN, NEEDS, REPOSITORY, Block, blocks_of, pages

import archray
from archray.platform.cli import application

README = REPOSITORY / "README.md"
EXTENDING = REPOSITORY / "docs" / "extending.md"
RUN = {"python", "sh"}
SEARCHES = re.compile(
    r"archray (search|proxies|bench)\b(?!.*--help)|archray\.(search|proxies)\(|\.fit\(\)|python examples/"
)
# Pages with searches, a minute or more each.
IN_CI = {"README.md"}
SMALLEST = ["--preset", "smoke", "--max-concurrent", "1", "--set", "resources.actors=1"]
REAL = """#!{python}
import sys
from archray.platform.cli import main
if sys.argv[1] == "search":
    sys.argv += {smallest}
main()
"""


def label(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


def is_run(block: Block) -> bool:
    return block.language in RUN and block.title is None and block.not_run is None


def parameter(page: Path) -> Any:
    searches = any(SEARCHES.search(block.text) for block in blocks_of(page) if is_run(block))
    marks = [pytest.mark.slow, *[pytest.mark.ci] * (label(page) in IN_CI)] if searches else []
    if any(block.remarked(NEEDS) for block in blocks_of(page)):
        marks.append(pytest.mark.extra("guides"))
    return pytest.param(page, id=label(page), marks=marks)


ALL = {page: blocks_of(page) for page in pages()}
TESTED_PAGES = [page for page, blocks in ALL.items() if page != EXTENDING and any(is_run(block) for block in blocks)]


def smallest(search: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """`archray.search` with the preset `smoke` and one process for trials."""
    return search(*arguments, **{"resources__actors": 1, "max_concurrent": 1, **options, "preset": "smoke"})


def is_ours(line: str) -> bool:
    """Whether a line is only a command of archray that this process can run, without work for the shell.

    Lines with a file of the user are excluded: workers of a running Ray cannot import it.
    """
    return line.startswith("archray ") and ">" not in line and ".py:" not in line


def run_archray(line: str) -> None:
    """Runs a line `archray ...` in this process."""
    _, *arguments = shlex.split(line, comments=True)
    if arguments[0] == "search" and "--help" not in arguments:
        arguments += SMALLEST
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["archray", *arguments])
        typer.main.get_command(application(arguments)).main(arguments, standalone_mode=False)


@pytest.fixture
def bash(tmp_path: Path) -> Callable[[str], None]:
    """Runs shell lines in the current folder with the commands of this environment and small `archray` settings."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "archray").write_text(REAL.format(python=sys.executable, smallest=SMALLEST))
    (programs / "archray").chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])

    def run(text: str) -> None:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"

    return run


@pytest.mark.timeout(1800)  # a page has up to six searches, each a minute on a busy machine
@pytest.mark.parametrize("page", [parameter(page) for page in TESTED_PAGES])
def test_the_blocks_of_a_page_run(
    page: Path,
    bash: Callable[[str], None],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "examples").symlink_to(REPOSITORY / "examples")  # as in a clone
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    blocks = ALL[page]
    if any(SEARCHES.search(block.text) for block in blocks):
        request.getfixturevalue("ray_session")
    monkeypatch.setattr(archray, "search", functools.partial(smallest, archray.search), raising=False)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        for found in block.remarked(GIVEN):
            shutil.copytree(request.getfixturevalue("finished_run")(found[2]).path, folder / found[1])
        if block.title is not None:
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text(block.shrunk, encoding="utf-8")
        elif is_run(block) and block.language == "python":
            exec(block.compiled(), namespace)
        elif is_run(block):
            for ours, lines in groupby(block.shrunk.splitlines(), is_ours):
                if ours and page != README:
                    for line in lines:
                        run_archray(line)
                else:
                    bash("\n".join(lines))
