"""The trainable that the conformance suite runs in Ray's workers: its score is a function of the config alone."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ray import tune

from archray.registry import load_reference

Evaluator = Callable[[dict[str, Any]], Mapping[str, Any] | float]

STEPS = 2  # iterations of a trial
PATIENCE_S = 120.0  # how long a trial waits for the one it is to run beside


def hashed_score(config: Mapping[str, Any]) -> float:
    """A score in [0, 1) that looks random but is a function of what the searcher suggested, its seed apart."""
    return fraction({key: value for key, value in config.items() if key != "seed"})


def fraction(value: Any) -> float:
    """A number in [0, 1) from the SHA-256 of a JSON value."""
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


class ConformanceTrainable(tune.Trainable):
    """Reports the score of its config, in STEPS iterations; can be reused, saved and restored.

    Config, beside what the searcher suggests, under the key `conformance`:
        evaluator: reference of the function config -> score or result.
        meeting: a folder; the trial goes on once two trials have signed in there. None: no waiting.
    """

    def setup(self, config: dict[str, Any]) -> None:
        own = config["conformance"]
        self.suggested = {key: value for key, value in config.items() if key != "conformance"}
        self.evaluate: Evaluator = load_reference(own["evaluator"])
        self.meeting = own["meeting"]
        self.steps_done = 0

    def step(self) -> dict[str, Any]:
        if self.meeting:
            self._meet(Path(self.meeting))
        self.steps_done += 1
        reported = self.evaluate(self.suggested)
        result = dict(reported) if isinstance(reported, Mapping) else {"score": reported}
        return {**result, "done": self.steps_done >= STEPS}

    def _meet(self, folder: Path) -> None:
        (folder / self.trial_id).touch()
        deadline = time.monotonic() + PATIENCE_S
        while sum(1 for _ in folder.iterdir()) < 2:
            if time.monotonic() > deadline:
                raise TimeoutError("no second trial was started beside this one")
            time.sleep(0.02)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        (Path(checkpoint_dir) / "steps.json").write_text(json.dumps(self.steps_done))

    def load_checkpoint(self, checkpoint_dir: str) -> None:  # type: ignore[override]  # Ray names a dict, gives a path
        self.steps_done = json.loads((Path(checkpoint_dir) / "steps.json").read_text())

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True
