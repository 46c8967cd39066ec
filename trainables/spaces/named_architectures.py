"""Published architectures by name: `darts-v2` wherever an architecture of its space is asked for."""

from __future__ import annotations

import difflib

from archray.errors import InvalidArchitecture
from archray.trainables.spaces.genotypes import GenotypeSpace
from archray.trainables.spaces.space import SPACES, Space


def named_architectures() -> dict[str, tuple[str, ...]]:
    """Every name, with the spaces that have an architecture of it."""
    names: dict[str, tuple[str, ...]] = {}
    for space in SPACES:
        for name in SPACES.get(space).named:
            names[name] = (*names.get(name, ()), space)
    return names


def is_name(text: str) -> bool:
    """Whether a text reads like a name, and not like a space's string of an architecture."""
    return bool(text) and all(character.isalnum() or character in "-_." for character in text)


def spelt_out(space: Space, text: str) -> str:
    """The string of an architecture that is given as one, or by its name in the space.

    Raises: InvalidArchitecture for a name that the space does not have, or a string that it cannot read.
    """
    if text in space.named:
        return space.encode(space.decode(space.named[text]))
    known = named_architectures()
    if text in known:
        raise InvalidArchitecture(
            f"expected an architecture of the space {space.name}, got {text!r}, which is one of "
            f"{' and '.join(known[text])}; choose that space, or {_choices(space)}"
        )
    if space.named and is_name(text):
        near = difflib.get_close_matches(text, space.named, n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise InvalidArchitecture(
            f"there is no architecture {text!r} in the space {space.name}; {meant}choose {_choices(space)}"
        )
    space.decode(text)
    return text


def _choices(space: Space) -> str:
    """What may stand for an architecture of a space."""
    names = f"one of {', '.join(space.named)}, or " if space.named else ""
    return f"{names}the string of one of {space.name}"


def cell_space(text: str) -> GenotypeSpace:
    """The space of a genotype: the first of archray's that can read it.

    Raises: InvalidArchitecture if none can, saying what each misses.
    """
    reasons = []
    for name in SPACES:
        if issubclass(SPACES.get(name), GenotypeSpace):
            space = SPACES.get(name)()
            assert isinstance(space, GenotypeSpace)
            try:
                space.decode(text)
            except InvalidArchitecture as error:
                reasons.append(str(error).split(";")[0])
            else:
                return space
    raise InvalidArchitecture(
        f"expected the genotype of two cells, which have a width and a depth, or the name of one (archray list "
        f"architectures), got {text[:200]!r}: {'; '.join(reasons)}"
    )
