"""docs/run-folder.md names every file of a run, and every column and key in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pandas as pd
import pytest
from archray_test_documents import parts
from archray_test_runs import ONE_AT_A_TIME

import archray
from archray.platform.quantities import QUANTITIES

ROW = re.compile(r"^\| ((?:`[^|]+`[^|]*)) \|", re.M)
CODE = re.compile(r"`([^`]+)`")
SPREAD = re.compile(r"_(std|n|each)$")  # beside the mean of a quantity
OPEN = {"summary.json", "heartbeat.json", "searcher.json", "posterior.json", "headline"}  # whose keys are not told


@dataclass(frozen=True)
class Described:
    """A heading of the page: the files that it is about, and the columns or keys that it tells of."""

    patterns: tuple[str, ...]
    names: frozenset[str]


def described(repository: Path) -> Iterator[Described]:
    for part in parts(repository / "docs" / "run-folder.md"):
        if part.heading.startswith("`"):
            names = [name for row in ROW.findall(part.prose) for name in CODE.findall(row)]
            yield Described(tuple(CODE.findall(part.heading)), frozenset(names))


def unknown(run: Path, repository: Path) -> list[str]:
    """What the page does not tell of a run."""
    told = list(described(repository))
    of_trials = next(each.names for each in told if each.patterns == ("*/trials.parquet",))
    missing = []
    for file in sorted(file for file in run.rglob("*") if file.is_file()):
        name = file.relative_to(run).as_posix()
        if name.startswith(("code/", "arrays.npz")):
            continue
        matching = [each for each in told if any(fnmatch(name, pattern) for pattern in each.patterns)]
        matching += [each for each in told if each.patterns == (file.name,)]  # `architecture.json` of a stage
        if not matching:
            missing.append(name)
        known = frozenset().union(*(each.names for each in matching))
        if file.name in ("trials.parquet", "curves.parquet"):
            known |= of_trials
        if "/tune-" not in name and "/shards/" not in name and not name.startswith(("model/", "final/model/")):
            missing += [f"{name}: {key}" for key in sorted(keys(file)) if not is_told(key, known)]
    return missing


def keys(file: Path) -> list[str]:
    if file.suffix == ".parquet":
        return list(pd.read_parquet(file).columns)
    if file.suffix == ".json" and file.name not in OPEN:
        content = json.loads(file.read_text())
        return [key for key in content if key not in OPEN] if isinstance(content, dict) else []
    return []


def is_told(key: str, known: frozenset[str]) -> bool:
    return SPREAD.sub("", key) in QUANTITIES or any(fnmatch(key, name) for name in known)


def test_it_tells_of_every_file_of_a_run_of_hnas(
    finished_run: Callable[[str], archray.RunResult], repository: Path
) -> None:
    assert unknown(Path(finished_run("hnas").path), repository) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("gaea-darts", {"search_seeds": 3, "selection__keep": 1, "selection__epoch": 1}),
        ("rs-ws", {"samples": 6}),
        ("supernet-halving", {}),
        ("nesbs", {}),
        ("snapshot", {}),
        ("nes-re", {}),
        ("halving", {"space": "fourier", "correlation": 3, "repeats": 2}),
        ("random", {"space": "fourier"}),
        ("hyperband", {"space": "fourier"}),
    ],
)
@pytest.mark.usefixtures("ray_session")
def test_it_tells_of_every_file_of_other_runs(
    method: str, options: dict[str, object], repository: Path, tmp_path: Path
) -> None:
    options = {"space": "nasbench201", "data": "digits", **ONE_AT_A_TIME, **options}
    run = archray.search(method, preset="smoke", out=tmp_path / "run", **options)
    folders = sorted(Path(run.path).glob("repeat-*")) or [Path(run.path)]
    assert [problem for folder in folders for problem in unknown(folder, repository)] == []


def test_every_file_that_it_names_is_one_that_code_writes(repository: Path) -> None:
    """A heading for a file that is gone would stay unnoticed otherwise."""
    rooms = [file for room in ("platform", "trainables") for file in (repository / room).rglob("*.py")]
    code = "".join(file.read_text(encoding="utf-8") for file in rooms)
    named = [pattern.rpartition("/")[2] for each in described(repository) for pattern in each.patterns]
    assert [name for name in named if "*" not in name and name not in code] == []
