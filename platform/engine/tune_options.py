"""What the caller of a search told Tune."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from archray.errors import InvalidInput, expect

if TYPE_CHECKING:  # whoever gives some has imported it
    from ray import tune


@dataclass(frozen=True)
class TuneOptions:
    """`run_config`, `tune_config`, `callbacks` and `time_budget_s` of a search.

    Raises: InvalidInput for a field that archray sets itself.
    """

    run_config: tune.RunConfig | None = None
    tune_config: tune.TuneConfig | None = None
    callbacks: Sequence[tune.Callback] = ()
    time_budget_s: float | None = None

    def __post_init__(self) -> None:
        expect("callbacks", self.callbacks, list, tuple)
        if self.callbacks:
            from ray.tune import Callback  # slow to import, and loaded already where there is a callback

            for callback in self.callbacks:
                expect("callbacks", callback, Callback)
        expect("time_budget_s", self.time_budget_s, int, float, type(None))
        if self.time_budget_s is not None and not 0 < self.time_budget_s < math.inf:
            raise InvalidInput(f"time_budget_s: expected a number of seconds above 0, got {self.time_budget_s}")
        for config, ours in (
            (self.run_config, ("name", "storage_path", "storage_filesystem")),
            (self.tune_config, ("metric", "mode", "search_alg", "num_samples")),
        ):
            if config is not None and not hasattr(config, ours[0]):
                raise InvalidInput(f"expected a RunConfig and a TuneConfig of Ray Tune, got {config!r}")
            taken = [name for name in ours if config and getattr(config, name) != getattr(type(config)(), name)]
            if taken:
                raise InvalidInput(
                    f"{type(config).__name__}({', '.join(taken)}=...) is set by archray itself; leave it out, "
                    "and use the arguments of archray.search instead"
                )
