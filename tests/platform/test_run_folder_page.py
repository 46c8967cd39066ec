"""docs/run-folder.md names every file of a run of HNAS with its columns and keys (others: test_whole_runs.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from archray_test_run_files import undescribed_names

import archray


def test_it_describes_every_file_of_a_run_of_hnas(
    finished_run: Callable[[str], archray.RunResult],
) -> None:
    assert undescribed_names(Path(finished_run("hnas").path)) == []
