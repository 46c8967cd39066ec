"""The architectures of a space that make one choice throughout: among them are its cheapest, and its dearest."""

from __future__ import annotations

from archray.errors import InvalidArchitecture
from archray.trainables.spaces.space import Architecture, Space


def even_architectures(space: Space) -> list[Architecture]:
    """Architecture i takes the choice i of every decision, or its last one where it has fewer; canonical, each once.

    One operation on every edge, or the least and the most of every size: of what is summed over operations, as most
    costs are, the least and the most stand here or near by. Where a space has no such architecture, as a table without
    that row, it is left out.
    """
    most = max((len(decision.choices) for decision in space.decisions), default=0)
    forms: dict[Architecture, None] = {}
    for number in range(most):
        choices = tuple(decision.choices[min(number, len(decision.choices) - 1)] for decision in space.decisions)
        try:
            space.check(choices)
            forms[space.canonical(choices)] = None
        except InvalidArchitecture:
            continue
    return list(forms)
