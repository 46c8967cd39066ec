"""`archray bench import`: check and join published tables, and write one Parquet file with the roles of its columns.

Tables of NAS-Bench-1Shot1 contain only the first row of each adjacency matrix: the cells follow from the order of the
rows. The package `nats-bench` (Dong et al. 2021) reads the official files of NATS-Bench.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from archray.errors import InvalidInput, InvalidTable, MissingExtra, install_command
from archray.files import new_file
from archray.plurals import count
from archray.trainables.spaces import SPACES, NASBench1Shot1, get_space
from archray.trainables.spaces.encodings import NONE
from archray.trainables.spaces.nasbench1shot1 import OPERATIONS, PADDED, PADDING
from archray.trainables.spaces.table_space import CANONICAL, DECISIONS
from archray.trainables.tabular import table_file as files
from archray.trainables.tabular.table import Table, read_table
from archray.trainables.tabular.table_file import ARCHITECTURE, ARCHITECTURES, INDEX, absolute

MATRIX = "adj_matrix"
NODES = tuple(f"node{node}" for node in range(1, PADDED - 1))
COLUMNS = (*NODES, MATRIX)
VALUES = ("val1", "val2", "val3", "test1", "test2", "test3")

Matrix = NDArray[np.int64]


def cells_by_order(frame: pd.DataFrame, space: NASBench1Shot1, location: str) -> list[str]:
    """Returns the string of each row's cell, for a table whose rows are in the order of the authors' program.

    The function checks the order: the operations of every row, and the edges from the input, must match the cell. If
    the table has the six errors of each cell, isomorphic cells (which NAS-Bench-101 trained once) must have equal
    errors, and other cells different errors.

    Raises: InvalidTable.
    """
    cells = [(matrix, operations) for matrix in matrices(space) for operations in _operations(matrix)]
    rows = [(*row[:-1], row[-1].split()) for row in frame[list(COLUMNS)].itertuples(index=False, name=None)]
    expected = [(*operations, _first_row(matrix).split()) for matrix, operations in cells]
    wrong = next((row for row, (a, b) in enumerate(itertools.zip_longest(rows, expected)) if a != b), None)
    if wrong is not None:
        raise InvalidTable(
            f"{location}: expected rows in the order of the {count(len(expected), 'cell')} of {space.name}, got "
            f"another cell in row {wrong} (from 0). The first row of a matrix then does not define its cell. Import "
            "the rows as a new space (--architecture row)"
        )
    names = [space.encode(space.canonical(_architecture(space, *cell))) for cell in cells]
    if set(VALUES) <= set(frame.columns):
        pairs = set(zip(names, frame[list(VALUES)].itertuples(index=False, name=None), strict=True))
        if not len(pairs) == len(set(names)) == len({values for _, values in pairs}):
            raise InvalidTable(
                f"{location}: expected rows in the order of the cells, got isomorphic cells with different errors, or "
                "different cells with equal errors. Import the rows as a new space (--architecture row)"
            )
    return names


def matrices(space: NASBench1Shot1) -> list[Matrix]:
    """Returns the distinct (n + 2, n + 2) matrices of the space without loose ends, in the authors' order."""
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
            for parent in chosen:  # one by one: the ancestors of the first parent are listed without the second
                grown[parent, node] = 1
                yield from grow(grown, parent)

    for matrix in grow(np.zeros((output + 1, output + 1), dtype=np.int64), output):
        listed.setdefault(matrix.tobytes(), matrix)
    return list(listed.values())


def _operations(matrix: Matrix) -> Iterator[tuple[str, ...]]:
    """Yields the operations of the five nodes in the table's order: the first live node varies fastest."""
    live = [node for node in range(1, len(matrix) - 1) if matrix[node].any()]
    for chosen in itertools.product(OPERATIONS, repeat=len(live)):
        of_node = dict(zip(reversed(live), chosen, strict=True))
        yield tuple(of_node.get(node, PADDING) for node in range(1, PADDED - 1))


def _first_row(matrix: Matrix) -> str:
    """Formats the edges from the input to nodes 1 to 5 and the output, as in the tables."""
    padded = [*matrix[0][:-1], *[0] * (PADDED - len(matrix)), matrix[0][-1]]
    return f"[{' '.join(f'{edge}.' for edge in padded)}]"


