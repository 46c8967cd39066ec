"""Tables of the study of activations: risks, pairs, agreements of rankings, counts of pairs. Roberts et al. 2022."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from archray.platform.run.run import Run
from archray.trainables.activations.instances import Pairs, SharedRisks
from archray.trainables.tune.activation_trainable import OF_ACTIVATIONS, OF_INSTANCES

PAIR_COLUMNS = (
    "first", "second", "first_alpha", "second_alpha", "first_risk", "second_risk", "first_distance",
    "second_distance", "condition", "conclusion", "margin",
)  # fmt: skip


def pair_table(risks: SharedRisks, names: np.ndarray, of_instances: Mapping[str, Any]) -> pd.DataFrame:
    """A row for each pair of an instance with L(f_first) < L(f_second): PAIR_COLUMNS and the columns of the instance.

    Args:
        risks: risks of S instances with h activations.
        names: (S, h) names of the activations.
        of_instances: columns of S values, or a single value for all instances.
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


ACTIVATION_ROWS, PAIRS, AGREEMENTS = "activations.parquet", "pairs.parquet", "agreements.parquet"
KEYS = ["labels", "number"]  # of an instance
SEARCHED, BEST = "searched", "best"  # the alpha of a pair: of the search, or the best for its weights
# Rankings of activations by a column of `activations.parquet`: the largest alpha is best, the smallest value of others.
RANKINGS = ("alpha", "shared", "uniform", "initial", "random")
COMPARED = [("alpha", "shared"), *((ranking, "standalone") for ranking in RANKINGS)]  # the second is a risk


def rows_of_activations(instances: pd.DataFrame, activations: Sequence[str]) -> pd.DataFrame:
    """A row for each activation of each instance: KEYS, `activation`, and the columns of the trainable.

    instances: a row per instance, with a column per activation such as `alpha_relu`.
    """
    parts = []
    for activation in activations:
        part = instances[[*KEYS, *OF_INSTANCES]].assign(activation=activation)
        parts.append(part.assign(**{name: instances[f"{name}_{activation}"].astype(float) for name in OF_ACTIVATIONS}))
    rows = pd.concat(parts, keys=range(len(parts)), names=["place"]).reset_index("place")
    rows = rows.sort_values([*KEYS, "place"], ignore_index=True)
    return rows[[*KEYS, "activation", *OF_ACTIVATIONS, *OF_INSTANCES]]


def rows_of_pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """The pairs of each instance in `activations.parquet`, with the searched alpha and with the best one."""
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
    """A row for each instance and pair of rankings, with their agreement.

    Columns: `ranking` and `reference`; `kendall`, `spearman`; `top` (whether both have the same first activation);
    `conditions` (share of the instance's pairs with the searched alpha that meet the condition).
    """
    from scipy import stats  # half a second

    searched = pairs[pairs["alpha_of"].eq(SEARCHED)]
    conditions = searched.groupby(KEYS)["condition"].mean()
    agreements = []
    rng = np.random.default_rng(seed)
    for key, instance in rows.groupby(KEYS, sort=False):
        instance = instance.assign(random=rng.random(len(instance)))
        for ranking, reference in COMPARED:
            values = instance[ranking].to_numpy() * (-1 if ranking == "alpha" else 1)
            risks = instance[reference].to_numpy()
            kendall, spearman = (float(f(values, risks).statistic) for f in (stats.kendalltau, stats.spearmanr))
            top = bool(values.argmin() == risks.argmin())
            share = float(conditions.get(key, math.nan))
            agreements.append((*key, ranking, reference, kendall, spearman, top, share))
    columns = [*KEYS, "ranking", "reference", "kendall", "spearman", "top", "conditions"]
    return pd.DataFrame(agreements, columns=columns)


TEACHERS = "teachers.parquet"
THEOREMS = {2: "Theorem 1", 3: "Theorem 4"}  # by number of activations; Theorem 7 for any number


@dataclass(frozen=True)
class Share:
    """`holds` of `number` pairs, with the 95 % Wilson interval, which assumes independent pairs."""

    holds: int
    number: int

    def __str__(self) -> str:
        return f"{self.holds} of {self.number}"

    @property
    def value(self) -> float:
        return self.holds / self.number

    @property
    def interval(self) -> tuple[float, float]:
        from scipy.stats import binomtest  # half a second

        low, high = binomtest(self.holds, self.number).proportion_ci(0.95, method="wilson")
        return float(low), float(high)

    @classmethod
    def of(cls, conclusions: pd.Series) -> "Share | None":
        """The share of pairs with the conclusion; None without pairs."""
        return cls(int(conclusions.sum()), len(conclusions)) if len(conclusions) else None


@dataclass(frozen=True)
class TheoremCount:
    """The counts of one kind of pairs.

    Attributes:
        words: name in reports.
        labels: kind of labels; empty for teachers.
        instances: number of instances.
        activations: number of activations (h).
        met, unmet: share of pairs with the conclusion, among pairs that meet and that do not meet the condition.
        margin: the same share among pairs that meet the condition and have the margin of note U5.
    """

    words: str
    labels: str
    instances: int
    activations: int
    met: Share | None
    unmet: Share | None
    margin: Share | None


def teacher_counts(run: Run[Any]) -> list[TheoremCount]:
    """Counts of the random teachers by number of activations."""
    table = run.table("teachers", TEACHERS)
    if table.empty:
        return []
    return [
        _count(table[table["activations"].eq(h)], f"{THEOREMS.get(h, 'Theorem 7')}, {h} activations", h)
        for h in run.config.sizes
    ]


def search_counts(run: Run[Any], alpha_of: str = SEARCHED) -> list[TheoremCount]:
    """Counts of the searches by labels. alpha_of: SEARCHED, or BEST for the best alpha with the searched weights.

    Pairs in which the best alpha is zero for both activations have no order and are ignored.
    """
    table = run.table("shared", PAIRS)
    if table.empty:
        return []
    table = table[table["alpha_of"].eq(alpha_of)]
    if alpha_of == BEST:
        table = table[table["first_alpha"].gt(0) | table["second_alpha"].gt(0)]
    h, groups = len(run.config.problem.activations), dict(list(table.groupby("labels")))
    order = [labels for labels in run.config.labels if labels in groups]
    return [_count(groups[labels], f"{labels}, {alpha_of} alpha", h, labels) for labels in order]


def _count(pairs: pd.DataFrame, words: str, activations: int, labels: str = "") -> TheoremCount:
    condition, conclusion = pairs["condition"].astype(bool), pairs["conclusion"].astype(bool)
    return TheoremCount(
        words=words,
        labels=labels,
        instances=int(pairs["number"].nunique()),
        activations=activations,
        met=Share.of(conclusion[condition]),
        unmet=Share.of(conclusion[~condition]),
        margin=Share.of(conclusion[condition & pairs["margin"].astype(bool)]),
    )


def all_counts(run: Run[Any]) -> Iterator[TheoremCount]:
    """The counts of teachers, of the searched alpha, and of the best alpha."""
    yield from teacher_counts(run)
    yield from search_counts(run, SEARCHED)
    yield from search_counts(run, BEST)
