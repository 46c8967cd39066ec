"""Figures and sections of an ensemble search: posterior, sampled ensembles, delta, members. Shu 2022, Fig. 5.3, 5.7."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import entr

from archray.platform.methods.ensembles import tables
from archray.platform.quantities import MISSING, Quantity, quantity_of, signed, significant, whole_number
from archray.platform.report import cell, figures, section
from archray.platform.report.figures import FOUND, INK, MUTED, SURFACE, TRIAL, NothingToDraw, figure, figure_section
from archray.platform.report.section import Column, Section, folded, numbers, numeric, paragraphs, table
from archray.platform.report.statistics import CORRELATION, MIN_POINTS
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import CURVES
from archray.platform.run.run import Run
from archray.plurals import count
from archray.searchers.nesbs.posterior import Posterior
from archray.trainables.ensembles.measures import agreement
from archray.trainables.spaces import get_space

_text = texts_of(__package__)
_TITLES = {"elbo": "ELBO", "kl": "KL to the prior", "entropy": "entropy per decision"}


Probabilities = dict[tuple[str, ...], dict[str, np.ndarray]]  # choices -> decision with these choices -> (choices,)


@figure(height=250)
def posterior_training(run: Run[Any], canvas: Figure) -> None:
    """The training of the posterior by epoch: ELBO, KL to the prior, and the entropy of each decision, in nats."""
    curves = _curves(run)
    shown = _shown(curves)
    if not shown:
        raise NothingToDraw("the run has no training of a posterior. Run nesbs without best_response")
    for axes, name in zip(np.ravel(canvas.subplots(1, len(shown))), shown, strict=True):
        if name == "entropy" and "decision" in curves:
            for decision, rows in curves.groupby("decision", sort=False):
                axes.plot(rows["epoch"], rows[name], color=TRIAL, linewidth=1, alpha=0.55)
                last = f"{decision}\nentropy {significant(rows[name].iloc[-1])} nats at the end"
                figures.add_line_tooltip(axes, rows["epoch"].tolist(), rows[name].tolist(), last)
        mean = curves.groupby("epoch")[name].mean().dropna()
        marker = "o" if len(mean) == 1 else None
        axes.plot(mean.index, mean, color=FOUND, linewidth=2.2, marker=marker, markersize=4, zorder=3)
        end = f"{_TITLES[name]}, {significant(mean.iloc[-1])} nats in epoch {mean.index[-1]:g}"
        figures.add_line_tooltip(axes, mean.index.tolist(), mean.tolist(), end)
        if name == "entropy":
            axes.set_ylim(bottom=0)
        if name == "kl":
            axes.axhline(0, color=MUTED, linewidth=0.8, zorder=1)
        figures.few_ticks(axes, 4, integer=True)
        axes.set_title(_TITLES[name])
        axes.set(xlabel="epoch", ylabel="nats")


def posterior_section(run: Run[Any]) -> Section | None:
    """The training curves and a table of probabilities. None without either."""
    curves, probabilities = _curves(run), run.best.document(tables.POSTERIOR_LEARNT, tables.POSTERIOR)
    body = ""
    if shown := _shown(curves):
        ends = curves[curves["epoch"] == curves["epoch"].max()][shown].mean()
        scales = numbers(curves, "scale").dropna()
        caption = _text(
            "posterior",
            shown=shown,
            ends={_TITLES[name]: ends[name] for name in shown if math.isfinite(ends[name])},
            scale=scales.iloc[-1] if len(scales) else 1,
        )
        description = f"Training of the posterior over {count(int(curves['epoch'].nunique()), 'epoch')}."
        body += section.captioned(
            figures.drawing("posterior", posterior_training(run), description=description), caption
        )
        doubt = tables.elbo_doubt(curves.groupby("epoch")["elbo"].mean())
        body += paragraphs([doubt] if doubt else [])
    if probabilities is not None and (groups := grouped_decisions(Posterior(probabilities, run.best.space))):
        body += _probabilities(groups)
    return Section("posterior", "Posterior over architectures", body) if body else None


def grouped_decisions(posterior: Posterior) -> Probabilities:
    """The decisions in order, grouped by their choices, without decisions with a single choice."""
    groups: Probabilities = {}
    for (name, choices), row in zip(posterior.choices.items(), posterior.log_probs, strict=True):
        if len(choices) > 1:
            groups.setdefault(choices, {})[name] = np.exp(row[: len(choices)])
    return groups


def _curves(run: Run[Any]) -> pd.DataFrame:
    """The curves as floats, by epoch; empty without an epoch."""
    frame = run.best.table(tables.POSTERIOR_LEARNT, CURVES)
    curves = frame.assign(**{name: numbers(frame, name) for name in ("epoch", *_TITLES)})
    return curves[curves["epoch"].notna()].sort_values("epoch", kind="stable")


def _shown(curves: pd.DataFrame) -> list[str]:
    return [name for name in _TITLES if curves[name].notna().any()]


def _probabilities(groups: Probabilities) -> str:
    """Text about the entropy, and a table per group with a row per decision and a column per choice."""
    decisions = [row for rows in groups.values() for row in rows.values()]
    possible = np.log([max(int(np.sum(row > 0)), 1) for row in decisions])  # probability 0 marks an impossible choice
    text = _text(
        "probabilities",
        decisions=len(decisions),
        entropy=np.mean([entr(row).sum() for row in decisions]),
        uniform_entropy=possible.mean(),
        mode=math.exp(sum(math.log(row.max()) for row in decisions)),
        uniform_mode=math.exp(-possible.sum()),
    )
    content = paragraphs([text])
    for choices, rows in groups.items():
        columns = [Column("Decision", "code"), *(Column(choice, "share") for choice in choices)]
        label = f"Probabilities of {count(len(rows), 'decision')} between {', '.join(choices)}"
        content += table(columns, [(decision, *row) for decision, row in rows.items()], label=label, sortable=False)
    return content


_BEST = 10  # number of ensembles in the unfolded table
_DOTS = 300  # number of ensembles above which only lines are drawn


@figure(height=270)
def ensembles_best_so_far(run: Run[Any], canvas: Figure) -> None:
    """The best validation loss and accuracy so far of the sampled ensembles, by evaluations."""
    sampled = tables.sampled_ensembles(run)
    if sampled.empty:
        raise NothingToDraw("the run has no evaluated ensemble with a finite loss")
    metrics, chosen = tables.known_metrics(sampled), tables.chosen_ensemble(run, sampled)
    several, many = sampled["repeat"].nunique() > 1, len(sampled) > _DOTS
    shown = sampled.loc[[] if chosen is None else [chosen]] if several else sampled
    texts = tables.sampled_texts(shown, tables.names_of(run))
    for axes, metric in zip(np.ravel(canvas.subplots(1, len(metrics))), metrics, strict=True):
        quantity = quantity_of(metric)
        mean, deviation = (quantity.factor * part for part in best_so_far(sampled, metric))
        x, values = np.arange(1, mean.size + 1), sampled[metric] * quantity.factor
        axes.step(x, mean, where="post", color=FOUND, linewidth=2, zorder=3)
        axes.plot(x[-1:], mean[-1:], "o", color=FOUND, markersize=4, zorder=3)
        if several:
            figures.draw_spread(axes, x, quantity.factor * best_of_each(sampled, metric), deviation, FOUND, -math.inf)
        elif not many:
            axes.scatter(sampled["evaluations"], values, s=14, color=FOUND, alpha=0.7, linewidth=0)
        if not many:
            figures.add_tooltips(axes, shown["evaluations"], values[shown.index], texts)
        _draw_ring(axes, sampled, "evaluations", metric, chosen)
        figures.few_ticks(axes, 5, integer=True)
        axes.set(xlabel="evaluated ensembles", ylabel=quantity.axis)


def ensembles_section(run: Run[Any]) -> Section:
    """The best so far, and the tables of ensembles and members."""
    canvas, sampled, names = ensembles_best_so_far(run), tables.sampled_ensembles(run), tables.names_of(run)
    chosen, (rank, *others) = tables.chosen_ensemble(run, sampled), tables.known_metrics(sampled)
    members = {member for row in sampled["members"] for member in row}
    repeats, failed = int(sampled["repeat"].nunique()), int(sampled["failure"].notna().sum())
    caption = _text(
        "best_so_far",
        loss=quantity_of(rank).label,
        with_accuracy=bool(others),
        repeats=repeats,
        spread=figures.spread_words(repeats, "standard deviation"),
        dots=repeats == 1 and len(sampled) <= _DOTS,
        ring=chosen is not None,
    )
    best = sampled.sort_values(rank, kind="stable").head(_BEST)
    body = _ensemble_table(best, names, chosen, f"The best {count(len(best), 'ensemble')}", by_value=True)
    if len(sampled) > len(best):
        whole = _ensemble_table(sampled, names, chosen, "All ensembles", by_value=False)
        body += folded(f"All {count(len(sampled), 'ensemble')} in the order of sampling", whole)
    end = quantity_of(rank).show(best_so_far(sampled, rank)[0][-1])
    text = _text("ensembles", ensembles=len(sampled), architectures=len(members), failed=failed)
    return figure_section(
        "ensembles",
        "Sampled ensembles",
        canvas,
        description=f"Best {quantity_of(rank).label} so far by evaluations; at the end {end}.",
        caption=caption,
        above=paragraphs([text]),
        below=body,
    )


def best_so_far(sampled: pd.DataFrame, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of `best_of_each` over the repeats, (evaluations,) each.

    The mean is NaN until each repeat has a value. The deviation is NaN for one repeat.
    """
    values = best_of_each(sampled, metric)
    deviation = values.std(0, ddof=1) if len(values) > 1 else np.full(values.shape[1], math.nan)
    return values.mean(0), deviation


