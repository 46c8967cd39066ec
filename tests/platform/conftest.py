"""Runs that several tests look at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from archray_test_runs import RUNS, EndedTrials

import archray


@pytest.fixture(scope="session")
def finished_run(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], archray.RunResult]:
    """Hands out the whole run of a method, made once in a test process; a test that changes it copies it before."""
    runs: dict[str, archray.RunResult] = {}

    def run(method: str) -> archray.RunResult:
        if method not in runs:
            out = tmp_path_factory.mktemp(method) / "run"
            runs[method] = archray.search(method, **RUNS[method], out=out, callbacks=[EndedTrials()])
        return runs[method]

    return run
