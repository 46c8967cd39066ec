"""What a caller may tell the Tune run of a search, as Tune users expect."""

from __future__ import annotations

from dataclasses import dataclass

from ray import tune
from ray.tune import RunConfig, TuneConfig

from archray.errors import InvalidInput

OURS_RUN = ("name", "storage_path", "storage_filesystem")
OURS_TUNE = ("metric", "mode", "search_alg", "num_samples")


@dataclass(frozen=True)
class TuneOptions:
    """`run_config`, `tune_config`, `callbacks` and `time_budget_s` of a search.

    Raises: InvalidInput for a field that archray sets itself.
    """

    run_config: RunConfig | None = None
    tune_config: TuneConfig | None = None
    callbacks: tuple[tune.Callback, ...] = ()
    time_budget_s: float | None = None

    def __post_init__(self) -> None:
        for config, fresh, ours in (
            (self.run_config, RunConfig(), OURS_RUN),
            (self.tune_config, TuneConfig(), OURS_TUNE),
        ):
            taken = [name for name in ours if config is not None and getattr(config, name) != getattr(fresh, name)]
            if taken:
                raise InvalidInput(
                    f"{type(config).__name__}({', '.join(taken)}=...) is set by archray itself; leave it out, "
                    "and use the arguments of archray.search instead"
                )
