"""What a table of trained architectures says of the architectures of a space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from archray.errors import InvalidArchitecture, InvalidInput
from archray.trainables.spaces import Space
from archray.trainables.spaces.table_base import canonical_string
from archray.trainables.tabular import open_table

FEWEST = 3  # architectures that a correlation needs


@dataclass(frozen=True)
class TableValues:
    """The values after training, of the canonical forms of a space.

    Attributes:
        location: of the table's file. checksum: SHA-256 of it.
        column: what the table's result is called; its objective, if it has no result. mode: whether the larger or the
            smaller one is better.
        values: canonical string -> value.
    """

    location: str
    checksum: str
    column: str
    mode: Literal["max", "min"]
    values: Mapping[str, float]

    @classmethod
    def read(cls, name: str, space: Space) -> TableValues:
        """Of `table:FILE`, with roles of columns behind a `?`.

        Raises: InvalidTable, InvalidInput, as `open_table`; InvalidInput for a table of another space, or of fewer than
        three architectures.
        """
        table, values = open_table(name), dict[str, float]()
        for row in table.rows:
            text = table.architectures[row]
            try:
                values.setdefault(canonical_string(space, text), float(table.result[row]))
            except InvalidArchitecture as error:
                raise InvalidInput(
                    f"expected a table of architectures of {space.name}, and {table.location} is of others ({error}); "
                    "give one of that space, or search the space that the table is of (--space)"
                ) from error
        if len(values) < FEWEST:
            raise InvalidInput(
                f"expected {FEWEST} architectures or more, got {len(values)} in {table.location}; give a larger table"
            )
        column = table.roles.result or str(table.roles.objective)
        return cls(table.location, table.space.file.checksum, column, table.mode, values)

    def described(self) -> dict[str, Any]:
        """All but the values, and the best of them; JSON-able."""
        best = (max if self.mode == "max" else min)(self.values.values())
        return {
            "location": self.location,
            "checksum": self.checksum,
            "column": self.column,
            "mode": self.mode,
            "architectures": len(self.values),
            "best": best,
        }
