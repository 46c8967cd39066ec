"""The folder of a bench: the question, its table, the answers, and the worker that finds them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
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
    """The question of a bench. Equal questions have equal answers.

    Attributes:
        table: the place of the table, and its identity: its checksum and the roles of its columns.
        entrants: the rows.
        seeds: 0 to seeds - 1.
        budgets: evaluations at most, ascending; each is a separate search with this budget.
        seconds: of the table's training runs, at most; None: not limited.
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
    """A part of the work: some seeds of one row at one budget."""

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
    """All parts of the work; a row that does not depend on the seed has one search."""
    size = -(-question.seeds // CHUNKS)
    for budget in question.budgets:
        for place, entrant in enumerate(question.entrants):
            seeds = range(question.seeds if is_drawn(entrant, table, budget) else 1)
            for first in range(0, len(seeds), size):
                chosen = tuple(seeds[first : first + size])
                yield Share(place, entrant, budget, question.seconds, chosen)


def bench_place(place: str | Path) -> Folder:
    """The folder of a bench. Raises: InvalidInput for an object store; RunFolderError if it contains other files."""
    folder = Folder(place)
    if folder.local_path() is None:
        raise InvalidInput(f"expected a folder on a disk that every worker reads, got {place}")
    if not folder.exists(QUESTION) and not holds_nothing(folder):
        raise RunFolderError(f"{folder} exists and holds no bench; choose another --out")
    return folder


def open_folder(place: str | Path, question: Question, table: Table) -> Folder:
    """The folder of a bench: a new one, or one with an unfinished bench of the same question.

    Raises: RunFolderError if it contains another one, with the first difference, or other files.
    """
    folder = bench_place(place)
    if not folder.exists(QUESTION):
        folder.create()
        write_table(folder, table)
        folder.write_json(QUESTION, question.to_json())  # last: with it the folder is a bench's
        return folder
    old, new = folder.read_json(QUESTION), question.to_json()
    for document in (old, new):
        document["table"] = {key: value for key, value in document["table"].items() if key != "location"}
        document["rows"] = [row["label"] for row in document["rows"]]
    key = next((key for key in new if new[key] != old.get(key)), None)
    if key is not None:
        verb = "are" if key.endswith("s") else "is"
        raise RunFolderError(
            f"{folder} holds a bench of another question: its {key} {verb} {_words(old.get(key))}, now "
            f"{_words(new[key])}; give the same command to resume, or choose another --out"
        )
    return folder


def write_table(folder: Folder, table: Table) -> None:
    """Writes the table with roles and canonical forms, for the workers."""
    rows, space = table.frame, table.space
    if space.base is not None:
        rows = rows.assign(**{CANONICAL: list(space.forms)})
    roles = replace(table.roles, architecture=(ARCHITECTURE,), space=space.base.name if space.base else "none")
    write_table_file(Path(folder.path) / TABLE, rows, roles)
    columns = {name: values[table.rows] for name, values in {**table.metrics, **table.costs}.items()}
    names = [table.architectures[row] for row in table.rows]
    folder.write_parquet(POOL, pd.DataFrame({ARCHITECTURE: names, **columns}))


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {entry}" for key, entry in value.items() if entry)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def problem_in(folder: Folder) -> tuple[Table, SearchProblem]:
    """The table of the bench in a folder, and its search problem."""
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


def missing_shares(folder: Folder, question: Question, table: Table) -> list[Share]:
    """The remaining parts of the work."""
    files = set((folder / PARTS).files())
    return [share for share in shares(question, table) if share.file not in files]


def read_parts(folder: Folder, question: Question, table: Table) -> pd.DataFrame:
    """A row per evaluation, in the order of rows, budgets, seeds and suggestion. Raises: RunFolderError."""
    if missing_shares(folder, question, table):
        raise RunFolderError(f"the bench in {folder} has not ended; give its command again to resume it")
    frames = [
        (folder / PARTS).read_parquet(share.file).assign(method=share.entrant.label, budget=share.budget)
        for share in shares(question, table)
    ]
    return pd.concat(frames, ignore_index=True)


ANSWER_COLUMNS = ("seed", "number", "row", "objective", "seconds")


class BenchWorker:
    """Answers shares of the bench in a folder; the table is read once.

    A share's answer has a row per evaluation: `seed`, `number` (from 1, in the order of suggestion), `row` of the
    table (-1 for a failed trial), `objective` (NaN then), and `seconds` of the training run (NaN if the table has
    none).
    """

    def __init__(self, folder: str) -> None:
        self._table, self._problem = problem_in(Folder(folder))
        self._oracle = self._table.oracle()

    def __call__(self, share: Share) -> pd.DataFrame:
        return pd.concat([self._search(share, seed) for seed in share.seeds], ignore_index=True)

    def _search(self, share: Share, seed: int) -> pd.DataFrame:
        from archray.searchers import drive  # Ray Tune, which the tables of a bench do without

        spent = 0.0  # training seconds

        def evaluate(config: dict[str, object]) -> dict[str, float]:
            nonlocal spent
            result = self._oracle(config)
            spent += result.get("seconds", 0.0)
            return result

        def is_over() -> bool:
            return share.seconds is not None and spent >= share.seconds

        problem = self._problem
        searcher = share.entrant.searcher(problem, share.budget, seed)
        frame = drive(searcher, evaluate, metric=problem.objective, mode=problem.mode, stop=is_over)
        answers = pd.DataFrame(
            {
                "seed": seed,
                "number": np.arange(1, len(frame) + 1),
                "row": frame["row"].fillna(-1).astype(int) if "row" in frame else -1,
                "objective": frame["value"],
                "seconds": frame.get("seconds", np.nan),
            },
            columns=list(ANSWER_COLUMNS),
        )
        if share.seconds is not None:  # a training run that ends after the limit does not count
            answers = answers[answers["seconds"].cumsum() <= share.seconds]
        return answers