def best_of_each(sampled: pd.DataFrame, metric: str) -> np.ndarray:
    """The metric of the best ensemble so far after each evaluation, (repeats, evaluations)."""
    rank = tables.known_metrics(sampled)[0]
    repeats = [rows for _, rows in sampled.groupby("repeat", sort=False)]
    values = np.full((len(repeats), int(sampled["evaluations"].max())), math.nan)  # (repeats, evaluations)
    for repeat, rows in enumerate(repeats):
        best, lowest = math.nan, math.inf
        for place, (loss, value) in enumerate(zip(rows[rank], rows[metric], strict=True)):
            if loss < lowest:
                lowest, best = loss, value
            values[repeat, place] = best
        values[repeat, len(rows) :] = best  # a finished repeat keeps its last value
    return values


def _draw_ring(axes: Axes, rows: pd.DataFrame, x: str, metric: str, chosen: int | None) -> None:
    """Draws a ring around the selected ensemble."""
    if chosen is not None:
        look: dict[str, Any] = {"markerfacecolor": SURFACE, "markeredgecolor": INK, "markeredgewidth": 1.8}
        place = rows[x][chosen], rows[metric][chosen] * quantity_of(metric).factor
        axes.plot(*place, "o", markersize=9, zorder=4, **look)


def _ensemble_table(
    rows: pd.DataFrame, names: section.ShortNames, chosen: int | None, label: str, by_value: bool
) -> str:
    cells = pd.DataFrame(
        {
            "Members": [names.all_of(row) or MISSING for row in rows["members"]],
            **{quantity_of(name).heading: rows[name].map(quantity_of(name).bare) for name in tables.METRICS},
            "δ": rows["delta"].map(lambda delta: MISSING if math.isnan(delta) else signed(f"{delta:.3g}")),
            "No.": rows["evaluations"].map(whole_number),
            "Repeat": rows["repeat"],
            "Sampler": rows["sampler"],
            "Temperature": rows["temperature"].map(lambda temperature: significant(temperature, 2)),
            "Failure": [reason or "" for reason in rows["failure"]],
        }
    )
    optional = {"δ": "delta", "Temperature": "temperature", "Failure": "failure"}
    optional |= {quantity_of(name).heading: name for name in tables.METRICS}
    unknown = [heading for heading, name in optional.items() if rows[name].isna().all()]
    cells = cells.drop(columns=unknown if rows["repeat"].nunique() > 1 else ["Repeat", *unknown])
    kinds = {"Members": "name", "Sampler": "text", "Failure": "text"}
    ranks = quantity_of(tables.known_metrics(rows)[0]).heading if by_value else None
    columns = [
        Column(heading, kinds.get(heading, "number"), "ascending" if heading == ranks else None)
        for heading in map(str, cells)
    ]
    marked = list(rows.index).index(chosen) if chosen in rows.index else None
    return table(columns, cells.itertuples(index=False), label=label, marked=marked)