def _architecture(space: NASBench1Shot1, matrix: Matrix, operations: Sequence[str]) -> tuple[str, ...]:
    """Returns the architecture of a matrix; a loose end, which has no parents there, gets the first nodes."""
    parents = [
        [int(parent) for parent in np.flatnonzero(matrix[:, node])] or list(range(number))
        for node, number in enumerate(space.parents, 1)
    ]
    return space.architecture(operations[: len(space.nodes)], parents)


DATASETS = ("cifar10", "cifar100", "ImageNet16-120")
SHORT = "12"  # epochs of the training run whose accuracy is the objective, as in Shu 2022, sec. 7.5 (note H4)


def nats_bench_rows(place: str | Path, dataset: str = "cifar10") -> pd.DataFrame:
    """Reads NATS-Bench: a row per architecture of its topology space, or of its size space if the file name has `sss`.

    Args:
        place: a "simple" folder such as `NATS-tss-v1_0-3ffb9-simple` (one file per architecture, read one by one), or
            a single `.pickle.pbz2` file. The files are pickles: read only files that you trust.
        dataset: `cifar10`, `cifar100` or `ImageNet16-120`.

    Returns: `index`, `architecture`; for each number of epochs (12 and 200, or 1, 12 and 90) `valid_12` and `test_12`,
    means over the training runs; `valid_12_seed0`, ... for each run; `seconds_12` of the run and one evaluation;
    `valid_12@1` to `valid_12@12` after each epoch; `params` (M), `flops` (M), `latency` (s). As in the benchmark,
    validation accuracies on CIFAR-10 come from training runs on half of the training images.

    Raises: MissingExtra without the package; InvalidInput for another data set; InvalidTable for unreadable files.
    """
    if dataset not in DATASETS:
        raise InvalidInput(f"expected a data set of NATS-Bench ({', '.join(DATASETS)}), got {dataset!r}")
    path = Path(place).expanduser()
    if not path.exists():
        raise InvalidTable(
            f"there is no file or folder {path}. Pass the files of NATS-Bench; its README describes the download"
        )
    try:
        import nats_bench
    except ImportError as error:
        raise MissingExtra(
            f"NATS-Bench requires its package, which is not installed ({error}). Run {install_command('nats-bench')}"
        ) from error
    space = "size" if "sss" in path.name else "topology"
    try:
        api = nats_bench.create(str(path), space, fast_mode=path.is_dir(), verbose=False)
        rows = [_row(api, index, dataset) for index in range(len(api))]
    except (OSError, AssertionError, ValueError, KeyError, EOFError) as error:
        raise InvalidTable(f"expected files of NATS-Bench's {space} space, got {path} ({error!r})") from error
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def _row(api: Any, index: int, dataset: str) -> dict[str, Any]:
    """Returns the row of one architecture, and releases the architecture: all of them need gigabytes of memory."""
    row: dict[str, Any] = {"index": index, "architecture": api.arch(index)}
    searched = "cifar10-valid" if dataset == "cifar10" else dataset  # data of the validation accuracies
    api.get_more_info(index, searched, hp=SHORT, is_random=False)  # reads the architecture's file
    for hp in sorted(api.arch2infos_dict[index], key=int):
        results, epochs = api.arch2infos_dict[index][hp], int(hp)
        row[f"valid_{epochs}"] = _accuracy(results, searched, "x-valid")
        row[f"test_{epochs}"] = _accuracy(results, dataset, "ori-test" if dataset == "cifar10" else "x-test")
        for number, seed in enumerate(results.dataset_seed.get(searched, ())):
            row[f"valid_{epochs}_seed{number}"] = _accuracy(results, searched, "x-valid", seed=seed)
        row[f"seconds_{epochs}"] = _seconds(results, searched)
        if hp == SHORT:
            for epoch in range(1, epochs + 1):
                row[f"valid_{epochs}@{epoch}"] = _accuracy(results, searched, "x-valid", epoch=epoch)
    costs = api.get_cost_info(index, searched, hp=SHORT)
    row |= {name: np.nan if costs[name] is None else costs[name] for name in ("params", "flops", "latency")}
    if api.fast_mode:
        del api.arch2infos_dict[index]
        api.evaluated_indexes.discard(index)
    return row


