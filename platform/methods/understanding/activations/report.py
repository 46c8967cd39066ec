"""Report of the study of activations: findings, headline, sections and listings. Roberts et al. 2022."""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from archray.platform.methods.understanding.activations.figures import (
    activation_agreement,
    activation_alpha,
    activation_conditions,
    activation_ranks,
)
from archray.platform.methods.understanding.activations.tables import (
    ACTIVATION_ROWS,
    AGREEMENTS,
    BEST,
    COMPARED,
    Share,
    TheoremCount,
    all_counts,
    search_counts,
    teacher_counts,
)
from archray.platform.quantities import MISSING, Quantity, signed, significant
from archray.platform.report.figures import figure_section
from archray.platform.report.page import Card, Headline, MakeSection
from archray.platform.report.run_sections import failures_section, manifest_section
from archray.platform.report.section import Column, Section, numeric, paragraphs, table
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.plurals import count

_text = texts_of(__package__)
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
    return [_text("teachers", pairs=pairs) for pairs in teacher_counts(run)]


def searched_words(run: Run[Any]) -> list[str]:
    """How often a searched alpha orders two activations as their shared losses do, a sentence for each labels."""
    return [
        f"{pairs.labels} labels, {count(pairs.instances, 'search', 'searches')}: "
        f"{_text('agreement', met=pairs.met, unmet=pairs.unmet)}"
        for pairs in search_counts(run)
    ]


def total(shares: Iterable[Share | None]) -> Share | None:
    """All of them as one; None of none."""
    counted = [share for share in shares if share]
    return Share(sum(share.holds for share in counted), sum(share.number for share in counted)) if counted else None


def _of_the_best(run: Run[Any]) -> list[str]:
    met = total(pairs.met for pairs in search_counts(run, BEST))
    return [_text("best_alpha", met=met)] if met else []


def _of_rankings(run: Run[Any]) -> list[str]:
    table = run.table("shared", AGREEMENTS)
    sentences = []
    for labels in [kind for kind in run.config.labels if not table.empty and kind in set(table["labels"])]:
        rows = table[table["labels"].eq(labels)]
        of_standalone = {ranking: _taus(rows, ranking, other) for ranking, other in COMPARED if other == "standalone"}
        means = {ranking: signed(f"{taus.mean():.2f}") for ranking, taus in of_standalone.items() if len(taus)}
        text = _text(
            "rankings",
            labels=labels,
            with_shared=TAU.spread(_taus(rows, "alpha", "shared")),
            with_standalone=", ".join(f"{mean} {BY[ranking]}" for ranking, mean in means.items()),
            alpha=_top(rows, "alpha"),
            shared=_top(rows, "shared"),
        )
        sentences.append(text)
    return sentences


def _taus(rows: pd.DataFrame, ranking: str, reference: str) -> pd.Series:
    return rows.loc[rows["ranking"].eq(ranking) & rows["reference"].eq(reference), "kendall"].dropna()


def _top(rows: pd.DataFrame, ranking: str) -> float:
    """How often the first of a ranking is the best trained alone."""
    return float(rows.loc[rows["ranking"].eq(ranking) & rows["reference"].eq("standalone"), "top"].mean())


def headline(run: Run[Any]) -> Headline:
    """What alpha says, in two sentences, and the numbers."""
    run = run.best
    teachers, searches = teacher_counts(run), search_counts(run)
    lead, cards = "The study has not ended.", []
    if exact := total(one.met for one in teachers):
        violations = exact.number - exact.holds
        of = count(exact.number, "pair")
        lead = f"The theorems fail in {violations} of {of} of random teachers that meet the condition."
        cards.append(Card("found", str(violations), f"exceptions in {of} of teachers with the condition"))
    met, unmet = total(one.met for one in searches), total(one.unmet for one in searches)
    if searches:
        lead += f" After a search {_text('agreement', met=met, unmet=unmet)}."
    for words, share, look in (("condition holds", met, "found"), ("condition fails", unmet, "random")):
        if share:
            low, high = share.interval
            label = (
                f"of {count(share.number, 'pair')} of searches agree, {words} ({100 * low:.0f} to {100 * high:.0f} %)"
            )
            cards.append(Card(look, f"{100 * share.value:.0f} %", label))
    problem = run.config.problem
    return Headline(
        thing="activations",
        lead=lead,
        cards=cards,
        facts={
            "Activations": ", ".join(problem.activations),
            "Width and samples": f"{problem.width}; {problem.samples} + {problem.validation}",
            "Seeds": f"{run.config.seeds} of each: {', '.join(run.config.labels)}",
        },
    )


def claims_section(run: Run[Any]) -> Section | None:
    """The counts of pairs as a figure and a table. Nothing before the teachers are counted."""
    run = run.best
    counts = list(all_counts(run))
    if not counts:
        return None
    description = "How often the larger alpha has the smaller loss, where the condition holds and where it fails."
    columns = [Column("Pairs of"), *numeric("Instances", "h", "Condition holds", "Then alpha agrees", "Interval")]
    columns += [*numeric("Condition fails", "alpha agrees", "Interval"), Column("With the margin")]
    rows = [_count_row(one) for one in counts]
    return figure_section(
        "claims",
        "Does alpha order the activations?",
        activation_conditions(run),
        description=description,
        caption=f"{description} Bars are Wilson intervals of 95 %; pairs of one instance are not independent.",
        below=paragraphs([_text("pairs"), _text("best")])
        + table(columns, rows, label="Claims and counts", sortable=False),
    )


