"""A bench from the question to its tables: `archray.bench`."""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.console import Console

from archray.cluster.settings import ClusterSettings
from archray.errors import InvalidInput, RunInterrupted, expect
from archray.files import Folder
from archray.platform.bench.entrants import RANDOM_SEARCH, entrants
from archray.platform.bench.folder import (
    PARTS,
    Question,
    Share,
    bench_place,
    open_folder,
    problem_in,
    shares,
    write_table,
)
from archray.platform.bench.result import BenchResult
from archray.platform.run.heartbeat import lock
from archray.plurals import count
from archray.trainables.tabular import Table, read_table

SUMMARY, SEARCHES, DIFFERENCES, MARKDOWN, PAGE = (
    "summary.csv",
    "searches.csv",
    "differences.csv",
    "bench.md",
    "bench.html",
)
MOST_SEEDS = 10**6  # of a row; more searches than a bench has time for
_LINE_SECONDS = 5.0  # between two lines of progress


def bench(
    methods: Sequence[str],
    *,
    table: str | Path,
    out: str | Path,
    seeds: int = 20,
    budget: int | Sequence[int] | None = None,
    budget_seconds: float | None = None,
    proxy: str | Sequence[str] = (),
    against: str = RANDOM_SEARCH,
    where: Mapping[str, str] | None = None,
    objective: str | None = None,
    result: str | None = None,
    cluster: ClusterSettings | None = None,
) -> BenchResult:
    """Runs methods on a table of results, with many seeds, beside random search and each column first.

    Called again with the same question it goes on where it was interrupted; once it has ended it writes its tables
    anew.

    Args:
        methods: `METHOD` or `METHOD:OPTION=VALUE,...`, such as `evolution`, `hnas:proxy=snip,penalty=absolute`.
        table: what `archray bench import` wrote, or a CSV or Parquet whose columns are known by their names.
        out: the folder of the bench, on a disk that every worker reads.
        seeds: searches of each row; the seeds are 0, 1, ....
        budget: evaluations of a search, one number or several; each is a search of its own. Default: 20.
        budget_seconds: training seconds of a search, from the table, in the place of a budget.
        proxy: the columns by which the methods go that go by one.
        against: the row with which the others are compared, seed by seed.
        where, objective, result: of a table that is not imported, see `read_table`.
        cluster: which Ray runs it.

    Raises: ArchrayError for anything that is wrong with these, before Ray starts; RunInterrupted after Ctrl-C.
    """
    expect("cluster", cluster, ClusterSettings, type(None))
    held = read_table(table, where, objective=objective, result=result)
    question = ask(methods, held, table, seeds, budget, budget_seconds, proxy)
    with lock(bench_place(out), "archray bench"):
        folder = begin(question, held, out, against)
        console = Console()
        if held.uninformative:
            columns = ", ".join(held.uninformative)
            console.print(f"left out, the same in every row: {columns}", soft_wrap=True, highlight=False, markup=False)
        missing = _missing(folder, list(shares(question, held)))
        if missing:
            _answer(folder, missing, cluster or ClusterSettings(dashboard=False, warm_workers=False), console)
        told = BenchResult.read(folder)
        write_tables(told, against)
        return told


def ask(
    methods: Sequence[str],
    table: Table,
    place: str | Path,
    seeds: int,
    budget: int | Sequence[int] | None = None,
    budget_seconds: float | None = None,
    proxy: str | Sequence[str] = (),
) -> Question:
    """The question of a bench. place: of the table, as the user named it; the others: see `bench`, as for `Raises`."""
    expect("seeds", seeds, int)
    if not 1 <= seeds <= MOST_SEEDS:
        raise InvalidInput(f"seeds: expected 1 to {MOST_SEEDS:,}, got {seeds}")
    rows = entrants(_texts("methods", methods), table, _texts("proxy", proxy))
    return Question(_identity(table, place), tuple(rows), seeds, *_budgets(table, budget, budget_seconds))


def _texts(name: str, value: str | Sequence[str]) -> list[str]:
    """The texts of an argument that is one text or several. Raises: InvalidInput."""
    expect(name, value, str, list, tuple)
    texts = [value] if isinstance(value, str) else list(value)
    for text in texts:
        expect(name, text, str)
    return texts


def begin(question: Question, table: Table, out: str | Path, against: str) -> Folder:
    """The folder in which a question is answered, new or begun before. Starts nothing.

    Raises: InvalidInput for a row to compare with that there is not, or one whose searcher cannot be made;
        RunFolderError for a folder that holds something else.
    """
    labels = [entrant.label for entrant in question.entrants]
    if against not in labels:
        raise InvalidInput(f"there is no row {against!r} to compare with; choose one of {', '.join(labels)}")
    with TemporaryDirectory() as scratch:  # what is refused here leaves no folder behind
        tried = Folder(scratch)
        write_table(tried, table)
        _check_searchers(tried, question)
    return open_folder(out, question, table)


def write_tables(result: BenchResult, against: str) -> None:
    """Writes the tables and the page of a bench into its folder."""
    from archray.platform.bench.page import bench_page, markdown

    for name, frame in (
        (SUMMARY, result.summary()),
        (SEARCHES, result.searches),
        (DIFFERENCES, result.differences(against)),
    ):
        result.folder.write_bytes(name, frame.to_csv(index=False).encode())
    result.folder.write_bytes(MARKDOWN, markdown(result, against).encode())
    result.folder.write_bytes(PAGE, bench_page(result, against).encode())


