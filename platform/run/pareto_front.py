"""The set that a search with several objectives ended with: its members, numbered, and those trained in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archray.files import Folder
from archray.platform.run.layout import MEMBERS, PARETO

if TYPE_CHECKING:  # a run is opened without
    import pandas as pd

_INNER = "settings"  # what a member was trained with, in brief: for the stage that trains more of them


def front_of(run: Folder) -> pd.DataFrame:
    """A row a member, the most accurate first, numbered from 1 in `member`; empty where the set is not written.

    What was trained in full has its test accuracy, or what the table says, and where its model lies, in the run.
    """
    import pandas as pd

    if not (run / "pareto").exists(PARETO):
        return pd.DataFrame()
    front = (run / "pareto").read_parquet(PARETO)
    front.insert(0, "member", range(1, len(front) + 1))
    if not (run / "members").exists(MEMBERS):
        return front
    trained = (run / "members").read_parquet(MEMBERS)
    further = [column for column in trained if column not in front and column != _INNER]
    return front.merge(trained[["number", *further]], on="number", how="left", validate="one_to_one")
