"""The folder of a bench: the question, the table it is asked of, and the answers as they come."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

import archray
from archray.errors import InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.bench.entrants import Entrant, is_drawn
from archray.platform.methods.method import SearchProblem
from archray.platform.run.heartbeat import holds_nothing
from archray.trainables.spaces.table_space import CANONICAL
from archray.trainables.tabular import OBJECTIVE, Table, read_table
from archray.trainables.tabular.table_file import ARCHITECTURE, write_table_file

QUESTION, TABLE, POOL, PARTS = "bench.json", "table.parquet", "pool.parquet", "parts"
CHUNKS = 16  # of the seeds of a row, at most: a task each, and a file


@dataclass(frozen=True)
class Question:
    """What a bench asks. Equal questions have equal answers.

    Attributes:
        table: the place of the table, and what tells that it is the same: its checksum and the roles of its columns.
        entrants: the rows.
        seeds: 0 to seeds - 1.
        budgets: evaluations at most, ascending; each is a search of its own, that knows its budget.
        seconds: of the table's trainings, at most; None: not limited.
    """

    table: Mapping[str, Any]
    entrants: tuple[Entrant, ...]
    seeds: int
    budgets: tuple[int, ...]
    seconds: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "archray": archray.__version__,
            "table": dict(self.table),
            "rows": [entrant.to_json() for entrant in self.entrants],
            "seeds": self.seeds,
            "budgets": list(self.budgets),
            "seconds": self.seconds,
        }

    @classmethod
    def read(cls, folder: Folder) -> "Question":
        """Raises: RunFolderError if the folder holds no bench."""
        if not folder.exists(QUESTION):
            raise RunFolderError(f"{folder} holds no bench")
        question = folder.read_json(QUESTION)
        rows = tuple(Entrant(**row) for row in question["rows"])
        return cls(question["table"], rows, question["seeds"], tuple(question["budgets"]), question["seconds"])


@dataclass(frozen=True)
class Share:
    """A piece of the work: some seeds of one row at one budget."""

    place: int  # of the row
    entrant: Entrant
    budget: int
    seconds: float | None
    seeds: tuple[int, ...]

    @property
    def file(self) -> str:
        name = re.sub(r"[^A-Za-z0-9]+", "-", self.entrant.label).strip("-")[:40]
        return f"{self.place:02d}-{name}-{self.budget}-{self.seeds[0]:05d}.parquet"


def shares(question: Question, table: Table) -> Iterator[Share]:
    """All pieces of the work; what does not depend on the seed is done once."""
    size = -(-question.seeds // CHUNKS)
    for budget in question.budgets:
        for place, entrant in enumerate(question.entrants):
            seeds = range(question.seeds if is_drawn(entrant, table, budget) else 1)
            for first in range(0, len(seeds), size):
                chosen = tuple(seeds[first : first + size])
                yield Share(place, entrant, budget, question.seconds, chosen)


def bench_place(place: str | Path) -> Folder:
    """The folder in which a bench goes. Raises: InvalidInput for an object store; RunFolderError if it is taken."""
    folder = Folder(place)
    if folder.local_path() is None:
        raise InvalidInput(f"expected a folder on a disk that every worker reads, got {place}")
    if not folder.exists(QUESTION) and not holds_nothing(folder):
        raise RunFolderError(f"{folder} exists and holds no bench; choose another --out")
    return folder


def open_folder(place: str | Path, question: Question, table: Table) -> Folder:
    """The folder of a bench: a new one, or the one in which the same question was begun.

    Raises: RunFolderError if it holds another one, or something else.
    """
    folder = bench_place(place)
    if folder.exists(QUESTION):
        _refuse_another(folder, question)
        return folder
    folder.create()
    write_table(folder, table)
    folder.write_json(QUESTION, question.to_json())  # last: with it the folder is a bench's
    return folder


def write_table(folder: Folder, table: Table) -> None:
    """The table as it was read, roles and canonical forms too, so that workers need neither find nor sort it out."""
    rows, space = table.frame, table.space
    if space.base is not None:
        rows = rows.assign(**{CANONICAL: list(space.forms)})
    roles = replace(table.roles, architecture=(ARCHITECTURE,), space=space.base.name if space.base else "none")
    write_table_file(Path(folder.path) / TABLE, rows, roles)
    columns = {name: values[table.rows] for name, values in {**table.metrics, **table.costs}.items()}
    names = [table.architectures[row] for row in table.rows]
    folder.write_parquet(POOL, pd.DataFrame({ARCHITECTURE: names, **columns}))


def _refuse_another(folder: Folder, question: Question) -> None:
    """Raises: RunFolderError with what is different."""
    before, now = folder.read_json(QUESTION), question.to_json()
    for told in (before, now):
        told["table"] = {key: value for key, value in told["table"].items() if key != "location"}
        told["rows"] = [row["label"] for row in told["rows"]]
    different = [key for key in now if now[key] != before.get(key)]
    if different:
        key = different[0]
        raise RunFolderError(
            f"{folder} holds a bench of another question: its {key} {_are(key)} {_told(before.get(key))}, now "
            f"{_told(now[key])}; give the same command to go on, or choose another --out"
        )


def _are(key: str) -> str:
    return "are" if key.endswith("s") else "is"


def _told(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {entry}" for key, entry in value.items() if entry)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def problem_in(folder: Folder) -> tuple[Table, SearchProblem]:
    """The table that the bench in a folder is about, and what its searchers are told of it."""
    place = Path(folder.path)
    table = read_table(place / TABLE)
    problem = SearchProblem(
        space=table.space,
        pool=str(place / POOL),
        metrics=tuple(table.metrics),
        costs=tuple(table.costs),
        encoding=table.space.encoding,
        objective=OBJECTIVE,
        mode=table.mode,
    )
    return table, problem


def read_parts(folder: Folder, pieces: Sequence[Share]) -> pd.DataFrame:
    """A row per evaluation, in the order of rows, budgets, seeds and suggestion. Raises: RunFolderError."""
    parts, have = folder / PARTS, set((folder / PARTS).files())
    missing = [share for share in pieces if share.file not in have]
    if missing:
        raise RunFolderError(f"the bench in {folder} has not ended; give its command again to go on")
    frames = [
        parts.read_parquet(share.file).assign(method=share.entrant.label, budget=share.budget) for share in pieces
    ]
    return pd.concat(frames, ignore_index=True)
