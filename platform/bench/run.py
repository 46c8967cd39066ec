"""`archray.bench`: run a bench, and write its tables."""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.console import Console

from archray.cluster.settings import ClusterSettings
from archray.errors import InvalidInput, RunInterrupted, expect
from archray.files import Folder
from archray.platform.bench import question as questions
from archray.platform.bench.question import RANDOM_SEARCH, Question, Share, entrants
from archray.platform.bench.result import BenchResult
from archray.platform.run.heartbeat import lock
from archray.plurals import count
from archray.settings import LARGEST
from archray.trainables.tabular import Table, read_table

SUMMARY, SEARCHES, DIFFERENCES = "summary.csv", "searches.csv", "differences.csv"
MARKDOWN, PAGE = "bench.md", "bench.html"
MOST_SEEDS = 10**6  # maximum seeds per row; a bench has no time for more searches
_LINE_SECONDS = 5.0  # minimum time between two progress lines


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
    """Compares methods on a table of results with many seeds, and with the baselines random search and column first.

    A second call with the same question resumes an interrupted bench, or rewrites the tables of a finished bench.

    Args:
        methods: `METHOD` or `METHOD:OPTION=VALUE,...`, such as `evolution`, `hnas:proxy=snip,penalty=absolute`.
        table: table written by `archray bench import`, or CSV or Parquet with known column names.
        out: folder of the bench, on a disk that every worker can read.
        seeds: number of searches per row, with seeds 0, 1, ....
        budget: evaluations per search, at most the networks of the table; several numbers give separate searches.
            Default: 20.
        budget_seconds: training seconds per search according to the table, instead of `budget`.
        proxy: metric columns for the methods that use one metric.
        against: row that the other rows are compared with, seed by seed.
        where, objective, result: see `read_table`; for a table that is not imported.
        cluster: Ray cluster to run on.

    Returns: the finished bench.
    Raises: ArchrayError for a wrong argument, before Ray starts; RunInterrupted after Ctrl-C.

    Example:
        ```python
        result = archray.bench(["evolution", "hnas"], table="nb201.parquet", out="bench", seeds=20, budget=[20, 100])
        print(result.summary())
        print(result.differences("random"))
        ```
    """
    expect("cluster", cluster, ClusterSettings, type(None))
    rows = read_table(table, where, objective=objective, result=result)
    question = make_question(methods, rows, table, seeds, budget, budget_seconds, proxy)
    with lock(questions.bench_place(out), "archray bench"):
        folder = begin(question, rows, out, against)
        console = Console()
        largest = 0 if budget_seconds is not None else max(_requested(budget))
        if largest > question.budgets[-1]:
            line = f"budget {question.budgets[-1]:,} (requested: {largest:,}): {rows.location} has no other network"
            console.print(line, soft_wrap=True, highlight=False, markup=False)
        if rows.uninformative:
            columns = ", ".join(rows.uninformative)
            console.print(f"ignoring constant columns: {columns}", soft_wrap=True, highlight=False, markup=False)
        if missing := questions.missing_shares(folder, question, rows):
            _answer(folder, missing, cluster or ClusterSettings(dashboard=False, warm_workers=False), console)
        bench_result = BenchResult.read(folder)
        write_tables(bench_result, against)
        return bench_result


def make_question(
    methods: Sequence[str],
    table: Table,
    place: str | Path,
    seeds: int,
    budget: int | Sequence[int] | None = None,
    budget_seconds: float | None = None,
    proxy: str | Sequence[str] = (),
) -> Question:
    """Builds the question of a bench.

    Args:
        place: the user's name of the table.
        methods, table, seeds, budget, budget_seconds, proxy: see `bench`.

    Raises: the errors of `bench` for a wrong argument.
    """
    expect("seeds", seeds, int)
    if not 1 <= seeds <= MOST_SEEDS:
        raise InvalidInput(f"seeds: expected 1 to {MOST_SEEDS:,}, got {seeds}")
    rows = entrants(_texts("methods", methods), table, _texts("proxy", proxy))
    file = table.space.file
    # the identity of the table, independent of its location
    roles = {name: value for name, value in asdict(file.roles).items() if name != "architecture"}
    roles |= {key: list(value) for key, value in roles.items() if isinstance(value, tuple)}
    roles |= {"epochs": {str(epoch): column for epoch, column in file.roles.epochs.items()}}
    roles |= {"seeds": {value: list(columns) for value, columns in file.roles.seeds.items()}}
    identity = {"location": str(place), "checksum": file.checksum, "where": dict(file.where), **roles}
    return Question(identity, tuple(rows), seeds, *_budgets(table, budget, budget_seconds))


def _texts(name: str, value: str | Sequence[str]) -> list[str]:
    """Returns the texts of an argument that is one text or a sequence of texts. Raises: InvalidInput."""
    expect(name, value, str, list, tuple)
    texts = [value] if isinstance(value, str) else list(value)
    for text in texts:
        expect(name, text, str)
    return texts


