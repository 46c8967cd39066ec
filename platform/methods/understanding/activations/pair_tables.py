"""Tables of pairs of activations: risks, conditions and conclusions, a row for each pair that is ordered by its risks.

Roberts et al. 2022, Theorems 1, 4 and 7; notes U4 and U5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch

from archray.trainables.activations.conditions import Pairs, SharedRisks

PAIR_COLUMNS = (
    "first", "second", "first_alpha", "second_alpha", "first_risk", "second_risk", "first_distance",
    "second_distance", "condition", "conclusion", "margin",
)  # fmt: skip


def pair_table(risks: SharedRisks, names: np.ndarray, of_instances: Mapping[str, Any]) -> pd.DataFrame:
    """A row for each pair of an instance with L(f_first) < L(f_second): PAIR_COLUMNS, and those of the instance.

    Args:
        risks: of S instances with h activations. names: of these, (S, h), text.
        of_instances: columns of S values, or one for all.
    """
    pairs = Pairs.of(risks)
    instance, first, second = (index.numpy() for index in torch.nonzero(pairs.ordered.cpu(), as_tuple=True))
    columns: dict[str, Any] = {
        name: values if isinstance(values, str | int) else np.asarray(values)[instance]
        for name, values in of_instances.items()
    }
    for word, index in (("first", first), ("second", second)):
        columns[word] = names[instance, index]
        columns[f"{word}_alpha"] = risks.alpha.cpu().numpy()[instance, index]
        columns[f"{word}_risk"] = risks.discrete.cpu().numpy()[instance, index]
        columns[f"{word}_distance"] = risks.distances.cpu().numpy()[instance, index]
    for word, holds in (("condition", pairs.condition), ("conclusion", pairs.conclusion), ("margin", pairs.margin)):
        columns[word] = holds.cpu().numpy()[instance, first, second]
    table = pd.DataFrame(columns)
    return table[[*of_instances, *PAIR_COLUMNS]]
