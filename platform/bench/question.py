"""The question of a bench: its rows, its table, the folder of its results, and the worker that computes them."""

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
CHUNKS = 16  # maximum chunks of a row's seeds; each chunk is a task with one file
RANDOM_SEARCH = "random"  # the row of random search


@dataclass(frozen=True)
class Entrant:
    """A row of a bench.

    Attributes:
        label: name in tables and on the command line.
        name: method of the searcher; None for random search and for a column.
        options: options of the searcher.
        column: column of the table whose order, best first, the row follows; None for a searcher.
        asked: whether the user requested the row.
    """

    label: str
    name: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    column: str | None = None
    asked: bool = False

    def searcher(self, problem: SearchProblem, budget: int, seed: int) -> Any:
        """Creates a Tune searcher. Raises: InvalidInput for options that are wrong or do not fit the table."""
        if self.name is None:
            from archray.searchers import MetricFirst, RandomSearch

            if self.column is None:
                return RandomSearch(problem.space, budget, seed=seed)
            order: Literal["largest", "smallest"] = "smallest" if low_is_good(self.column) else "largest"
            return MetricFirst(problem.pool, self.column, budget, order, seed=seed)
        make = get_method(self.name).make_searcher
        assert make is not None  # `entrants` checked it
        try:
            return make(problem, budget, seed, self.options)
        except TypeError as error:
            unknown = re.search(r"unexpected keyword argument ('\w+')", str(error))
            reason = f"{self.name} has no option {unknown[1]} in a bench. Leave it out" if unknown else error
            raise InvalidInput(f"{self.label}: {reason}") from error
        except ArchrayError as error:
            raise InvalidInput(f"{self.label}: {error}") from error

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "options": dict(self.options)}


def entrants(words: Sequence[str], table: Table, proxies: Sequence[str] = ()) -> list[Entrant]:
    """Returns the rows of a bench: the user's methods with their variants, random search, and each column first.

    Args:
        words: `METHOD` or `METHOD:OPTION=VALUE,...`.
        proxies: columns for methods that use a metric and do not name one.

    Raises: InvalidInput for a method that cannot search a table, or an unknown column.
    """
    for proxy in proxies:
        table.check_metric(proxy)
    rows = [row for word in words for row in _named(word, table, proxies)]
    rows += [Entrant(RANDOM_SEARCH), *(Entrant(f"{column} first", column=column) for column in columns_of(table))]
    return list({row.label: row for row in reversed(rows)}.values())[::-1]


def columns_of(table: Table) -> dict[str, np.ndarray]:
    """Returns the columns with a row in every bench: costs that measure the size of a network, then all metrics."""
    sizes = {name: values for name, values in table.costs.items() if is_size(name)}
    return {**sizes, **table.metrics}


def _named(word: str, table: Table, proxies: Sequence[str]) -> list[Entrant]:
    name, _, text = word.partition(":")
    options = _options(word, text)
    method = METHODS.get(name)
    if method.searcher_at is None:
        names = [other for other in METHODS if METHODS.get(other).searcher_at is not None]
        raise InvalidInput(
            f"{name} cannot search a table: it trains shared weights or stops training runs early, but a table has "
            f"results of complete training runs. Choose one of {', '.join(names)}"
        )
    variants = [(word, options)]
    if method.by_proxy and "proxy" in options:
        table.check_metric(options["proxy"])
    elif method.by_proxy and proxies:
        variants = [(f"{word}{',' if text else ':'}proxy={proxy}", options | {"proxy": proxy}) for proxy in proxies]
    elif method.by_proxy:
        raise InvalidInput(
            f"{name} needs a training-free metric. Name one or several with --proxy, or one as "
            f"{name}:proxy=NAME. Metrics of the table: {', '.join(table.metrics) or 'none'}"
        )
    rows = []
    for label, values in variants:
        rows.append(Entrant(label, name, values, asked=True))
        rows += [Entrant(f"{label}, {suffix}", name, {**values, **more}) for suffix, more in method.variants.items()]
    return rows


def _options(word: str, text: str) -> dict[str, Any]:
    """Parses `a=1,b=x` to `{"a": 1, "b": "x"}`; values are read as JSON if possible. Raises: InvalidInput."""
    options: dict[str, Any] = {}
    for part in text.split(",") if text else ():
        name, equals, value = part.partition("=")
        if not name or not equals:
            raise InvalidInput(f"expected METHOD or METHOD:OPTION=VALUE,OPTION=VALUE, got {word!r}")
        try:
            options[name.strip()] = json.loads(value)
        except (ValueError, RecursionError):  # RecursionError: thousands of brackets
            options[name.strip()] = value
    return options


def is_drawn(entrant: Entrant, table: Table, budget: int) -> bool:
    """Returns whether a row depends on the seed; only a column without ties among its first values does not."""
    if entrant.column is None:
        return True
    values = columns_of(table)[entrant.column][table.rows]
    values = np.sort(values[~np.isnan(values)])
    first = values[: budget + 1] if low_is_good(entrant.column) else values[-budget - 1 :]
    return len(np.unique(first)) < len(first)


