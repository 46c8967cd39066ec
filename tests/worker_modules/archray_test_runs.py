"""Complete runs at the smallest size, which the fixture `finished_run` makes for each method."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ray import tune

# The processes of trials take seconds to start and do little work here, so this uses the fewest that cover every stage.
ONE_AT_A_TIME: dict[str, Any] = {"resources__actors": 1, "max_concurrent": 1}
RUNS: dict[str, dict[str, Any]] = {
    # Killed and extended runs must equal these runs: trials run in parallel.
    "hnas": {
        "preset": "smoke", "seed": 3, "data__limit": 200, "pool_size": 10, "budget": 4, "epochs": 2, "random": 1,
        "resources__actors": 1, "max_concurrent": 2,
    },
    "rank-surrogate": {
        "preset": "smoke", "data__limit": 200, "pool_size": 10, "budget": 2, "random": 1, "resources__actors": 1,
    },
}  # fmt: skip

# The extra that a method needs.
EXTRAS = {"bohb": "bohb"}


def method_parameters(methods: Iterable[str], in_ci: Container[str] = ()) -> list[Any]:
    """Returns methods as test parameters, each marked with the extra that it needs.

    Args:
        in_ci: methods whose slow test runs in CI.
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
    """A user's callback that counts the finished trials by run and stage."""

    counts: ClassVar[defaultdict[str, Counter[str]]] = defaultdict(Counter)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        stage = Path(trial.remote_experiment_path).parents[1]  # the run's folder / the stage / tune-... / session-1
        self.counts[str(stage.parent)][stage.name] += 1


def as_arguments(options: dict[str, Any]) -> list[str]:
    """Converts options of `archray.search` to those of the command."""
    arguments: list[str] = []
    for name, value in options.items():
        if "__" in name:
            arguments += ["--set", f"{name.replace('__', '.')}={value}"]
        else:
            arguments += [f"--{name.replace('_', '-')}", str(value)]
    return arguments
