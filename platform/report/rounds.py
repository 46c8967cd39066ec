"""The rounds of successive halving: what each kept, dropped and eliminated. Khodak et al. 2020, Algorithm 1."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from archray.platform.methods.feature_maps.found_map import found_repeat
from archray.platform.report.quantity import MISSING, count, significant, whole_number
from archray.platform.report.section import Column, Section, escape, paragraphs, table
from archray.platform.report.view import RunView, failures, flags, numbers

_LAST = 8  # candidates whose scores are shown round by round


def rounds_section(view: RunView) -> Section | None:
    """A row per round, and folded below it the candidates that lasted longest. Nothing without rounds."""
    frame = view.rounds
    if frame.empty or not {"round", "candidate"} <= set(frame.columns):
        return None
    repeats: dict[object, pd.DataFrame] = dict(list(frame.groupby("repeat"))) if "repeat" in frame else {0: frame}
    wanted = found_repeat(view)[0] if len(view.progress) else next(iter(repeats))
    shown = repeats[wanted] if wanted in repeats else next(iter(repeats.values()))
    body = paragraphs(_sentences(view, repeats)) + _table(view, {None: shown}) + _last_candidates(view, shown)
    if len(repeats) > 1:
        body += f"<details><summary>Rounds of all repeats</summary>{_table(view, repeats)}</details>"
    return Section("rounds", "Round by round", body)


def _sentences(view: RunView, repeats: dict[object, pd.DataFrame]) -> Iterator[str]:
    best, of = "lowest" if view.mode == "min" else "highest", "solve" if view.found.empty else "supernet"
    text = (
        f"In each round the candidates that are left share the weights of one {of}, and those with the "
        f"{best} scores are kept."
    )
    text += " The last solve is of the winner alone." if view.found.empty else ""
    if len(repeats) > 1:
        text += f" The table has the repeat that found the {_candidate(view).lower()} above, one of {len(repeats)}."
    yield text
    everything = pd.concat(repeats.values(), ignore_index=True)
    lost = eliminated(everything)
    if lost.any():
        reasons = failures(everything)[lost].dropna().unique().tolist()
        told = f" ({'; '.join(reasons[:3])}{'; …' if len(reasons) > 3 else ''})" if reasons else ""
        yield (
            f"{count(int(lost.sum()), 'score')} {'is' if lost.sum() == 1 else 'are'} not a number{told}: such a "
            "candidate is eliminated, whatever the others score."
        )
    lost_replicas = [float(row["lost"]) for frame in repeats.values() for row in rounds_of(frame, view.mode)]
    missing = int(np.nansum(lost_replicas))
    if missing:
        yield (
            f"{count(missing, 'replica')} of a round {'was' if missing == 1 else 'were'} lost for good; the round "
            "went on with the others."
        )


def _candidate(view: RunView) -> str:
    """What a candidate is: the heading of its column."""
    return "Feature map" if view.found.empty else "Architecture"


def eliminated(rounds: pd.DataFrame) -> pd.Series:
    """Which rows are candidates without a score: they are never kept."""
    return numbers(rounds, "score").isna() & ~flags(rounds, "kept")


def rounds_of(rounds: pd.DataFrame, mode: str) -> list[dict[str, Any]]:
    """A mapping per round of one search: its sizes, its best and median score, and its leader.

    `replicas` reported, `lost` did not.
    """
    told = []
    for number, frame in rounds.groupby("round", sort=True):
        score, kept = numbers(frame, "score"), flags(frame, "kept")
        leader = None
        if score.notna().any():
            values = score.to_numpy()
            leader = str(frame["candidate"].iloc[int(np.nanargmin(values) if mode == "min" else np.nanargmax(values))])
        told.append(
            {
                "round": number,
                "budget": numbers(frame, "budget").max(),
                "candidates": len(frame),
                "kept": int(kept.sum()),
                "dropped": int((~kept & score.notna()).sum()),
                "eliminated": int(eliminated(frame).sum()),
                "replicas": numbers(frame, "replicas").max(),
                "lost": numbers(frame, "lost").max(),
                "best": score.min() if mode == "min" else score.max(),
                "median": score.median(),
                "leader": leader,
            }
        )
    return told


def _table(view: RunView, repeats: dict[object, pd.DataFrame]) -> str:
    """A row per round; with the repeat's number where there are several."""
    told = [(repeat, row) for repeat, frame in repeats.items() for row in rounds_of(frame, view.mode)]
    headings = {
        "budget": "Features" if view.found.empty else "Epochs",
        "candidates": "Candidates",
        "kept": "Kept",
        "dropped": "Dropped",
        "eliminated": "Eliminated",
        "replicas": "Replicas",
        "lost": "Lost",
    }
    for name, least in (("eliminated", 0), ("lost", 0), ("replicas", 1)):
        if all(not row[name] > least for _, row in told):
            del headings[name]
    columns = [Column("Repeat", "number")] if len(repeats) > 1 else []
    columns += [Column("Round", "number"), *(Column(heading, "number") for heading in headings.values())]
    columns += [Column("Best score", "number"), Column("Median", "number"), Column("Leader", "code")]
    rows = [
        (
            *([repeat] if len(repeats) > 1 else []),
            row["round"],
            *(whole_number(row[name]) for name in headings),
            significant(row["best"], 4),
            significant(row["median"], 4),
            row["leader"] or MISSING,
        )
        for repeat, row in told
    ]
    return table(columns, rows, label="The rounds of successive halving")


def _last_candidates(view: RunView, rounds: pd.DataFrame) -> str:
    """The scores, round by round, of the candidates that lasted longest, the winner first; folded."""
    scores = rounds.assign(score=numbers(rounds, "score")).pivot_table(
        index="candidate", columns="round", values="score", aggfunc="first", dropna=False
    )
    lasted = scores.notna().sum(axis=1)  # rounds with a score
    last = scores.ffill(axis=1).iloc[:, -1] * (1 if view.mode == "min" else -1)
    order = np.lexsort((last.to_numpy(), -lasted.to_numpy()))[:_LAST]
    columns = [Column(_candidate(view), "code"), *(Column(f"Round {number}", "number") for number in scores.columns)]
    rows = [
        (scores.index[i], *("" if math.isnan(value) else significant(value, 3) for value in scores.iloc[i]))
        for i in order
    ]
    summary = escape(f"Scores of the {count(len(rows), 'candidate')} that lasted longest")
    return (
        f"<details><summary>{summary}</summary>{table(columns, rows, label='Scores of the last candidates')}</details>"
    )
