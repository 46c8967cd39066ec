"""The report of the study of activations: findings, headline, sections, figures and listings. Roberts et al. 2022."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archray.platform.methods.recipe import Report
from archray.platform.methods.understanding.activations import tables
from archray.platform.methods.understanding.activations.tables import COMPARED, RANKINGS, Share
from archray.platform.quantities import MISSING, Quantity, signed, significant
from archray.platform.report import figures
from archray.platform.report.figures import DASHED, FOUND, INK, MUTED, RANDOM, SERIES, TRIAL, NothingToDraw, figure
from archray.platform.report.page import Card, Headline, MakeSection
from archray.platform.report.run_sections import failures_section, manifest_section
from archray.platform.report.section import Column, Section, numeric, paragraphs, table
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import CURVES, TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.plurals import count

_text = texts_of(__package__)
TAU = Quantity("Kendall's tau", digits=2)
WORDS = {
    "alpha": "alpha",
    "shared": "shared-weights loss",
    "standalone": "standalone training",
    "uniform": "loss with weights trained at uniform alpha",
    "initial": "loss with initial weights",
    "random": "a random order",
}
BY = {ranking: f"of {'' if ranking in ('alpha', 'random') else 'the '}{words}" for ranking, words in WORDS.items()}


def findings(run: Run[Any]) -> list[str]:
    """The conclusions of the study, one sentence each."""
    sentences = [_text("teachers", pairs=pairs) for pairs in tables.teacher_counts(run)]
    for pairs in tables.search_counts(run):
        searches = count(pairs.instances, "search", "searches")
        sentences.append(f"{pairs.labels} labels, {searches}: {_text('agreement', met=pairs.met, unmet=pairs.unmet)}")
    if met := total(pairs.met for pairs in tables.search_counts(run, tables.BEST)):
        sentences.append(_text("best_alpha", met=met))
    return [*sentences, *_of_rankings(run)]


def total(shares: Iterable[Share | None]) -> Share | None:
    """The sum of the shares; None without any."""
    pairs = [(share.holds, share.number) for share in shares if share]
    return Share(*map(sum, zip(*pairs, strict=True))) if pairs else None


def _of_rankings(run: Run[Any]) -> Iterator[str]:
    for labels, rows in _by_labels(run, run.table("shared", tables.AGREEMENTS)):
        taus = {ranking: _taus(rows, ranking, other) for ranking, other in COMPARED if other == "standalone"}
        means = [f"{signed(f'{tau.mean():.2f}')} {BY[ranking]}" for ranking, tau in taus.items() if len(tau)]
        yield _text(
            "rankings",
            labels=labels,
            with_shared=TAU.spread(_taus(rows, "alpha", "shared")),
            with_standalone=", ".join(means),
            alpha=_top(rows, "alpha"),
            shared=_top(rows, "shared"),
        )


def _by_labels(run: Run[Any], rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The kinds of labels in the study's table, in the order of the configuration, with their rows."""
    kinds = set(rows.get("labels", ()))
    return [(kind, rows[rows["labels"].eq(kind)]) for kind in run.config.labels if kind in kinds]


def _taus(rows: pd.DataFrame, ranking: str, reference: str) -> pd.Series:
    return rows.loc[rows["ranking"].eq(ranking) & rows["reference"].eq(reference), "kendall"].dropna()


def _top(rows: pd.DataFrame, ranking: str) -> float:
    """The share of instances in which the first of a ranking is the best by standalone training."""
    return float(rows.loc[rows["ranking"].eq(ranking) & rows["reference"].eq("standalone"), "top"].mean())


def headline(run: Run[Any]) -> Headline:
    """The conclusions about alpha in two sentences, and the counts."""
    run = run.best
    teachers, searches = tables.teacher_counts(run), tables.search_counts(run)
    lead, cards = "The study has not finished.", []
    if exact := total(counts.met for counts in teachers):
        violations, pairs = exact.number - exact.holds, count(exact.number, "pair")
        lead = f"The theorems fail for {violations} of {pairs} of random teachers that meet the condition."
        cards.append(Card("found", str(violations), f"exceptions in {pairs} that meet the condition, random teachers"))
    met, unmet = total(counts.met for counts in searches), total(counts.unmet for counts in searches)
    if searches:
        lead += f" After a search {_text('agreement', met=met, unmet=unmet)}."
    for words, share, look in (("condition holds", met, "found"), ("condition fails", unmet, "random")):
        if share:
            pairs, (low, high) = count(share.number, "pair"), share.interval
            label = f"of {pairs} in searches agree, {words} ({100 * low:.0f} to {100 * high:.0f} %)"
            cards.append(Card(look, f"{100 * share.value:.0f} %", label))
    problem = run.config.problem
    facts = {
        "Activations": ", ".join(problem.activations),
        "Width and samples": f"{problem.width}; {problem.samples} + {problem.validation}",
        "Seeds": f"{run.config.seeds} per kind of labels: {', '.join(run.config.labels)}",
    }
    return Headline(thing="activations", lead=lead, cards=cards, facts=facts)


