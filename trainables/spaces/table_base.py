"""The base of a table: the registered space whose strings its rows are."""

from __future__ import annotations

from collections.abc import Sequence

from archray.errors import InvalidArchitecture
from archray.trainables.spaces.encodings import NONE
from archray.trainables.spaces.space import SPACES, Architecture, Space


def canonical_string(space: Space, text: str) -> str:
    """The string of the canonical form of the architecture called `text`. Raises: InvalidArchitecture."""
    return space.encode(space.canonical(space.decode(text)))


def read_by_base(name: str | None, architectures: Sequence[str]) -> tuple[Space | None, list[Architecture]]:
    """The space of that name, or if none is named the one that reads the strings; and what it reads.

    Raises: InvalidArchitecture for a string that the space cannot read.
    """
    if name == NONE:
        return None, []
    if name is not None:
        space = SPACES.get(name)()
        return space, [space.decode(architecture) for architecture in architectures]
    for known in SPACES:
        space = SPACES.get(known)()
        try:
            space.decode(architectures[0])
        except InvalidArchitecture:
            continue
        try:
            return space, [space.decode(architecture) for architecture in architectures]
        except InvalidArchitecture as error:
            raise InvalidArchitecture(
                f"the first architecture is of {known}, and not all are: {error}; correct the table, or take it as a "
                f"space of its own (--space {NONE})"
            ) from error
    return None, []
