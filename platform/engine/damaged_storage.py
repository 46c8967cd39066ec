"""A disk that is full, and a checkpoint that cannot be read: the run stops with a sentence, or goes on without it."""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray import tune
from ray.exceptions import RayActorError

from archray.disks import FULL_TEXTS, is_full
from archray.errors import DiskFull
from archray.files import Folder
from archray.platform.engine.failed_trials import last_error

logger = logging.getLogger(__name__)


@contextmanager
def stops_when_full(folder: Folder) -> Iterator[None]:
    """Raises: DiskFull for an error in the block of a disk that is full. folder: of the run."""
    try:
        yield
    except Exception as error:
        if not is_full(error):
            raise
        raise DiskFull(
            f"the disk (or the quota) of {folder} is full; what was finished is saved. Make room there"
        ) from error


class CheckpointTrouble(tune.Callback):
    """Ends the Tune run when a trial could not save because a disk is full: tried again it would only fail for good.

    And has a trial whose last checkpoint cannot be read go on from the one before, or begin anew. Tune tells of that
    only where `TUNE_RESTORE_RETRY_NUM` allows it to fail. Holds no state and no path.
    """

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        error = last_error(trial)
        if is_full(error):
            raise error or OSError(errno.ENOSPC, FULL_TEXTS[0])
        if trial.temporary_state.num_restore_failures and not isinstance(error, RayActorError):
            _drop_last_checkpoint(trial)

    on_trial_error = on_trial_recover


def _drop_last_checkpoint(trial: Any) -> None:
    manager = trial.run_metadata.checkpoint_manager
    damaged = manager.latest_checkpoint_result
    if damaged is None:
        return
    manager._checkpoint_results = [result for result in manager._checkpoint_results if result is not damaged]
    manager._latest_checkpoint_result = (manager._checkpoint_results or [None])[-1]
    trial.run_metadata.invalidate_cache()
    on = "the one before" if manager.latest_checkpoint_result else "its beginning"
    logger.warning("%s: the checkpoint %s cannot be read; it goes on from %s", trial, damaged.checkpoint.path, on)
