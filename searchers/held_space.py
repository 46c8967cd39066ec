"""A space that a searcher draws from: named in its state, opened again where it is needed."""

from __future__ import annotations

from typing import Any

from archray.trainables.spaces import Architecture, Space, get_space


class HeldSpace:
    """A space that does not travel with the searcher that holds it: a copy opens it again by its name.

    Args:
        source: a space, its name or reference.
    """

    def __init__(self, source: str | Space) -> None:
        self.source = source
        self._space: Space | None = None

    @property
    def space(self) -> Space:
        """Raises: UnknownName if there is no such space."""
        if self._space is None:
            self._space = get_space(self.source)
        return self._space

    @property
    def name(self) -> str:
        """As it was given: the same in a state and in the searcher that continues from it."""
        return self.source if isinstance(self.source, str) else self.source.name

    def canonical_string(self, architecture: Architecture) -> str:
        """The string of the architecture's canonical form."""
        return self.space.encode(self.space.canonical(architecture))

    def canonicalise(self, name: str) -> str:
        """The string of the canonical form of the architecture called `name`. Raises: InvalidArchitecture."""
        return self.canonical_string(self.space.decode(name))

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self.source, "_space": None}
