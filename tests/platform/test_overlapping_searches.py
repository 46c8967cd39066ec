"""Searches in two threads of a process: each applies its changes to Ray, and Ray is restored after both."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest

from archray.cluster import CLUSTER_VARIABLE, plain_ray
from archray.cluster.loopback import loopback_only
from archray.cluster.ray_compat import CLUSTER_SWITCH, PRINT_LINES, TASK_ERROR, TRIAL_FRAMES, TRIAL_STATES, hidden_lines
from archray.platform.durable.callbacks import unread_results
from archray.platform.durable.failed_trials import quiet_deaths, retried_memory_kills
from archray.platform.durable.interrupt import INTERRUPT
from archray.platform.engine.tuning import TUNE_ENVIRONMENT, tune_environment

pytestmark = pytest.mark.skipif(plain_ray(), reason="archray does not change Ray")
CHANGED = (
    CLUSTER_SWITCH,
    PRINT_LINES,
    TASK_ERROR,
    TRIAL_FRAMES,
    TRIAL_STATES,
)
VARIABLES = (CLUSTER_VARIABLE, *TUNE_ENVIRONMENT)
LOGGERS = ("ray.tune.execution.tune_controller", "ray.tune.tune")


def state_of_ray() -> list[Any]:
    """Returns the complete state that a block changes in the process."""
    return [
        *[name.find() for name in CHANGED],
        *map(os.environ.get, VARIABLES),
        *[list(logging.getLogger(name).filters) for name in LOGGERS],
    ]


class Block:
    """A `with` block in a separate thread."""

    def __init__(self, manager: AbstractContextManager[Any]) -> None:
        self._manager = manager
        self._thread = ThreadPoolExecutor(1)

    def start(self) -> None:
        self.call(self._manager.__enter__)

    def end(self) -> None:
        self.call(self._manager.__exit__, None, None, None)
        self._thread.shutdown()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._thread.submit(function, *arguments).result(60)


@pytest.mark.parametrize(
    "change",
    [loopback_only, quiet_deaths, retried_memory_kills, unread_results, tune_environment],
    ids=["loopback_only", "quiet_deaths", "memory_kills", "unread_results", "tune_environment"],
)
@pytest.mark.parametrize("first_to_end", [0, 1])
def test_ray_is_restored_after_both_blocks(
    change: Callable[[], AbstractContextManager[Any]], first_to_end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = state_of_ray()
    blocks = [Block(change()), Block(change())]
    for block in blocks:
        block.start()
    during = state_of_ray()
    assert during != before
    blocks[first_to_end].end()
    assert state_of_ray() == during, "the other search still needs it"
    blocks[1 - first_to_end].end()
    assert state_of_ray() == before


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_lines_of_ray_are_hidden_while_a_block_hides_them(first_to_end: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two blocks overlap: the watch of Ray and a search."""
    printed: list[str] = []
    monkeypatch.setattr(PRINT_LINES.owner(), PRINT_LINES.attribute, lambda data, *_: printed.extend(data["lines"]))
    before = state_of_ray()

    def shown() -> str:
        printed.clear()
        for line in "abc":
            PRINT_LINES.find()({"lines": [line]}, False)
        return "".join(printed)

    blocks = [Block(hidden_lines(name.__eq__)) for name in "ab"]
    for block in blocks:
        block.start()
    assert shown() == "c"
    blocks[first_to_end].end()
    assert shown() == "abc".replace("ba"[first_to_end], "")
    blocks[1 - first_to_end].end()
    assert shown() == "abc" and state_of_ray() == before


def test_another_search_does_not_reset_an_interrupt_of_the_main_thread() -> None:
    INTERRUPT.requested = True
    try:
        other = threading.Thread(target=INTERRUPT.reset)
        other.start()
        other.join()
        assert INTERRUPT.requested
    finally:
        INTERRUPT.reset()
