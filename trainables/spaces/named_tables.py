"""Tables as spaces by name: `table:FILE`, with what its columns are for behind a `?`."""

from __future__ import annotations

import os
from functools import lru_cache
from urllib.parse import parse_qsl

from archray.errors import InvalidInput, expect
from archray.files import local_path
from archray.trainables.spaces.table_space import PREFIX, TableSpace

FORM = "table:FILE, table:FILE?encoding=columns:a,b or table:FILE?where=column=value"


def absolute_name(name: str) -> str:
    """The name of a space, whose table every process finds from whatever folder; other names as they are."""
    expect("space", name, str)
    if not name.startswith(PREFIX) or "://" in name:
        return name
    place, question, query = name.removeprefix(PREFIX).partition("?")
    return f"{PREFIX}{os.path.abspath(local_path(place))}{question}{query}" if place else name


def open_table_space(name: str) -> TableSpace:
    """The space called `table:FILE`, or `table:FILE?ROLE=VALUE&...` with roles as an import has them (`encoding`,
    `space`, `architecture`) and `where=column=value`; opened once per process and state of the file.

    Raises: InvalidInput for another form or a wrong table.
    """
    place, _, query = name.removeprefix(PREFIX).partition("?")
    if "://" in place:  # whose query is its own
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
