"""Ensembles that NESBS is compared with, at the same final training. Shu 2022, sections 5.4.1 to 5.5.1; note E8.

Of one architecture, either given by `architecture` (what another run found) or the best of a small pool of random ones:
`deep-ensemble` (Lakshminarayanan et al. 2017) trains it n times, `snapshot` (Huang et al. 2017) once in n cycles, and
`mc-droppath` (after Gal and Ghahramani 2016) once, to drop paths in n passes. Of several: neural ensemble search
(Zaidi et al. 2021) trains a pool, drawn at random by `nes-rs` and evolved by `nes-re`, and selects n from it.

Members of NES are then trained from scratch as those of NESBS, which is the thesis' comparison; in Zaidi et al. the
trained networks of the pool are the ensemble.
"""

from __future__ import annotations

from typing import Any

from archray.platform.engine.stage import Stage
from archray.platform.methods.ensembles.baseline_config import NESConfig, OneArchitectureConfig
from archray.platform.methods.ensembles.baseline_method import baseline_method
from archray.platform.methods.ensembles.final_ensemble import final_ensemble_stage
from archray.platform.methods.ensembles.member_selection import one_architecture_stage, selection_stage
from archray.platform.methods.ensembles.one_network import drop_path_stage, snapshot_stage
from archray.platform.methods.method import Method
from archray.trainables.ensembles.dropped_paths import PROBABILITY
from archray.trainables.spaces import Space
from archray.trainables.spaces.darts import DARTS

SMALL_POOL = 10  # random architectures, where no architecture is given


def _has_paths(space: Space) -> str | None:
    """None for a space whose networks have paths to drop; else why it cannot be searched."""
    return None if isinstance(space, DARTS) else "its networks have no paths to drop; choose darts or darts-none"


def _one(name: str, summary: str, final: Stage, **more: Any) -> Method:
    return baseline_method(
        name,
        summary,
        OneArchitectureConfig,
        one_architecture_stage(),
        final,
        options={"pool": SMALL_POOL},
        flags={"architecture": "architecture"},
        **more,
    )


# Few epochs leave no time for many dropped paths; but a network that is to do without some has to have learnt it.
_DROPPED = {"final": {"drop_path": PROBABILITY}}

ENSEMBLE_BASELINES = (
    _one("deep-ensemble", "One architecture, trained n times (Lakshminarayanan 2017)", final_ensemble_stage()),
    _one("snapshot", "One network, trained in n cycles of the learning rate (Huang 2017)", snapshot_stage()),
    _one(
        "mc-droppath",
        "One network, n passes with dropped paths (after Gal and Ghahramani 2016)",
        drop_path_stage(),
        presets={"smoke": _DROPPED, "demo": _DROPPED},
        serves=_has_paths,
    ),
    baseline_method(
        "nes-rs",
        "NES-RS: forward selection from a pool of random architectures, each trained (Zaidi 2021)",
        NESConfig,
        selection_stage(),
        final_ensemble_stage(),
    ),
    baseline_method(
        "nes-re",
        "NES-RE: forward selection from a pool that regularised evolution grew (Zaidi 2021)",
        NESConfig,
        selection_stage(),
        final_ensemble_stage(),
        presets={
            "smoke": {"evolution": {"population": 2, "parents": 2}},
            "demo": {"evolution": {"population": 4, "parents": 3}},
        },
    ),
)