def _accuracy(results: Any, dataset: str, split: str, epoch: int | None = None, seed: int | None = None) -> float:
    """Returns the accuracy in percent: the mean over training runs, or the value of one run; NaN without a value."""
    try:
        metrics = results.get_metrics(
            dataset, split, iepoch=None if epoch is None else epoch - 1, is_random=False if seed is None else seed
        )
    except (KeyError, ValueError):
        return float("nan")
    return float(metrics["accuracy"])


def _seconds(results: Any, dataset: str) -> float:
    """Returns the time of training run and one evaluation, as the package's `simulate_train_eval`; NaN if missing."""
    try:
        train = results.get_metrics(dataset, "train", is_random=False)
        valid = results.get_metrics(dataset, "x-valid", is_random=False)
    except (KeyError, ValueError):
        return float("nan")
    if train["all_time"] is None or valid["all_time"] is None:
        return float("nan")
    return float(train["all_time"] + valid["all_time"] / (valid["iepoch"] + 1))


Missing = Literal["raise", "drop"]
KEYS = (INDEX, *ARCHITECTURES)  # default columns to join tables on
OF_SCORING = ("failure", "seconds")  # columns in a pool of `archray proxies` that describe the scoring, not a training


def import_table(
    file: str | Path,
    out: str | Path | None = None,
    *,
    where: Mapping[str, str] | None = None,
    join: Sequence[str | Path] = (),
    on: str | None = None,
    missing: Missing = "raise",
    **roles: Any,
) -> Table:
    """Checks the rows of a table, and writes it with roles of its columns and canonical forms of its networks.

    Args:
        file: CSV (.csv, .csv.gz) or Parquet; a path or a pyarrow URI.
        out: new Parquet file to write; by default the name of `file` with `.parquet`, in the current folder.
        where: value of a column, to use only rows with this value: `{"task": "jigsaw"}`. It applies to each file with
            this column.
        join: tables of the same architectures with further columns. A column of a joined table that `file` has with
            other values becomes `COLUMN_FILE`.
        on: column to join on; by default `index`, or the column of architectures.
        missing: action on rows without a number for objective, result, epochs or seconds: `raise` rejects the table,
            `drop` drops the rows.
        roles: arguments of `archray.trainables.tabular.Roles`; by default columns with known names. With the space
            `nasbench1shot1-1`, the cells of a NAS-Bench-1Shot1 table with only the first row of each matrix follow
            from the order of its rows, which the function checks.

    Returns: the written table.
    Raises: InvalidTable, InvalidInput, InvalidArchitecture, RunFolderError, before the function writes a file.

    Example:
        ```python
        roles = {"space": "nasbench201", "objective": "val_accuracy", "result": "test_accuracy"}
        table = import_table("results.csv", "results.parquet", **roles)
        ```
    """
    location = absolute(file)
    out = new_file(f"{_stem(location)}.parquet" if out is None else out, ".parquet")
    if missing not in ("raise", "drop"):
        raise InvalidInput(f"missing: expected raise or drop, got {missing!r}")
    frame, written, checksum = files.read_frame(location)
    others = {absolute(other): files.read_frame(absolute(other))[0] for other in join}
    frames = {location: frame, **others}
    for column in where or {}:
        if not any(column in table.columns for table in frames.values()):
            columns = "; ".join(f"{place} has {', '.join(table.columns)}" for place, table in frames.items())
            raise InvalidTable(f"where: expected a column of the table, got {column!r}; {columns}")
    frame = _selected(frame, where, location)
    if not roles.get("architecture") and set(COLUMNS) <= set(frame.columns):
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
    missing: Missing = "raise",
    **roles: Any,
) -> Table:
    """Writes the official files of NATS-Bench as a table; see `nats_bench_rows` for its columns.

    By default the objective is the 12-epoch validation accuracy, and the result is the test accuracy after the longest
    training run.

    Args:
        place: the official file or folder.
        out: new Parquet file to write; by default a file in the current folder.
        dataset: data set of the values.
        missing, roles: as in `import_table`.

    Returns: the written table.
    Raises: the errors of `import_table`.
    """
    location = absolute(place)
    out = new_file(f"{_stem(location)}-{dataset}.parquet" if out is None else out, ".parquet")
    frame = nats_bench_rows(location, dataset)
    longest = max((column for column in frame.columns if column.startswith("test_")), key=lambda c: int(c[5:]))
    defaults = {"objective": f"valid_{SHORT}", "result": longest, "seconds": f"seconds_{SHORT}"}
    defaults = {role: column for role, column in defaults.items() if column in frame.columns}
    roles = {role: column for role, column in roles.items() if column is not None}
    return write_imported(frame, out, location, missing=missing, **{**defaults, **roles})