def begin(question: Question, table: Table, out: str | Path, against: str) -> Folder:
    """Checks all rows, and opens the folder of a question, without starting the bench.

    Raises: InvalidInput for an unknown row to compare with, or a row whose searcher cannot be created; RunFolderError
        for a folder with other files.
    """
    labels = [entrant.label for entrant in question.entrants]
    if against not in labels:
        raise InvalidInput(f"against: expected one of the rows {', '.join(labels)}, got {against!r}")
    with TemporaryDirectory() as scratch:  # after an error, no folder remains
        questions.write_table(Folder(scratch), table)
        _, problem = questions.problem_in(Folder(scratch))
        for budget, entrant in product(question.budgets, question.entrants):
            entrant.searcher(problem, budget, 0)
    return questions.open_folder(out, question, table)


def write_tables(result: BenchResult, against: str) -> None:
    """Writes the tables and the page of a bench into its folder."""
    from archray.platform.bench.page import bench_page, markdown

    tables = {SUMMARY: result.summary(), SEARCHES: result.searches, DIFFERENCES: result.differences(against)}
    for name, frame in tables.items():
        result.folder.write_bytes(name, frame.to_csv(index=False).encode())
    result.folder.write_bytes(MARKDOWN, markdown(result, against).encode())
    result.folder.write_bytes(PAGE, bench_page(result, against).encode())


def _budgets(
    table: Table, budget: int | Sequence[int] | None, seconds: float | None
) -> tuple[tuple[int, ...], float | None]:
    """Returns the budgets in evaluations and in seconds. Raises: InvalidInput for an invalid budget."""
    rows = len(table.rows)
    expect("budget", budget, int, list, tuple, type(None))
    expect("budget_seconds", seconds, int, float, type(None))
    if seconds is not None:
        if budget is not None:
            raise InvalidInput("expected a budget in evaluations or in training seconds, got both")
        if table.seconds is None:
            raise InvalidInput(
                f"{table.location} has no training times. Set a budget in evaluations, or name the column "
                "(archray bench import --seconds COLUMN)"
            )
        longest, shortest = float(table.seconds.max()), float(table.seconds.min())
        if not (math.isfinite(seconds) and seconds >= longest) or shortest <= 0:
            raise InvalidInput(
                f"expected a budget of at least {longest:g} training seconds, the longest training run in the table, "
                f"got {seconds:g}"
            )
        return (min(rows, int(np.ceil(seconds / shortest))),), float(seconds)
    return tuple(sorted({min(size, rows) for size in _requested(budget)})), None


def _requested(budget: int | Sequence[int] | None) -> tuple[int, ...]:
    """Returns the budgets in evaluations, which may be larger than a table. Raises: InvalidInput."""
    budgets = (20,) if budget is None else (budget,) if isinstance(budget, int) else tuple(budget)
    if not budgets or any(not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= LARGEST for n in budgets):
        raise InvalidInput(f"budget: expected positive integers up to {LARGEST:,}, got {budget!r}")
    return budgets


def _answer(folder: Folder, missing: Sequence[Share], cluster: ClusterSettings, console: Console) -> None:
    """Computes the remaining shares on Ray, and writes a file for each. Raises: RunInterrupted, InvalidInput."""
    import ray

    from archray.cluster.actor_pool import actor_map
    from archray.cluster.connect import connect
    from archray.platform.durable.failed_trials import stops_when_full
    from archray.platform.durable.interrupt import INTERRUPT, stop_gracefully

    remaining = Counter(share.entrant.label for share in missing)
    started = last = time.monotonic()
    searches = sum(len(share.seeds) for share in missing)
    console.print(f"running {count(searches, 'search', 'searches')} in {folder}", soft_wrap=True, highlight=False)
    done, errors = 0, []
    with stops_when_full(folder), connect(cluster, announce=lambda line: console.print(line, soft_wrap=True)):
        answers = actor_map(
            questions.BenchWorker,
            list(missing),
            worker_kwargs={"folder": str(folder)},
            num_actors=max(1, min(int(ray.cluster_resources().get("CPU", 1)), len(missing))),
            chunk_size=1,
            num_cpus=1,
            stop=lambda: INTERRUPT.requested,
        )
        with stop_gracefully(console, "the running searches have ended"), closing(answers):
            for outcome in (outcome for outcomes in answers for outcome in outcomes):
                share: Share = outcome.item
                if outcome.error is not None:
                    errors.append(f"{share.entrant.label}, seed {share.seeds[0]}: {outcome.error.splitlines()[0]}")
                    continue
                (folder / questions.PARTS).write_parquet(share.file, outcome.value)
                done += len(share.seeds)
                remaining[share.entrant.label] -= 1
                now, finished = time.monotonic(), not remaining[share.entrant.label]
                if finished or now - last > _LINE_SECONDS:
                    last = now
                    line = f"    {done}/{searches}  {now - started:.0f} s  {share.entrant.label}{' done' * finished}"
                    console.print(line, soft_wrap=True, highlight=False, markup=False)
    if errors:
        raise InvalidInput(f"{count(len(errors), 'task')} failed twice. The first error: {errors[0]}")
    if done < searches:
        raise RunInterrupted(f"stopped after {done} of {count(searches, 'search', 'searches')}; the results are saved")