@figure(height=270)
def ensembles_by_delta(run: Run[Any], canvas: Figure) -> None:
    """The validation loss and accuracy of the sampled ensembles by delta."""
    rows, means, best = swept_delta(run)
    metrics, chosen = tables.known_metrics(rows), tables.chosen_ensemble(run, rows)
    texts = tables.sampled_texts(rows, tables.names_of(run))
    for axes, metric in zip(np.ravel(canvas.subplots(1, len(metrics))), metrics, strict=True):
        quantity = quantity_of(metric)
        values = rows[metric] * quantity.factor
        axes.plot(means.index, means[metric] * quantity.factor, color=FOUND, linewidth=1.8)
        axes.scatter(rows["delta"], values, s=18, color=FOUND, alpha=0.7, linewidth=0, zorder=3)
        axes.axvline(best, color=FOUND, linestyle=(0, (1, 3)), linewidth=1.2, zorder=1)
        figures.add_tooltips(axes, rows["delta"], values, texts)
        figures.few_ticks(axes, 5)
        axes.set(xlabel="δ", ylabel=quantity.axis)
        _draw_ring(axes, rows, "delta", metric, chosen)


def ensemble_delta_section(run: Run[Any]) -> Section:
    """A panel per metric, and the best delta."""
    canvas, (rows, means, best) = ensembles_by_delta(run), swept_delta(run)
    temperature = float(rows["temperature"].iloc[0])
    caption = _text(
        "delta",
        line=len(rows) > len(means),
        temperature=significant(temperature, 2) if math.isfinite(temperature) and temperature != 1 else "",
        ring=tables.chosen_ensemble(run, rows) is not None,
    )
    quantities = {name: quantity_of(name) for name in tables.known_metrics(rows)}
    columns = numeric("Ensembles", "Deltas", "Best δ", *(quantity.heading for quantity in quantities.values()))
    values = [quantity.bare(means[name][best]) for name, quantity in quantities.items()]
    row = (whole_number(len(rows)), whole_number(len(means)), signed(f"{best:.3g}"), *values)
    return figure_section(
        "ensemble-delta",
        "Validation performance by delta",
        canvas,
        description=f"Validation performance of {count(len(rows), 'ensemble')} by delta.",
        caption=caption,
        below=table(columns, [row], label="Best delta"),
    )


