"""A bench from the question to its tables: `archray.bench`."""

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
from archray.trainables.tabular import Table, read_table

SUMMARY, SEARCHES, DIFFERENCES = "summary.csv", "searches.csv", "differences.csv"
MARKDOWN, PAGE = "bench.md", "bench.html"
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
    """Runs methods on a table of results, with many seeds, next to random search and each column first.

    A second call with the same question resumes an interrupted bench, or rewrites the tables of a finished one.

    Args:
        methods: `METHOD` or `METHOD:OPTION=VALUE,...`, such as `evolution`, `hnas:proxy=snip,penalty=absolute`.
        table: a table of `archray bench import`, or a CSV or Parquet with well-known column names.
        out: the folder of the bench, on a disk that every worker reads.
        seeds: searches of each row; the seeds are 0, 1, ....
        budget: evaluations of a search, one number or several for separate searches. Default: 20.
        budget_seconds: training seconds of a search, from the table, instead of a budget.
        proxy: columns for the methods that use one.
        against: the row with which the others are compared, seed by seed.
        where, objective, result: of a table that is not imported, see `read_table`.
        cluster: the Ray to run on.

    Raises: ArchrayError for a wrong argument, before Ray starts; RunInterrupted after Ctrl-C.
    """
    expect("cluster", cluster, ClusterSettings, type(None))
    rows = read_table(table, where, objective=objective, result=result)
    question = ask(methods, rows, table, seeds, budget, budget_seconds, proxy)
    with lock(questions.bench_place(out), "archray bench"):
        folder = begin(question, rows, out, against)
        console = Console()
        if rows.uninformative:
            columns = ", ".join(rows.uninformative)
            console.print(f"left out, the same in every row: {columns}", soft_wrap=True, highlight=False, markup=False)
        if missing := questions.missing_shares(folder, question, rows):
            _answer(folder, missing, cluster or ClusterSettings(dashboard=False, warm_workers=False), console)
        bench_result = BenchResult.read(folder)
        write_tables(bench_result, against)
        return bench_result


def ask(
    methods: Sequence[str],
    table: Table,
    place: str | Path,
    seeds: int,
    budget: int | Sequence[int] | None = None,
    budget_seconds: float | None = None,
    proxy: str | Sequence[str] = (),
) -> Question:
    """The question of a bench. place: the user's name of the table; the other arguments and `Raises`: see `bench`."""
    expect("seeds", seeds, int)
    if not 1 <= seeds <= MOST_SEEDS:
        raise InvalidInput(f"seeds: expected 1 to {MOST_SEEDS:,}, got {seeds}")
    rows = entrants(_texts("methods", methods), table, _texts("proxy", proxy))
    file = table.space.file
    # the identity of the table, wherever it is
    roles = {name: value for name, value in asdict(file.roles).items() if name != "architecture"}
    roles |= {key: list(value) for key, value in roles.items() if isinstance(value, tuple)}
    roles |= {"epochs": {str(epoch): column for epoch, column in file.roles.epochs.items()}}
    roles |= {"seeds": {value: list(columns) for value, columns in file.roles.seeds.items()}}
    identity = {"location": str(place), "checksum": file.checksum, "where": dict(file.where), **roles}
    return Question(identity, tuple(rows), seeds, *_budgets(table, budget, budget_seconds))


def _texts(name: str, value: str | Sequence[str]) -> list[str]:
    """The texts of an argument that is one text or several. Raises: InvalidInput."""
    expect(name, value, str, list, tuple)
    texts = [value] if isinstance(value, str) else list(value)
    for text in texts:
        expect(name, text, str)
    return texts


def begin(question: Question, table: Table, out: str | Path, against: str) -> Folder:
    """The folder of a question, new or with an unfinished bench. Starts nothing.

    Raises: InvalidInput for an unknown row to compare with, or a row whose searcher cannot be made; RunFolderError for
        a folder with other files.
    """
    labels = [entrant.label for entrant in question.entrants]
    if against not in labels:
        raise InvalidInput(f"there is no row {against!r} to compare with; choose one of {', '.join(labels)}")
    with TemporaryDirectory() as scratch:  # an error leaves no folder behind
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
    """The budgets in evaluations, and in seconds. Raises: InvalidInput for a budget that the table cannot serve."""
    rows = len(table.rows)
    expect("budget", budget, int, list, tuple, type(None))
    expect("budget_seconds", seconds, int, float, type(None))
    if seconds is not None:
        if budget is not None:
            raise InvalidInput("expected a budget in evaluations or in training seconds, got both")
        if table.seconds is None:
            raise InvalidInput(
                f"{table.location} has no training times; give a budget in evaluations, or name the column "
                "(archray bench import --seconds COLUMN)"
            )
        longest, shortest = float(table.seconds.max()), float(table.seconds.min())
        if not (math.isfinite(seconds) and seconds >= longest) or shortest <= 0:
            raise InvalidInput(
                f"expected a budget of at least {longest:g} training seconds, the longest training of the table, got "
                f"{seconds:g}"
            )
        return (min(rows, int(np.ceil(seconds / shortest))),), float(seconds)
    budgets = (20,) if budget is None else (budget,) if isinstance(budget, int) else tuple(budget)
    if not budgets or any(not isinstance(size, int) or isinstance(size, bool) or size < 1 for size in budgets):
        raise InvalidInput(f"budget: expected whole numbers of 1 or more, got {budget!r}")
    if max(budgets) > rows:
        raise InvalidInput(
            f"expected a budget of at most {rows}, the {count(rows, 'architecture')} of {table.location} that are "
            f"different networks, got {max(budgets)}"
        )
    return tuple(sorted(set(budgets))), None


def _answer(folder: Folder, missing: Sequence[Share], cluster: ClusterSettings, console: Console) -> None:
    """Does the remaining shares on Ray, and writes a file for each. Raises: RunInterrupted, InvalidInput."""
    import ray

    from archray.cluster.actor_pool import actor_map
    from archray.cluster.connect import connect
    from archray.platform.engine.failed_trials import stops_when_full
    from archray.platform.engine.interrupt import INTERRUPT, stop_gracefully

    remaining = Counter(share.entrant.label for share in missing)
    started = last = time.monotonic()
    searches = sum(len(share.seeds) for share in missing)
    console.print(f"{count(searches, 'search', 'searches')} to do, in {folder}", soft_wrap=True, highlight=False)
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
        with stop_gracefully(console, "the searches under way have ended"), closing(answers):
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
        raise InvalidInput(f"{count(len(errors), 'task')} failed, twice each; the first is {errors[0]}")
    if done < searches:
        raise RunInterrupted(f"stopped with {done} of {count(searches, 'search', 'searches')} done; they are saved")
