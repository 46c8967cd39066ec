"""Tables as spaces: the rows of a CSV or Parquet file are the architectures."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qsl

import numpy as np

from archray.errors import InvalidArchitecture, InvalidInput, InvalidTable, expect
from archray.files import local_path
from archray.plurals import count
from archray.trainables.spaces.encodings import NONE, IntArray, encode_rows, hamming, tokens_of, tokens_or_none
from archray.trainables.spaces.space import SPACES, Architecture, Decision, Space

if TYPE_CHECKING:
    from archray.trainables.tabular.table_file import TableFile

PREFIX = "table:"  # of a space's name, before the location of the table
NEIGHBORS = 8  # minimum number of rows for a mutation; with the nearest only, two rows may lead only to each other
STEPS = 100  # mutations of the base that are tried to reach a row of the table
DECISIONS = "decisions"  # the default encoding of a table with a base: the choices of the base
CANONICAL = "canonical"  # the column with the canonical forms, from an import


def canonical_string(space: Space, text: str) -> str:
    """Returns the string of the canonical form of an architecture. Raises: InvalidArchitecture."""
    return space.encode(space.canonical(space.decode(text)))


def read_by_base(name: str | None, architectures: Sequence[str]) -> tuple[Space | None, list[Architecture]]:
    """Returns the base of a table and its parsed strings. The base is the named or the first space that can parse them.

    Raises: InvalidArchitecture for a string that the space cannot parse.
    """
    if name == NONE:
        return None, []
    if name is not None:
        space = SPACES.get(name)()
        return space, [space.decode(architecture) for architecture in architectures]
    for candidate in SPACES:
        space = SPACES.get(candidate)()
        try:
            space.decode(architectures[0])
        except InvalidArchitecture:
            continue
        try:
            return space, [space.decode(architecture) for architecture in architectures]
        except InvalidArchitecture as error:
            raise InvalidArchitecture(
                f"expected all architectures in the space {candidate}, which can parse the first, got another: "
                f"{error}; "
                f"correct the table, or import it as a separate space (--space {NONE})"
            ) from error
    return None, []


class TableSpace(Space):
    """The architectures of a table: `get_space("table:FILE")`.

    Without a base, the strings of the rows are the architectures. A mutation is one of the eight or more rows that are
    nearest by the encoding (Hamming distance, with all ties). With the encoding `none` there are no mutations.

    A base is a registered space that can parse all strings. With a base, an architecture is one of the base, `row`
    finds it under any isomorphic spelling, and its network can be built. The row with the lowest index represents all
    spellings of a network (note H3). A mutation is one of the base, repeated up to 100 times until it is in the table,
    else one of the nearest rows.

    A copy in another process reads the file again.

    Attributes:
        name: `table:FILE`, without roles or `where`.
        architectures: n strings, in the order of the table.
        representative: (n,) for each row the first row with the same network.
        base: Space of the strings, or None.
        codes: (n, d) by the encoding.

    Raises: InvalidInput for an encoding that does not fit; InvalidArchitecture for strings that the named base cannot
        parse.
    """

    kind: ClassVar[str] = "table row"

    def __init__(self, file: TableFile) -> None:
        self.name = f"{PREFIX}{file.location}"  # type: ignore[misc]  # differs between instances
        self.file = file
        rows = file.rows.drop_duplicates("architecture")
        self.architectures: Sequence[str] = tuple(rows["architecture"])
        self.base, read = read_by_base(file.roles.space, self.architectures)
        if self.base is not None:  # the architectures belong to the base and can be trained
            self.kind, self.data_kind = self.base.kind, self.base.data_kind  # type: ignore[misc]
        self.decisions = self.base.decisions if self.base else (Decision("architecture", tuple(self.architectures)),)
        self.forms: Sequence[str] = self.architectures
        if self.base is not None and CANONICAL in rows.columns:
            self.forms = tuple(rows[CANONICAL])
        elif self.base is not None:
            self.forms = [self.base.encode(self.base.canonical(architecture)) for architecture in read]
        self._rows = {name: row for row, name in enumerate(self.architectures)}
        self._first: dict[str, int] = {}
        firsts = [self._first.setdefault(form, row) for row, form in enumerate(self.forms)]
        self.representative: IntArray = np.array(firsts, dtype=np.int64)
        self.encoding, self.codes = file.roles.encoding or DECISIONS, np.zeros((0, 0), dtype=np.int64)
        if file.roles.encoding is not None:
            self.codes = encode_rows(self.architectures, file.roles.encoding, rows)
        elif self.base is not None:
            self.codes = np.array([self.base.rank(architecture) for architecture in read], dtype=np.int64)
        else:
            self.encoding, self.codes = tokens_or_none(self.architectures)

    @property
    def size(self) -> int:
        """The number of rows, including isomorphic ones."""
        return len(self.architectures)

    def row(self, text: str) -> int:
        """Returns the row of an architecture in any spelling. Raises: InvalidArchitecture, with the nearest row."""
        if text in self._rows:
            return int(self.representative[self._rows[text]])
        reason = f"{self.name} has no architecture {text!r}"
        if self.base is not None:
            try:
                form = canonical_string(self.base, text)
            except InvalidArchitecture as error:
                form, reason = "", str(error)
            if form in self._first:
                return self._first[form]
        raise InvalidArchitecture(
            f"{reason}; the nearest of the {count(self.size, 'architecture')} in the table is {self.nearest(text)!r}"
        )

    def nearest(self, text: str) -> str:
        """Returns the row with the fewest different tokens; without a row of equal length, the most similar."""
        words = tokens_of(text)
        alike = [name for name in self.architectures if len(tokens_of(name)) == len(words)]
        if words and alike:
            return min(alike, key=lambda name: sum(a != b for a, b in zip(tokens_of(name), words, strict=True)))
        return difflib.get_close_matches(text, self.architectures, n=1, cutoff=0.0)[0]

    def sample(self, rng: np.random.Generator) -> Architecture:
        """Draws a row uniformly."""
        return self._read(int(rng.integers(self.size)))

    def enumerate(self) -> Iterator[Architecture]:
        """Yields every row, in the order of the table."""
        return map(self._read, range(self.size))

    def mutate(self, architecture: Architecture, rng: np.random.Generator) -> Architecture:
        if self.base is not None:
            child = architecture
            for _ in range(STEPS):
                child = self.base.mutate(child, rng)
                if child != architecture and self._holds(child):
                    return child
        self.check_mutable()
        neighbors = self.neighbors(self.row(self.encode(architecture)))
        return self._read(int(neighbors[rng.integers(len(neighbors))]))

    def neighbors(self, row: int) -> IntArray:
        """Returns the other rows that are at most as far by the encoding as the eighth nearest.

        Other spellings of the same network are left out.
        """
        others = np.flatnonzero(self.representative != self.representative[row])
        distances = hamming(self.codes[others], self.codes[row])
        last = min(NEIGHBORS, len(others)) - 1
        return others[distances <= np.partition(distances, last)[last]]

    def check_mutable(self) -> None:
        super().check_mutable()
        if self.base is None and self.codes.shape[1] == 0:
            raise InvalidInput(
                f"expected a space with mutations, got {self.name}, which has no encoding that defines near rows. "
                "Choose one when you import the table (--encoding tokens or columns:a,b), or a method without "
                "mutations"
            )

    def check_packages(self) -> None:
        if self.base is not None:
            self.base.check_packages()

    def canonical(self, architecture: Architecture) -> Architecture:
        """Returns the row that represents all spellings of the architecture."""
        return self._read(self.row(self.encode(architecture)))

    @property
    def posterior_decisions(self) -> tuple[Decision, ...]:
        """Decisions of the base; without a base, one per column of the encoding; without columns, the row."""
        if self.base is not None:
            return self.base.posterior_decisions
        columns = enumerate(self.codes.T, 1)
        return tuple(Decision(f"code_{n}", tuple(map(str, np.unique(codes)))) for n, codes in columns) or self.decisions

    @property
    def rows_of_decisions(self) -> IntArray | None:
        """(n, D) indices of each row's choices of `posterior_decisions`; None with a base, or without codes.

        Among all products of choices, only these rows are architectures.
        """
        return None if self.base is not None or self.codes.shape[1] == 0 else self.codes

    def architecture_of_decisions(self, chosen: Mapping[str, str]) -> Architecture:
        """Returns the first row with these codes. Raises: InvalidArchitecture if there is none."""
        if self.base is not None:
            return self.base.architecture_of_decisions(chosen)
        if self.codes.shape[1] == 0:
            return super().architecture_of_decisions(chosen)
        codes = [int(chosen[decision.name]) for decision in self.posterior_decisions]
        rows = np.flatnonzero((self.codes == codes).all(axis=1))
        if not len(rows):
            raise InvalidArchitecture(f"{self.name}: expected the codes of a row, got {codes}")
        return self._read(int(rows[0]))

    def encode(self, architecture: Architecture) -> str:
        if self.base is not None:
            return self.base.encode(architecture)
        self.check(architecture)
        return architecture[0]

    def decode(self, text: str) -> Architecture:
        """Parses a string in any spelling. Raises: InvalidArchitecture, with the nearest row."""
        self.row(text)
        return (text,) if self.base is None else self.base.decode(text)

    def check(self, architecture: Architecture) -> None:
        """Raises: InvalidArchitecture if `architecture` is not in the table."""
        if self.base is not None:
            self.row(self.base.encode(architecture))
        elif len(architecture) != 1:
            raise InvalidArchitecture(f"{self.name}: expected one string, got {architecture!r}")
        else:
            self.row(architecture[0])

    def _read(self, row: int) -> Architecture:
        return (self.architectures[row],) if self.base is None else self.base.decode(self.architectures[row])

    def _holds(self, architecture: Architecture) -> bool:
        assert self.base is not None  # by the caller
        text = self.base.encode(architecture)
        return text in self._rows or canonical_string(self.base, text) in self._first

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableSpace) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((self.name, self.file.checksum))

    def _identity(self) -> tuple[Any, ...]:
        return self.name, self.file.checksum, self.encoding, self.base, self.architectures

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.file.location, dict(self.file.where), self.file.roles.to_json(), self.file.checksum)


def _reopened(location: str, where: dict[str, str], roles: dict[str, Any], checksum: str) -> TableSpace:
    """Opens a copy in another process. Raises: InvalidTable if the file has changed."""
    from archray.trainables.tabular.table_file import read_table_file

    file = read_table_file(location, where, **roles)
    if file.checksum != checksum:
        raise InvalidTable(f"expected the unchanged table {location}, got another version; restore the old file")
    return TableSpace(file)


FORM = "table:FILE, table:FILE?encoding=columns:a,b or table:FILE?where=column=value"


def absolute_name(name: str) -> str:
    """Returns the name of a table space with the absolute path of its table; other names unchanged."""
    expect("space", name, str)
    if not name.startswith(PREFIX) or "://" in name:
        return name
    place, question, query = name.removeprefix(PREFIX).partition("?")
    return f"{PREFIX}{os.path.abspath(local_path(place))}{question}{query}" if place else name


def open_table_space(name: str) -> TableSpace:
    """Opens the space `table:FILE`, or `table:FILE?ROLE=VALUE&...` with the roles of an import and a filter.

    The roles are `encoding`, `space` and `architecture`; the filter is `where=column=value`. Each process opens each
    state of a file once.

    Raises: InvalidInput for another format or an invalid table.
    """
    place, _, query = name.removeprefix(PREFIX).partition("?")
    if "://" in place:  # the query is part of the URI
        place, query = name.removeprefix(PREFIX), ""
    if not place:
        raise InvalidInput(f"expected {FORM}, got {name!r}")
    stamp = os.stat(os.path.expanduser(place)) if os.path.exists(os.path.expanduser(place)) else None
    return _opened(place, query, os.getcwd(), stamp and (stamp.st_mtime_ns, stamp.st_size))


@lru_cache(maxsize=8)
def _opened(place: str, query: str, folder: str, stamp: object) -> TableSpace:
    from archray.trainables.tabular.table_file import read_table_file

    roles: dict[str, str] = {}
    where: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key == "where":
            where |= [value.partition("=")[::2]]
        else:
            roles[key] = value
    return TableSpace(read_table_file(place, where, **roles))
