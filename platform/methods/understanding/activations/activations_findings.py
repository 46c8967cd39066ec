"""What a study of activations concludes, in sentences. Roberts et al. 2022."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from archray.platform.methods.understanding.activations.activation_rows import AGREEMENTS, BEST, COMPARED
from archray.platform.methods.understanding.activations.theorem_counts import Share, search_counts, teacher_counts
from archray.platform.quantities import Quantity, signed, whole_number
from archray.platform.run.run import Run
from archray.plurals import count

TAU = Quantity("Kendall's tau", digits=2)
WORDS = {
    "alpha": "alpha",
    "shared": "shared-weights loss",
    "standalone": "standalone training",
    "uniform": "loss of weights trained at uniform alpha",
    "initial": "loss of the initial weights",
    "random": "a random order",
}
BY = {
    **{ranking: f"of the {words}" for ranking, words in WORDS.items()},
    "alpha": "of alpha",
    "random": "of a random order",
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
        text += f"the condition holds for {whole_number(met.number if met else 0)} of {count(number, 'pair')}"
        text += f", and the conclusion for {whole_number(met.holds)} of these" if met else ""
        told.append(text + (f"; where the condition fails, for {_percent(unmet)}" if unmet else ""))
    return told


def searched_words(run: Run[Any]) -> list[str]:
    """How often a searched alpha orders two activations as their shared losses do, a sentence for each labels."""
    told = []
    for one in search_counts(run):
        searches = count(one.instances, "search", "searches")
        told.append(f"{one.labels} labels, {searches}: {agreement_words(one.met, one.unmet)}")
    return told


def agreement_words(met: Share | None, unmet: Share | None) -> str:
    """How often the larger alpha has the smaller loss, where the condition holds and where it fails."""
    parts = [f"in {_percent(met)} where the condition holds"] if met else []
    parts += [f"in {_percent(unmet)} where it fails" if met else f"in {_percent(unmet)}"] if unmet else []
    text = f"the larger alpha has the smaller shared loss {' and '.join(parts)}"
    return text if met else f"{text}, none of which meets the condition"


def total(shares: Iterable[Share | None]) -> Share | None:
    """All of them as one; None of none."""
    known = [share for share in shares if share]
    return Share(sum(share.holds for share in known), sum(share.number for share in known)) if known else None


def _of_the_best(run: Run[Any]) -> list[str]:
    counts = search_counts(run, BEST)
    met = total(one.met for one in counts)
    if met is None:
        return []
    text = "without realizability the theorem needs the alpha that is best for the weights: with that the conclusion "
    return [f"{text}holds for {whole_number(met.holds)} of {count(met.number, 'pair')} whose condition does"]


def _of_rankings(run: Run[Any]) -> list[str]:
    table = run.table("shared", AGREEMENTS)
    told = []
    for labels in [kind for kind in run.config.labels if not table.empty and kind in set(table["labels"])]:
        rows = table[table["labels"].eq(labels)]
        parts = []
        for ranking, reference in COMPARED:
            taus = _taus(rows, ranking, reference)
            if reference == "standalone" and len(taus):
                parts.append(f"{signed(f'{taus.mean():.2f}')} {BY[ranking]}")
        with_shared = _taus(rows, "alpha", "shared")
        alpha, shared = (100 * _top(rows, ranking) for ranking in ("alpha", "shared"))
        told.append(
            f"{labels} labels: Kendall's tau of alpha with the shared loss is {TAU.spread(with_shared)}; with "
            f"standalone training it is {', '.join(parts)}; the largest alpha is that of the best alone in "
            f"{alpha:.0f} % of the seeds, the smallest shared loss in {shared:.0f} %"
        )
    return told


def _taus(rows: pd.DataFrame, ranking: str, reference: str) -> pd.Series:
    return rows.loc[rows["ranking"].eq(ranking) & rows["reference"].eq(reference), "kendall"].dropna()


def _top(rows: pd.DataFrame, ranking: str) -> float:
    """How often the first of a ranking is the best trained alone."""
    return float(rows.loc[rows["ranking"].eq(ranking) & rows["reference"].eq("standalone"), "top"].mean())


def _percent(share: Share) -> str:
    return f"{100 * share.value:.1f} % of {count(share.number, 'pair')}"
