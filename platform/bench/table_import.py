"""`archray bench import`: shared tables, joined and given roles, as one Parquet file.

Of NAS-Bench-1Shot1's tables only the first row of each adjacency is left: the cells follow from the order of the rows.
The package `nats-bench` (Dong et al. 2021) reads NATS-Bench's official files.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from archray.errors import InvalidInput, InvalidTable, MissingExtra
from archray.files import new_file
from archray.plurals import count
from archray.trainables.spaces import SPACES, NASBench1Shot1, get_space
from archray.trainables.spaces.encodings import NONE
from archray.trainables.spaces.nasbench1shot1 import OPERATIONS, PADDED, PADDING
from archray.trainables.spaces.table_space import CANONICAL, DECISIONS
from archray.trainables.tabular.table import Table, read_table
from archray.trainables.tabular.table_file import (
    ARCHITECTURE,
    ARCHITECTURES,
    INDEX,
    absolute,
    how_to_tell_apart,
    numbers,
    read_frame,
    select,
    table_file,
    write_table_file,
)

if TYPE_CHECKING:
    import pandas as pd

MATRIX = "adj_matrix"
NODES = tuple(f"node{node}" for node in range(1, PADDED - 1))
COLUMNS = (*NODES, MATRIX)
VALUES = ("val1", "val2", "val3", "test1", "test2", "test3")

Matrix = NDArray[np.int64]


def has_cut_matrices(columns: Sequence[str]) -> bool:
    """Whether a table has the columns of these tables."""
    return set(COLUMNS) <= set(columns)


def cells_by_order(frame: pd.DataFrame, space: NASBench1Shot1, location: str) -> list[str]:
    """The string of each row's cell, of a table whose rows are in the order in which the authors' program lists them.

    The order is not believed but checked: the operations of every row, and the edges from the input, must be those of
    the cell; and where the table has the six errors of each cell, isomorphic cells, which NAS-Bench-101 trained as one,
    must have equal ones, and other cells others. Raises: InvalidTable if they have not.
    """
    cells = [(matrix, operations) for matrix in matrices(space) for operations in _operations(matrix)]
    told = [(*row[:-1], row[-1].split()) for row in frame[list(COLUMNS)].itertuples(index=False, name=None)]
    expected = [(*operations, _first_row(matrix).split()) for matrix, operations in cells]
    wrong = next((row for row, (a, b) in enumerate(itertools.zip_longest(told, expected)) if a != b), None)
    if wrong is not None:
        raise InvalidTable(
            f"{location}: row {wrong} (from 0) is not what the order of the {count(len(expected), 'cell')} of "
            f"{space.name} says, so that a matrix's first row does not tell which cell it is of; take the rows as a "
            "space of their own (--architecture row)"
        )
    named = [space.encode(space.canonical(_architecture(space, *cell))) for cell in cells]
    if set(VALUES) <= set(frame.columns):
        pairs = set(zip(named, frame[list(VALUES)].itertuples(index=False, name=None), strict=True))
        if not len(pairs) == len(set(named)) == len({values for _, values in pairs}):
            raise InvalidTable(
                f"{location}: isomorphic cells have different errors, or different cells the same, so that the rows "
                "are not in the order of the cells; take them as a space of their own (--architecture row)"
            )
    return named


def matrices(space: NASBench1Shot1) -> list[Matrix]:
    """The (n + 2, n + 2) matrices of the space without loose ends, once each, in the order of the authors' program."""
    output = len(space.parents)
    parents = (0, *space.parents)
    listed: dict[bytes, Matrix] = {}

    def complete(matrix: Matrix) -> bool:
        used = [node for node in range(1, output) if matrix[node].any()]
        return all(matrix[:, node].sum() == parents[node] for node in (*used, output))

    def grow(matrix: Matrix, node: int) -> Iterator[Matrix]:
        if complete(matrix):
            yield matrix
            return
        missing = parents[node] - int(matrix[:, node].sum())
        for chosen in itertools.combinations(range(node), missing):
            grown = matrix.copy()
            for parent in chosen:  # one after the other: what hangs on the first is listed without the second
                grown[parent, node] = 1
                yield from grow(grown, parent)

    for matrix in grow(np.zeros((output + 1, output + 1), dtype=np.int64), output):
        listed.setdefault(matrix.tobytes(), matrix)
    return list(listed.values())


