"""Ray Tune's ASHA (Li et al. 2020), going on where a run was left: Tune saves no state of a scheduler."""

from __future__ import annotations

from typing import Any

from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler

from archray.platform.engine.result_log import experiment_folder
from archray.platform.run.layout import RESULTS


class ResumedASHA(AsyncHyperBandScheduler):
    """An `AsyncHyperBandScheduler` that is told again what the trials of a run that goes on had reported.

    Of a trial that was running the results up to the one it continues from: it reports the others once more. One that
    was to end, and was not seen to, ends with its next result.
    """

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        super().on_trial_add(tune_controller, trial)
        done = int((trial.run_metadata.last_result or {}).get("training_iteration", 0))
        if done == 0:
            return
        reported = (experiment_folder(trial) / RESULTS).read_json_lines(f"{trial.trial_id}.jsonl")
        results = [result for result in reported if result["training_iteration"] <= done]
        actions = [self.on_trial_result(tune_controller, trial, result) for result in results]
        if TrialScheduler.STOP in actions and not trial.is_finished():
            self._trial_info[trial.trial_id] = _Over()


class _Over:
    """The bracket of a trial that is to end."""

    def on_result(self, trial: Any, cur_iter: int, cur_rew: float | None) -> str:
        return str(TrialScheduler.STOP)
