"""What trials are called: `hnas-search-003-seed-12` by trackers and Ray's dashboard, without the run on the disk."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from archray.platform.engine.result_log import experiment_folder


@dataclass(frozen=True)
class TrialName:
    """Makes the name of a trial. Tune asks once, and keeps the answer with the trial.

    Tune asks before it evaluates functions in a configuration (`tune.sample_from`). The name leaves out their keys,
    for which the configuration holds placeholders; the trial's number is unique without them.

    Args:
        stage: that the trial belongs to.
        first: the number of the first trial.
        run: that the stage belongs to; a slash in it becomes a dash.
        searched: whether a searcher suggests the trials: Tune counts those from 1, and a grid's from 0.
    """

    stage: str
    first: int
    searched: bool
    run: str = ""

    def __call__(self, trial: Any) -> str:
        counted = re.match(r"\d+", trial.experiment_tag)
        assert counted is not None  # what Tune calls a trial begins with its number
        words = [
            *filter(None, [self.run.replace("/", "-")]),
            self.stage,
            f"{self.first + int(counted[0]) - self.searched:03d}",
        ]
        keys = ("round", "replica") if "round" in trial.config else ("seed",)
        values = {key: trial.config[key] for key in keys if isinstance(trial.config.get(key), int)}
        words += [str(word) for pair in values.items() for word in pair]
        return "-".join(words)


@dataclass(frozen=True)
class TrialFolder(TrialName):
    """Makes the name of a trial's folder: another one where a trial that a kill has lost has left its own."""

    def __call__(self, trial: Any) -> str:
        name, run = super().__call__(trial), experiment_folder(trial)
        attempts = (name if attempt == 1 else f"{name}-again-{attempt}" for attempt in range(1, 10**6))
        return next(unused for unused in attempts if not (run / unused).exists())
