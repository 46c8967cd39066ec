"""A run in brief, from a few JSON files of its folder: `show`, `load`, `runs` and `watch` read it.

The engine writes `summary.json` whenever a stage starts or finishes. Reading it imports neither pandas nor Ray.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from archray.errors import DamagedFile, RunFolderError
from archray.files import Folder
from archray.platform.run.documents import Done, Manifest, Moment, Result, Seconds
from archray.platform.run.heartbeat import alive_until, no_sign_of_life
from archray.platform.run.layout import DONE, FINDINGS, FOUND, MANIFEST, MEMBERS, PARETO, REPEAT, SUMMARY, command

if TYPE_CHECKING:
    import pandas as pd

# Rows for the terminal and `summary.json`: the trials of the search, best first.


KEPT_ROWS = 1000  # of a listing; a search with shared weights scores any number of architectures


@dataclass(frozen=True)
class Listing:
    """Rows with the same keys, in the order in which they are shown.

    Attributes:
        title: what they are, and how they are sorted.
        rows: the first of them. A key is a quantity's, or `architecture`, `failure`, ...; None where there is no value.
        count: how many there are in all.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    title: str
    rows: Sequence[Mapping[str, Any]]
    count: int

    @classmethod
    def of(cls, title: str, rows: Sequence[Mapping[str, Any]]) -> Listing:
        return cls(title, [plain(dict(row)) for row in rows[:KEPT_ROWS]], len(rows))


def plain(value: Any) -> Any:
    """A value as JSON has it: numbers of NumPy as Python's, and null for what is missing or not finite."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if hasattr(value, "tolist"):  # of NumPy, whose scalars are no Python numbers
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return None if value != value else str(value)  # pandas' NaT is not equal to itself


State = Literal["running", "interrupted", "failed", "done"]
StageState = Literal["waiting", "running", "stopped", "done"]


@dataclass(frozen=True)
class StageSummary:
    """A stage of a run.

    Attributes:
        name: its folder.
        title: what it does.
        state: `stopped` where the run is interrupted or failed in it.
        began, finished: ISO 8601, in UTC.
        seconds: that its last process took; None before it has ended.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    title: str
    state: StageState = "waiting"
    began: str | None = None
    finished: str | None = None
    seconds: float | None = None


class Summary(BaseModel):
    """`summary.json`."""

    state: State
    reason: str | None
    stages: list[StageSummary]
    result: Result
    listings: list[Listing]
    written: Moment
    seconds: Seconds = 0.0


@dataclass(frozen=True)
class RunSummary:
    """A run, whether it has ended or not.

    Attributes:
        path: its folder.
        method, space, data, seed: of its configuration.
        created: ISO 8601, in UTC.
        command: what began it, if that was a command.
        state: `running` while its process lives, `done`, `interrupted` (Ctrl-C, or its process is gone), or `failed`.
        reason: why it is not done, or what is missing in the folder.
        seconds: from the start of the command to its end, start-up included; of a resumed run, of all its commands.
        stages: in order; none of a run of several repeats, which have their own.
        result: what was found, and its measures, as in `architecture.json`; of several repeats, of the best. Of a
            study its `findings`.
        listings: tables of what the search tried, best first.
        repeats: the repeats that have begun; none of a run of one.
        asked_repeats: how many there are to be; 1 of a run of one.
    """

    path: str
    method: str
    space: str
    data: str
    seed: int
    created: str
    command: str | None
    state: State
    reason: str | None
    seconds: float
    stages: Sequence[StageSummary]
    result: Mapping[str, Any]
    listings: Sequence[Listing]
    repeats: Sequence[RunSummary]
    asked_repeats: int

    @classmethod
    def read(cls, place: str | os.PathLike[str] | Folder) -> RunSummary:
        """Of a run without its `summary.json` what other files tell; its `reason` then says so.

        Raises: RunFolderError for a folder that holds no run.
        """
        folder = place if isinstance(place, Folder) else Folder(place)
        manifest = read_manifest(folder)
        written, config = _summary_of(folder) or _pieced(folder), manifest["config"]
        state, reason = written["state"], written["reason"]
        if state == "running" and (reason := no_sign_of_life(folder)):
            state = "interrupted"
        stages = [StageSummary(**stage) for stage in written["stages"]]
        if state == "done" and (missing := _missing(folder, [each.name for each in stages if each.state == "done"])):
            reason = f"{missing}; make it again with: {command('resume', folder)}"
        if state != "running":
            stages = [replace(stage, state="stopped") if stage.state == "running" else stage for stage in stages]
        repeats = [
            cls.read(folder / name)
            for name in folder.folders()
            if name.startswith(REPEAT) and (folder / name).exists(MANIFEST)
        ]
        return cls(
            path=str(folder),
            method=config["method"],
            space=config["space"],
            data=config["data"]["name"],
            seed=config["seed"],
            created=manifest["created"],
            command=manifest["command"],
            state=state,
            reason=reason,
            seconds=worked_seconds(folder),
            stages=stages,
            result=written["result"],
            listings=[Listing(**listing) for listing in written["listings"]],
            repeats=repeats,
            asked_repeats=config["repeats"],
        )

    @property
    def stage(self) -> StageSummary | None:
        """The stage that is on, or that the run stopped in; of several repeats, that of the last one that began."""
        if self.repeats:
            return self.repeats[-1].stage
        return next((stage for stage in self.stages if stage.state in ("running", "stopped")), None)

    @property
    def architectures(self) -> Sequence[str]:
        """What was found: one architecture, or the members of an ensemble; none before."""
        one = self.result.get("architecture")
        return self.result.get("members") or ([] if one is None else [one])

    @property
    def findings(self) -> Sequence[str]:
        """Of a study: what it concludes, a sentence each; none of a search, and before."""
        return self.result.get("findings", [])

    def to_dict(self) -> dict[str, Any]:
        """As `archray show --json` prints it."""
        return asdict(self)