def _operations(matrix: Matrix) -> Iterator[tuple[str, ...]]:
    """The operations of the five nodes in the table's order: the first live node's varies fastest."""
    live = [node for node in range(1, len(matrix) - 1) if matrix[node].any()]
    for chosen in itertools.product(OPERATIONS, repeat=len(live)):
        of_node = dict(zip(reversed(live), chosen, strict=True))
        yield tuple(of_node.get(node, PADDING) for node in range(1, PADDED - 1))


def _first_row(matrix: Matrix) -> str:
    """As the tables print it: the edges from the input to nodes 1 to 5 and the output."""
    padded = [*matrix[0][:-1], *[0] * (PADDED - len(matrix)), matrix[0][-1]]
    return f"[{' '.join(f'{edge}.' for edge in padded)}]"


def _architecture(space: NASBench1Shot1, matrix: Matrix, operations: Sequence[str]) -> tuple[str, ...]:
    """A loose end, which has no parents in the matrix, gets its first ones."""
    parents = [
        [int(parent) for parent in np.flatnonzero(matrix[:, node])] or list(range(number))
        for node, number in enumerate(space.parents, 1)
    ]
    return space.architecture(operations[: len(space.nodes)], parents)


DATASETS = ("cifar10", "cifar100", "ImageNet16-120")
SHORT = "12"  # epochs of the training that a search is told of, as in thesis 7.5 (note H4)


def nats_bench_rows(place: str | Path, dataset: str = "cifar10") -> pd.DataFrame:
    """A row for each architecture of NATS-Bench's topology space, or of its size space if `sss` is in the file's name.

    Args:
        place: a folder of the simple kind, `NATS-tss-v1_0-3ffb9-simple` (one file for each architecture, read one by
            one), or one `.pickle.pbz2` file with all. They are pickles: read only what you trust.
        dataset: `cifar10`, `cifar100` or `ImageNet16-120`.

    Returns: `index`, `architecture`; for each training there is, of 12 and 200 epochs or 1, 12 and 90, `valid_12` and
    `test_12`, their means over the trainings; `valid_12_seed0`, ... of each training; `seconds_12`, of the training and
    one evaluation; `valid_12@1` to `valid_12@12`, after each epoch; `params` (M), `flops` (M), `latency` (s).
    CIFAR-10's validation accuracies are of trainings on half of its training images, as the benchmark has it.

    Raises: MissingExtra without the package; InvalidInput for another data set; InvalidTable for files that cannot
        be read.
    """
    import pandas as pd

    if dataset not in DATASETS:
        raise InvalidInput(f"NATS-Bench has no data set {dataset!r}; choose one of {', '.join(DATASETS)}")
    path = Path(place).expanduser()
    if not path.exists():
        raise InvalidTable(f"there is no file and no folder {path}; give NATS-Bench's, see its README for the download")
    package = _package()
    space = "size" if "sss" in path.name else "topology"
    try:
        api = package.create(str(path), space, fast_mode=path.is_dir(), verbose=False)
        rows = [_row(api, index, dataset) for index in range(len(api))]
    except (OSError, AssertionError, ValueError, KeyError, EOFError) as error:
        raise InvalidTable(f"{path} cannot be read as NATS-Bench's {space} space ({error!r})") from error
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def _package() -> ModuleType:
    try:
        import nats_bench
    except ImportError as error:
        raise MissingExtra(
            f"NATS-Bench's files are read by its package, which is not installed ({error}): "
            "pip install 'archray[nats-bench]'"
        ) from error
    return nats_bench


def _row(api: Any, index: int, dataset: str) -> dict[str, Any]:
    """Everything of one architecture, which is then forgotten: all of them are some gigabytes."""
    told: dict[str, Any] = {"index": index, "architecture": api.arch(index)}
    searched = "cifar10-valid" if dataset == "cifar10" else dataset  # what the validation accuracies are of
    api.get_more_info(index, searched, hp=SHORT, is_random=False)  # reads the architecture's file
    for hp in sorted(api.arch2infos_dict[index], key=int):
        results, epochs = api.arch2infos_dict[index][hp], int(hp)
        told[f"valid_{epochs}"] = _accuracy(results, searched, "x-valid")
        told[f"test_{epochs}"] = _accuracy(results, dataset, "ori-test" if dataset == "cifar10" else "x-test")
        for number, seed in enumerate(results.dataset_seed.get(searched, ())):
            told[f"valid_{epochs}_seed{number}"] = _accuracy(results, searched, "x-valid", seed=seed)
        told[f"seconds_{epochs}"] = _seconds(results, searched)
        if hp == SHORT:
            for epoch in range(1, epochs + 1):
                told[f"valid_{epochs}@{epoch}"] = _accuracy(results, searched, "x-valid", epoch=epoch)
    costs = api.get_cost_info(index, searched, hp=SHORT)
    told |= {name: np.nan if costs[name] is None else costs[name] for name in ("params", "flops", "latency")}
    if api.fast_mode:
        del api.arch2infos_dict[index]
        api.evaluated_indexes.discard(index)
    return told