def _count_row(one: TheoremCount) -> tuple[object, ...]:
    return (
        one.words,
        one.instances,
        one.activations,
        one.met.number if one.met else 0,
        *_share_cells(one.met),
        one.unmet.number if one.unmet else 0,
        *_share_cells(one.unmet),
        f"{one.margin.holds} of {one.margin.number}" if one.margin else MISSING,
    )


def _share_cells(share: Share | None) -> tuple[str, str]:
    if share is None:
        return MISSING, MISSING
    low, high = share.interval
    return f"{100 * share.value:.1f} %", f"{100 * low:.1f} to {100 * high:.1f}"


def agreement_section(run: Run[Any]) -> Section | None:
    """Rankings against each other. Nothing before a search has ended."""
    run = run.best
    rows = run.table("shared", AGREEMENTS)
    if rows.empty:
        return None
    description = "Kendall's tau of each ranking with that by standalone training, a point per seed."
    columns = [*map(Column, ("Labels", "Ranking", "Against")), *numeric("Seeds", "Kendall", "Spearman", "Same best")]
    cells = []
    for labels in [kind for kind in run.config.labels if kind in set(rows["labels"])]:
        for ranking, reference in COMPARED:
            of_both = rows["ranking"].eq(ranking) & rows["reference"].eq(reference)
            part = rows[rows["labels"].eq(labels) & of_both]
            values = (TAU.spread(part["kendall"].dropna()), TAU.spread(part["spearman"].dropna()))
            same = f"{100 * part['top'].mean():.0f} %"
            cells.append((labels, WORDS[ranking], WORDS[reference], len(part), *values, same))
    texts = [_text("same_best", activations=len(run.config.problem.activations)), *_by_conditions(rows)]
    return figure_section(
        "agreement",
        "Which ranking is right?",
        activation_agreement(run),
        description=description,
        caption=f"{description} The line is the mean; a random ranking has 0 on average.",
        below=paragraphs(texts) + table(columns, cells, label="Agreement of rankings"),
    )


def _by_conditions(rows: pd.DataFrame) -> list[str]:
    """Alpha against the shared loss, of the instances more of whose pairs meet the condition, and of the others."""
    rows = rows[rows["ranking"].eq("alpha") & rows["reference"].eq("shared")].dropna(subset="kendall")
    if rows.empty:
        return []
    middle = rows["conditions"].median()
    often = rows["conditions"].ge(middle)
    parts = {"often": rows[often], "rarely": rows[~often]}
    values = {name: {"tau": TAU.spread(part["kendall"]), "searches": len(part)} for name, part in parts.items()}
    shown = {name: value if value["searches"] else None for name, value in values.items()}
    return [_text("by_condition", middle=middle, **shown, always=int(rows["conditions"].eq(1).sum()))]


def ranks_section(run: Run[Any]) -> Section | None:
    """Rank against rank, and the alphas and losses of each activation. Nothing before a search has ended."""
    run = run.best
    rows = run.table("shared", ACTIVATION_ROWS)
    if rows.empty:
        return None
    description = "The rank of each activation by alpha against its rank by the loss with the shared weights."
    columns = [Column("Labels"), Column("Activation")]
    columns += numeric("alpha", "Best alpha", "Shared loss", "Standalone loss")
    rows = rows.assign(labels=pd.Categorical(rows["labels"], run.config.labels, ordered=True)).sort_values(
        "labels", kind="stable"
    )
    of_each = rows.groupby(["labels", "activation"], sort=False, observed=True)
    means = of_each[["alpha", "best_alpha", "shared", "standalone"]].mean()
    cells = [
        (*key, *(significant(value) for value in row)) for key, row in zip(means.index, means.to_numpy(), strict=True)
    ]
    text = "Means over seeds. Losses are 1/2 E (y - f)², on points that neither weights nor alpha have seen."
    return figure_section(
        "ranks",
        "Alpha beside the losses",
        activation_ranks(run),
        description=description,
        caption=f"{description} The larger a point, the more seeds; on the line both agree.",
        below=paragraphs([text]) + table(columns, cells, label="Means of each activation"),
    )


def alpha_section(run: Run[Any]) -> Section:
    """Alpha over a search."""
    description = "The architecture parameters over the first seed's search."
    caption = f"{description} alpha by mirror descent on validation points, the weights by gradient descent on others."
    canvas = activation_alpha(run.best)
    return figure_section("alpha", "A search", canvas, description=description, caption=caption)


def listings(run: Run[Any]) -> Sequence[Listing]:
    """The counts, as rows."""
    rows = [
        {
            "pairs": one.words,
            "condition": f"{one.met.holds} of {one.met.number}" if one.met else None,
            "no_condition": f"{one.unmet.holds} of {one.unmet.number}" if one.unmet else None,
        }
        for one in all_counts(run)
    ]
    return [Listing.of("pairs that alpha orders as the losses do", rows)] if rows else []


SECTIONS: Sequence[MakeSection] = (
    claims_section,
    agreement_section,
    ranks_section,
    alpha_section,
    failures_section({"searches": ("shared", TRIALS)}),
    manifest_section,
)
