"""Ensembles that NESBS is compared with, at the same final training. Shu 2022, sections 5.4.1 to 5.5.1; note E8.

Of one architecture, either given by `architecture` (what another run found) or the best of a small pool of random ones:
`deep-ensemble` (Lakshminarayanan et al. 2017) trains it n times, `snapshot` (Huang et al. 2017) once in n cycles, and
`mc-droppath` (after Gal and Ghahramani 2016) once, to drop paths in n passes. Of several: neural ensemble search
(Zaidi et al. 2021) trains a pool, drawn at random by `nes-rs` and evolved by `nes-re`, and selects n from it.

Members of NES are then trained from scratch as those of NESBS, which is the thesis' comparison; in Zaidi et al. the
trained networks of the pool are the ensemble.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from archray.platform.config import merge
from archray.platform.engine.stage import Stage
from archray.platform.methods.ensembles.baseline_config import (
    DropPathConfig,
    EvolvedNESConfig,
    NESConfig,
    OneArchitectureConfig,
    PooledConfig,
    SnapshotConfig,
)
from archray.platform.methods.ensembles.ensemble_report import (
    POOLED_SECTIONS,
    headline_of_pooled,
    measured,
    show_pooled,
)
from archray.platform.methods.ensembles.final_ensemble import DROP_PATH_STAGE, FINAL_ENSEMBLE_STAGE, SNAPSHOT_STAGE
from archray.platform.methods.ensembles.nesbs_method import PRESETS, Values, ensemble_defaults
from archray.platform.methods.ensembles.trained_pool import (
    DRAWN_POOL_STAGE,
    EVOLVED_POOL_STAGE,
    MEMBER_SELECTION_STAGE,
    ONE_ARCHITECTURE_STAGE,
    SMALL_POOL_STAGE,
)
from archray.platform.methods.method import METHODS, Method, serves_networks
from archray.platform.methods.training_stages import BASELINE_STAGE
from archray.trainables.ensembles.prediction import PROBABILITY
from archray.trainables.spaces import Space
from archray.trainables.spaces.darts import DARTS

SMALL_POOL = 10  # random architectures, where no architecture is given
SHARED = ("data", "network", "final", "ensemble_size")  # as NESBS has them, so that only the ensembles differ
FLAGS: Mapping[str, str] = {
    "ensemble_size": "ensemble_size",
    "budget": "pool",
    "epochs": "train.epochs",
    "final_epochs": "final.epochs",
    "random": "baseline",
}
_POOLS: Mapping[str, Values] = {
    "smoke": {"pool": 4, "train": {"epochs": 1}},
    "demo": {"pool": 12, "train": {"epochs": 10}},
    "paper": {},
}


def _shared(values: Values) -> dict[str, Any]:
    """Those of NESBS' options that are these methods' too; a pool is trained as its final networks are."""
    taken = {name: value for name, value in values.items() if name in SHARED}
    return merge(taken, {"train": taken["final"]}) if "final" in taken else taken


def _register(
    name: str,
    summary: str,
    config: type[PooledConfig],
    *stages: Stage[Any],
    options: Values | None = None,
    presets: Mapping[str, Values] | None = None,
    flags: Mapping[str, str] | None = None,
    serves: Any = serves_networks,
) -> None:
    """stages: of the pool, of what its members are, of their training. options, presets, flags: over all methods'."""

    def defaults(space: str) -> dict[str, Any]:
        return merge(_shared(ensemble_defaults(space)), {"train": {"epochs": 50}}, options or {})

    METHODS.register(
        name,
        Method(
            name=name,
            summary=summary,
            config=config,
            stages=(*stages, BASELINE_STAGE),
            defaults=defaults,
            presets={
                preset: merge(_shared(values), _POOLS[preset], (presets or {}).get(preset, {}))
                for preset, values in PRESETS.items()
            },
            results=measured,
            headline=headline_of_pooled,
            sections=POOLED_SECTIONS,
            show=show_pooled,
            flags={**FLAGS, **(flags or {})},
            extendable=("final_epochs", "random"),
            serves=serves,
        ),
    )


def _has_paths(space: Space) -> str | None:
    """None for a space whose networks have paths to drop; else why it cannot be searched."""
    return None if isinstance(space, DARTS) else "its networks have no paths to drop; choose darts or darts-none"


def _register_one(name: str, summary: str, config: type[OneArchitectureConfig], final: Stage[Any], **more: Any) -> None:
    """Of one architecture, given or the best of a small pool."""
    flags = {"architecture": "architecture"}
    stages = (SMALL_POOL_STAGE, ONE_ARCHITECTURE_STAGE, final)
    _register(name, summary, config, *stages, options={"pool": SMALL_POOL}, flags=flags, **more)


# Few epochs leave no time for many dropped paths; but a network that is to do without some has to have learnt it.
_DROPPED = {"final": {"drop_path": PROBABILITY}}

_register_one(
    "deep-ensemble",
    "One architecture, trained n times (Lakshminarayanan 2017)",
    OneArchitectureConfig,
    FINAL_ENSEMBLE_STAGE,
)
_register_one(
    "snapshot", "One network, trained in n cycles of the learning rate (Huang 2017)", SnapshotConfig, SNAPSHOT_STAGE
)
_register_one(
    "mc-droppath",
    "One network, n passes with dropped paths (after Gal and Ghahramani 2016)",
    DropPathConfig,
    DROP_PATH_STAGE,
    presets={"smoke": _DROPPED, "demo": _DROPPED},
    serves=_has_paths,
)
_register(
    "nes-rs",
    "NES-RS: forward selection from a pool of random architectures, each trained (Zaidi 2021)",
    NESConfig,
    DRAWN_POOL_STAGE,
    MEMBER_SELECTION_STAGE,
    FINAL_ENSEMBLE_STAGE,
)
_register(
    "nes-re",
    "NES-RE: forward selection from a pool that regularised evolution grew (Zaidi 2021)",
    EvolvedNESConfig,
    EVOLVED_POOL_STAGE,
    MEMBER_SELECTION_STAGE,
    FINAL_ENSEMBLE_STAGE,
    presets={
        "smoke": {"evolution": {"population": 2, "parents": 2}},
        "demo": {"evolution": {"population": 4, "parents": 3}},
    },
)
