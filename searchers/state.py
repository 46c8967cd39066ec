"""A searcher's state on disk: written whole or not at all, and brought in line with what Tune itself saved.

Tune writes its own state and the searcher's one after the other, and copies both to storage in the background: a
driver that is killed can leave files of two moments. `read_tune_trials` gives what a searcher needs to mend that.
"""

from __future__ import annotations

import json
import logging
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.search import Searcher
from ray.tune.utils import flatten_dict

from archray.errors import ArchrayError
from archray.files import write_file

logger = logging.getLogger(__name__)

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


class PersistentSearcher(Searcher):
    """A searcher that is saved and restored whole. A subclass defines `get_state`, `set_state`, `reconcile`."""

    _restore_problem: SearcherStateError | None = None

    @abstractmethod
    def get_state(self) -> dict[str, Any]:
        """All that a searcher made with the same arguments needs to continue. JSON-able."""

    @abstractmethod
    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from `get_state`. Raises: SearcherStateError if it is of a search with other settings."""

    @abstractmethod
    def reconcile(self, trials: Sequence[TuneTrial]) -> None:
        """Mends a state that is older or newer than Tune's own."""

    def save(self, checkpoint_path: str) -> None:
        write_state(checkpoint_path, self.get_state())

    def restore(self, checkpoint_path: str) -> None:
        """Continues from a saved state.

        Tune answers an exception here by silently starting a new experiment, so a state that cannot be used is
        logged, and raised by the next `suggest`, which ends the run.
        """
        try:
            self.set_state(read_state(checkpoint_path))
            self._restore_problem = None
        except Exception as error:
            logger.error("%s cannot continue from %s: %s", type(self).__name__, checkpoint_path, error)
            if not isinstance(error, SearcherStateError):
                error = SearcherStateError(f"{checkpoint_path}: {error!r}")
            self._restore_problem = error

    def restore_from_dir(self, checkpoint_dir: str) -> None:
        """Continues from the newest readable state in a folder of Tune's, brought in line with Tune's own trials."""
        files = sorted(Path(checkpoint_dir).glob(self.CKPT_FILE_TMPL.format("*")), reverse=True)
        if not files:
            self._restore_problem = SearcherStateError(f"there is no searcher state in {checkpoint_dir}")
            logger.error("%s", self._restore_problem)
        for file in files:
            self.restore(str(file))
            if self._restore_problem is None:
                break
        trials = read_tune_trials(checkpoint_dir)
        if self._restore_problem is None and trials is not None:
            self.reconcile(trials)

    def check_restored(self) -> None:
        """Raises: SearcherStateError if the state it was to continue from could not be used."""
        if self._restore_problem is not None:
            raise self._restore_problem
