"""What came of every instance as tables: a row an activation, a pair, an agreement of two rankings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from scipy import stats

from archray.platform.methods.understanding.activations.pair_tables import pair_table
from archray.trainables.activations.conditions import SharedRisks
from archray.trainables.tune.activation_trainable import OF_ACTIVATIONS, OF_INSTANCES

ACTIVATION_ROWS, PAIRS, AGREEMENTS = "activations.parquet", "pairs.parquet", "agreements.parquet"
KEYS = ["labels", "number"]  # of an instance
SEARCHED, BEST = "searched", "best"  # whose alpha a pair's is: the search's, or the best for its weights
# Rankings of activations, best first: the column of `activations.parquet`, and whether its largest value is best.
RANKINGS = {
    "alpha": ("alpha", True),
    "shared": ("shared", False),
    "uniform": ("uniform", False),
    "initial": ("initial", False),
    "random": ("random", False),
}
COMPARED = [("alpha", "shared"), *((ranking, "standalone") for ranking in RANKINGS)]  # the second is a risk


def rows_of_activations(instances: pd.DataFrame, activations: Sequence[str]) -> pd.DataFrame:
    """A row for each activation of each instance: KEYS, `activation`, the columns of the trainable.

    instances: a row each, with a column for each activation, `alpha_relu`.
    """
    parts = []
    for activation in activations:
        part = instances[[*KEYS, *OF_INSTANCES]].assign(activation=activation)
        parts.append(part.assign(**{name: instances[f"{name}_{activation}"].astype(float) for name in OF_ACTIVATIONS}))
    rows = pd.concat(parts, keys=range(len(parts)), names=["place"]).reset_index("place")
    rows = rows.sort_values([*KEYS, "place"], ignore_index=True)
    return rows[[*KEYS, "activation", *OF_ACTIVATIONS, *OF_INSTANCES]]


def rows_of_pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """Of `activations.parquet`: the pairs of each instance, with the searched alpha and with the best one."""
    return pd.concat([_pairs(rows, *which) for which in ((SEARCHED, ""), (BEST, "best_"))], ignore_index=True)


def _pairs(rows: pd.DataFrame, word: str, prefix: str) -> pd.DataFrame:
    instances = rows.groupby(KEYS, sort=False)
    number = instances.ngroups

    def values(column: str) -> np.ndarray:
        return rows[column].to_numpy().reshape(number, -1)

    def tensor(column: str) -> torch.Tensor:
        return torch.as_tensor(values(column).astype(float))

    mixture = tensor("best_risk" if prefix else "mixture_risk")[:, 0]
    risks = SharedRisks(tensor(f"{prefix}alpha"), tensor("shared"), mixture, tensor(f"{prefix}distance"))
    of_instances = {**{key: values(key)[:, 0] for key in KEYS}, "alpha_of": word}
    return pair_table(risks, values("activation"), of_instances)


def agreement_rows(rows: pd.DataFrame, pairs: pd.DataFrame, seed: int) -> pd.DataFrame:
    """A row for each instance and two of its rankings: how far they agree.

    `ranking` and `reference`; `kendall`, `spearman`; `top`: whether the first of the one is the first of the other;
    `conditions`: the share of the instance's pairs, with the searched alpha, for which the condition holds.
    """
    searched = pairs[pairs["alpha_of"].eq(SEARCHED)]
    conditions = searched.groupby(KEYS)["condition"].mean()
    found = []
    rng = np.random.default_rng(seed)
    for key, instance in rows.groupby(KEYS, sort=False):
        instance = instance.assign(random=rng.random(len(instance)))
        for ranking, reference in COMPARED:
            column, largest = RANKINGS[ranking]
            values = -instance[column].to_numpy() if largest else instance[column].to_numpy()
            risks = instance[reference].to_numpy()
            kendall, spearman = (float(f(values, risks).statistic) for f in (stats.kendalltau, stats.spearmanr))
            top = bool(values.argmin() == risks.argmin())
            share = float(conditions.get(key, math.nan))
            found.append((*key, ranking, reference, kendall, spearman, top, share))
    columns = [*KEYS, "ranking", "reference", "kendall", "spearman", "top", "conditions"]
    return pd.DataFrame(found, columns=columns)
