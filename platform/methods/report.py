"""Reports of searches for one network: headline, sections, trials, and how well bounds rank trained architectures.

The bounds are Theorem 7.2, Corollaries 7.1 and 7.2 and Eq. 7.6 of Shu 2022.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from archray.platform.engine.pool_scoring import POOL
from archray.platform.methods.hnas.config import KAPPA
from archray.platform.quantities import MISSING, quantity_of
from archray.platform.report import figures, measures, run_sections, section
from archray.platform.report.cell import cell_section
from archray.platform.report.cost_sections import cost_sections
from archray.platform.report.figures import FOUND, INK, MUTED, RANDOM, NothingToDraw, figure, figure_section
from archray.platform.report.page import Card, Headline, MakeSection, network_size
from archray.platform.report.section import Column, Section, failures, numbers, numeric, paragraphs, table
from archray.platform.report.statistics import CORRELATION, MIN_POINTS, Agreement, rank_agreement
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.plurals import count
from archray.searchers.hnas.objective import chance_correlations, fit_trade_off
from archray.trainables.spaces import get_space
from archray.trainables.spaces.genotypes import GenotypeSpace, cell_shape
from archray.trainables.spaces.table_space import PREFIX

_text = texts_of(__package__)


def network_headline(
    run: Run[Any],
    tables: run_sections.Tables,
    facts: Mapping[str, object],
    *,
    cards: Sequence[Card] | None = None,
    lead: str | None = None,
) -> Headline:
    """The head of the report; for repeats, of the best run.

    Args:
        run: the run.
        tables: as in `failures_section`.
        facts: facts about the search; the size of the network and the failures are added.
        cards: by default the test accuracies.
        lead: by default the result, its origin and its test accuracy.
    """
    best = run.best
    result = best.result or {}
    roles = {result["architecture"]: "result", result["found"]: "found"} if "found" in result else {}
    more = {"Network": network_size(measures.result_runs(best)), "Failures": run_sections.failed(run, tables)}
    return Headline(
        thing="architecture",
        lead=run_sections.accuracy_lead(run) if lead is None else lead,
        names=section.result_strings(best),
        cards=run_sections.accuracy_cards(run) if cards is None else cards,
        facts={**facts, **more},
        roles=roles,
    )


def network_sections(
    *sections: MakeSection, tables: run_sections.Tables, names_of: section.NamesOf, order: str
) -> tuple[MakeSection, ...]:
    """The sections of a report, with the sections of the family in the middle.

    Args:
        sections: sections of the family.
        tables: as in `failures_section`.
        names_of, order: as in `names_section`.
    """
    return (
        cell_section,
        run_sections.comparison_section,
        run_sections.repeats_section,
        *sections,
        *cost_sections(names_of),
        section.names_section(names_of, "architectures", order),
        run_sections.failures_section(tables),
        run_sections.manifest_section,
    )


def list_trials(
    trials: pd.DataFrame, title: str, by: str, chosen: Collection[str | None] = (), *, least_first: bool = False
) -> Sequence[Listing]:
    """A listing of trials with their `architecture`, best first; empty without trials.

    Args:
        trials: the trials.
        title: title of the listing.
        by: the column that ranks the trials.
        chosen: the selected architectures, which are marked and come first among equals.
        least_first: whether small values are good.
    """
    if trials.empty:
        return ()
    reasons, values = failures(trials), numbers(trials, by)
    names, rows = trials["architecture"], []
    keys = pd.DataFrame({"value": values if least_first else -values, "other": ~names.isin(chosen)})
    for row in keys.sort_values(["value", "other"]).index:
        outcome = "chosen" if names[row] in chosen else ""
        rows.append({"outcome": outcome, by: values[row], "architecture": names[row], "failure": reasons[row]})
    return (Listing.of(f"{title}, best first", rows),)


# How well the bounds of Corollaries 7.1 and 7.2 rank the trained architectures of a scored pool.

METRICS = ("ntk_trace", "grad_norm", "snip", "grasp")  # section 7.2.2; the metrics of the bounds
CHANCES = 200  # random orders, for the correlation that a fit reaches by chance
_VALUES = ("test_accuracy", "result", "validation_accuracy", "objective")  # results of a trial: the first available


@dataclass(frozen=True)
class Predictor:
    """A predictor of the error: a number per trained architecture; smaller values predict smaller errors.

    Attributes:
        name: such as `κ/M, M = snip`.
        values: (n,).
        group: its origin: `bound`, `fitted` or `plain`.
        chance: 95 % quantile of Spearman's rho that the same fit reaches on random orders; NaN without a fit.
    """

    name: str
    values: np.ndarray
    group: str
    chance: float = math.nan


@dataclass(frozen=True)
class Judgment:
    """The trained architectures of a run's pool, and how well each predictor ranks them.

    Attributes:
        value: the column that gives the error.
        rows: `architecture`, `error` and `gap` (training accuracy minus the accuracy behind the error; NaN if unknown)
            of each trained architecture, and the columns of the pool.
        predictors: the predictors in the order of the table.
        errors, gaps: the rank correlation of each predictor with the error, and with the gap.
    """

    value: str
    rows: pd.DataFrame
    predictors: list[Predictor]
    errors: list[Agreement]
    gaps: list[Agreement]


def judged_bounds(run: Run[Any]) -> Judgment | None:
    """The judgment of a run. None without a pool with kappa and one of METRICS, or with fewer than three trials."""
    trained, value = _trained(run)
    return judge_bounds(run.table("pool", POOL), trained, value, run.space)


def judge_bounds(pool: pd.DataFrame, trained: pd.DataFrame, value: str, space: str) -> Judgment | None:
    """How well the bounds of a scored pool rank errors; None as in `judged_bounds`.

    Args:
        pool: `architecture`, a column per metric, and kappa.
        trained: `architecture`, `error`, `gap`.
        value: the column that gives the errors.
        space: the space, by name or reference.
    """
    metrics = [name for name in METRICS if numbers(pool, name).notna().any()]
    if "architecture" not in pool or not numbers(pool, KAPPA).notna().any() or not metrics or trained.empty:
        return None
    columns = {name: numbers(pool, name) for name in (*metrics, KAPPA, "parameters", "multiply_adds")}
    scored = pd.DataFrame({"architecture": pool["architecture"], **columns}).drop_duplicates("architecture")
    rows = trained.merge(scored, on="architecture").reset_index(drop=True)
    if len(rows) < MIN_POINTS:
        return None
    largest = {name: float(columns[name].abs().max()) for name in metrics}
    predictors = [*_bounds(rows, largest), *_plain(space, rows)]
    error, gap = rows["error"].to_numpy(), rows["gap"].to_numpy()
    predictors = [predictor for predictor in predictors if math.isfinite(rank_agreement(predictor.values, error).tau)]
    errors, gaps = ([rank_agreement(predictor.values, side) for predictor in predictors] for side in (error, gap))
    return Judgment(value, rows, predictors, errors, gaps)


def _trained(run: Run[Any]) -> tuple[pd.DataFrame, str]:
    """`architecture`, `error` and `gap` of the comparable trials of a search, a row each; and the column of values."""
    trials = run.table("search", TRIALS)
    if trials.empty:  # HNAS has the table of suggestions
        questions = run.table("search", "suggestions.parquet")
        column = "objective" if run.config.space.startswith(PREFIX) else "validation_accuracy"
        trials = questions.rename(columns={"value": column})
    nothing = pd.DataFrame(columns=["architecture", "error", "gap"])
    value = next((name for name in _VALUES if numbers(trials, name).notna().sum() >= MIN_POINTS), "")
    if "architecture" not in trials or not value:
        return nothing, value
    reached = numbers(trials, value).where(failures(trials).isna())
    epochs = numbers(trials, "epoch")
    reached = reached.where(epochs.isna() | (epochs == epochs.max()))  # a scheduler stops trials early
    smaller = (run.document("search") or {}).get("mode") == "min"
    if value.endswith("accuracy"):
        error, gap = 1 - reached, numbers(trials, "train_accuracy") - reached
    else:
        error, gap = reached if smaller else -reached, reached * math.nan
    frame = pd.DataFrame({"architecture": trials["architecture"], "error": error, "gap": gap})
    return frame[error.notna()].groupby("architecture", as_index=False, sort=False).mean(), value


def _bounds(rows: pd.DataFrame, largest: dict[str, float]) -> Iterator[Predictor]:
    """kappa/M (Theorem 7.2), 1/M (Corollary 7.1) and the fitted Eq. 7.6 for each metric M, relative to its maximum."""
    for name, top in largest.items():
        metric, kappa = rows[name].abs().to_numpy() / top, rows[KAPPA].to_numpy()
        finite = np.isfinite(metric) & np.isfinite(kappa) & (metric > 0)
        metric, kappa = np.where(finite, metric, np.nan), np.where(finite, kappa, np.nan)
        yield Predictor(f"κ/M, M = {name}", kappa / metric, "bound")
        yield Predictor(f"1/M, M = {name}", 1 / metric, "bound")
        if finite.sum() >= MIN_POINTS:  # fit mu and nu to these errors, and to random orders
            quotient, error = kappa / metric, rows["error"].to_numpy()
            fit = fit_trade_off(metric[finite], quotient[finite], -error[finite])
            chances = chance_correlations(metric[finite], quotient[finite], CHANCES)
            bound = quotient + fit.mu * (metric**2 - fit.nu) ** 2
            yield Predictor(f"κ/M + μ(M² − ν)², M = {name}", bound, "fitted", float(np.quantile(chances, 0.95)))


def _plain(space_name: str, rows: pd.DataFrame) -> Iterator[Predictor]:
    """Predictors without a bound: kappa alone, sizes, and for genotypes width and depth of the normal cell."""
    yield Predictor("κ alone", rows[KAPPA].to_numpy(), "plain")
    for column, words in (("parameters", "most parameters"), ("multiply_adds", "most multiply-adds")):
        if rows[column].notna().any():
            yield Predictor(words, -rows[column].to_numpy(), "plain")
    space = get_space(space_name)
    if isinstance(space, GenotypeSpace):
        shapes = [cell_shape(space.genotype(space.decode(name)).normal) for name in rows["architecture"]]
        yield Predictor("widest normal cell", -np.array([shape.width for shape in shapes]), "plain")
        yield Predictor("shallowest normal cell", np.array([float(shape.depth) for shape in shapes]), "plain")


_COLORS = {"bound": FOUND, "fitted": RANDOM, "plain": MUTED}
_FEW = 30  # with fewer trials, the interval of tau is at least half a unit wide


def pool_bounds_section(run: Run[Any]) -> Section:
    """How well the bounds rank the trials, with intervals. For repeats, of the best run."""
    judgment = _judgment(run)
    best = max(range(len(judgment.predictors)), key=lambda place: judgment.errors[place].tau)
    error = "1 − " * judgment.value.endswith("accuracy") + quantity_of(judgment.value).label
    return figure_section(
        "pool-bounds",
        "Rank correlation of bounds and errors",
        pool_bounds(run),
        description=f"Kendall's tau of {count(len(judgment.predictors), 'predictor')} with the errors; the highest is "
        f"{CORRELATION.bare(judgment.errors[best].tau)} ({judgment.predictors[best].name}).",
        caption=_text("pool_bounds_caption", error=error, number=len(judgment.rows)),
        below=paragraphs(_words(judgment)) + _table(judgment),
    )


@figure(height=300)
def pool_bounds(run: Run[Any], canvas: Figure) -> None:
    """Kendall's tau of training-free bounds with the errors of the trained architectures, with 95 % intervals.

    Shu 2022, Corollaries 7.1 and 7.2.
    """
    judgment = _judgment(run)
    places = np.arange(len(judgment.predictors))[::-1]
    figures.set_height(canvas, 70 + 24 * len(places))
    axes = canvas.subplots()
    axes.axvline(0, color=INK, linewidth=0.8, zorder=1)
    for place, predictor, agreement in zip(places, judgment.predictors, judgment.errors, strict=True):
        low, high = agreement.tau_interval
        color = _COLORS[predictor.group]
        axes.plot([low, high], [place, place], color=color, linewidth=2, zorder=2)
        axes.scatter([agreement.tau], [place], s=36, color=color, zorder=3)
    taus = [agreement.tau for agreement in judgment.errors]
    texts = [f"{p.name}: τ {_tau(a)}" for p, a in zip(judgment.predictors, judgment.errors, strict=True)]
    figures.add_tooltips(axes, taus, places, texts)
    axes.set_yticks(places, [predictor.name for predictor in judgment.predictors])
    axes.set_xlim(-1, 1)
    axes.set_xticks([-1, -0.5, 0, 0.5, 1])
    axes.set_ylim(-0.7, len(places) - 0.3)
    axes.set_xlabel("Kendall's τ with the error")


def _judgment(run: Run[Any]) -> Judgment:
    """The judgment of a run. Raises: NothingToDraw without a scored pool with three trained architectures."""
    judgment = judged_bounds(run.best)
    if judgment is None or not judgment.predictors:
        raise NothingToDraw(
            "expected a pool with kappa, a gradient-based metric and three or more trained architectures, got none"
        )
    return judgment


def _words(judgment: Judgment) -> Iterator[str]:
    pairs = list(zip(judgment.predictors, judgment.errors, strict=True))
    bounds, plain = (_verdict([(p.name, a) for p, a in pairs if p.group == group]) for group in ("bound", "plain"))
    number = len(judgment.rows)
    yield _text("pool_bounds_verdicts", bounds=bounds, plain=plain, number=number, few=number < _FEW)
    fitted = [(p.chance, a.rho) for p, a in pairs if p.group == "fitted"]
    if fitted:
        low, high = (extreme(chance for chance, _ in fitted) for extreme in (min, max))
        chance = CORRELATION.bare(low) + ("" if low == high else f" to {CORRELATION.bare(high)}")
        better = sum(rho > chance for chance, rho in fitted)
        yield _text("pool_bounds_fitted", chance=chance, better=better, number=len(fitted))


def _verdict(agreements: list[tuple[str, Agreement]]) -> dict[str, object] | None:
    """The numbers of predictors with an interval above and below 0, and the best; None without predictors."""
    if not agreements:
        return None
    name, best = max(agreements, key=lambda pair: pair[1].tau)
    return {
        "number": len(agreements),
        "right": sum(a.excludes_zero and a.tau > 0 for _, a in agreements),
        "wrong": sum(a.excludes_zero and a.tau < 0 for _, a in agreements),
        "name": name,
        "tau": _tau(best),
    }


def _table(judgment: Judgment) -> str:
    with_gap = any(math.isfinite(agreement.tau) for agreement in judgment.gaps)
    columns = [
        Column("Predictor"),
        *numeric("n", "τ", "95 %", "ρ", "95 %", *(["τ with the gap", "95 %"] if with_gap else [])),
    ]
    rows = []
    for predictor, error, gap in zip(judgment.predictors, judgment.errors, judgment.gaps, strict=True):
        row = [predictor.name + ("*" if predictor.group == "fitted" else ""), error.n, CORRELATION.bare(error.tau)]
        row += [_between(error.tau_interval), CORRELATION.bare(error.rho), _between(error.rho_interval)]
        rows.append(row + ([CORRELATION.bare(gap.tau), _between(gap.tau_interval)] if with_gap else []))
    notes = _text("pool_bounds_notes", gap_of=quantity_of(judgment.value).label if with_gap else None)
    return table(columns, rows, label="Rank correlation of each predictor with the errors") + paragraphs([notes])


def _between(interval: tuple[float, float]) -> str:
    return MISSING if math.isnan(interval[0]) else f"{CORRELATION.bare(interval[0])} to {CORRELATION.bare(interval[1])}"


def _tau(agreement: Agreement) -> str:
    return f"{CORRELATION.bare(agreement.tau)} ({_between(agreement.tau_interval)})"