def _accuracy(results: Any, dataset: str, split: str, epoch: int | None = None, seed: int | None = None) -> float:
    """Percent; the mean over trainings, or that of one; NaN where the benchmark has none."""
    try:
        metrics = results.get_metrics(
            dataset, split, iepoch=None if epoch is None else epoch - 1, is_random=False if seed is None else seed
        )
    except (KeyError, ValueError):
        return float("nan")
    return float(metrics["accuracy"])


def _seconds(results: Any, dataset: str) -> float:
    """Of the training and one evaluation, as the package's `simulate_train_eval` counts; NaN where it has no times."""
    try:
        train = results.get_metrics(dataset, "train", is_random=False)
        valid = results.get_metrics(dataset, "x-valid", is_random=False)
    except (KeyError, ValueError):
        return float("nan")
    if train["all_time"] is None or valid["all_time"] is None:
        return float("nan")
    return float(train["all_time"] + valid["all_time"] / (valid["iepoch"] + 1))


Missing = Literal["refuse", "drop"]
KEYS = (INDEX, *ARCHITECTURES)  # columns that tables are joined on
OF_SCORING = ("failure", "seconds")  # of a pool that `archray proxies` wrote: of the scoring, not of a training


def import_table(
    file: str | Path,
    out: str | Path | None = None,
    *,
    where: Mapping[str, str] | None = None,
    join: Sequence[str | Path] = (),
    on: str | None = None,
    missing: Missing = "refuse",
    **roles: Any,
) -> Table:
    """Writes a table with what its columns are for, its rows checked, its networks' canonical forms found.

    Args:
        file: CSV (also .csv.gz) or Parquet; a path or a pyarrow URI.
        out: the Parquet file to write, new; by default the name of `file` with `.parquet`, in the current folder.
        where: of each file that has such a column only the rows in which it has this value, `{"task": "jigsaw"}`.
        join: further tables of the same architectures, whose columns go beside those of `file`. A column that both
            have, with different values, is called `COLUMN_FILE` if it is the joined one's.
        on: the column that says which rows belong together; by default `index`, or the column of architectures.
        missing: what becomes of rows without a number for objective, result, epochs or seconds: refused, or dropped.
        roles: as `archray.trainables.tabular.Roles` has them; those that are not named are known by well-known names.
            With the space `nasbench1shot1-1`, a table of NAS-Bench-1Shot1 in which only the first row of each matrix
            is left has the cells that the order of its rows says, which is checked.

    Returns: the table as it was written. Raises: InvalidTable, InvalidInput, InvalidArchitecture, RunFolderError,
    before anything is written.
    """
    location = absolute(file)
    out = new_file(f"{_stem(location)}.parquet" if out is None else out, ".parquet")
    if missing not in ("refuse", "drop"):
        raise InvalidInput(f"missing: expected refuse or drop, got {missing!r}")
    frame, written, checksum = read_frame(location)
    others = {absolute(other): read_frame(absolute(other))[0] for other in join}
    _check_where(where or {}, {location: frame, **others})
    frame = _selected(frame, where, location)
    if not roles.get("architecture") and has_cut_matrices(list(frame.columns)):
        space = get_space(roles["space"]) if roles.get("space") in SPACES else None
        if isinstance(space, NASBench1Shot1):
            frame = frame.assign(**{ARCHITECTURE: cells_by_order(frame, space, location)})
    for place, other in others.items():
        frame = _joined(frame, _selected(other, where, place), on, location, place)
    return write_imported(frame, out, location, checksum, written, missing=missing, **roles)


def import_nats_bench(
    place: str | Path,
    out: str | Path | None = None,
    *,
    dataset: str = "cifar10",
    missing: Missing = "refuse",
    **roles: Any,
) -> Table:
    """Writes the official files of NATS-Bench as a table; see `nats_bench_rows` for its columns.

    The objective is the 12-epoch validation accuracy, the result the test accuracy after the longest training, unless
    they are named. Raises: as `import_table`.
    """
    location = absolute(place)
    out = new_file(f"{_stem(location)}-{dataset}.parquet" if out is None else out, ".parquet")
    frame = nats_bench_rows(location, dataset)
    longest = max((column for column in frame.columns if column.startswith("test_")), key=lambda c: int(c[5:]))
    own = {"objective": f"valid_{SHORT}", "result": longest, "seconds": f"seconds_{SHORT}"}
    own = {role: column for role, column in own.items() if column in frame.columns}
    named = {role: column for role, column in roles.items() if column is not None}
    return write_imported(frame, out, location, missing=missing, **{**own, **named})


