"""Run a Tune searcher in this process: `drive` for evaluations too cheap for a trial each, `replay` after a restore."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher
from ray.tune.utils import flatten_dict

from archray.errors import InvalidInput
from archray.searchers.base import ArchraySearcher
from archray.searchers.ledger import TuneTrial, read_metric

logger = logging.getLogger(__name__)
Reported = Mapping[str, Any] | float | Sequence[Mapping[str, Any]]  # what an evaluation comes to


def drive(
    searcher: Searcher,
    evaluate: Callable[[dict[str, Any]], Reported],
    concurrency: int = 1,
    metric: str | None = None,
    mode: str | None = None,
    *,
    scheduler: TrialScheduler | None = None,
    max_trials: int | None = None,
    stop: Callable[[], bool] | None = None,
    completion_seed: int | None = None,
    state_path: str | Path | None = None,
    in_flight: Mapping[str, dict[str, Any]] | None = None,
) -> pd.DataFrame:
    """Asks for configs, evaluates them one after the other, and hands the results back, until FINISHED.

    The searcher sees what it would see under Tune with `max_concurrent_trials=concurrency`. Trials that a restored
    searcher has in flight are evaluated first, under their old trial ids: archray's own know theirs.

    Args:
        evaluate: config -> the metric's value, or a result dictionary, or one for each step of the trial. An exception
            is a failed trial.
        concurrency: q, how many trials are in flight at a time.
        metric, mode: as in `TuneConfig`.
        scheduler: one of Tune's that ends trials early, such as ASHA: after each step but the last it may. One that
            pauses trials cannot be driven.
        max_trials: stops after so many, as a run that is interrupted would; what is in flight stays so.
        stop: asked after every trial; once it says True nothing more is evaluated, as with max_trials.
        completion_seed: of the order in which trials in flight end; None: the order in which they began.
        state_path: the searcher's state is saved there after every trial.
        in_flight: the configs, by trial id, of the trials in flight of a restored searcher that is none of archray's.

    Returns: a row per trial in the order of suggestion: trial_id, the config's keys, value (NaN if it failed),
    failure, and what `evaluate` reported, of several steps the last that was made.

    Raises: InvalidInput for a wrong argument; RuntimeError if the searcher waits while nothing is in flight.
    """
    if concurrency < 1:
        raise InvalidInput(f"concurrency: expected 1 or more, got {concurrency}")
    if metric or mode or searcher.metric:
        searcher.set_search_properties(metric, mode, {})
    searcher.set_max_concurrency(concurrency)
    if scheduler is not None:
        scheduler.set_search_properties(searcher.metric or metric, searcher.mode or mode)
    order = None if completion_seed is None else np.random.default_rng(completion_seed)
    restored = searcher.in_flight() if isinstance(searcher, ArchraySearcher) else {}
    waiting = {**restored, **(in_flight or {})}
    prefix = "drive" if isinstance(searcher, ArchraySearcher) else f"drive_{uuid4().hex[:8]}"
    rows: dict[str, dict[str, Any]] = {trial_id: {"trial_id": trial_id} for trial_id in waiting}
    ended, finished = 0, False
    while max_trials is None or ended < max_trials:
        while not finished and len(waiting) < concurrency:
            suggested = searcher.records() if isinstance(searcher, ArchraySearcher) else rows
            trial_id = f"{prefix}_{len(suggested):05d}"  # which no trial of a run before had
            config: Any = searcher.suggest(trial_id)  # Ray's annotation leaves out FINISHED
            finished = config == Searcher.FINISHED
            if not isinstance(config, dict):
                break
            waiting[trial_id] = config
            rows[trial_id] = {"trial_id": trial_id}
        if not waiting:
            if finished:
                break
            raise RuntimeError(f"{type(searcher).__name__} suggests nothing while no trial is in flight")
        names = list(waiting)
        trial_id = names[0 if order is None else int(order.integers(len(names)))]
        config = waiting.pop(trial_id)
        outcome = _evaluate(searcher, trial_id, config, evaluate, searcher.metric or metric or "", scheduler)
        rows[trial_id] |= config | outcome
        ended += 1
        if state_path is not None:
            searcher.save(str(state_path))
        if stop is not None and stop():
            break
    return pd.DataFrame([row for row in rows.values() if len(row) > 1])


def _evaluate(
    searcher: Searcher,
    trial_id: str,
    config: dict[str, Any],
    evaluate: Callable[[dict[str, Any]], Reported],
    metric: str,
    scheduler: Any,
) -> dict[str, Any]:
    """Evaluates one config, reports to the searcher and the scheduler, and returns the row of results."""
    try:
        reported = evaluate(dict(config))
    except Exception as error:
        logger.warning("trial %s failed: %r", trial_id, error)
        searcher.on_trial_complete(trial_id=trial_id, error=True)
        return {"value": float("nan"), "failure": repr(error)}
    steps = reported if isinstance(reported, Sequence) else [reported]
    trial = Trial("drive", trial_id=trial_id, stub=True)
    if scheduler is not None:
        scheduler.on_trial_add(None, trial)  # without a controller: a scheduler that only ends trials needs none
    for iteration, step in enumerate(steps, start=1):
        result = dict(step) if isinstance(step, Mapping) else {metric: float(step)}
        done = iteration == len(steps)
        about = {"config": config, "trial_id": trial_id, "training_iteration": iteration, "done": done}
        flat = flatten_dict({**result, **about})
        if not done:
            searcher.on_trial_result(trial_id, flat)
            if scheduler is not None and scheduler.on_trial_result(None, trial, flat) == TrialScheduler.STOP:
                break
        elif scheduler is not None:
            scheduler.on_trial_complete(None, trial, flat)
    searcher.on_trial_complete(trial_id=trial_id, result={**flat, "done": True})
    value, failure = read_metric(flat, metric)
    return {**result, "value": float("nan") if value is None else value, "failure": failure}


def replay(searcher: ArchraySearcher, trials: Sequence[TuneTrial]) -> None:
    """Calls a restored searcher as Tune has called it since.

    trials: in the order in which something happened, each as it was then; those that the searcher had suggested before
    may be among them. Since a suggestion follows from what was told before it, the searcher suggests the same again; a
    space of the user's own that draws otherwise each time is given what was trained.

    Raises: what the searcher raises.
    """
    for trial in trials:
        if searcher.ledger.of_trial(trial.trial_id) is None:
            searcher.suggest(trial.trial_id)
        record = searcher.ledger.of_trial(trial.trial_id)
        if record is None:
            logger.warning("%s does not suggest trial %s again", type(searcher).__name__, trial.trial_id)
            continue
        trained = {key: trial.config.get(key, value) for key, value in record.config.items()}
        if trained != record.config:
            logger.warning("trial %s was suggested as %s, now as %s", trial.trial_id, trained, record.config)
            record.config = trained
        if record.ended and not (record.errored and trial.ended and not trial.failed):
            continue
        if trial.failed:
            searcher.on_trial_complete(trial_id=trial.trial_id, error=True)
        elif trial.ended:
            searcher.on_trial_complete(trial_id=trial.trial_id, result=trial.last_result)
        elif trial.last_result:
            searcher.on_trial_result(trial_id=trial.trial_id, result=trial.last_result)
