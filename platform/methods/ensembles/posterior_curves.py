"""The posterior over architectures: its training, and the probabilities it ends with. Shu 2022, Eq. 5.4, 5.6."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import entr

from archray.platform.methods.ensembles.ensemble_doubts import elbo_doubt
from archray.platform.methods.ensembles.ensemble_tables import POSTERIOR, POSTERIOR_LEARNT
from archray.platform.quantities import MISSING, Quantity, significant
from archray.platform.report.figures import FOUND, MUTED, TRIAL, NothingToDraw, drawing, few_ticks, figure
from archray.platform.report.pointed_at import tell_line
from archray.platform.report.section import Section, breakable_words, captioned, escape, paragraphs
from archray.platform.report.table_columns import numbers
from archray.platform.run.layout import CURVES
from archray.platform.run.run import Run
from archray.plurals import count
from archray.searchers.nesbs.posterior import Posterior

_TITLES = {"elbo": "ELBO", "kl": "KL to the prior", "entropy": "entropy of a decision"}


Probabilities = dict[tuple[str, ...], dict[str, np.ndarray]]  # choices -> decision between them -> (choices,)


@figure(height=250)
def posterior_training(run: Run[Any], canvas: Figure) -> None:
    """The training of the posterior by epoch: ELBO, KL to the prior, and the entropy of each decision, in nats."""
    curves = _curves(run)
    shown = _shown(curves)
    if not shown:
        raise NothingToDraw("this run has no posterior that was trained by itself; see its method's stages")
    for axes, name in zip(np.ravel(canvas.subplots(1, len(shown))), shown, strict=True):
        _draw_panel(axes, curves, name)


def posterior_section(run: Run[Any]) -> Section | None:
    """The curves of its training, and a table of probabilities. Nothing without either."""
    curves, learnt = _curves(run), run.best.document(POSTERIOR_LEARNT, POSTERIOR)
    body = ""
    if shown := _shown(curves):
        description = f"Training of the posterior over {count(int(curves['epoch'].nunique()), 'epoch')}."
        content = drawing("posterior", posterior_training(run), description=description)
        body += captioned(content, _caption(curves, shown))
        doubt = elbo_doubt(curves.groupby("epoch")["elbo"].mean())
        body += paragraphs([doubt]) if doubt else ""
    if learnt is not None:
        groups = grouped_decisions(Posterior(learnt, run.best.space))
        tables = "".join(_heat_table(choices, rows) for choices, rows in groups.items())
        body += paragraphs([_sentence(groups)]) + tables if groups else ""
    return Section("posterior", "The posterior over architectures", body) if body else None


def grouped_decisions(posterior: Posterior) -> Probabilities:
    """The decisions in order, those with the same choices together; a decision with one choice is left out."""
    groups: Probabilities = {}
    for (name, choices), row in zip(posterior.choices.items(), posterior.log_probs, strict=True):
        if len(choices) > 1:
            groups.setdefault(choices, {})[name] = np.exp(row[: len(choices)])
    return groups


def _curves(run: Run[Any]) -> pd.DataFrame:
    """The curves as floats, by epoch; empty without one."""
    frame = run.best.table(POSTERIOR_LEARNT, CURVES)
    curves = frame.assign(**{name: numbers(frame, name) for name in ("epoch", *_TITLES)})
    return curves[curves["epoch"].notna()].sort_values("epoch", kind="stable")


def _shown(curves: pd.DataFrame) -> list[str]:
    return [name for name in _TITLES if curves[name].notna().any()]


def _draw_panel(axes: Axes, curves: pd.DataFrame, name: str) -> None:
    by_epoch = curves.groupby("epoch")[name].mean().dropna()
    if name == "entropy" and "decision" in curves:
        for _, rows in curves.groupby("decision", sort=False):
            axes.plot(rows["epoch"], rows[name], color=TRIAL, linewidth=1, alpha=0.55)
            last = f"{rows['decision'].iloc[-1]}\nentropy {significant(rows[name].iloc[-1])} nats at the end"
            tell_line(axes, rows["epoch"].tolist(), rows[name].tolist(), last)
    marker = "o" if len(by_epoch) == 1 else None
    axes.plot(by_epoch.index, by_epoch, color=FOUND, linewidth=2.2, marker=marker, markersize=4, zorder=3)
    told = f"{_TITLES[name]}, {significant(by_epoch.iloc[-1])} nats in epoch {by_epoch.index[-1]:g}"
    tell_line(axes, by_epoch.index.tolist(), by_epoch.tolist(), told)
    if name == "entropy":
        axes.set_ylim(bottom=0)
    if name == "kl":
        axes.axhline(0, color=MUTED, linewidth=0.8, zorder=1)
    few_ticks(axes, 4, integer=True)
    axes.set_title(_TITLES[name])
    axes.set(xlabel="epoch", ylabel="nats")


def _caption(curves: pd.DataFrame, shown: list[str]) -> str:
    told = {
        "elbo": "the evidence lower bound that is maximised",
        "kl": "the part of it that keeps the posterior near the uniform prior",
        "entropy": "the entropy of each decision (grey) and their mean (blue): at zero it is taken for certain",
    }
    text = "Training of the posterior with the supernet's weights held fixed, by epoch: "
    text += "; ".join(told[name] for name in shown) + "."
    ends = {name: curves[curves["epoch"] == curves["epoch"].max()][name].mean() for name in shown}
    words = ", ".join(f"{_TITLES[name]} {significant(value)}" for name, value in ends.items() if math.isfinite(value))
    scale = numbers(curves, "scale").dropna()
    words += f" (its loss counted {significant(scale.iloc[-1])} times)" if len(scale) and scale.iloc[-1] != 1 else ""
    return f"{text} At its end: {words}." if words else text


def _sentence(groups: Probabilities) -> str:
    everything = [row for rows in groups.values() for row in rows.values()]
    entropies = np.array([entr(row).sum() for row in everything])
    possible = [max(int(np.sum(row > 0)), 1) for row in everything]  # a choice of probability 0 is ruled out
    uniform = np.log(possible).mean()
    text = f"The posterior is a product over {count(len(everything), 'decision')} with more than one choice"
    mode = math.exp(sum(math.log(row.max()) for row in everything))
    return (
        f"{text}; their mean entropy is {entropies.mean():.2f} nats, where uniform choices have {uniform:.2f}. The "
        f"most probable architecture has a probability of {significant(mode, 2)}, under a uniform posterior "
        f"{significant(math.exp(-np.log(possible).sum()), 2)}. The probabilities in percent; the deeper a cell's "
        "colour, the more probable the choice; a dash is one that is ruled out."
    )


def _heat_table(choices: Sequence[str], rows: Mapping[str, np.ndarray]) -> str:
    """A row per decision and a column per choice, each cell tinted by its probability."""
    percent = Quantity("probability", "%", 100.0, 1)
    head = "".join(
        f'<th scope="col" class="{look}">{breakable_words(name)}</th>'
        for look, name in (("code", "Decision"), *(("number", choice) for choice in choices))
    )
    body = []
    for decision, row in rows.items():
        cells = "".join(
            f'<td class="number" style="--share:{min(max(value, 0.0), 1.0):.3f}">{percent.bare(value)}</td>'
            if value > 0
            else f'<td class="number">{MISSING}</td>'
            for value in row
        )
        body.append(f'<tr><td class="code">{breakable_words(decision)}</td>{cells}</tr>')
    label = f"Probabilities of {count(len(rows), 'decision')} between {', '.join(choices)}"
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">'
        f'<table class="heat"><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
    )