def claims_section(run: Run[Any]) -> Section:
    """The counts of pairs as a figure and a table."""
    canvas = activation_conditions(run)
    description = "Share of pairs in which the larger alpha has the smaller loss, by whether the condition holds."
    columns = [Column("Pairs"), *numeric("Instances", "h", "Condition holds", "alpha agrees", "Interval")]
    columns += [*numeric("Condition fails", "alpha agrees", "Interval"), Column("With the margin")]
    rows = [
        (
            counts.words,
            counts.instances,
            counts.activations,
            *_share_cells(counts.met),
            *_share_cells(counts.unmet),
            counts.margin or MISSING,
        )
        for counts in tables.all_counts(run.best)
    ]
    return figures.figure_section(
        "claims",
        "Order of activations by alpha",
        canvas,
        description=description,
        caption=f"{description} Bars are 95 % Wilson intervals, although pairs of an instance are not independent.",
        below=paragraphs([_text("pairs"), _text("best")])
        + table(columns, rows, label="Claims and counts", sortable=False),
    )


def _share_cells(share: Share | None) -> tuple[int, str, str]:
    if share is None:
        return 0, MISSING, MISSING
    low, high = share.interval
    return share.number, f"{100 * share.value:.1f} %", f"{100 * low:.1f} to {100 * high:.1f}"


