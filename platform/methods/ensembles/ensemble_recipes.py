"""What the searches for an ensemble do, and show; see `ensemble_methods`."""

from __future__ import annotations

from functools import partial
from typing import Any

from archray.platform.methods.ensembles.ensemble_report import (
    POOLED_SECTIONS,
    SAMPLED_SECTIONS,
    headline_of_pooled,
    headline_of_sampled,
    list_pooled,
    list_sampled,
    measured,
)
from archray.platform.methods.ensembles.final_ensemble import DROP_PATH_STAGE, FINAL_ENSEMBLE_STAGE, SNAPSHOT_STAGE
from archray.platform.methods.ensembles.posterior_stage import POSTERIOR_STAGE, SUPERNET_STAGE
from archray.platform.methods.ensembles.sampling_stage import SAMPLING_STAGE
from archray.platform.methods.ensembles.trained_pool import (
    DRAWN_POOL_STAGE,
    EVOLVED_POOL_STAGE,
    MEMBER_SELECTION_STAGE,
    ONE_ARCHITECTURE_STAGE,
    SMALL_POOL_STAGE,
)
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.training_stages import BASELINE_STAGE

_sampled = partial(
    Recipe[Any], measured=measured, headline=headline_of_sampled, sections=SAMPLED_SECTIONS, listings=list_sampled
)
_pooled = partial(
    Recipe[Any], measured=measured, headline=headline_of_pooled, sections=POOLED_SECTIONS, listings=list_pooled
)
_ENDING = (SAMPLING_STAGE, FINAL_ENSEMBLE_STAGE, BASELINE_STAGE)
_CHOSEN = (SMALL_POOL_STAGE, ONE_ARCHITECTURE_STAGE)
_SELECTED = (MEMBER_SELECTION_STAGE, FINAL_ENSEMBLE_STAGE, BASELINE_STAGE)

NESBS = _sampled(stages=(SUPERNET_STAGE, POSTERIOR_STAGE, *_ENDING))
URS = _sampled(stages=(SUPERNET_STAGE, *_ENDING))
DEEP_ENSEMBLE = _pooled(stages=(*_CHOSEN, FINAL_ENSEMBLE_STAGE, BASELINE_STAGE))
SNAPSHOT = _pooled(stages=(*_CHOSEN, SNAPSHOT_STAGE, BASELINE_STAGE))
MC_DROPPATH = _pooled(stages=(*_CHOSEN, DROP_PATH_STAGE, BASELINE_STAGE))
NES_RS = _pooled(stages=(DRAWN_POOL_STAGE, *_SELECTED))
NES_RE = _pooled(stages=(EVOLVED_POOL_STAGE, *_SELECTED))
