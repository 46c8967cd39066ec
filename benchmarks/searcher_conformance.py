"""The conformance suite over every searcher of archray and three searchers of Tune, as a table.

    python benchmarks/searcher_conformance.py [--tuner]
    python benchmarks/searcher_conformance.py --support     # the table of docs/searchers.md as CSV

The script runs the classes of tests/searchers that derive from `SearcherConformance`, and needs pytest. `--tuner` adds
tests with a real Tuner, which take minutes. A cell is the number of variants of the searcher (another source, another
option) that passed the test. `lacks` marks a guarantee that the searcher does not claim.
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


# A column of `--support`: the tests that a searcher must pass.
SUPPORT = {
    "asha": ("early_stopped_trials",),
    "restore": ("saved_in_the_middle_and_restored", "replayed_from_an_earlier_state", "a_fresh_searcher_pickles"),
    "concurrency": ("as_many_in_flight_as_allowed_and_no_more",),
    "any_order": ("order_of_completion_changes_nothing", "saved_in_the_middle_of_another_order"),
    "nan": ("nan_results", "failed_trials", "every_trial_fails"),
    "points": ("points_to_evaluate",),
    "finishes": ("finishes",),
}


class Outcomes:
    """A pytest plugin that records the outcome of each test of the suite.

    Attributes:
        counts: number of passed, failed, lacking and skipped variants by test and searcher.
        reasons: missing guarantees and skipped tests by searcher.
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
            name = searcher_of(item.cls)  # type: ignore[attr-defined]  # `_wanted` selects classes that have one
            lacking = hasattr(report, "wasxfail")
            outcome = "lacks" if lacking else report.outcome
            self.searchers.setdefault(name)
            self.counts[item.originalname.removeprefix("test_")][name][outcome] += 1  # type: ignore[attr-defined]
            if lacking:
                self.reasons[name].setdefault(f"{item.originalname.removeprefix('test_')}: {report.wasxfail}")  # type: ignore[attr-defined]
            elif report.skipped:
                self.reasons[name].setdefault(report.longrepr[2])

    def table(self) -> str:
        """Formats a row per test, with a column per searcher."""
        head = ["", *self.searchers]
        lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        for test, row in self.counts.items():
            cells = [self._cell(row[name]) for name in self.searchers]
            lines.append(f"| {' | '.join([test.replace('_', ' '), *cells])} |")
        return "\n".join(lines)

    def support(self) -> str:
        """Formats a row per searcher as CSV, with the columns of SUPPORT: yes, no or not run."""
        lines = [",".join(["searcher", *SUPPORT])]
        for name in self.searchers:
            cells = []
            for tests in SUPPORT.values():
                outcomes = {outcome for test in tests for outcome in self.counts[test][name]}
                cells.append("no" if outcomes & {"failed", "lacks"} else "yes" if "passed" in outcomes else "not run")
            lines.append(",".join([name, *cells]))
        return "\n".join(lines)

    @staticmethod
    def _cell(counts: dict[str, int]) -> str:
        return ", ".join(str(n) if outcome == "passed" else f"{n} {outcome}" for outcome, n in counts.items()) or "-"


def searcher_of(suite: type[SearcherConformance]) -> str:
    """Returns the name of the class that `make` returns; if it is only Searcher, the name of the test class."""
    made = inspect.signature(suite.make).return_annotation
    name = made if isinstance(made, str) else getattr(made, "__name__", str(made))
    return name if name not in (Searcher.__name__, "VariantSearcher") else suite.__name__.removeprefix("Test")


def main(arguments: list[str] | None = None) -> int:
    """Prints the table in Markdown. Returns the number of failed tests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tuner", action="store_true", help="also run the tests with a real Tuner")
    parser.add_argument("--support", action="store_true", help="print which features each searcher supports, as CSV")
    parser.add_argument("files", nargs="*", help="files in tests/searchers (default: all)")
    options = parser.parse_args(arguments)
    outcomes = Outcomes(options.tuner)
    files = [str(TESTS / name) for name in options.files] or [str(TESTS)]
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*files, "-q", "-p", "no:cacheprovider", "-p", "no:xdist"], plugins=[outcomes])
    failures = sum(counts.get("failed", 0) for row in outcomes.counts.values() for counts in row.values())
    if options.support:
        print(outcomes.support())
        return failures
    print(outcomes.table())
    for name, reasons in outcomes.reasons.items():
        print(f"\n{name} lacks:\n" + "\n".join(f"- {reason}" for reason in reasons))
    return failures


if __name__ == "__main__":
    raise SystemExit(main())
