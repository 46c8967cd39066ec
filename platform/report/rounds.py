"""Report section of successive halving: candidates kept, dropped and eliminated. Khodak et al. 2020, Algorithm 1."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from archray.platform.quantities import significant, whole_number
from archray.platform.report import section
from archray.platform.report.section import Column, NamesOf, Section, ShortNames, flags, numbers, numeric, table
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import ROUNDS
from archray.platform.run.run import Run
from archray.plurals import count

_text = texts_of(__package__)
_LAST = 8  # number of candidates whose scores the report shows round by round


@dataclass(frozen=True)
class Halving:
    """Texts for the `section` of a family with successive halving, whose configurations have a `mode`."""

    candidate: str  # word for a candidate, the heading of a column
    shared: str  # the model whose weights the candidates of a round share
    budget: str  # unit of a round's budget, the heading of a column
    names_of: NamesOf  # names of the candidates, see `shown_candidates`
    ending: str = ""  # a sentence about the last round

    def section(self, run: Run[Any]) -> Section | None:
        """Creates a table of rounds, and a folded table of the longest-lasting candidates; None without rounds."""
        mode = run.config.mode
        repeats = {number: repeat.table("search", ROUNDS) for number, repeat in enumerate(run.repeats or [run])}
        repeats = {n: frame for n, frame in repeats.items() if {"round", "candidate"} <= set(frame.columns)}
        shown = run.best.table("search", ROUNDS)
        if shown.empty or not repeats:
            return None
        names = self.names_of(run)
        body = section.paragraphs(self._sentences(repeats, mode)) + self._table({0: shown}, mode, names)
        body += self._last_candidates(shown, mode, names)
        if len(repeats) > 1:
            body += section.folded("Rounds of all repeats", self._table(repeats, mode, names))
        return Section("rounds", "Round by round", body)

    def _sentences(self, repeats: dict[int, pd.DataFrame], mode: str) -> Iterator[str]:
        candidate, lowest = self.candidate.lower(), mode == "min"
        words = {"shared": self.shared, "ending": self.ending, "candidate": candidate}
        yield _text("rounds", **words, lowest=lowest, repeats=len(repeats))
        everything = pd.concat(repeats.values(), ignore_index=True)
        lost = eliminated(everything)
        if lost.any():
            reasons = section.failures(everything)[lost].dropna().unique().tolist()
            why = f" ({'; '.join(reasons[:3])}{'; …' if len(reasons) > 3 else ''})" if reasons else ""
            yield (
                f"{count(int(lost.sum()), 'score')} {'is' if lost.sum() == 1 else 'are'} not a number{why}. The search "
                "eliminates such candidates."
            )
        lost_replicas = [float(row["lost"]) for frame in repeats.values() for row in rounds_of(frame, mode)]
        missing = int(np.nansum(lost_replicas))
        if missing:
            yield (
                f"{count(missing, 'replica')} of a round {'was' if missing == 1 else 'were'} lost; the round used the "
                "other replicas."
            )

    def _table(self, repeats: dict[int, pd.DataFrame], mode: str, names: ShortNames) -> str:
        """Creates a row per round, with the number of the repeat if there are several."""
        rounds = [(repeat, row) for repeat, frame in repeats.items() for row in rounds_of(frame, mode)]
        shown = ["budget", "candidates", "kept", "dropped", "eliminated", "replicas", "lost"]
        for name, least in (("eliminated", 0), ("lost", 0), ("replicas", 1)):
            if all(not row[name] > least for _, row in rounds):
                shown.remove(name)
        headings = [self.budget, *(name.capitalize() for name in shown[1:])]
        columns = numeric(*(["Repeat"] if len(repeats) > 1 else []), "Round", *headings)
        columns += [*numeric("Best score", "Median"), Column("Leader", "name")]
        rows = []
        for repeat, row in rounds:
            numbered = [*([repeat] if len(repeats) > 1 else []), row["round"], *(whole_number(row[n]) for n in shown)]
            scores = [significant(row[name], 4) for name in ("best", "median")]
            rows.append((*numbered, *scores, names.of(row["leader"])))
        return table(columns, rows, label="Rounds of successive halving")

    def _last_candidates(self, rounds: pd.DataFrame, mode: str, names: ShortNames) -> str:
        """Creates a folded table of the scores by round of the longest-lasting candidates, the winner first."""
        scores = last_scores(rounds, mode)
        columns = [Column(self.candidate, "name"), *numeric(*(f"Round {number}" for number in scores.columns))]
        rows = []
        for candidate, values in zip(scores.index, scores.to_numpy(), strict=True):
            cells = ["" if math.isnan(value) else significant(value, 3) for value in values]
            rows.append((names.of(candidate), *cells))
        scored = table(columns, rows, label="Scores of the last candidates")
        return section.folded(f"Scores of the last {count(len(rows), 'candidate')}", scored)


def last_scores(rounds: pd.DataFrame, mode: str) -> pd.DataFrame:
    """Returns scores by candidate and round of the longest-lasting candidates, the winner first."""
    scores = rounds.assign(score=numbers(rounds, "score")).pivot_table(
        index="candidate", columns="round", values="score", aggfunc="first", dropna=False
    )
    lasted = scores.notna().sum(axis=1)  # number of rounds with a score
    last = scores.ffill(axis=1).iloc[:, -1] * (1 if mode == "min" else -1)
    return scores.iloc[np.lexsort((last.to_numpy(), -lasted.to_numpy()))[:_LAST]]


def shown_candidates(run: Run[Any]) -> list[str]:
    """Returns the candidates in the section of a run: the longest-lasting ones, then the leaders of all repeats."""
    frames = [repeat.table("search", ROUNDS) for repeat in (run.best, *run.repeats)]
    frames = [frame for frame in frames if len(frame) and {"round", "candidate"} <= set(frame.columns)]
    mode = run.config.mode
    last = last_scores(frames[0], mode).index.tolist() if frames else []
    return [*last, *(row["leader"] for frame in frames for row in rounds_of(frame, mode))]


def eliminated(rounds: pd.DataFrame) -> pd.Series:
    """Returns a mask of candidates without a score, which the search never keeps."""
    return numbers(rounds, "score").isna() & ~flags(rounds, "kept")


def rounds_of(rounds: pd.DataFrame, mode: str) -> list[dict[str, Any]]:
    """Returns a mapping per round of one search: sizes, best and median score, and leader.

    `replicas` is the number of replicas that reported, and `lost` the number that did not.
    """
    rows = []
    for number, frame in rounds.groupby("round", sort=True):
        score, kept = numbers(frame, "score"), flags(frame, "kept")
        leader = None
        if score.notna().any():
            leader = str(frame["candidate"].iloc[int(score.argmin() if mode == "min" else score.argmax())])
        rows.append(
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
    return rows
