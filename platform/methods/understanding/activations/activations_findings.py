"""What a study of activations concludes, in sentences. Roberts et al. 2022."""

from __future__ import annotations

from typing import Any

import pandas as pd

from archray.platform.methods.understanding.activations.activation_rows import AGREEMENTS, BEST, COMPARED
from archray.platform.methods.understanding.activations.theorem_counts import Share, search_counts, teacher_counts
from archray.platform.quantities import Quantity
from archray.platform.run.run import Run
from archray.plurals import count

TAU = Quantity("Kendall's tau", digits=2)
WORDS = {
    "alpha": "alpha",
    "shared": "shared-weights loss",
    "standalone": "standalone training",
    "uniform": "shared loss, weights trained at uniform alpha",
    "initial": "loss of the initial weights",
    "random": "at random",
}


def findings(run: Run[Any]) -> list[str]:
    """What the study concludes, a sentence each."""
    return [sentence for make in (_of_teachers, searched_words, _of_the_best, _of_rankings) for sentence in make(run)]


def _of_teachers(run: Run[Any]) -> list[str]:
    told = []
    for one in teacher_counts(run):
        met, unmet = one.met, one.unmet
        text = f"{one.words}, {count(one.instances, 'random teacher')}: "
        number = sum(share.number for share in (met, unmet) if share)
        text += f"the condition holds for {met.number if met else 0} of {count(number, 'pair')}"
        text += f", and the conclusion for {met.holds} of these" if met else ""
        told.append(text + (f"; where the condition fails, for {_percent(unmet)}" if unmet else ""))
    return told


def searched_words(run: Run[Any]) -> list[str]:
    """How often a searched alpha orders two activations as their shared losses do, a sentence for each labels."""
    told = []
    for one in search_counts(run):
        met, unmet = one.met, one.unmet
        parts = [f"in {_percent(met)} where the condition holds"] if met else []
        parts += [f"in {_percent(unmet)} where it fails" if met else f"in {_percent(unmet)}"] if unmet else []
        text = f"{one.labels} labels, {count(one.instances, 'search', 'searches')}: the larger alpha has the smaller "
        told.append(f"{text}shared loss {' and '.join(parts)}" + ("" if met else ", none of which meets the condition"))
    return told


def _of_the_best(run: Run[Any]) -> list[str]:
    counts = search_counts(run, BEST)
    met = [one.met for one in counts if one.met]
    if not met:
        return []
    holds, number = sum(share.holds for share in met), sum(share.number for share in met)
    text = "without realizability the theorem needs the alpha that is best for the weights: with that the conclusion "
    return [f"{text}holds for {holds} of {count(number, 'pair')} whose condition does"]


def _of_rankings(run: Run[Any]) -> list[str]:
    table = run.table("shared", AGREEMENTS)
    told = []
    for labels in [kind for kind in run.config.labels if not table.empty and kind in set(table["labels"])]:
        rows = table[table["labels"].eq(labels)]
        parts = []
        for ranking, reference in COMPARED:
            taus = _taus(rows, ranking, reference)
            if reference == "standalone" and len(taus):
                parts.append(f"{taus.mean():.2f} by {WORDS[ranking]}")
        with_shared = _taus(rows, "alpha", "shared")
        told.append(
            f"{labels} labels: Kendall's tau of alpha with the shared loss is {TAU.spread(with_shared)}; with "
            f"standalone training it is {', '.join(parts)}"
        )
    return told


def _taus(rows: pd.DataFrame, ranking: str, reference: str) -> pd.Series:
    return rows.loc[rows["ranking"].eq(ranking) & rows["reference"].eq(reference), "kendall"].dropna()


def _percent(share: Share) -> str:
    return f"{100 * share.value:.1f} % of {count(share.number, 'pair')}"