def _summary_of(folder: Folder) -> dict[str, Any] | None:
    """What `summary.json` says; None if it is missing or damaged: `archray report` rewrites it."""
    try:
        return dict(folder.read_json(SUMMARY, Summary))
    except DamagedFile:
        return None


def _pieced(folder: Folder) -> dict[str, Any]:
    """What `summary.json` would say, without what only the method knows."""
    stages = [
        asdict(StageSummary(name, name, "done", None, done["finished"], done["seconds"]))
        for name in folder.folders()
        if (folder / name).exists(DONE) and (done := (folder / name).read_json(DONE, Done))
    ]
    result, lack = written_result(folder), "a damaged" if folder.exists(SUMMARY) else "no"
    return {
        "state": "interrupted" if result is None else "done",
        "reason": f"it has {lack} {SUMMARY}; write it with: {command('report', folder)}",
        "stages": sorted(stages, key=lambda stage: str(stage["finished"])),
        "result": result or {},
        "listings": [],
    }


def _missing(folder: Folder, stages: Sequence[str]) -> str | None:
    """The first file of these stages, which are done, that is missing or damaged; None if all are there."""
    if not folder.folders():
        return "the folder of every stage is missing"
    for name in stages:
        stage = folder / name
        try:
            done = stage.read_json(DONE, Done)
        except DamagedFile as error:
            return f"{name}/{DONE} is {'missing' if isinstance(error, FileNotFoundError) else 'damaged'}"
        left = set(done["outputs"]).difference(stage.files())
        for file in (*(f"{name}/{each}" for each in left), *done.get("of_run", ())):
            if not folder.exists(file):
                return f"{file} is missing"
    return None


def check_stages(folder: Folder, stages: Iterable[str]) -> None:
    """Compares the documents and tables of the stages that are done with the checksums in their `done.json`.

    Raises: DamagedFile for the first file that differs or is missing.
    """
    summary = _summary_of(folder) or {"stages": []}
    recorded = {stage["name"] for stage in summary["stages"] if stage["state"] == "done"}
    for name in stages:
        if name not in recorded and not (folder / name).exists(DONE):
            continue
        done = (folder / name).read_json(DONE, Done)
        files = {f"{name}/{file}": checksum for file, checksum in done["outputs"].items()}
        files |= {file: checksum for file, checksum in done.get("of_run", {}).items() if "/" not in file}
        for file, checksum in files.items():
            if file.endswith((".json", ".parquet")) and folder.sha256(file) != checksum:
                raise DamagedFile.at(f"{folder}/{file}", f"its checksum is not the one in {name}/{DONE}")


def worked_seconds(folder: Folder) -> float:
    """How long processes worked on a run, up to now if one still does.

    A killed process counts up to its last heartbeat. Of a run without the time in its `summary.json`, whose process
    an earlier version ended, the seconds of the stages that are done.
    """
    written = _summary_of(folder)
    if written is None or "seconds" not in written:
        parts = [folder / name for name in folder.folders()]
        own = sum(part.read_json(DONE, Done)["seconds"] for part in parts if part.exists(DONE))
        return float(own) + sum(worked_seconds(part) for part in parts if part.name.startswith(REPEAT))
    seconds = float(written["seconds"])
    if written["state"] == "running":
        wrote = datetime.fromisoformat(written["written"])
        at = alive_until(folder, wrote)
        seconds += max((at - wrote).total_seconds(), 0.0) if at else 0.0
    return seconds


def written_result(folder: Folder) -> dict[str, Any] | None:
    """What the last stage of a search or of a study wrote of its result; None before."""
    name = next((name for name in (FOUND, FINDINGS) if folder.exists(name)), None)
    return None if name is None else dict(folder.read_json(name, Result))


def read_manifest(folder: Folder) -> dict[str, Any]:
    """Raises: RunFolderError if the folder holds no run."""
    if not folder.exists(MANIFEST):
        raise RunFolderError(f"{folder} holds no run (no {MANIFEST}); give the folder that --out named")
    try:
        return dict(folder.read_json(MANIFEST, Manifest))
    except DamagedFile as error:
        raise DamagedFile(
            f"expected {folder}/{MANIFEST} as archray wrote it, got a damaged file, or none of archray's "
            f"({error.reason}), and without it the run cannot be opened. Restore it from a copy, or give the folder "
            "that --out named; the run's tables and its report are whole files of their own"
        ) from error


# The Pareto set of a search with several objectives: its numbered members, and the fully trained ones.


_INNER = "settings"  # what a member was trained with, in brief: for the stage that trains more of them


def front_of(run: Folder) -> pd.DataFrame:
    """A row a member, the most accurate first, numbered from 1 in `member`; empty where the set is not written.

    What was trained in full has its test accuracy, or what the table says, and where its model lies, in the run.
    """
    import pandas as pd

    if not (run / "pareto").exists(PARETO):
        return pd.DataFrame()
    front = (run / "pareto").read_parquet(PARETO)
    front.insert(0, "member", range(1, len(front) + 1))
    if not (run / "members").exists(MEMBERS):
        return front
    trained = (run / "members").read_parquet(MEMBERS)
    further = [column for column in trained if column not in front and column != _INNER]
    return front.merge(trained[["number", *further]], on="number", how="left", validate="one_to_one")
