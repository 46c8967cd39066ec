"""The summary of a run, from a few JSON files in its folder, for `show`, `load`, `runs` and `watch`.

The engine writes `summary.json` whenever a stage starts or finishes. Reading it imports neither pandas nor Ray.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict

from archray.errors import DamagedFile, RunFolderError
from archray.files import Folder
from archray.platform.run.documents import Done, Manifest, Moment, Result, Seconds
from archray.platform.run.heartbeat import alive_until, no_sign_of_life
from archray.platform.run.layout import (
    DONE,
    FINDINGS,
    FOUND,
    MANIFEST,
    MEMBERS,
    MODEL,
    PARETO,
    REPEAT,
    SUMMARY,
    command,
)
from archray.plurals import count

if TYPE_CHECKING:
    import pandas as pd

KEPT_ROWS = 1000  # maximum rows of a listing; a search with shared weights may score many more architectures


@dataclass(frozen=True)
class Listing:
    """Rows for the terminal and `summary.json`, such as the trials of the search, best first.

    Attributes:
        title: description of the rows, and their order.
        rows: the first rows. Keys are quantities, or `architecture`, `failure`, ...; None for a missing value.
        count: total number of rows.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    title: str
    rows: Sequence[Mapping[str, Any]]
    count: int

    @classmethod
    def of(cls, title: str, rows: Sequence[Mapping[str, Any]]) -> Self:
        return cls(title, [plain(dict(row)) for row in rows[:KEPT_ROWS]], len(rows))


def plain(value: Any) -> Any:
    """Converts a value for JSON: NumPy numbers to Python numbers, and missing or non-finite numbers to None."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if hasattr(value, "tolist"):  # NumPy
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
        name: name of its folder.
        title: description of its work.
        state: state of the stage; `stopped` if the run was interrupted or failed in it.
        started, finished: times, ISO 8601 in UTC.
        seconds: duration in its last process; None before its end.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    title: str
    state: StageState = "waiting"
    started: str | None = None
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
    """The summary of a finished or unfinished run.

    Attributes:
        path: folder of the run.
        method, space, data, seed: values of the configuration.
        data_limit: maximum number of points in each part of the data, `data.limit`; None for all points.
        created: time of creation, ISO 8601 in UTC.
        command: command that started the run, if any.
        state: `running` while its process is alive, `done`, `interrupted` (Ctrl-C or a dead process), or `failed`.
        reason: reason why the run is not done, or the missing files of the folder.
        seconds: duration of the command, including start-up; for a resumed run, the sum over all commands.
        stages: stages in order; empty for a run with several repeats, which have their own stages.
        result: result and its measures, as in `architecture.json`; with several repeats, the best repeat. For a study,
            its `findings`.
        listings: tables of the search's trials, best first.
        repeats: repeats that have started; empty for a single run.
        asked_repeats: requested number of repeats; 1 for a single run.
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
    repeats: "Sequence[RunSummary]"
    asked_repeats: int
    data_limit: int | None = None

    @classmethod
    def read(cls, place: str | os.PathLike[str] | Folder) -> "RunSummary":
        """Reads the summary of the run in a folder.

        Without `summary.json` the method reads other files, and sets `reason`.

        Raises: RunFolderError for a folder without a run.
        """
        folder = place if isinstance(place, Folder) else Folder(place)
        manifest = read_manifest(folder)
        document, config = _document(folder) or _substitute(folder), manifest["config"]
        state, reason = document["state"], document["reason"]
        if state == "running" and (reason := no_sign_of_life(folder)):
            state = "interrupted"
        stages = [StageSummary(**stage) for stage in document["stages"]]
        if state == "done" and (missing := _missing(folder, [stage.name for stage in stages if stage.state == "done"])):
            reason = f"{missing}; restore it with: {command('resume', folder)}"
        if state != "running":
            stages = [replace(stage, state="stopped") if stage.state == "running" else stage for stage in stages]
        folders = [folder / name for name in folder.folders() if name.startswith(REPEAT)]
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
            result=document["result"],
            listings=[Listing(**listing) for listing in document["listings"]],
            repeats=[cls.read(repeat) for repeat in folders if repeat.exists(MANIFEST)],
            asked_repeats=config["repeats"],
            data_limit=config["data"].get("limit"),
        )

    @property
    def stage(self) -> StageSummary | None:
        """The running stage, or the stage in which the run stopped; with several repeats, in the last repeat."""
        if self.repeats:
            return self.repeats[-1].stage
        return next((stage for stage in self.stages if stage.state in ("running", "stopped")), None)

    @property
    def architectures(self) -> Sequence[str]:
        """The found architecture, or the members of an ensemble; empty before the end."""
        architecture = self.result.get("architecture")
        return self.result.get("members") or ([] if architecture is None else [architecture])

    @property
    def findings(self) -> Sequence[str]:
        """The conclusions of a study, one sentence each; empty for a search, and before the end."""
        return self.result.get("findings", [])

    def to_dict(self) -> dict[str, Any]:
        """Returns the content of `archray show --json`."""
        return asdict(self)


def _document(folder: Folder) -> dict[str, Any] | None:
    """Reads `summary.json`; None if it is missing or damaged. `archray report` rewrites it."""
    try:
        return dict(folder.read_json(SUMMARY, Summary))
    except DamagedFile:
        return None


