"""The questions of an HNAS search as a table: the trainings, and what was answered from memory before each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from archray.searchers.ledger import Record


def asked_table(
    observations: Sequence[Mapping[str, Any]], records: Sequence[Record], row: Callable[[Record], dict[str, Any]]
) -> pd.DataFrame:
    """A row per question, in order; see `HNASSearch.asked`.

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
