"""A searcher's state on disk: written whole or not at all, and brought in line with what Tune itself saved.

Tune writes its own state and the searcher's one after the other, and copies both to storage in the background: a
driver that is killed can leave files of two moments. `read_tune_trials` gives what a searcher needs to mend that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.utils import flatten_dict

from archray.errors import ArchrayError
from archray.files import write_file

FORMAT = 1  # raised when a state of before can no longer be read


class SearcherStateError(ArchrayError):
    """A searcher's saved state that cannot be read, or belongs to a search with other settings."""


def write_state(path: str | Path, state: dict[str, Any]) -> None:
    """Writes `state` as JSON, whole or not at all."""
    write_file(path, json.dumps({"format": FORMAT, **state}).encode())


def read_state(path: str | Path) -> dict[str, Any]:
    """The state in `path`. Raises: SearcherStateError if it is absent, damaged, or of another format."""
    try:
        state = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SearcherStateError(f"the searcher's state {path} cannot be read ({error})") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        other = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise SearcherStateError(
            f"the searcher's state {path} has format {other!r}, this archray reads format {FORMAT}; "
            "continue with the archray version that wrote it"
        )
    return state


@dataclass(frozen=True)
class TuneTrial:
    """A trial as Tune's saved experiment has it: `status` is PENDING, RUNNING, PAUSED, TERMINATED or ERROR."""

    trial_id: str
    config: dict[str, Any]
    status: str
    last_result: dict[str, Any]

    @property
    def ended(self) -> bool:
        return self.status in ("TERMINATED", "ERROR")

    @property
    def failed(self) -> bool:
        return self.status == "ERROR"


def read_tune_trials(folder: str | Path) -> list[TuneTrial] | None:
    """The trials in the newest `experiment_state-*.json` of `folder`; None where none can be read."""
    files = sorted(Path(folder).glob("experiment_state-*.json"))
    if not files:
        return None
    try:
        saved = json.loads(files[-1].read_text(encoding="utf-8"))
        trials = []
        for description, progress in saved["trial_data"]:
            trial = Trial.from_json_state(description, stub=True)
            trial.restore_run_metadata(progress)
            trials.append(
                TuneTrial(trial.trial_id, dict(trial.config), trial.status, flatten_dict(trial.last_result or {}))
            )
    except Exception:  # Tune's own restore reads the same file, and reports what is wrong with it
        return None
    return trials
