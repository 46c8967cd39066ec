"""Encodings of architectures as rows of categorical codes, and the Hamming distance between rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from archray.errors import InvalidInput
from archray.plurals import count

if TYPE_CHECKING:
    import pandas as pd

IntArray = NDArray[np.int64]

TOKENS, NONE, COLUMNS = "tokens", "none", "columns:"
FORMS = f"{TOKENS}, {COLUMNS}a,b,c (columns of the table) or {NONE}"
_TOKEN = re.compile(r"\w+(?:\.\w+)*")  # `nor_conv_3x3`, `12`, `0.5`


def tokens_of(architecture: str) -> list[str]:
    """Returns the alphanumeric tokens of a string, in order: `"(1, 0, 3)"` -> `["1", "0", "3"]`."""
    return _TOKEN.findall(architecture)


def encode_rows(architectures: Sequence[str], encoding: str = TOKENS, table: pd.DataFrame | None = None) -> IntArray:
    """Returns (n, d) codes of n architectures; two codes in a column are equal if the words are.

    Args, Raises: see `word_rows`.
    """
    words = word_rows(architectures, encoding, table)
    codes = [np.unique(column, return_inverse=True)[1] for column in words.T]
    return np.array(codes, dtype=np.int64).reshape(words.shape[::-1]).T


def word_rows(
    architectures: Sequence[str], encoding: str = TOKENS, table: pd.DataFrame | None = None
) -> NDArray[np.str_]:
    """Returns the (n, d) words of n architectures.

    Args:
        encoding: `tokens`: the alphanumeric tokens of the string by position, with the same number in all
            architectures; `columns:a,b,c`: columns of `table`; `none`: no words, d = 0.
        table: n rows in the order of `architectures`.

    Raises: InvalidInput for an unknown encoding or one that does not fit.
    """
    if encoding == NONE:
        return np.zeros((len(architectures), 0), dtype=np.str_)
    if encoding == TOKENS:
        words = _token_words(architectures)
    elif encoding.startswith(COLUMNS):
        words = _table_words(encoding, table)
    else:
        raise InvalidInput(f"there is no encoding {encoding!r}. Choose {FORMS}")
    if len(words) > 1 and (words == words[0]).all():
        raise InvalidInput(
            f"expected an encoding that distinguishes architectures, got {encoding}, which is the same for all "
            f"{count(len(words), 'architecture')}. Choose another of {FORMS}"
        )
    return words


def tokens_or_none(architectures: Sequence[str]) -> tuple[str, IntArray]:
    """Returns `tokens` and its codes if they fit, else `none`."""
    try:
        return TOKENS, encode_rows(architectures)
    except InvalidInput:
        return NONE, encode_rows(architectures, NONE)


def hamming(codes: IntArray, code: IntArray) -> IntArray:
    """Returns (n,): the number of positions in which each row of (n, d) codes differs from the code (d,)."""
    return np.count_nonzero(codes != code, axis=1)


def _token_words(architectures: Sequence[str]) -> NDArray[np.str_]:
    rows = [tokens_of(architecture) for architecture in architectures]
    for architecture, row in zip(architectures, rows, strict=True):
        if len(row) != len(rows[0]) or not row:
            raise InvalidInput(
                f"expected the same number of tokens in every architecture for the encoding {TOKENS}, got "
                f"{len(rows[0])} in {architectures[0]!r} and {len(row)} in {architecture!r}. Choose another of {FORMS}"
            )
    return np.array(rows, dtype=np.str_)


def _table_words(encoding: str, table: pd.DataFrame | None) -> NDArray[np.str_]:
    names = [name.strip() for name in encoding.removeprefix(COLUMNS).split(",")]
    columns = [] if table is None else [str(name) for name in table.columns]
    missing = [name for name in names if name not in columns]
    if missing or table is None:
        raise InvalidInput(
            f"the encoding {encoding} does not fit: the table has no column {', '.join(map(repr, missing))}; it has "
            f"{', '.join(columns)}"
        )
    return np.stack([table[name].astype(str).to_numpy(dtype=np.str_) for name in names], axis=1)
