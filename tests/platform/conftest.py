"""Complete runs that several tests read, and a browser that opens their reports."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from archray_test_faults import options_of
from archray_test_runs import RUNS, EndedTrials

import archray

CANDIDATES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]


@pytest.fixture(scope="session")
def finished_run(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], archray.RunResult]:
    """Returns the complete run of a method, made once per test process. A test that changes the run copies it first."""
    runs: dict[str, archray.RunResult] = {}

    def run(method: str) -> archray.RunResult:
        if method not in runs:
            out = tmp_path_factory.mktemp(method) / f"whole-{method}"  # a unique name in Ray's metrics
            runs[method] = archray.search(method, **RUNS[method], out=out, callbacks=[EndedTrials()])
        return runs[method]

    return run


@pytest.fixture(scope="session")
def undisturbed(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., archray.RunResult]:
    """Returns the run of `options_of(...)` without any interruption, made once."""

    @cache
    def run(method: str, *at_a_time: int) -> archray.RunResult:
        out = tmp_path_factory.mktemp(f"undisturbed-{method}") / "run"
        return archray.search(method, **options_of(method, *at_a_time), out=out)

    return run


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[test]'")
    named = os.environ.get("ARCHRAY_CHROMIUM") or next(filter(None, map(shutil.which, CANDIDATES)), None)
    if named is None:
        pytest.skip("needs Chromium: install it, or set ARCHRAY_CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=named, args=ARGUMENTS)
        yield chromium
        chromium.close()
