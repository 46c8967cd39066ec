"""The questions of an HNAS search: a user's own, and the table of all, what was answered from memory among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from archray.errors import InvalidInput
from archray.searchers.ledger import Record


def checked_question(point: Mapping[str, Any]) -> dict[str, Any]:
    """A user's point, whole: `architecture`, `mu`, `nu`; what is not given is None. Raises: InvalidInput."""
    name, mu, nu = point.get("architecture"), point.get("mu"), point.get("nu")
    if name is None and ("mu" not in point or "nu" not in point):
        raise InvalidInput(f"expected a point with architecture, or with mu and nu, got {point!r}")
    if name is not None and not isinstance(name, str):
        raise InvalidInput(f"expected architecture to be a string, got {name!r}")
    if (mu is None) != (nu is None) or (mu is not None and nu is not None and not (mu > 0 and nu >= 0)):
        raise InvalidInput(f"expected mu > 0 and nu >= 0, or neither, got mu={mu!r}, nu={nu!r}")
    return {"architecture": name, "mu": mu, "nu": nu}


def asked_table(
    observations: Sequence[Mapping[str, Any]], records: Sequence[Record], row: Callable[[Record], dict[str, Any]]
) -> pd.DataFrame:
    """A row per question, in order: what was answered from memory, beside the trainings.

    Columns: number (from 0; -1 for an evaluation handed over), trial (the number of the trial whose value it is),
    architecture, mu, nu, value (NaN if it failed), failure, repeat (answered without a training), given.

    Args:
        observations: what the optimiser was told: `mu`, `nu`, `number` of the trial whose value it is, and the number
            of the suggestion that was sought, `for`.
        records: the trials, and what was handed over, in order.
        row: a record as a row of the history.
    """
    by_number = {record.number: record for record in records}
    columns = ["number", "trial", "architecture", "mu", "nu", "value", "failure", "repeat", "given"]
    table, number = [], 0
    for record in records:
        own = [o for o in observations if o["for"] == record.number != o["number"]]
        answers = [(by_number[o["number"]], o["mu"], o["nu"], True) for o in own]
        for answer, mu, nu, repeat in [*answers, (record, record.config["mu"], record.config["nu"], False)]:
            entry = row(answer) | {"trial": answer.number, "mu": mu, "nu": nu, "repeat": repeat}
            entry |= {"number": -1 if entry["given"] and not repeat else number}
            number += entry["number"] >= 0
            table.append(entry)
    return pd.DataFrame(table, columns=columns).astype({"mu": float, "nu": float, "value": float})
