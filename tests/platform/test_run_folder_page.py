"""docs/run-folder.md names every file of a run, and every column and key in it; other methods: test_whole_runs.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from archray_test_run_files import described, unknown

import archray


def test_it_tells_of_every_file_of_a_run_of_hnas(
    finished_run: Callable[[str], archray.RunResult],
) -> None:
    assert unknown(Path(finished_run("hnas").path)) == []


def test_every_file_that_it_names_is_one_that_code_writes(repository: Path) -> None:
    """A heading for a file that is gone would stay unnoticed otherwise."""
    rooms = [file for room in ("platform", "trainables") for file in (repository / room).rglob("*.py")]
    code = "".join(file.read_text(encoding="utf-8") for file in rooms)
    named = [pattern.rpartition("/")[2] for each in described() for pattern in each.patterns]
    assert [name for name in named if "*" not in name and name not in code] == []