def _substitute(folder: Folder) -> dict[str, Any]:
    """Builds a substitute for `summary.json`, without the method's listings."""
    stages = [
        asdict(StageSummary(name, name, "done", None, done["finished"], done["seconds"]))
        for name in folder.folders()
        if (folder / name).exists(DONE) and (done := (folder / name).read_json(DONE, Done))
    ]
    result, lack = written_result(folder), "a damaged" if folder.exists(SUMMARY) else "no"
    return {
        "state": "interrupted" if result is None else "done",
        "reason": f"the folder has {lack} {SUMMARY}; rewrite it with: {command('report', folder)}",
        "stages": sorted(stages, key=lambda stage: str(stage["finished"])),
        "result": result or {},
        "listings": [],
    }


def _missing(folder: Folder, stages: Sequence[str]) -> str | None:
    """Returns the first missing or damaged file of these finished stages; None if all files are valid."""
    if not folder.folders():
        return "the folder of every stage is missing"
    for name in stages:
        stage = folder / name
        try:
            done = stage.read_json(DONE, Done)
        except DamagedFile as error:
            return f"{name}/{DONE} is {'missing' if isinstance(error, FileNotFoundError) else 'damaged'}"
        missing = set(done["outputs"]).difference(written_files(stage))
        for file in (*(f"{name}/{output}" for output in missing), *done.get("of_run", ())):
            if not folder.exists(file):
                return f"{file} is missing"
    return None


def written_files(stage: Folder) -> list[str]:
    """Returns the files of a finished stage: those in its folder except `done.json`, and those of its models."""
    models = [name for name in stage.folders() if name.startswith(MODEL)]
    return [
        *(name for name in stage.files() if name != DONE),
        *(f"{model}/{name}" for model in models for name in (stage / model).files()),
    ]


def finished_stages(folder: Folder) -> set[str]:
    """Returns the stages of a run that are done according to its `summary.json`; empty without it."""
    summary = _document(folder) or {"stages": []}
    return {stage["name"] for stage in summary["stages"] if stage["state"] == "done"}


def check_files(run: Folder, stage: str, needed: Callable[[str], bool] = lambda file: True) -> None:
    """Compares the files of a finished stage with the checksums in its `done.json`.

    Args:
        needed: whether to check a file, by its path in the run.

    Raises: DamagedFile for the first file that differs or is missing.
    """
    done = (run / stage).read_json(DONE, Done)
    files = {f"{stage}/{file}": checksum for file, checksum in done["outputs"].items()} | done.get("of_run", {})
    for file, checksum in files.items():
        if needed(file) and run.sha256(file) != checksum:
            raise DamagedFile.at(f"{run}/{file}", f"its checksum differs from {stage}/{DONE}")


def worked_seconds(folder: Folder) -> float:
    """Returns the time that processes worked on a run, up to now if a process still works.

    A killed process counts up to its last heartbeat. A `summary.json` of an earlier version lacks the time; the
    function then sums the seconds of finished stages.
    """
    summary = _document(folder)
    if summary is None or "seconds" not in summary:
        parts = [folder / name for name in folder.folders()]
        of_stages = sum(part.read_json(DONE, Done)["seconds"] for part in parts if part.exists(DONE))
        return float(of_stages) + sum(worked_seconds(part) for part in parts if part.name.startswith(REPEAT))
    seconds = float(summary["seconds"])
    if summary["state"] == "running":
        written = datetime.fromisoformat(summary["written"])
        alive = alive_until(folder, written)
        seconds += max((alive - written).total_seconds(), 0.0) if alive else 0.0
    return seconds


def written_result(folder: Folder) -> dict[str, Any] | None:
    """Reads the result of a search or a study in the run's folder; None before the end."""
    name = next((name for name in (FOUND, FINDINGS) if folder.exists(name)), None)
    return None if name is None else dict(folder.read_json(name, Result))


def read_manifest(folder: Folder) -> dict[str, Any]:
    """Reads the manifest. Raises: RunFolderError if the folder contains no run."""
    if not folder.exists(MANIFEST):
        raise RunFolderError(f"expected the folder of a run, got {folder} without {MANIFEST}. Pass the folder of --out")
    try:
        return dict(folder.read_json(MANIFEST, Manifest))
    except DamagedFile as error:
        raise DamagedFile(
            f"expected a valid {folder}/{MANIFEST}, got a damaged file, or a file of another program "
            f"({error.reason}). archray cannot open the run without it. Restore it from a copy, or pass the folder of "
            "--out. The tables and the report of the run can still be read as files"
        ) from error


def origin_words(result: Mapping[str, Any]) -> str:
    """Describes a result that the search did not find: `one of 8 random architectures`, `the largest network`."""
    if result.get("origin") == "space":
        return f"one of all {(result.get('others_test_accuracy_n') or 1) + 1} architectures of the space"
    if result.get("origin") == "largest":
        return "the largest network"
    number = result.get("random_test_accuracy_n") or 1
    return "the random architecture" if number == 1 else f"one of {count(number, 'random architecture')}"


def front_of(run: Folder) -> "pd.DataFrame":
    """Reads the Pareto set: a row per member, the most accurate first, numbered from 1 in `member`; empty if missing.

    Fully trained members have a test accuracy, or the value of a table, and the folder of the model in the run.
    """
    import pandas as pd

    if not (run / "pareto").exists(PARETO):
        return pd.DataFrame()
    front = (run / "pareto").read_parquet(PARETO)
    front.insert(0, "member", range(1, len(front) + 1))
    if not (run / "members").exists(MEMBERS):
        return front
    trained = (run / "members").read_parquet(MEMBERS)
    further = [column for column in trained if column not in front and column != "settings"]  # a digest, for a resume
    return front.merge(trained[["number", *further]], on="number", how="left", validate="one_to_one")
