"""NAS-Bench-201: cells of 4 nodes, 6 edges, 5 operations (Dong and Yang 2020; thesis 7.5)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import ClassVar

from archray.errors import InvalidArchitecture
from archray.trainables.spaces.cell_isomorphism import NormalForm, normal_form
from archray.trainables.spaces.space import SPACES, Architecture, Decision, Space

EDGES = ((1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2))  # (target, source), in the order of the string
OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")  # the benchmark's order
FORM = "|op~0|+|op~0|op~1|+|op~0|op~1|op~2|"

_PATTERN = re.compile(
    r"\|([^|~+]*)~0\|"
    r"\+\|([^|~+]*)~0\|([^|~+]*)~1\|"
    r"\+\|([^|~+]*)~0\|([^|~+]*)~1\|([^|~+]*)~2\|"
)


@SPACES.register("nasbench201")
class NASBench201(Space):
    """The space of NAS-Bench-201: an operation for each edge of a complete cell of 4 nodes, 15,625 cells.

    Node 0 is the cell's input, node 3 its output; a node is the sum of its incoming edges. Strings are the
    benchmark's own: `|nor_conv_3x3~0|+|none~0|skip_connect~1|+|…|`, `op~i` meaning the operation from node i.
    """

    name: ClassVar[str] = "nasbench201"
    decisions = tuple(Decision(f"{target}<-{source}", OPERATIONS) for target, source in EDGES)

    def encode(self, architecture: Architecture) -> str:
        """The benchmark's string. Raises: InvalidArchitecture."""
        self.check(architecture)
        a, b, c, d, e, f = architecture
        return f"|{a}~0|+|{b}~0|{c}~1|+|{d}~0|{e}~1|{f}~2|"

    def decode(self, text: str) -> Architecture:
        """The architecture of a string of the benchmark's.

        Raises: InvalidArchitecture, naming the form expected, or the operations there are.
        """
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise InvalidArchitecture(
                f"nasbench201: expected a cell of 6 operations as {FORM}, got {text!r}; "
                f"an operation is one of {', '.join(OPERATIONS)}"
            )
        architecture = match.groups()
        self.check(architecture)
        return architecture

    def check(self, architecture: Architecture) -> None:
        """Raises: InvalidArchitecture if `architecture` is not six of the operations."""
        if len(architecture) != len(EDGES):
            raise InvalidArchitecture(
                f"nasbench201 has 6 edges ({', '.join(d.name for d in self.decisions)}), "
                f"got {len(architecture)} operations: {architecture!r}"
            )
        for operation in architecture:
            if operation not in OPERATIONS:
                raise InvalidArchitecture(
                    f"nasbench201 has no operation {operation!r}; choose one of {', '.join(OPERATIONS)}"
                )

    def canonical(self, architecture: Architecture) -> Architecture:
        """The first cell, in enumeration order, that is the same network as `architecture` in distribution.

        What counts as the same is `cell_isomorphism.normal_form`: dead parts removed, skips passed through,
        sums commuted, pooling distributed over sums, layers renamed; nothing that only behaves alike. As `none`
        comes first, a canonical cell has `none` on every edge that is dead. The first call in a process goes
        through the whole space (about a second).
        """
        self.check(architecture)
        return _canonical_forms()[architecture]


@lru_cache(maxsize=1)
def _canonical_forms() -> dict[Architecture, Architecture]:
    """Every cell's canonical form."""
    first: dict[NormalForm, Architecture] = {}
    return {cell: first.setdefault(normal_form(EDGES, cell), cell) for cell in NASBench201().enumerate()}
