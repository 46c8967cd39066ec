"""Workers for the tests of actor maps and of pool scoring: good workers, and workers that fail in every way."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


class Squarer:
    """Squares numbers, writes a log line per call, and obeys items such as "raise" and "exit".

    Args:
        log: a file to which a line per call is appended: `item pid`.
        mark: a folder in which "raise-once" and "exit-once" leave a mark; they fail if their mark does not exist.
        seconds: the duration of an item.
    """

    def __init__(self, log: str | None = None, mark: str | None = None, seconds: float = 0.0) -> None:
        self.log, self.mark, self.seconds = log, mark, seconds

    def __call__(self, item: Any) -> Any:
        if self.log is not None:
            append_line(self.log, f"{item} {os.getpid()}")
        time.sleep(self.seconds)
        if item == "raise":
            raise ValueError("requested an error")
        if item == "exit":
            os._exit(1)
        if isinstance(item, str) and item.startswith(("exit-once", "raise-once")):
            assert self.mark is not None
            mark = Path(self.mark) / item
            if not mark.exists():
                mark.touch()
                if item.startswith("exit"):
                    os._exit(1)
                raise ValueError("requested one error")
            return item
        return item * item


class Unconstructible:
    """A worker whose constructor raises."""

    def __init__(self, log: str) -> None:
        append_line(log, str(os.getpid()))
        raise RuntimeError("no such device")


def logging_scorer(log: str, seconds: float = 0.1) -> type:
    """A pool scorer whose values depend only on the string. A scoring takes `seconds` and adds a line to `log`."""

    class LoggingScorer:
        def __init__(self, space: str, data: Any, proxy: dict[str, Any], device: str) -> None:
            self.metrics = proxy["metrics"]

        def __call__(self, architecture: str) -> dict[str, Any]:
            append_line(log, architecture)
            time.sleep(seconds)
            value = sum(architecture.encode()) / 7
            failed = architecture.count("none") > 3
            values = {metric: float("nan") if failed else value + i for i, metric in enumerate(self.metrics)}
            failure = "the input does not reach the output" if failed else None
            return {
                "architecture": architecture,
                **values,
                "failure": failure,
                "seconds": 0.1,
                "parameters": len(architecture),
                "device": "CPU",
            }

    return LoggingScorer


def append_line(path: str, line: str) -> None:
    """Appends a line in one write, so that lines of several processes do not mix."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)
