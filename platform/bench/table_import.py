"""`archray bench import`: shared tables, joined, with roles of their columns, as one Parquet file.

NAS-Bench-1Shot1's tables contain only the first row of each adjacency: the cells follow from the order of the rows. The
package `nats-bench` (Dong et al. 2021) reads NATS-Bench's official files.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from archray.errors import InvalidInput, InvalidTable, MissingExtra
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
    """The string of each row's cell, of a table whose rows are in the order of the authors' program.

    The order is checked: the operations of every row, and the edges from the input, must match the cell. If the table
    has the six errors of each cell, isomorphic cells, which NAS-Bench-101 trained as one, must have equal errors, and
    other cells different ones. Raises: InvalidTable.
    """
    cells = [(matrix, operations) for matrix in matrices(space) for operations in _operations(matrix)]
    rows = [(*row[:-1], row[-1].split()) for row in frame[list(COLUMNS)].itertuples(index=False, name=None)]
    expected = [(*operations, _first_row(matrix).split()) for matrix, operations in cells]
    wrong = next((row for row, (a, b) in enumerate(itertools.zip_longest(rows, expected)) if a != b), None)
    if wrong is not None:
        raise InvalidTable(
            f"{location}: row {wrong} (from 0) does not match the order of the {count(len(expected), 'cell')} of "
            f"{space.name}, so that the first row of its matrix does not define its cell; import the rows as a new "
            "space (--architecture row)"
        )
    names = [space.encode(space.canonical(_architecture(space, *cell))) for cell in cells]
    if set(VALUES) <= set(frame.columns):
        pairs = set(zip(names, frame[list(VALUES)].itertuples(index=False, name=None), strict=True))
        if not len(pairs) == len(set(names)) == len({values for _, values in pairs}):
            raise InvalidTable(
                f"{location}: isomorphic cells have different errors, or different cells the same, so that the rows "
                "are not in the order of the cells; import them as a new space (--architecture row)"
            )
    return names


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
            for parent in chosen:  # one after the other: the ancestors of the first are listed without the second
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
SHORT = "12"  # epochs of the training run whose accuracy is the objective, as in Shu 2022, 7.5 (note H4)


def nats_bench_rows(place: str | Path, dataset: str = "cifar10") -> pd.DataFrame:
    """A row for each architecture of NATS-Bench's topology space, or of its size space if `sss` is in the file's name.

    Args:
        place: a folder of the simple kind, `NATS-tss-v1_0-3ffb9-simple` (one file for each architecture, read one by
            one), or one `.pickle.pbz2` file with all. They are pickles: read only files that you trust.
        dataset: `cifar10`, `cifar100` or `ImageNet16-120`.

    Returns: `index`, `architecture`; for each number of epochs, 12 and 200 or 1, 12 and 90, `valid_12` and `test_12`,
    means over the training runs; `valid_12_seed0`, ... of each run; `seconds_12`, of the run and one evaluation;
    `valid_12@1` to `valid_12@12`, after each epoch; `params` (M), `flops` (M), `latency` (s). As in the benchmark,
    CIFAR-10's validation accuracies are of training runs on half of its training images.

    Raises: MissingExtra without the package; InvalidInput for another data set; InvalidTable for files that cannot
        be read.
    """
    if dataset not in DATASETS:
        raise InvalidInput(f"NATS-Bench has no data set {dataset!r}; choose one of {', '.join(DATASETS)}")
    path = Path(place).expanduser()
    if not path.exists():
        raise InvalidTable(f"there is no file and no folder {path}; give NATS-Bench's, see its README for the download")
    try:
        import nats_bench
    except ImportError as error:
        raise MissingExtra(
            f"NATS-Bench's files are read by its package, which is not installed ({error}): "
            "pip install 'archray[nats-bench]'"
        ) from error
    space = "size" if "sss" in path.name else "topology"
    try:
        api = nats_bench.create(str(path), space, fast_mode=path.is_dir(), verbose=False)
        rows = [_row(api, index, dataset) for index in range(len(api))]
    except (OSError, AssertionError, ValueError, KeyError, EOFError) as error:
        raise InvalidTable(f"{path} cannot be read as NATS-Bench's {space} space ({error!r})") from error
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def _row(api: Any, index: int, dataset: str) -> dict[str, Any]:
    """The row of one architecture, which is then released: all of them take some gigabytes."""
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
    """Percent; the mean over training runs, or the value of one; NaN without a value."""
    try:
        metrics = results.get_metrics(
            dataset, split, iepoch=None if epoch is None else epoch - 1, is_random=False if seed is None else seed
        )
    except (KeyError, ValueError):
        return float("nan")
    return float(metrics["accuracy"])


def _seconds(results: Any, dataset: str) -> float:
    """Of the training run and one evaluation, as in the package's `simulate_train_eval`; NaN without times."""
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
OF_SCORING = ("failure", "seconds")  # in a pool of `archray proxies`: of the scoring, not of a training run


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
    """Checks the rows of a table, and writes it with roles of its columns and canonical forms of its networks.

    Args:
        file: CSV (also .csv.gz) or Parquet; a path or a pyarrow URI.
        out: the Parquet file to write, new; by default the name of `file` with `.parquet`, in the current folder.
        where: only the rows with this value, in each file with such a column: `{"task": "jigsaw"}`.
        join: tables of the same architectures with further columns. A column of a joined table that `file` has with
            other values becomes `COLUMN_FILE`.
        on: the column to join on; by default `index`, or the column of architectures.
        missing: rows without a number for objective, result, epochs or seconds: `refuse` the table, or `drop` them.
        roles: as in `archray.trainables.tabular.Roles`; by default columns with well-known names. With the space
            `nasbench1shot1-1`, the cells of a NAS-Bench-1Shot1 table with only the first row of each matrix follow
            from the order of its rows, which is checked.

    Returns: the table as it was written. Raises: InvalidTable, InvalidInput, InvalidArchitecture, RunFolderError,
    before anything is written.
    """
    location = absolute(file)
    out = new_file(f"{_stem(location)}.parquet" if out is None else out, ".parquet")
    if missing not in ("refuse", "drop"):
        raise InvalidInput(f"missing: expected refuse or drop, got {missing!r}")
    frame, written, checksum = files.read_frame(location)
    others = {absolute(other): files.read_frame(absolute(other))[0] for other in join}
    frames = {location: frame, **others}
    for column in where or {}:
        if not any(column in table.columns for table in frames.values()):
            columns = "; ".join(f"{place} has {', '.join(table.columns)}" for place, table in frames.items())
            raise InvalidTable(f"there is no column {column!r} to select by: {columns}")
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
    missing: Missing = "refuse",
    **roles: Any,
) -> Table:
    """Checks the rows of a frame, writes them to `out` and reads them back. location: of their source."""
    file = files.table_file(frame, location, checksum, None, written, **roles)
    if missing == "drop" and file.roles.values:
        values = [files.numbers(file.rows, column, location) for column in file.roles.values]
        complete = np.flatnonzero(~np.isnan(values).any(axis=0))
        if not len(complete):
            raise InvalidTable(f"{location}: no row has a number in all of {', '.join(file.roles.values)}")
        file = replace(file, rows=file.rows.iloc[complete].reset_index(drop=True))
    table = Table(file)
    space, rows = table.space, table.frame.drop(columns=CANONICAL, errors="ignore")
    if len(file.roles.architecture) == 1:  # it has its own column now
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
    """`frame` with the columns of `other`, whose file is `place`; NaN in rows that it lacks."""
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
            f"{location} and {place} have no column {on or ' or '.join(KEYS)} in common; name the column to join on "
            f"(--on {on or 'COLUMN'}); they share {', '.join(shared) or 'none'}"
        )
    if other[key].duplicated().any():
        repeated = other[key][other[key].duplicated()].tolist()[0]
        raise InvalidTable(f"{place} has {key} {repeated!r} more than once; {files.how_to_tell_apart(other, key)}")
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
