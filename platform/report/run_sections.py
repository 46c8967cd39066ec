"""Sections of all reports: comparison with other architectures, repeats, failures, and the manifest."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from archray.platform.quantities import duration, points_between, quantity_of
from archray.platform.report import figures, section
from archray.platform.report.figures import FOUND, INK, RANDOM, SURFACE, TRIAL, NothingToDraw, figure, figure_section
from archray.platform.report.measures import (
    Measured,
    headline_key,
    is_found,
    largest_of,
    largest_runs,
    measured_networks,
    other_runs,
    over_repeats,
    result_runs,
    tested,
    times,
    training_runs_of,
    whole_space,
)
from archray.platform.report.page import Card, MakeSection, network_size
from archray.platform.report.section import Column, Section, escape, failures, numbers, numeric, table
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import LARGEST, RERUN_GPUS, SEARCH_STAGES, TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import origin_words
from archray.plurals import count

_text = texts_of(__package__)
# Looks of cards; the headline has `found`, others `trial`.
_LOOKS = dict.fromkeys(
    ("largest_test_accuracy", "random_test_accuracy", "best_random_test_accuracy", "others_test_accuracy"), "random"
)


def headline_cards(measured: Measured, keys: Sequence[str], seconds: Measured | None = None) -> list[Card]:
    """Returns the cards, the headline first. seconds: the time that each took, by the same keys."""
    first = headline_key(measured, keys)
    cards = []
    for key in sorted(measured, key=lambda key: key != first):
        quantity, spread = quantity_of(key), measured[key]
        look = "found" if key == first else _LOOKS.get(key, "trial")
        took = f"time {duration(seconds[key].mean)}" if seconds and key in seconds else ""
        cards.append(Card(look, quantity.spread(spread), f"{quantity.label}, {spread.words}", took))
    return cards


TEST = quantity_of("test_accuracy")
_POINT = 8.0  # diameter of a point in units of the drawing
_AXES = 400.0  # approximate width of the axes


def accuracy_lead(run: Run[Any]) -> str:
    """Describes the result, its origin and its quality in a few sentences, for a search for one architecture."""
    measured, best, whole = over_repeats(run, measured_networks), run.best, whole_space(run.best)
    if best.found is None:
        return "The run found no architecture. See the failures below for the reasons."
    if "test_accuracy" not in measured:
        return "The search found an architecture. It has no test accuracy, since no final training run has ended."
    final = measured.get("found_test_accuracy", measured["test_accuracy"])
    others = measured.get("others_test_accuracy" if whole else "random_test_accuracy")
    compared = others, measured.get("best_random_test_accuracy"), measured.get("largest_test_accuracy")
    if not run.repeats and largest_of(run) == run.architecture:
        compared = *compared[:2], None
    gaps = [points_between(final.mean - other.mean) if other is not None else "" for other in compared]
    number = {"random_test_accuracy_n": 0 if others is None else others.number}
    return _text(
        "lead",
        origin="" if whole else origin_words({**(best.result or {}), **number}),
        largest=not run.repeats and largest_of(run) == run.architecture,
        final=final,
        others=others,
        whole=whole,
        gaps=gaps,
        accuracy=TEST.show(final.mean),
        chosen=sum(not is_found(one) for one in run.repeats or [run]),
        validation=quantity_of("final_accuracy").show((best.result or {}).get("final_accuracy")),
        result=TEST.show(measured["test_accuracy"].mean),
    )


def accuracy_cards(run: Run[Any]) -> list[Card]:
    """Returns the available test accuracies of the result, the found architecture and others."""
    return headline_cards(over_repeats(run, measured_networks), ("test_accuracy",), over_repeats(run, times))


@figure(height=210)
def test_accuracies(run: Run[Any], canvas: Figure) -> None:
    """Test accuracy of each final training run of the found architecture, and of the largest and random ones."""
    found, random = tested(run.best.table("final", TRIALS)), tested(other_runs(run.best))
    largest = tested(largest_runs(run.best)) if largest_of(run.best) != run.best.architecture else found[:0]
    best = measured_networks(run.best).get("best_random_test_accuracy")
    if found.size == 0 and random.size == 0:
        raise NothingToDraw("no final training run has ended with a test accuracy. Resume the run")
    groups = [("found", found, FOUND, "o"), ("largest", largest, TRIAL, "s")]
    groups += [("other" if whole_space(run.best) else "random", random, RANDOM, "D")]
    groups = [group for group in groups if group[1].size]
    everything = np.concatenate([values for _, values, _, _ in groups]) * TEST.factor
    low, high = float(everything.min()), float(everything.max())
    margin = max((high - low) * 0.06, 0.25)
    low, high = low - margin, high + margin
    axes = canvas.subplots()
    for row, (label, values, color, marker) in enumerate(groups):
        shown = np.sort(values) * TEST.factor
        mean = shown.mean()
        lift = _dodge(shown, (high - low) * _POINT / _AXES)
        points: dict[str, Any] = {"color": color, "edgecolor": SURFACE, "linewidth": 0.8, "alpha": 0.9, "zorder": 3}
        axes.scatter(shown, row + lift * 0.11, s=_POINT**2 * 0.8, marker=marker, **points)
        figures.add_tooltips(
            axes, shown, row + lift * 0.11, [f"{label}\n{TEST.label} {value:.2f} %" for value in shown]
        )
        axes.plot([mean] * 2, [row - 0.27, row + 0.27], color=INK, linewidth=1.6, zorder=4)
        side, text = _side((mean - low) / (high - low)), f"{TEST.spread(values)} · n = {values.size}"
        axes.annotate(text, (mean, row - 0.31), ha=side, va="bottom", fontsize=11, color=INK)
        if color == RANDOM and best is not None:
            selected = best.mean * TEST.factor
            axes.plot([selected] * 2, [row - 0.27, row + 0.27], color=INK, linewidth=1.6, linestyle=":", zorder=4)
            side = _side((selected - low) / (high - low))
            text = f"best by validation · {TEST.show(best.mean)}"
            axes.annotate(text, (selected, row + 0.31), ha=side, va="top", fontsize=11, color=INK)
    axes.set_yticks(range(len(groups)), [label for label, *_ in groups])
    axes.set_ylim(len(groups) - 0.45, -0.7)
    axes.set_xlim(low, high)
    axes.set_xlabel(TEST.axis)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0, labelsize=12)
    axes.spines["left"].set_visible(False)


def _side(place: float) -> str:
    """Returns the alignment of a text at a place in [0, 1] of the axes, so that the text stays inside."""
    return "left" if place < 0.25 else "right" if place > 0.75 else "center"


def _dodge(values: np.ndarray, size: float) -> np.ndarray:
    """Returns vertical steps (n,), 0, 1, -1, 2, ..., so that sorted values closer than `size` do not overlap."""
    steps = np.zeros(values.size)
    for i in range(1, values.size):
        near = {steps[j] for j in range(i) if values[i] - values[j] < size}
        steps[i] = next((step for step in (0, 1, -1, 2, -2) if step not in near), 0)
    return steps


def comparison_section(run: Run[Any]) -> Section | None:
    """Creates the section that compares the found architecture with random ones, or all others; None without either."""
    best, noun = run.best, "other architecture" if whole_space(run.best) else "random architecture"
    result = None if is_found(best) else quantity_of("final_accuracy").show((best.result or {}).get("final_accuracy"))
    found, others = tested(best.table("final", TRIALS)), other_runs(best)
    random = tested(others)
    best_random = measured_networks(best).get("best_random_test_accuracy")
    caption = _text(
        "comparison",
        found=found.size,
        random=random.size,
        noun=noun,
        result=result,
        place=_place(found.mean() - random, noun) if found.size and random.size else "",
        best=best_random and TEST.show(best_random.mean),
        gap=best_random and points_between(found.mean() - best_random.mean) if found.size else "",
        largest=_largest_words(best, found),
        training_runs=training_runs_of(best, SEARCH_STAGES),
        size=network_size(best.table("final", TRIALS)),
        random_size=network_size(others),
        failed=int(failures(others).notna().sum()),
    )
    description = f"Test accuracy. Found: {TEST.spread(found)}. {noun.split()[0].capitalize()}: {TEST.spread(random)}."
    if best_random:
        description += f" Best random by validation: {TEST.show(best_random.mean)}."
    title = f"Comparison with {'all ' if whole_space(best) else ''}{noun}s"
    return figure_section("comparison", title, test_accuracies(run), description=description, caption=caption)


def _largest_words(run: Run[Any], found: np.ndarray) -> str:
    """Compares the found architecture with the largest; empty without a comparison."""
    document, trials = run.document("baseline", LARGEST), largest_runs(run)
    if document is None or not tested(trials).size or not found.size:
        return ""
    largest = f"the largest of {count(document['of'], 'architecture')}"
    size = quantity_of("parameters").show(numbers(trials, "parameters").mean())
    if document["architecture"] == run.architecture:
        return f"The found architecture is {largest} ({size} parameters)."
    gap = points_between(found.mean() - tested(trials).mean())
    return f"Square: {largest}, {size} parameters; the found architecture is {gap} it."


def _place(gaps: np.ndarray, noun: str) -> str:
    """Describes the place of an accuracy among others.

    Args:
        gaps: (n,) differences to the other accuracies.
        noun: name of the others, in the singular.
    """
    words = [points_between(gap) for gap in gaps]
    if len(words) == 1:
        return f"{words[0]} the {noun}"
    numbers = {word: sum(text.endswith(word) for text in words) for word in ("above", "equal to", "below")}
    parts = [f"{word} {'all ' if n == len(words) else ''}{n}" for word, n in numbers.items() if n]
    return f"{', '.join(parts)} {noun}s"


Tables = Mapping[str, tuple[str, str]]  # description of the work -> stage and table that record failures
_REASONS = 40  # maximum distinct reasons; further reasons are counted together
_LONG = 300  # maximum characters of a reason


def repeats_section(run: Run[Any]) -> Section | None:
    """Creates a row per repeat of the whole run, with mean and spread over repeats; None for fewer than two."""
    repeats = run.repeats
    if len(repeats) < 2:
        return None
    whole = whole_space(run.best)
    names, random_accuracy = section.short_names(run), quantity_of(f"{'others' if whole else 'random'}_test_accuracy")
    columns = [Column("Architecture", "name"), Column(TEST.heading, "number", "descending")]
    columns += numeric(random_accuracy.heading, "No.", "Seed")
    rows, means = [], []
    for number, repeat in enumerate(repeats):
        results = section.finite_values(numbers(result_runs(repeat), "test_accuracy"))
        accuracies = results, tested(other_runs(repeat))
        means.append([values.mean() if values.size else math.nan for values in accuracies])
        architecture = (repeat.result or {}).get("architecture")
        name = names.of(architecture) if architecture else "nothing found"
        rows.append((name, *(TEST.spread(v).removesuffix(" %") for v in accuracies), number, repeat.config.seed))
    found, random = (section.finite_values(values) for values in zip(*means, strict=True))
    text = _text(
        "repeats",
        repeats=len(repeats),
        accuracy=TEST.spread(found),
        number=len(found),
        random_accuracy=TEST.spread(random) if random.size else "",
        whole=whole,
        architectures=len({(repeat.result or {}).get("architecture") for repeat in repeats} - {None}),
    )
    order = np.argsort([-mean for mean, _ in means], kind="stable")  # NaN last
    body = f"<p>{text}</p>" + table(columns, [rows[place] for place in order], label="Repeats of the run")
    return Section("repeats", "Repeats", body)


def failures_section(tables: Tables) -> MakeSection:
    """Returns a function that creates a table of stage, reason and count; None for a run without tables."""

    def make(run: Run[Any]) -> Section | None:
        stages = {words: run.pooled(*place) for words, place in tables.items()}
        if all(frame.empty for frame in stages.values()):
            return None
        rows, again = [], ""
        for stage, frame in stages.items():  # the most frequent reasons first
            counts = failures(frame).dropna().value_counts()
            for reason, number in zip(counts.index[:_REASONS].map(str), counts, strict=False):
                rows.append((stage, reason[:_LONG] + "…" * (len(reason) > _LONG), int(number), len(frame)))
            if rest := counts.iloc[_REASONS:].tolist():
                rows.append((stage, count(len(rest), "further reason"), sum(rest), len(frame)))
            if sentence := _rerun(stage, frame):
                again += f"<p>{escape(sentence)}</p>"
        body = "<p>Nothing failed.</p>"
        if rows:
            columns = (Column("Stage"), Column("Reason"), *numeric("Failed", "of"))
            body = (
                "<p>The table lists failures and their reasons. Means, rankings and the figures above exclude them.</p>"
                + table(columns, rows, label="Failures by stage and reason")
            )
        return Section("failures", "Failures", body + again)

    return make


def _rerun(stage: str, frame: pd.DataFrame) -> str | None:
    """Describes the reruns of trials that ran out of memory; None without reruns."""
    shares = numbers(frame, RERUN_GPUS).dropna()
    if shares.empty:
        return None
    names = ", ".join(map(str, frame["trial_id"][shares.index]))
    gpus = " or ".join(count(share, "GPU") for share in sorted(shares.unique()))
    failed = int(failures(frame)[shares.index].notna().sum())
    return _text("reruns", trials=len(shares), stage=stage, gpus=gpus, names=names, failed=failed)


def failed(run: Run[Any], tables: Tables) -> str | None:
    """Formats `3 in scoring, 1 in final`; None without failures."""
    numbers = {words: int(failures(run.pooled(*place)).notna().sum()) for words, place in tables.items()}
    return ", ".join(f"{number} in {words}" for words, number in numbers.items() if number) or None


def manifest_section(run: Run[Any]) -> Section:
    """Creates a folded section of the manifest, with a table per part."""
    nested = {key: value for key, value in run.manifest.items() if isinstance(value, Mapping) and value}
    single = {key: value for key, value in run.manifest.items() if key not in nested}
    tables = ""
    for name, part in {"run": single, **nested}.items():
        rows = (f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in _flat(part))
        tables += f'<h3>{escape(name)}</h3><dl class="pairs">{"".join(rows)}</dl>'
    body = (
        "<p>The configuration, versions and hardware of the run, with which it can be reproduced.</p>"
        f'<details class="manifest"><summary>Manifest</summary>{tables}</details>'
    )
    return Section("manifest", "Manifest", body)


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yields pairs of dotted key and printed value; lists of plain values stay on one line."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list) and any(isinstance(inner, Mapping | list) for inner in value):
        for index, inner in enumerate(value):
            yield from _flat(inner, f"{key}[{index}]")
    elif isinstance(value, list):
        yield key, ", ".join(str(inner) for inner in value) or "[]"
    else:
        yield key, "null" if value is None else str(value)