@figure(height=300)
def activation_conditions(run: Run[Any], canvas: Figure) -> None:
    """Share of pairs in which the larger alpha has the smaller shared-weights loss, by whether Condition 6 holds."""
    counts = [*tables.teacher_counts(run.best), *tables.search_counts(run.best)]
    if not counts:
        raise NothingToDraw("the run has no results for random teachers. Resume it")
    figures.set_height(canvas, 110 + 34 * len(counts))
    axes = canvas.subplots()
    names = [pairs.words for pairs in counts]
    _interval_marks(axes, [pairs.met for pairs in counts], -0.16, FOUND, "condition holds", names)
    _interval_marks(axes, [pairs.unmet for pairs in counts], 0.16, RANDOM, "condition fails", names)
    axes.set_yticks(range(len(counts)), names)
    axes.set_ylim(len(counts) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.axvline(0.5, **DASHED)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("pairs in which alpha and loss agree")
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    canvas.legend(loc="outside upper left", ncols=2)


def _interval_marks(
    axes: Axes, shares: Sequence[Share | None], offset: float, color: str, words: str, rows: Sequence[str]
) -> None:
    """Draws shares with their intervals. offset: distance from the middle of a row, so that two marks fit."""
    counted = [(place, share) for place, share in enumerate(shares) if share is not None]
    x = np.array([share.value for _, share in counted])
    ends = np.array([share.interval for _, share in counted]).reshape(-1, 2)
    y = np.array([place + offset for place, _ in counted])
    errors = np.abs(ends.T - x) if counted else None
    axes.errorbar(x, y, xerr=errors, fmt="o", color=color, markersize=6, capsize=3, linewidth=1.5, label=words)
    figures.add_tooltips(axes, x, y, (f"{rows[place]}\n{words}: {share}" for place, share in counted))


def agreement_section(run: Run[Any]) -> Section:
    """Rank correlations of the rankings."""
    canvas, run = activation_agreement(run), run.best
    rows = run.table("shared", tables.AGREEMENTS)
    description = "Kendall's tau of each ranking with the ranking by standalone training, a point per seed."
    columns = [*map(Column, ("Labels", "Ranking", "Reference")), *numeric("Seeds", "Kendall", "Spearman", "Same best")]
    cells = []
    for labels, part in _by_labels(run, rows):
        for ranking, reference in COMPARED:
            pair = part[part["ranking"].eq(ranking) & part["reference"].eq(reference)]
            values = (TAU.spread(pair["kendall"].dropna()), TAU.spread(pair["spearman"].dropna()))
            same = f"{100 * pair['top'].mean():.0f} %"
            cells.append((labels, WORDS[ranking], WORDS[reference], len(pair), *values, same))
    texts = [_text("same_best", activations=len(run.config.problem.activations)), *_by_conditions(rows)]
    return figures.figure_section(
        "agreement",
        "Agreement of rankings",
        canvas,
        description=description,
        caption=f"{description} Lines are means; a random ranking has a mean of 0.",
        below=paragraphs(texts) + table(columns, cells, label="Agreement of rankings"),
    )


def _by_conditions(rows: pd.DataFrame) -> list[str]:
    """Text about alpha and the shared loss in instances with more and with fewer pairs that meet the condition."""
    rows = rows[rows["ranking"].eq("alpha") & rows["reference"].eq("shared")].dropna(subset="kendall")
    if rows.empty:
        return []
    middle = rows["conditions"].median()
    often = rows["conditions"].ge(middle)
    parts = {"often": rows[often], "rarely": rows[~often]}
    values = {
        name: {"tau": TAU.spread(part["kendall"]), "searches": len(part)} if len(part) else None
        for name, part in parts.items()
    }
    return [_text("by_condition", middle=middle, **values, always=int(rows["conditions"].eq(1).sum()))]


@figure(height=300)
def activation_agreement(run: Run[Any], canvas: Figure) -> None:
    """Kendall's tau of rankings of activations with the ranking by standalone training, a point per seed."""
    agreements = _of_searches(run, tables.AGREEMENTS)
    agreements = agreements[agreements["reference"].eq("standalone")]
    names = {"shared": "shared loss", "uniform": "uniform alpha", "initial": "initial weights"}
    rng = np.random.default_rng(0)  # random vertical offsets, so that points do not overlap
    for axes, _, part in _panels(run, canvas, agreements):
        for place, ranking in enumerate(RANKINGS):
            rows = part[part["ranking"].eq(ranking)].dropna(subset="kendall")
            if rows.empty:
                continue
            y = place + rng.uniform(-0.22, 0.22, len(rows))
            color = FOUND if ranking == "alpha" else TRIAL
            axes.scatter(rows["kendall"], y, s=14, color=color, alpha=0.55, linewidths=0)
            texts = (f"seed {n}\ntau {tau:.2f}" for n, tau in zip(rows["number"], rows["kendall"], strict=True))
            figures.add_tooltips(axes, rows["kendall"], y, texts)
            axes.plot([rows["kendall"].mean()] * 2, [place - 0.34, place + 0.34], color=INK, linewidth=2)
        axes.set_yticks(range(len(RANKINGS)), [names.get(ranking, ranking) for ranking in RANKINGS])
        axes.set_ylim(len(RANKINGS) - 0.5, -0.5)
        axes.set_xlim(-1.08, 1.08)
        axes.axvline(0, color=MUTED, linewidth=1)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("Kendall's tau")


def _of_searches(run: Run[Any], name: str) -> pd.DataFrame:
    """A table of the searches. Raises: NothingToDraw if no search has finished."""
    rows = run.best.table("shared", name)
    if rows.empty:
        raise NothingToDraw("the run has no finished search. Resume it")
    return rows


def _panels(run: Run[Any], canvas: Figure, rows: pd.DataFrame) -> Iterator[tuple[Axes, str, pd.DataFrame]]:
    """A panel per kind of labels, with the kind and its rows; at most three panels in a row, four in two rows."""
    parts = _by_labels(run, rows)
    columns = len(parts) if len(parts) <= 3 else 2
    grid = figures.panels(canvas, len(parts), columns, row=190, head=30, sharey=True)
    for axes, (kind, part) in zip(grid, parts, strict=True):
        axes.set_title(kind)
        yield axes, kind, part


def ranks_section(run: Run[Any]) -> Section:
    """Ranks by alpha and loss, and the mean alphas and losses of each activation."""
    canvas, run = activation_ranks(run), run.best
    rows = run.table("shared", tables.ACTIVATION_ROWS)
    description = "Rank of each activation by alpha and by the loss with shared weights."
    columns = [Column("Labels"), Column("Activation")]
    columns += numeric("alpha", "Best alpha", "Shared loss", "Standalone loss")
    names = ["alpha", "best_alpha", "shared", "standalone"]
    cells = []
    for labels, part in _by_labels(run, rows):
        means = part.groupby("activation", sort=False)[names].mean()
        cells += [(labels, activation, *map(significant, values)) for activation, values in means.iterrows()]
    text = "Means over seeds. Losses are 1/2 E (y - f)² on samples that were used neither for weights nor for alpha."
    return figures.figure_section(
        "ranks",
        "Ranks by alpha and loss",
        canvas,
        description=description,
        caption=f"{description} The area of a point is the number of seeds. On the line, both ranks agree.",
        below=paragraphs([text]) + table(columns, cells, label="Means by activation"),
    )


@figure(height=300)
def activation_ranks(run: Run[Any], canvas: Figure) -> None:
    """The rank of each activation by alpha and by the loss with shared weights, over all seeds."""
    rows = _of_searches(run, tables.ACTIVATION_ROWS)
    groups = rows.groupby(tables.KEYS)
    ranks = pd.DataFrame(
        {
            "labels": rows["labels"],
            "alpha": groups["alpha"].rank(ascending=False, method="first").astype(int),
            "shared": groups["shared"].rank(method="first").astype(int),
        }
    )
    h, seeds = len(run.config.problem.activations), groups.ngroups / len(_by_labels(run, rows))
    for axes, _, part in _panels(run, canvas, ranks):
        times = part.groupby(["shared", "alpha"]).size().reset_index(name="times")
        axes.plot([0.6, h + 0.4], [0.6, h + 0.4], **DASHED)
        axes.scatter(times["shared"], times["alpha"], s=700 / h * times["times"] / seeds, color=FOUND, linewidths=0)
        texts = (f"{n} of {seeds:.0f} seeds\nloss rank {a}, alpha rank {b}" for a, b, n in times.to_numpy())
        figures.add_tooltips(axes, times["shared"], times["alpha"], texts)
        axes.set(xlabel="rank by shared loss", xticks=range(1, h + 1), yticks=range(1, h + 1))
        axes.set(xlim=(0.5, h + 0.5), ylim=(h + 0.5, 0.5))
    canvas.axes[0].set_ylabel("rank by alpha")


def alpha_section(run: Run[Any]) -> Section:
    description = "Architecture parameters by step in the search of the first seed."
    caption = f"{description} Mirror descent on validation samples for alpha, gradient descent on others for weights."
    canvas = activation_alpha(run.best)
    return figures.figure_section("alpha", "Example of a search", canvas, description=description, caption=caption)


@figure(height=280)
def activation_alpha(run: Run[Any], canvas: Figure) -> None:
    """The architecture parameters by step in the search of the first seed, a panel per kind of labels."""
    curves = _of_searches(run, CURVES)
    curves = curves[curves["phase"].eq("search") & curves["number"].eq(0)].sort_values("search_steps")
    names = run.config.problem.activations
    for axes, _, rows in _panels(run, canvas, curves):
        steps = [0, *rows["search_steps"]]
        for place, name in enumerate(names):
            style, color = "-" if place < len(SERIES) else "--", SERIES[place % len(SERIES)]
            values = [1 / len(names), *rows[f"alpha_{name}"]]
            axes.plot(steps, values, style, color=color, linewidth=1.8, label=name)
            figures.add_line_tooltip(axes, steps, values, f"{name}\n{values[-1]:.3f} at the end")
        axes.set_ylim(0, 1)
        axes.set_xlabel("step")
        figures.few_ticks(axes, 3, integer=True)
    canvas.axes[0].set_ylabel("alpha")
    handles, labels = canvas.axes[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside upper left", ncols=min(5, len(names)))


def listings(run: Run[Any]) -> Sequence[Listing]:
    """The counts as rows."""
    rows = [
        {
            "pairs": counts.words,
            "condition": str(counts.met) if counts.met else None,
            "no_condition": str(counts.unmet) if counts.unmet else None,
        }
        for counts in tables.all_counts(run)
    ]
    return [Listing.of("pairs in which alpha and loss agree", rows)] if rows else []


SECTIONS: Sequence[MakeSection] = (
    claims_section,
    agreement_section,
    ranks_section,
    alpha_section,
    failures_section({"searches": ("shared", TRIALS)}),
    manifest_section,
)


REPORT = Report[Any](
    findings=findings,
    headline=headline,
    sections=SECTIONS,
    listings=listings,
)
