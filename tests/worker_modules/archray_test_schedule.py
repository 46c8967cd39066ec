"""A trainable with known values that logs its steps."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from archray_test_cluster import append_line
from ray import tune


class Climb(tune.Trainable):
    """Reports `value`, the value of its config plus an epsilon per step, and stops after `steps` steps.

    Config: `value`, a number or None for NaN; `steps`; `log`, a file that gets a line per step: `value step`;
    `fails_at`, a step that raises (optional).
    """

    def setup(self, config: dict[str, Any]) -> None:
        self.done_steps = 0

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.config, self.done_steps = new_config, 0
        return True

    def step(self) -> dict[str, Any]:
        self.done_steps += 1
        value = self.config["value"]
        append_line(self.config["log"], f"{value} {self.done_steps}")
        if self.config.get("fails", {}).get(str(value)) == self.done_steps:
            raise RuntimeError("requested a failure")
        return {
            "value": math.nan if value is None else value + 1e-3 * self.done_steps,
            "epoch": self.done_steps,
            "done": self.done_steps == self.config["steps"],
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        (Path(checkpoint_dir) / "steps.json").write_text(json.dumps(self.done_steps))

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.done_steps = json.loads((Path(checkpoint) / "steps.json").read_text())