@dataclass(frozen=True)
class Question:
    """The question of a bench. Equal questions have equal results.

    Attributes:
        table: location and identity of the table: its checksum and the roles of its columns.
        entrants: rows of the bench.
        seeds: number of seeds, 0 to seeds - 1.
        budgets: maximum numbers of evaluations, ascending; each is a separate search with this budget.
        seconds: maximum training seconds according to the table; None: unlimited.
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
        """Reads the question of a bench. Raises: RunFolderError if the folder contains no bench."""
        if not folder.exists(QUESTION):
            raise RunFolderError(f"expected the folder of a bench, got {folder}, which contains none")
        question = folder.read_json(QUESTION)
        rows = tuple(Entrant(**row) for row in question["rows"])
        return cls(question["table"], rows, question["seeds"], tuple(question["budgets"]), question["seconds"])


@dataclass(frozen=True)
class Share:
    """A part of the work: some seeds of one row at one budget."""

    place: int  # index of the row
    entrant: Entrant
    budget: int
    seconds: float | None
    seeds: tuple[int, ...]

    @property
    def file(self) -> str:
        name = re.sub(r"[^A-Za-z0-9]+", "-", self.entrant.label).strip("-")[:40]
        return f"{self.place:02d}-{name}-{self.budget}-{self.seeds[0]:05d}.parquet"


def shares(question: Question, table: Table) -> Iterator[Share]:
    """Yields all parts of the work; a row that does not depend on the seed has one search."""
    size = -(-question.seeds // CHUNKS)
    for budget in question.budgets:
        for place, entrant in enumerate(question.entrants):
            seeds = range(question.seeds if is_drawn(entrant, table, budget) else 1)
            for first in range(0, len(seeds), size):
                chosen = tuple(seeds[first : first + size])
                yield Share(place, entrant, budget, question.seconds, chosen)


def bench_place(place: str | Path) -> Folder:
    """Returns the folder of a bench. Raises: InvalidInput for an object store; RunFolderError for other content."""
    folder = Folder(place)
    if folder.local_path() is None:
        raise InvalidInput(f"expected a folder on a disk that every worker can read, got {place}")
    if not folder.exists(QUESTION) and not holds_nothing(folder):
        raise RunFolderError(f"expected a new folder or a bench, got {folder} with other files. Choose another --out")
    return folder


def open_folder(place: str | Path, question: Question, table: Table) -> Folder:
    """Opens the folder of a bench: a new folder, or a folder with a bench of the same question.

    Raises: RunFolderError with the first difference if it contains another bench, or for other files.
    """
    folder = bench_place(place)
    if not folder.exists(QUESTION):
        folder.create()
        write_table(folder, table)
        folder.write_json(QUESTION, question.to_json())  # last: this file marks the folder of a bench
        return folder
    old, new = folder.read_json(QUESTION), question.to_json()
    for document in (old, new):
        document["table"] = {key: value for key, value in document["table"].items() if key != "location"}
        document["rows"] = [row["label"] for row in document["rows"]]
    key = next((key for key in new if new[key] != old.get(key)), None)
    if key is not None:
        verb = "are" if key.endswith("s") else "is"
        raise RunFolderError(
            f"{folder} contains another bench: its {key} {verb} {_words(old.get(key))}, now {_words(new[key])}. Run "
            "the same command to resume it, or choose another --out"
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
    """Returns the table of the bench in a folder, and its search problem."""
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
    """Returns the remaining parts of the work."""
    files = set((folder / PARTS).files())
    return [share for share in shares(question, table) if share.file not in files]


def read_parts(folder: Folder, question: Question, table: Table) -> pd.DataFrame:
    """Reads a row per evaluation, in the order of rows, budgets, seeds and suggestion. Raises: RunFolderError."""
    if missing_shares(folder, question, table):
        raise RunFolderError(
            f"expected a finished bench, got {folder}, which has not ended. Run its command again to resume it"
        )
    frames = [
        (folder / PARTS).read_parquet(share.file).assign(method=share.entrant.label, budget=share.budget)
        for share in shares(question, table)
    ]
    return pd.concat(frames, ignore_index=True)


ANSWER_COLUMNS = ("seed", "number", "row", "objective", "seconds")


class BenchWorker:
    """Computes shares of the bench in a folder; reads the table once.

    The result of a share has a row per evaluation: `seed`, `number` (from 1, in the order of suggestion), `row` of the
    table (-1 for a failed trial), `objective` (NaN for a failed trial), and `seconds` of the training run (NaN if the
    table has no times).
    """

    def __init__(self, folder: str) -> None:
        self._table, self._problem = problem_in(Folder(folder))
        self._oracle = self._table.oracle()

    def __call__(self, share: Share) -> pd.DataFrame:
        return pd.concat([self._search(share, seed) for seed in share.seeds], ignore_index=True)

    def _search(self, share: Share, seed: int) -> pd.DataFrame:
        from archray.searchers import drive  # Ray Tune, which the tables of a bench do not need

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
