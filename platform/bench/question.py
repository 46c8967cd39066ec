"""The question of a bench: its rows, its table, the folder with the answers, and the worker that finds them."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

import archray
from archray.errors import ArchrayError, InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.methods import METHODS, get_method
from archray.platform.methods.method import SearchProblem
from archray.platform.run.heartbeat import holds_nothing
from archray.trainables.proxies import low_is_good
from archray.trainables.spaces.table_space import CANONICAL
from archray.trainables.tabular import OBJECTIVE, Table, read_table
from archray.trainables.tabular.table_file import ARCHITECTURE, is_size, write_table_file

QUESTION, TABLE, POOL, PARTS = "bench.json", "table.parquet", "pool.parquet", "parts"
CHUNKS = 16  # of the seeds of a row, at most: a task each, and a file
RANDOM_SEARCH = "random"  # the row of random search


@dataclass(frozen=True)
class Entrant:
    """A row of a bench.

    Attributes:
        label: its name in tables and on the command line.
        name: of the searcher's method; None for random search and for a column.
        options: of the searcher.
        column: the pool in the order of this column of the table, best first; None for a searcher.
        asked: whether the user named it.
    """

    label: str
    name: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    column: str | None = None
    asked: bool = False

    def searcher(self, problem: SearchProblem, budget: int, seed: int) -> Any:
        """A new Tune searcher. Raises: InvalidInput for wrong options, also for this table."""
        if self.name is None:
            from archray.searchers import MetricFirst, RandomSearch

            if self.column is None:
                return RandomSearch(problem.space, budget, seed=seed)
            order: Literal["largest", "smallest"] = "smallest" if low_is_good(self.column) else "largest"
            return MetricFirst(problem.pool, self.column, budget, order, seed=seed)
        make = get_method(self.name).make_searcher
        assert make is not None  # `entrants` saw to it
        try:
            return make(problem, budget, seed, self.options)
        except TypeError as error:
            unknown = re.search(r"unexpected keyword argument ('\w+')", str(error))
            reason = f"{self.name} has no option {unknown[1]} in a bench; leave it out" if unknown else error
            raise InvalidInput(f"{self.label}: {reason}") from error
        except ArchrayError as error:
            raise InvalidInput(f"{self.label}: {error}") from error

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "options": dict(self.options)}


def entrants(words: Sequence[str], table: Table, proxies: Sequence[str] = ()) -> list[Entrant]:
    """The rows of a bench: the user's methods with their variants; random search; each column first.

    Args:
        words: `METHOD` or `METHOD:OPTION=VALUE,...`.
        proxies: columns for methods that use one and name none.

    Raises: InvalidInput for a method that a table cannot serve, or an unknown column.
    """
    for proxy in proxies:
        table.check_metric(proxy)
    rows = [row for word in words for row in _named(word, table, proxies)]
    rows += [Entrant(RANDOM_SEARCH), *(Entrant(f"{column} first", column=column) for column in columns_of(table))]
    return list({row.label: row for row in reversed(rows)}.values())[::-1]


def columns_of(table: Table) -> dict[str, np.ndarray]:
    """The columns with a row in every bench: costs that measure the size of a network, then every metric."""
    sizes = {name: values for name, values in table.costs.items() if is_size(name)}
    return {**sizes, **table.metrics}


def _named(word: str, table: Table, proxies: Sequence[str]) -> list[Entrant]:
    name, _, text = word.partition(":")
    options = _options(word, text)
    method = METHODS.get(name)
    if method.searcher_at is None:
        names = [other for other in METHODS if METHODS.get(other).searcher_at is not None]
        raise InvalidInput(
            f"{name} cannot run on a table: it trains shared weights, or stops training runs early, and a table has "
            f"results of whole training runs; choose one of {', '.join(names)}"
        )
    variants = [(word, options)]
    if method.by_proxy and "proxy" in options:
        table.check_metric(options["proxy"])
    elif method.by_proxy and proxies:
        variants = [(f"{word}{',' if text else ':'}proxy={proxy}", options | {"proxy": proxy}) for proxy in proxies]
    elif method.by_proxy:
        raise InvalidInput(
            f"{name} uses one training-free metric: name one or several with --proxy, or one as "
            f"{name}:proxy=NAME; the table has {', '.join(table.metrics) or 'none'}"
        )
    rows = []
    for label, values in variants:
        rows.append(Entrant(label, name, values, asked=True))
        rows += [Entrant(f"{label}, {beside}", name, {**values, **more}) for beside, more in method.beside.items()]
    return rows


def _options(word: str, text: str) -> dict[str, Any]:
    """`a=1,b=x` -> `{"a": 1, "b": "x"}`; a value that is JSON is read as such. Raises: InvalidInput."""
    options: dict[str, Any] = {}
    for part in text.split(",") if text else ():
        name, equals, value = part.partition("=")
        if not name or not equals:
            raise InvalidInput(f"expected METHOD or METHOD:OPTION=VALUE,OPTION=VALUE, got {word!r}")
        try:
            options[name.strip()] = json.loads(value)
        except ValueError:
            options[name.strip()] = value
    return options


def is_drawn(entrant: Entrant, table: Table, budget: int) -> bool:
    """Whether a row depends on the seed: all rows except a column without equal values among its first ones."""
    if entrant.column is None:
        return True
    values = columns_of(table)[entrant.column][table.rows]
    values = np.sort(values[~np.isnan(values)])
    first = values[: budget + 1] if low_is_good(entrant.column) else values[-budget - 1 :]
    return len(np.unique(first)) < len(first)


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
