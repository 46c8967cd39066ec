"""The conformance suite over every searcher of archray, and three of Tune's own, as a table.

    python benchmarks/searcher_conformance.py [--tuner]

It runs the classes of tests/searchers that derive from `SearcherConformance`, and needs pytest; with `--tuner` also
those that run a real Tuner, which takes minutes. A cell is the number of ways in which the searcher was made for the
test (another source, another option) and passed it; `lacks` is a guarantee that it says it does not give.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
from collections import defaultdict
from pathlib import Path

import pytest
from ray.tune.search import Searcher

from archray.searchers.testing import SearcherConformance

TESTS = Path(__file__).resolve().parent.parent / "tests" / "searchers"


class Outcomes:
    """A plugin of pytest's: keeps what became of each test of the suite.

    Attributes:
        counts: by test and searcher, how many passed, failed, lack it or were skipped.
        reasons: what is lacking, and what was skipped, by searcher.
    """

    def __init__(self, tuner: bool) -> None:
        self.tuner = tuner
        self.counts: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
        self.reasons: dict[str, dict[str, None]] = defaultdict(dict)
        self.searchers: dict[str, None] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if self._wanted(item)]

    def _wanted(self, item: pytest.Item) -> bool:
        suite = getattr(item, "cls", None)
        with_ray = "ray_session" in getattr(item, "fixturenames", ())
        return suite is not None and issubclass(suite, SearcherConformance) and (self.tuner or not with_ray)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> object:
        report = (yield).get_result()
        if report.when == "call" or (report.when == "setup" and not report.passed):
            name = searcher_of(item.cls)  # type: ignore[attr-defined]  # it has one: `_wanted`
            lacking = hasattr(report, "wasxfail")
            outcome = "lacks" if lacking else report.outcome
            self.searchers.setdefault(name)
            self.counts[item.originalname.removeprefix("test_")][name][outcome] += 1  # type: ignore[attr-defined]
            if lacking:
                self.reasons[name].setdefault(f"{item.originalname.removeprefix('test_')}: {report.wasxfail}")  # type: ignore[attr-defined]
            elif report.skipped:
                self.reasons[name].setdefault(report.longrepr[2])

    def table(self) -> str:
        """A row per test, a column per searcher."""
        head = ["", *self.searchers]
        lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        for test, row in self.counts.items():
            cells = [self._cell(row[name]) for name in self.searchers]
            lines.append(f"| {' | '.join([test.replace('_', ' '), *cells])} |")
        return "\n".join(lines)

    @staticmethod
    def _cell(counts: dict[str, int]) -> str:
        return ", ".join(str(n) if outcome == "passed" else f"{n} {outcome}" for outcome, n in counts.items()) or "-"


def searcher_of(suite: type[SearcherConformance]) -> str:
    """The name of what `make` makes, or, where that says no more than Searcher, of the class of tests."""
    made = inspect.signature(suite.make).return_annotation
    name = made if isinstance(made, str) else getattr(made, "__name__", str(made))
    return name if name not in (Searcher.__name__, "VariantSearcher") else suite.__name__.removeprefix("Test")


def main(arguments: list[str] | None = None) -> int:
    """Prints the table in Markdown; the number of tests that failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tuner", action="store_true", help="also through a real Tuner")
    parser.add_argument("files", nargs="*", help="some of the files in tests/searchers only")
    options = parser.parse_args(arguments)
    outcomes = Outcomes(options.tuner)
    files = [str(TESTS / name) for name in options.files] or [str(TESTS)]
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*files, "-q", "-p", "no:cacheprovider", "-p", "no:xdist"], plugins=[outcomes])
    print(outcomes.table())
    for name, reasons in outcomes.reasons.items():
        print(f"\n{name} lacks:\n" + "\n".join(f"- {reason}" for reason in reasons))
    return sum(counts["failed"] for row in outcomes.counts.values() for counts in row.values())


if __name__ == "__main__":
    raise SystemExit(main())
