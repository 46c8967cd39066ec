"""Run a Tune searcher in this process, for evaluations too cheap for a Tune trial."""

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
from archray.searchers.ledger import read_metric

logger = logging.getLogger(__name__)
Config = dict[str, Any]
Reported = Mapping[str, Any] | float | Sequence[Mapping[str, Any]]  # the return value of an evaluation


def drive(
    searcher: Searcher,
    evaluate: Callable[[Config], Reported],
    concurrency: int = 1,
    metric: str | None = None,
    mode: str | None = None,
    *,
    scheduler: TrialScheduler | None = None,
    max_trials: int | None = None,
    stop: Callable[[], bool] | None = None,
    completion_seed: int | None = None,
    state_path: str | Path | None = None,
    in_flight: Mapping[str, Config] | None = None,
) -> pd.DataFrame:
    """Runs a searcher in this process: evaluates its suggestions one after the other until it is finished.

    The searcher receives the same calls as from Tune with `max_concurrent_trials=concurrency`. If a restored searcher
    has trials in flight, they are evaluated first, under their old trial ids.

    Args:
        searcher: a searcher of archray or of Tune.
        evaluate: a function from a config to the metric's value, to a result dictionary, or to a list with a result
            dictionary per step of the trial. An exception makes the trial fail.
        concurrency: q, the number of trials in flight.
        metric, mode: as in `TuneConfig`.
        scheduler: a Tune scheduler that may stop trials after any step but the last, such as ASHA. Schedulers that
            pause trials are not supported.
        max_trials: stop after this number of trials, as an interrupted run would; other trials stay in flight.
        stop: called after every trial; the search stops when it returns True, as with max_trials.
        completion_seed: seed of the order in which trials in flight end; None: the order in which they started.
        state_path: file for the searcher's state, saved after every trial.
        in_flight: configs, by trial id, of the trials in flight of a restored searcher that is not archray's.

    Returns: a row per trial in the order of suggestion: trial_id, the config's keys, value (NaN if it failed),
    failure, and the entries that `evaluate` returned (for several steps, the entries of the last step).

    Raises: InvalidInput for an invalid argument; RuntimeError if the searcher waits while no trial is in flight.

    Example:
        ```python
        search = RandomSearch("nasbench201", budget=50, metric="convolutions", mode="max")
        trials = drive(search, lambda config: config["architecture"].count("nor_conv_3x3"), concurrency=4)
        assert len(trials) == 50
        print(search.best())
        ```
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
            trial_id = f"{prefix}_{len(suggested):05d}"  # unique across earlier runs
            config: Any = searcher.suggest(trial_id)  # Ray's annotation omits FINISHED
            finished = config == Searcher.FINISHED
            if not isinstance(config, dict):
                break
            waiting[trial_id] = config
            rows[trial_id] = {"trial_id": trial_id}
        if not waiting:
            if finished:
                break
            raise RuntimeError(
                f"Expected a suggestion from {type(searcher).__name__}, got None while no trial is in flight"
            )
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
    config: Config,
    evaluate: Callable[[Config], Reported],
    metric: str,
    scheduler: Any,
) -> dict[str, Any]:
    """Evaluates one config, reports its results to the searcher and the scheduler, and returns the row of results."""
    try:
        reported = evaluate(dict(config))
    except Exception as error:
        logger.warning("Trial %s failed: %r", trial_id, error)
        searcher.on_trial_complete(trial_id=trial_id, error=True)
        return {"value": float("nan"), "failure": repr(error)}
    steps = reported if isinstance(reported, Sequence) else [reported]
    if scheduler is not None:
        trial = Trial("drive", trial_id=trial_id, stub=True)
        scheduler.on_trial_add(None, trial)  # a scheduler that only stops trials needs no controller
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