def swept_delta(run: Run[Any]) -> tuple[pd.DataFrame, pd.DataFrame, float]:
    """The successful ensembles with a delta, the means of the metrics by delta, and the best delta.

    Raises: NothingToDraw for fewer than two deltas.
    """
    rows = tables.sampled_ensembles(run)
    if len(rows):
        rank = tables.known_metrics(rows)[0]
        rows = rows[rows["delta"].notna() & rows[rank].notna()]
    if rows.empty or rows["delta"].nunique() < 2:
        raise NothingToDraw("the run has ensembles with fewer than two deltas. Run with --delta grid or bo")
    means = rows.groupby("delta")[list(tables.METRICS)].mean()
    return rows, means, float(means.index[int(means[rank].to_numpy().argmin())])


_DRAWN = 5  # maximal number of cells in the figure; the table has all
_MEASURES = {
    "difference": Quantity("decisions in which two members differ", "%", 100.0, 1),
    "shared_accuracy": quantity_of("shared_accuracy"),
}
_AGREE = ("shared_accuracy", "test_accuracy")
_SHARE = Quantity("share", "%", 100.0, 0)


def member_cells_section(run: Run[Any]) -> Section | None:
    """A cell per member, or only the table of decisions. None for fewer than two members."""
    space, strings = get_space(run.best.space), tables.found_members(run.best)
    members, names = [cell.decided(space, member) for member in strings], tables.names_of(run).all_of(strings)
    if len(members) < 2:
        return None
    same = common_decisions(members)
    text = _text("members", members=len(members), same=same, decisions=len(members[0]))
    columns = (Column("Decision", "code"), *(Column(f"{number}: {name}") for number, name in enumerate(names, 1)))
    rows = [(row[0].name, *(decision.choice for decision in row)) for row in zip(*members, strict=True)]
    faint = frozenset(place for place, row in enumerate(rows) if len(set(row[1:])) == 1)
    whole = table(columns, rows, label="Decisions of each member", faint=faint)
    if not all(map(cell.is_graph, members)):
        return Section("members", "Members", paragraphs([text]) + whole)
    cells, nodes = [cell.cell_edges(decisions) for decisions in members[:_DRAWN]], cell.node_count(members[0])
    drawings = ""
    for number, (name, edges) in enumerate(zip(names, cells, strict=False), 1):
        drawings += f"<h3>Member {number}, {section.linked(name)}</h3>{cell.cell_drawing(edges, nodes)}"
    caption = _text("cells", sentence=text, members=len(members), drawn=_DRAWN)
    content = section.captioned(drawings + cell.cell_legend(cells, nodes), caption)
    return Section("members", "Members", content + folded("Members as a table", whole))


