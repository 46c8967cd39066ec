"""Test accuracy of what was found beside random architectures trained with the same budget: words, cards, figure."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from archray.platform.quantities import points_between, quantity_of
from archray.platform.report.figures import FOUND, INK, RANDOM, SURFACE, NothingToDraw, drawing, figure
from archray.platform.report.measured import headline_cards, measured_networks, over_repeats, tested
from archray.platform.report.page import Card, network_size
from archray.platform.report.pointed_at import tell_points
from archray.platform.report.section import Section, captioned
from archray.platform.report.table_columns import failures
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.plurals import count

TEST = quantity_of("test_accuracy")
_POINT = 8.0  # diameter of a point in units of the drawing
_AXES = 400.0  # width of the axes, about


def accuracy_lead(run: Run[Any]) -> str:
    """What the search chose and how good it is, in a sentence; of a search for one architecture."""
    measured = over_repeats(run, measured_networks)
    if run.best.found is None:
        return "The run found no architecture; the failures below say why."
    if "test_accuracy" not in measured:
        return "The search chose an architecture. There is no test accuracy: no final training ended."
    final, random = measured["test_accuracy"], measured.get("random_test_accuracy")
    text = f"The search chose the architecture below; trained in full, it reaches {TEST.show(final.mean)} test accuracy"
    if final.each == "repeat":
        text = f"{count(final.number, 'search', 'searches')} of one kind, of which the best on validation chose the "
        text += f"architecture below; trained in full, what they chose reaches {TEST.show(final.mean)} test accuracy"
    if final.number > 1:
        text += f" on average over {count(final.number, final.each)}"
    if random is None:
        return f"{text}. No random architectures were trained for comparison."
    others = (
        f"{count(random.number, 'random architecture')} trained" if random.each != "repeat" else "random architectures"
    )
    return f"{text}, {points_between(final.mean - random.mean)} the mean of {others} with the same budget."


def accuracy_cards(run: Run[Any]) -> list[Card]:
    """The test accuracies of what was found and of random architectures; without those that are not known."""
    return headline_cards(over_repeats(run, measured_networks), ("test_accuracy",))


@figure(height=210)
def test_accuracies(run: Run[Any], canvas: Figure) -> None:
    """The test accuracy of every final training of the found architecture, beside that of random architectures."""
    found, random = tested(run.best, "final"), tested(run.best, "baseline")
    if found.size == 0 and random.size == 0:
        raise NothingToDraw("no final training of this run has ended with a test accuracy; resume it")
    groups = [("found", found, FOUND, "o"), ("random", random, RANDOM, "D")]
    groups = [group for group in groups if group[1].size]
    everything = np.concatenate([values for _, values, _, _ in groups]) * TEST.factor
    low, high = float(everything.min()), float(everything.max())
    margin = max((high - low) * 0.06, 0.25)
    low, high = low - margin, high + margin
    axes = canvas.subplots()
    for row, (label, values, colour, marker) in enumerate(groups):
        shown = np.sort(values) * TEST.factor
        mean = shown.mean()
        lift = _dodge(shown, (high - low) * _POINT / _AXES)
        points: dict[str, Any] = {"color": colour, "edgecolor": SURFACE, "linewidth": 0.8, "alpha": 0.9, "zorder": 3}
        axes.scatter(shown, row + lift * 0.11, s=_POINT**2 * 0.8, marker=marker, **points)
        tell_points(axes, shown, row + lift * 0.11, [f"{label}\n{TEST.label} {value:.2f} %" for value in shown])
        axes.plot([mean] * 2, [row - 0.27, row + 0.27], color=INK, linewidth=1.6, zorder=4)
        place = (mean - low) / (high - low)
        axes.annotate(
            f"{TEST.spread(values)} · n = {values.size}",
            (mean, row - 0.31),
            xytext=(0, 0),
            textcoords="offset points",
            ha="left" if place < 0.25 else "right" if place > 0.75 else "center",  # inside the axes
            va="bottom",
            fontsize=11,
            color=INK,
        )
    axes.set_yticks(range(len(groups)), [label for label, *_ in groups])
    axes.set_ylim(len(groups) - 0.55, -0.7)
    axes.set_xlim(low, high)
    axes.set_xlabel(TEST.axis)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0, labelsize=12)
    axes.spines["left"].set_visible(False)


def _dodge(values: np.ndarray, size: float) -> np.ndarray:
    """Vertical steps (n,), 0, 1, -1, 2, ..., that keep sorted values nearer than `size` from covering each other."""
    steps = np.zeros(values.size)
    for i in range(1, values.size):
        near = {steps[j] for j in range(i) if values[i] - values[j] < size}
        steps[i] = next((step for step in (0, 1, -1, 2, -2) if step not in near), 0)
    return steps


def comparison_section(run: Run[Any]) -> Section | None:
    """A row of points for the found architecture's seeds, one for the random ones. Nothing without either."""
    found, random = tested(run.best, "final"), tested(run.best, "baseline")
    description = f"Test accuracy. Found: {TEST.spread(found)}. Random: {TEST.spread(random)}."
    content = drawing("comparison", test_accuracies(run), description=description)
    return Section("comparison", "Against random architectures", captioned(content, _caption(run.best, found, random)))


def _place(gaps: np.ndarray) -> str:
    """The place of an accuracy among others, in words. gaps: (n,) by how much it is above each."""
    words = [points_between(gap) for gap in gaps]
    if len(words) == 1:
        return f"{words[0]} the random architecture"
    numbers = {word: sum(text.endswith(word) for text in words) for word in ("above", "equal to", "below")}
    parts = [f"{word} {'all ' if n == len(words) else ''}{n}" for word, n in numbers.items() if n]
    return ", ".join(parts) + " random architectures"


def _caption(run: Run[Any], found: np.ndarray, random: np.ndarray) -> str:
    parts = []
    if found.size:
        each = ", each with its own seed" if found.size > 1 else ""
        circles = "Circles" if found.size > 1 else "Circle"
        parts.append(f"{circles}: the found architecture, {count(found.size, 'final training')}{each}.")
    if random.size:
        diamonds = "Diamonds" if random.size > 1 else "Diamond"
        parts.append(
            f"{diamonds}: {count(random.size, 'architecture')} drawn at random from the same space, "
            "trained with the same budget, settings and data."
        )
    if max(found.size, random.size) > 1:
        parts.append("The vertical stroke is the mean; ± is the standard deviation of the points, not of the mean.")
    if found.size and random.size:
        parts.append(f"{'Its mean' if found.size > 1 else 'It'} is {_place(found.mean() - random)}.")
    if found.size == 1:
        parts.append("With one final seed, the spread between seeds is not known.")
    baseline = run.table("baseline", TRIALS)
    size, random_size = network_size(run.table("final", TRIALS)), network_size(baseline)
    if size:
        parts.append(
            f"The found network has {size}"
            + (f"; a random one {random_size}{' on average' if random.size > 1 else ''}." if random_size else ".")
        )
    failed = int(failures(baseline).notna().sum())
    if failed:
        parts.append(
            f"{count(failed, 'random architecture')} failed to train and {'is' if failed == 1 else 'are'} left out."
        )
    return " ".join(parts)
