"""The examples of docs/extending.md work and change only the files that they name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from archray_test_documents import Part, added_to_archray, parts, run_snippets, write_files

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"
SEARCHES = ("A method",)  # examples that need Ray
SLOW = ("A method",)  # one more search would take too long
EXAMPLES = [part for part in parts(PAGE) if part.blocks]


@pytest.mark.parametrize(
    "part",
    [pytest.param(p, id=p.heading, marks=[pytest.mark.slow] * (p.heading in SLOW)) for p in EXAMPLES],
)
def test_an_example_works_as_described(
    part: Part, repository: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if part.heading in SEARCHES:
        request.getfixturevalue("ray_session")
    files = write_files(part, tmp_path)
    with added_to_archray(files, tmp_path, repository):
        run_snippets(part)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("part", [p for p in EXAMPLES if p.heading == "A searcher"], ids=lambda part: part.heading)
def test_the_example_of_a_searcher_passes_the_conformance_suite(part: Part, tmp_path: Path) -> None:
    """Runs pytest in a separate process, in which the file is a module of archray."""
    write_files(part, tmp_path)
    (tmp_path / "conftest.py").write_text(
        f"import archray.searchers\narchray.searchers.__path__.append({str(tmp_path / 'searchers')!r})\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/searchers/test_hill_climbing.py"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) >= 15