def _budgets(
    table: Table, budget: int | Sequence[int] | None, seconds: float | None
) -> tuple[tuple[int, ...], float | None]:
    """The budgets in evaluations, and in seconds. Raises: InvalidInput for those that the table cannot answer."""
    rows = len(table.rows)
    expect("budget", budget, int, list, tuple, type(None))
    expect("budget_seconds", seconds, int, float, type(None))
    if seconds is not None:
        if budget is not None:
            raise InvalidInput("expected a budget in evaluations or in training seconds, got both")
        if table.seconds is None:
            raise InvalidInput(
                f"{table.location} says of no training how long it took; give a budget in evaluations, or name the "
                "column (archray bench import --seconds COLUMN)"
            )
        longest, shortest = float(table.seconds.max()), float(table.seconds.min())
        if not (math.isfinite(seconds) and seconds >= longest) or shortest <= 0:
            raise InvalidInput(
                f"expected a budget of at least {longest:g} training seconds, the longest training of the table, got "
                f"{seconds:g}"
            )
        return (min(rows, int(np.ceil(seconds / shortest))),), float(seconds)
    budgets = (20,) if budget is None else (budget,) if isinstance(budget, int) else tuple(budget)
    if not budgets or any(not isinstance(each, int) or isinstance(each, bool) or each < 1 for each in budgets):
        raise InvalidInput(f"budget: expected whole numbers of 1 or more, got {budget!r}")
    if max(budgets) > rows:
        raise InvalidInput(
            f"expected a budget of at most {rows}, the {count(rows, 'architecture')} of {table.location} that are "
            f"different networks, got {max(budgets)}"
        )
    return tuple(sorted(set(budgets))), None


def _identity(table: Table, place: str | Path) -> dict[str, Any]:
    """What tells that a table is the same, wherever it lies."""
    file = table.space.file
    roles = {name: value for name, value in asdict(file.roles).items() if name != "architecture"}
    roles |= {key: list(value) for key, value in roles.items() if isinstance(value, tuple)}
    roles |= {"epochs": {str(epoch): column for epoch, column in file.roles.epochs.items()}}
    roles |= {"seeds": {value: list(columns) for value, columns in file.roles.seeds.items()}}
    return {"location": str(place), "checksum": file.checksum, "where": dict(file.where), **roles}


def _check_searchers(folder: Folder, question: Question) -> None:
    """Raises: InvalidInput for a row whose searcher cannot be made for this table."""
    _, problem = problem_in(folder)
    for budget in question.budgets:
        for entrant in question.entrants:
            entrant.searcher(problem, budget, 0)


def _missing(folder: Folder, pieces: Sequence[Share]) -> list[Share]:
    have = set((folder / PARTS).files())
    return [share for share in pieces if share.file not in have]


def _answer(folder: Folder, missing: Sequence[Share], cluster: ClusterSettings, console: Console) -> None:
    """Does what is missing, on Ray; a file for each piece as it comes. Raises: RunInterrupted, InvalidInput."""
    import ray

    from archray.cluster.actor_pool import actor_map
    from archray.cluster.connect import connect
    from archray.platform.bench.worker import BenchWorker
    from archray.platform.engine.failed_trials import stops_when_full
    from archray.platform.engine.interrupt import INTERRUPT, stop_gracefully

    left = Counter(share.entrant.label for share in missing)
    started = last = time.monotonic()
    searches = sum(len(share.seeds) for share in missing)
    console.print(f"{count(searches, 'search', 'searches')} to do, in {folder}", soft_wrap=True, highlight=False)
    done, errors = 0, []
    with stops_when_full(folder), connect(cluster, announce=lambda line: console.print(line, soft_wrap=True)):
        answers = actor_map(
            BenchWorker,
            list(missing),
            worker_kwargs={"folder": str(folder)},
            num_actors=max(1, min(int(ray.cluster_resources().get("CPU", 1)), len(missing))),
            chunk_size=1,
            num_cpus=1,
            stop=lambda: INTERRUPT.requested,
        )
        with stop_gracefully(console, "the searches under way have ended"), closing(answers):
            for outcome in (outcome for outcomes in answers for outcome in outcomes):
                share: Share = outcome.item
                if outcome.error is not None:
                    errors.append(f"{share.entrant.label}, seed {share.seeds[0]}: {outcome.error.splitlines()[0]}")
                    continue
                (folder / PARTS).write_parquet(share.file, outcome.value)
                done += len(share.seeds)
                left[share.entrant.label] -= 1
                now = time.monotonic()
                if not left[share.entrant.label] or now - last > _LINE_SECONDS:
                    last = now
                    console.print(
                        f"    {done}/{searches}  {now - started:.0f} s  {share.entrant.label}"
                        + ("" if left[share.entrant.label] else " done"),
                        soft_wrap=True,
                        highlight=False,
                        markup=False,
                    )
    if errors:
        raise InvalidInput(f"{count(len(errors), 'task')} failed, twice each; the first is {errors[0]}")
    if done < searches:
        raise RunInterrupted(f"stopped with {done} of {count(searches, 'search', 'searches')} done; they are saved")