def write_imported(
    frame: pd.DataFrame,
    out: Path,
    location: str,
    checksum: str = "",
    written: Mapping[str, Any] | None = None,
    *,
    missing: Missing = "raise",
    **roles: Any,
) -> Table:
    """Checks the rows of a frame, writes them to `out`, and reads them back.

    Args:
        location: source of the rows, for messages.
    """
    file = files.table_file(frame, location, checksum, None, written, **roles)
    if missing == "drop" and file.roles.values:
        values = [files.numbers(file.rows, column, location) for column in file.roles.values]
        complete = np.flatnonzero(~np.isnan(values).any(axis=0))
        if not len(complete):
            raise InvalidTable(f"{location}: expected rows with numbers in {', '.join(file.roles.values)}, got none")
        file = replace(file, rows=file.rows.iloc[complete].reset_index(drop=True))
    table = Table(file)
    space, rows = table.space, table.frame.drop(columns=CANONICAL, errors="ignore")
    if len(file.roles.architecture) == 1:  # the architecture has a separate column now
        rows = rows.drop(columns={*file.roles.architecture} - {ARCHITECTURE}, errors="ignore")
    if space.base is not None:
        rows[CANONICAL] = list(space.forms)
    encoding = None if space.encoding == DECISIONS else space.encoding
    written_roles = replace(file.roles, space=space.base.name if space.base else NONE, encoding=encoding)
    files.write_table_file(out, rows, written_roles)
    return read_table(out)


def _stem(location: str) -> str:
    return Path(location).name.partition(".")[0]


def _selected(frame: pd.DataFrame, where: Mapping[str, str] | None, location: str) -> pd.DataFrame:
    values = {column: value for column, value in (where or {}).items() if column in frame.columns}
    return files.select(frame, values, location)


def _joined(frame: pd.DataFrame, other: pd.DataFrame, on: str | None, location: str, place: str) -> pd.DataFrame:
    """Adds the columns of `other`, whose file is `place`, to `frame`; NaN in rows that `other` lacks."""
    if set(OF_SCORING) <= set(other.columns):
        other = other.drop(columns=list(OF_SCORING))
    if on is None and INDEX not in frame.columns.intersection(other.columns):
        name, other_name = (next((c for c in ARCHITECTURES if c in table.columns), None) for table in (frame, other))
        if name and other_name:  # such as `arch` and `architecture`
            other = other.rename(columns={other_name: name})
    shared = [column for column in frame.columns if column in other.columns]
    key = on or next((column for column in KEYS if column in shared), None)
    if key is None or key not in shared:
        raise InvalidTable(
            f"{location} and {place} have no common column {on or ' or '.join(KEYS)}. Name the column to join on "
            f"(--on COLUMN). Common columns: {', '.join(shared) or 'none'}"
        )
    if other[key].duplicated().any():
        repeated = other[key][other[key].duplicated()].tolist()[0]
        raise InvalidTable(f"{place} has {key} {repeated!r} more than once. {files.advice_for_duplicates(other, key)}")
    if not frame[key].isin(other[key]).any():
        raise InvalidTable(f"{location} contains no {key} of {place}. Name another column (--on)")
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
                    f"{location} and {place} contradict each other: where {key} is {frame[key][row]}, {column} is "
                    f"{frame[column][row]!r} in one and {values[row]!r} in the other. Name another column (--on)"
                )
            name = f"{column}_{_stem(place)}"
        frame = frame.assign(**{name: values})
    return frame