def common_decisions(members: Sequence[Sequence[cell.Decided]]) -> int:
    """The number of decisions that are the same in all members."""
    return sum(len({decision.choice for decision in row}) == 1 for row in zip(*members, strict=True))


@figure(height=250)
def ensembles_delta_effect(run: Run[Any], canvas: Figure) -> None:
    """Difference and mean accuracy of the members of each sampled ensemble by delta."""
    members, names = member_measures(run), tables.names_of(run)
    chosen = tables.chosen_ensemble(run, members)
    for axes, (name, quantity) in zip(canvas.subplots(1, len(_MEASURES)), _MEASURES.items(), strict=True):
        x, y = members["delta"], members[name] * quantity.factor
        means = y.groupby(x).mean()
        axes.plot(means.index, means, color=TRIAL, linewidth=1.4, alpha=0.8)
        axes.scatter(x, y, s=26, color=TRIAL, edgecolor=SURFACE, linewidth=0.5, zorder=3)
        if chosen is not None:
            axes.scatter(x[chosen], y[chosen], s=70, color=FOUND, edgecolor=SURFACE, zorder=4)
        figures.few_ticks(axes, 5)
        axes.margins(0.08)
        figures.add_tooltips(axes, x, y, tables.sampled_texts(members, names))
        axes.set_title(quantity.label)
        axes.set(xlabel="δ", ylabel=quantity.unit)


def delta_effect_section(run: Run[Any]) -> Section:
    """Difference and accuracy of the members of each ensemble by delta."""
    members = member_measures(run)
    return figure_section(
        "delta-effect",
        "Members by delta",
        ensembles_delta_effect(run),
        description=f"Difference and accuracy of the members of {count(len(members), 'ensemble')} by delta.",
        caption=_text("delta_effect", blue=tables.chosen_ensemble(run, members) is not None),
    )


