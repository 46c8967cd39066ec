"""The test accuracies of a run, or of its repeats together, by their keys: what its headline and its JSON say alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from archray.platform.quantities import Spread, quantity_of
from archray.platform.report.page import Card
from archray.platform.report.table_columns import finite_values, numbers
from archray.platform.run.layout import CURVES, TRIALS
from archray.platform.run.run import Run

Measured = Mapping[str, Spread]  # by the keys of `quantities`; without those that are not known
TRAINING_STAGES = ("supernet", "pool", "search", "selection", "final", "members")  # what they train, a run needs
_LOOKS = {"random_test_accuracy": "random"}  # of a card; the headline's is `found`, another's `trial`


def tested(run: Run[Any], stage: str) -> np.ndarray:
    """The test accuracies that the trainings of a stage reached, (n,), in [0, 1]."""
    return finite_values(numbers(run.table(stage, TRIALS), "test_accuracy"))


def measured_networks(run: Run[Any]) -> Measured:
    """Of one run: the final trainings, and the random architectures that were trained the same way."""
    spreads = {
        "test_accuracy": Spread.of(tested(run, "final"), "final training"),
        "random_test_accuracy": Spread.of(tested(run, "baseline"), "random architecture"),
    }
    return {key: spread for key, spread in spreads.items() if spread}


def costs(run: Run[Any], stages: Sequence[str] = TRAINING_STAGES) -> Measured:
    """Of one run: the size of its networks, and how many trainings it took in those of the stages that it has."""
    final = run.table("final", TRIALS)
    spreads = {key: Spread.of([numbers(final, key).mean()], "") for key in ("parameters", "multiply_adds")}
    curves = [run.table(stage, CURVES) for stage in stages]
    trainings = sum(table["trial_id"].nunique() for table in curves if "trial_id" in table)
    spreads["trainings"] = Spread.of([trainings], "") if trainings else None
    return {key: spread for key, spread in spreads.items() if spread}


def over_repeats(run: Run[Any], measure: Callable[[Run[Any]], Measured]) -> Measured:
    """What `measure` says of a run of one; of several repeats, the spread of their means."""
    if not run.repeats:
        return measure(run)
    each = [measure(repeat) for repeat in run.repeats]
    keys = dict.fromkeys(key for measured in each for key in measured)
    spreads = {key: Spread.of((m[key].mean for m in each if key in m), "repeat") for key in keys}
    return {key: spread for key, spread in spreads.items() if spread}


def headline_key(measured: Measured, keys: Sequence[str]) -> str | None:
    """Of these test accuracies of what was found, the lowest: the headline. None where none is known."""
    known = [key for key in keys if key in measured]
    return min(known, key=lambda key: measured[key].mean, default=None)


def headline_cards(measured: Measured, keys: Sequence[str]) -> list[Card]:
    """The headline first, then the others."""
    first = headline_key(measured, keys)
    cards = []
    for key in sorted(measured, key=lambda key: key != first):
        quantity, spread = quantity_of(key), measured[key]
        look = "found" if key == first else _LOOKS.get(key, "trial")
        cards.append(Card(look, quantity.spread(spread), f"{quantity.label}, {spread.words}"))
    return cards