def write_imported(
    frame: pd.DataFrame,
    out: Path,
    location: str,
    checksum: str = "",
    written: Mapping[str, Any] | None = None,
    *,
    missing: Missing = "refuse",
    **roles: Any,
) -> Table:
    """Checks the rows of a frame, writes them to `out` and reads them back. location: where they come from."""
    file = table_file(frame, location, checksum, None, written, **roles)
    if missing == "drop" and file.roles.values:
        values = [numbers(file.rows, column, location) for column in file.roles.values]
        complete = np.flatnonzero(~np.isnan(values).any(axis=0))
        if not len(complete):
            raise InvalidTable(f"{location}: no row has a number in all of {', '.join(file.roles.values)}")
        file = replace(file, rows=file.rows.iloc[complete].reset_index(drop=True))
    table = Table(file)
    space, rows = table.space, table.frame.drop(columns=CANONICAL, errors="ignore")
    if len(file.roles.architecture) == 1:  # which has its own column now
        rows = rows.drop(columns={*file.roles.architecture} - {ARCHITECTURE}, errors="ignore")
    if space.base is not None:
        rows[CANONICAL] = list(space.forms)
    encoding = None if space.encoding == DECISIONS else space.encoding
    kept = replace(file.roles, space=space.base.name if space.base else NONE, encoding=encoding)
    write_table_file(out, rows, kept)
    return read_table(out)


def _stem(location: str) -> str:
    return Path(location).name.partition(".")[0]


def _check_where(where: Mapping[str, str], frames: Mapping[str, pd.DataFrame]) -> None:
    for column in where:
        if not any(column in frame.columns for frame in frames.values()):
            told = "; ".join(f"{place} has {', '.join(frame.columns)}" for place, frame in frames.items())
            raise InvalidTable(f"there is no column {column!r} to select by: {told}")


def _selected(frame: pd.DataFrame, where: Mapping[str, str] | None, location: str) -> pd.DataFrame:
    own = {column: value for column, value in (where or {}).items() if column in frame.columns}
    return select(frame, own, location)


def _joined(frame: pd.DataFrame, other: pd.DataFrame, on: str | None, location: str, place: str) -> pd.DataFrame:
    """The columns of `other`, whose file is `place`, beside those of `frame`; NaN where it has no such row."""
    if set(OF_SCORING) <= set(other.columns):
        other = other.drop(columns=list(OF_SCORING))
    if on is None and INDEX not in frame.columns.intersection(other.columns):
        own, theirs = (next((c for c in ARCHITECTURES if c in table.columns), None) for table in (frame, other))
        other = other.rename(columns={theirs: own}) if own and theirs else other  # `arch` here, `architecture` there
    shared = [column for column in frame.columns if column in other.columns]
    key = on or next((column for column in KEYS if column in shared), None)
    if key is None or key not in shared:
        named = f"--on {on}" if on else "--on COLUMN"
        raise InvalidTable(
            f"{location} and {place} have no column {on or ' or '.join(KEYS)} in common; name one that says which rows "
            f"belong together ({named}); they share {', '.join(shared) or 'none'}"
        )
    if other[key].duplicated().any():
        repeated = other[key][other[key].duplicated()].tolist()[0]
        raise InvalidTable(f"{place} has {key} {repeated!r} more than once; {how_to_tell_apart(other, key)}")
    if not frame[key].isin(other[key]).any():
        raise InvalidTable(f"no {key} of {place} is one of {location}; name another column (--on)")
    partners = frame[[key]].merge(other, on=key, how="left").set_index(frame.index)
    for column in (column for column in other.columns if column != key):
        name, values = column, partners[column]
        if column in shared:
            both = frame[column].notna() & values.notna()
            if (frame[column][both] == values[both]).all():
                continue
            if column in ARCHITECTURES:
                row = frame.index[both & (frame[column] != values)][0]
                raise InvalidTable(
                    f"{location} and {place} do not belong together: where {key} is {frame[key][row]}, {column} is "
                    f"{frame[column][row]!r} in one and {values[row]!r} in the other; name another column (--on)"
                )
            name = f"{column}_{_stem(place)}"
        frame = frame.assign(**{name: values})
    return frame
