"""Compares the files in docs/run-folder.md and the `files.md` of methods with the folder of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pandas as pd
from archray_test_documents import REPOSITORY, parts

from archray.platform.quantities import QUANTITIES
from archray.trainables.costs import COSTS
from archray.trainables.proxies import PROXIES

ROW = re.compile(r"^\| ((?:`[^|]+`[^|]*)) \|", re.M)
CODE = re.compile(r"`([^`]+)`")
SPREAD = re.compile(r"_(std|n|each)$")  # in addition to the mean of a quantity
FREE_KEYS = {
    "summary.json",
    "heartbeat.json",
    "searcher.json",
    "posterior.json",
    "headline",
}  # whose keys are not described


@dataclass(frozen=True)
class Described:
    """A heading of the page: the files that it describes, and the names of their columns or keys."""

    patterns: tuple[str, ...]
    names: frozenset[str]


def descriptions_of_files() -> Iterator[Described]:
    pages = (REPOSITORY / "docs" / "run-folder.md", *REPOSITORY.glob("platform/methods/**/files.md"))
    for part in (part for page in pages for part in parts(page)):
        if part.heading.startswith("`"):
            names = [name for row in ROW.findall(part.prose) for name in CODE.findall(row)]
            yield Described(tuple(CODE.findall(part.heading)), frozenset(names))


def undescribed_names(run: Path) -> list[str]:
    """Returns the files and names of a run that the page does not describe."""
    descriptions = list(descriptions_of_files())
    of_trials = frozenset().union(*(each.names for each in descriptions if each.patterns == ("*/trials.parquet",)))
    missing = []
    for file in sorted(file for file in run.rglob("*") if file.is_file()):
        name = file.relative_to(run).as_posix()
        if name.startswith(("code/", "arrays.npz")):
            continue
        matching = [each for each in descriptions if any(fnmatch(name, pattern) for pattern in each.patterns)]
        matching += [each for each in descriptions if each.patterns == (file.name,)]  # `architecture.json` of a stage
        if not matching:
            missing.append(name)
        known = frozenset().union(*(each.names for each in matching))
        if file.name in ("trials.parquet", "curves.parquet"):
            known |= of_trials
        if (
            "/tune-" not in name
            and "/shards/" not in name
            and not name.startswith(("model/", "final/model/", "baseline/model/", "members/model-"))
        ):
            missing += [f"{name}: {key}" for key in sorted(keys(file)) if not is_described(key, known)]
    return missing


def keys(file: Path) -> list[str]:
    if file.suffix == ".parquet":
        return list(pd.read_parquet(file).columns)
    if file.suffix == ".json" and file.name not in FREE_KEYS:
        content = json.loads(file.read_text())
        return [key for key in content if key not in FREE_KEYS] if isinstance(content, dict) else []
    return []


def is_described(key: str, known: frozenset[str]) -> bool:
    return SPREAD.sub("", key) in (*QUANTITIES, *PROXIES, *COSTS) or any(fnmatch(key, name) for name in known)