def member_measures(run: Run[Any]) -> pd.DataFrame:
    """The ensembles with a delta, with `difference`, and `shared_accuracy` as the mean over their members.

    Raises: NothingToDraw if there is none with two or more members.
    """
    sampled = tables.sampled_ensembles(run)
    if len(sampled):
        sampled = sampled[sampled["delta"].notna() & (sampled["members"].map(len) > 1)]
    if sampled.empty:
        raise NothingToDraw("the run has no ensemble with a delta. Run with --sampler svgd-rd")
    space = get_space(run.best.space)
    alone = run.pooled(tables.SEARCH, tables.MEMBERS)
    accuracies = dict(zip(alone["architecture"], alone["shared_accuracy"], strict=True)) if len(alone) else {}

    def difference(members: tuple[str, ...]) -> float:
        pairs = itertools.combinations([space.decode(member) for member in members], 2)
        return float(np.mean([[a != b for a, b in zip(*pair, strict=True)] for pair in pairs]))

    def accuracy(members: tuple[str, ...]) -> float:
        return float(np.mean([accuracies.get(member, np.nan) for member in members]))

    members = sampled["members"]
    return sampled.assign(difference=members.map(difference), shared_accuracy=members.map(accuracy))


@figure(height=320)
def estimated_against_true(run: Run[Any], canvas: Figure) -> None:
    """The test accuracy of each member trained from scratch by its validation accuracy with shared weights."""
    axes, names = canvas.subplots(), tables.names_of(run)
    members, measures = member_agreement(run.best)
    x, y = (members[quantity] * quantity_of(quantity).factor for quantity in _AGREE)
    axes.scatter(x, y, s=30, color=TRIAL, edgecolor=SURFACE, linewidth=0.5, alpha=0.8, clip_on=False, zorder=2)
    chosen = members["name"].isin(tables.found_members(run.best))
    axes.scatter(x[chosen], y[chosen], s=52, color=FOUND, edgecolor=SURFACE, linewidth=0.8, clip_on=False, zorder=3)
    rows = zip(names.all_of(members["name"]), x, y, strict=True)
    figures.add_tooltips(
        axes, x, y, [f"{name}\nshared weights {one:.2f} %, trained {other:.2f} %" for name, one, other in rows]
    )
    figures.few_ticks(axes, 4)
    axes.margins(0.08)
    axes.set_title(f"{count(len(x), 'member')}, ρ = {CORRELATION.bare(measures['spearman'])}")
    axes.set(**{f"{side}label": quantity_of(key).axis for side, key in zip("xy", _AGREE, strict=True)})


def estimated_true_section(run: Run[Any]) -> Section:
    """Both accuracies of the members, and their correlation. None for fewer than three members with both."""
    members, measures = member_agreement(run.best)
    columns = numeric("Members", "Spearman", "Pearson", "Agreement-30% (%)", "By chance (%)")
    shares = (_SHARE.bare(measures[name]) for name in ("agreement", "chance"))
    row = (whole_number(len(members)), *(CORRELATION.bare(measures[name]) for name in ("spearman", "pearson")), *shares)
    rho = CORRELATION.bare(measures["spearman"])
    return figure_section(
        "estimated-true",
        "Accuracy with shared weights and after training",
        estimated_against_true(run),
        description=f"Accuracy of the members with shared weights and after training: Spearman's rho {rho}.",
        caption=_text("estimates", lost=len(tables.estimates(run.best)) - len(members)),
        below=table(columns, [row], label="Agreement of accuracies with shared weights and after training")
        + paragraphs([_text("agreement")]),
    )


def member_agreement(run: Run[Any]) -> tuple[pd.DataFrame, dict[str, float | int]]:
    """The rows of `estimates` with both values, and their `agreement`. Raises: NothingToDraw for fewer than three."""
    rows = tables.estimates(run).dropna()
    if len(rows) < MIN_POINTS:
        raise NothingToDraw(
            f"the figure needs {MIN_POINTS} or more members with accuracies by shared weights and by training"
        )
    return rows, agreement(rows[_AGREE[0]], rows[_AGREE[1]])


SAMPLING_SECTIONS = (
    posterior_section,
    delta_effect_section,
    ensembles_section,
    ensemble_delta_section,
    estimated_true_section,
)
