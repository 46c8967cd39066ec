"""Whole runs at the smallest size: what the fixture `finished_run` makes of each method."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ray import tune

# Processes of trials take seconds to start, and their work here next to nothing: as few as show every stage.
ONE_AT_A_TIME: dict[str, Any] = {"resources__actors": 1, "max_concurrent": 1}
RUNS: dict[str, dict[str, Any]] = {
    # What a killed and an extended run must end as, too: trials side by side.
    "hnas": {
        "preset": "smoke", "seed": 3, "data__limit": 200, "pool_size": 10, "budget": 4, "epochs": 2, "random": 1,
        "resources__actors": 1, "max_concurrent": 2,
    },
}  # fmt: skip

# The extra that a method needs.
EXTRAS = {"bohb": "bohb"}


def method_parameters(methods: Iterable[str], in_ci: Container[str] = ()) -> list[Any]:
    """Methods as parameters of a test, each marked with the extra that it needs.

    Args:
        in_ci: methods whose slow test CI runs.
    """
    return [
        pytest.param(
            method,
            marks=[
                *([pytest.mark.extra(EXTRAS[method])] if method in EXTRAS else []),
                *([pytest.mark.ci] if method in in_ci else []),
            ],
        )
        for method in methods
    ]


class EndedTrials(tune.Callback):
    """A callback of the user's: counts the trials that ended, by run and stage."""

    counts: ClassVar[defaultdict[str, Counter[str]]] = defaultdict(Counter)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        stage = Path(trial.remote_experiment_path).parent  # the run's folder / the stage / tune-...
        self.counts[str(stage.parent)][stage.name] += 1


def as_arguments(options: dict[str, Any]) -> list[str]:
    """Options of `archray.search` as those of the command."""
    arguments: list[str] = []
    for name, value in options.items():
        if "__" in name:
            arguments += ["--set", f"{name.replace('__', '.')}={value}"]
        else:
            arguments += [f"--{name.replace('_', '-')}", str(value)]
    return arguments
