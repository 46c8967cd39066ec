"""A Tune run that continues from its log: searchers and schedulers go on as if it had not been interrupted.

A loop in this process makes the calls of Tune's controller. test_durable.py kills the drivers of real Tuners.
"""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from archray_test_schedule import Climb
from ray import tune
from ray.tune.experiment import Experiment, Trial
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search import BasicVariantGenerator, Repeater, Searcher

from archray.errors import RunFolderError
from archray.files import Folder
from archray.platform.durable.replay import CHECKPOINTS, LoggedSearcher, ResumedASHA, Variants, resumable
from archray.platform.durable.session import Session, begin
from archray.platform.run.trial_log import LOG, LoggedTrial, read_log
from archray.searchers import RandomSearch, RegularizedEvolution
from archray.searchers.drop_worst import DropWorst
from archray.searchers.testing import hashed_score

STEPS = 3
DOMAINS = {"x": tune.uniform(0, 1), "y": tune.choice([1, 2, 3])}
FAILS = "y"  # a trial whose config has no other key fails in its second step


class LoopTrial:
    """The attributes of a trial of Tune that archray and schedulers read."""

    def __init__(self, trial_id: str, config: dict[str, Any]) -> None:
        self.trial_id, self.relative_logdir, self.status = trial_id, trial_id, Trial.PENDING
        saved = config.pop(CHECKPOINTS, [])
        self.config, self.last_result = config, dict[str, Any]()
        self.steps = saved[0][1]["training_iteration"] if saved else 0

    def set_status(self, status: str) -> None:
        self.status = status


class Loop:
    """The calls of Tune's controller. Running trials report in turn, and save after each step.

    Args:
        at_a_time: number of running trials.
    """

    def __init__(self, session: Session, searcher: LoggedSearcher, scheduler: Any, at_a_time: int) -> None:
        self.session, self.searcher, self.scheduler, self.at_a_time = session, searcher, scheduler, at_a_time
        self.trials: list[LoopTrial] = []

    def get_trials(self) -> list[LoopTrial]:
        return self.trials

    def stop_trial(self, trial: LoopTrial) -> None:
        trial.status = Trial.TERMINATED
        self.searcher.on_trial_complete(trial.trial_id)

    def running(self) -> list[LoopTrial]:
        return [trial for trial in self.trials if trial.status == Trial.RUNNING]

    def run(self) -> None:
        while self.add_trials() or self.start_trials() or self.running():
            self.start_trials()
            for trial in self.running():
                self.step(trial)

    def add_trials(self) -> bool:
        """Adds the trials that the searcher suggests. Returns whether there were any."""
        number = len(self.trials)
        while isinstance(config := self.searcher.suggest(f"{self.session.tune_folder}-{len(self.trials)}"), dict):
            self.trials.append(trial := LoopTrial(f"{self.session.tune_folder}-{len(self.trials)}", config))
            self.scheduler.on_trial_add(self, trial)
        return len(self.trials) > number

    def start_trials(self) -> bool:
        started = False
        while len(self.running()) < self.at_a_time and (trial := self.scheduler.choose_trial_to_run(self)):
            trial.status, started = Trial.RUNNING, True
            self.session.started(trial)
        return started

    def step(self, trial: LoopTrial) -> None:
        trial.steps += 1
        if trial.steps == 2 and trial.config.keys() <= {FAILS, "seed"}:
            self.session.record("failed", self.session.id_of(trial), failure={"error": "ValueError: no"})
            self.session.record("ended", self.session.id_of(trial), error=True)
            trial.status = Trial.ERROR
            self.searcher.on_trial_complete(trial.trial_id, error=True)
            return
        loss = hashed_score({**trial.config, "step": trial.steps})
        result = {"loss": loss, "training_iteration": trial.steps, "done": trial.steps == STEPS}
        decision = TrialScheduler.STOP
        if result["done"]:
            self.scheduler.on_trial_complete(self, trial, result)
        else:
            decision = self.scheduler.on_trial_result(self, trial, result)
        result["done"] = decision == TrialScheduler.STOP
        trial.last_result = result
        if not result["done"]:
            self.searcher.on_trial_result(trial.trial_id, result)
        self.session.reported(trial, result)
        name = f"{self.session.tune_folder}/{trial.trial_id}/checkpoint_{trial.steps}"
        (self.session.folder / name).create()
        self.session.saved(trial, SimpleNamespace(path=f"{self.session.folder.path}/{name}"))
        if result["done"]:
            trial.status = Trial.TERMINATED
            self.searcher.on_trial_complete(trial.trial_id, result=result)
        elif decision == TrialScheduler.PAUSE:
            trial.status = Trial.PAUSED


def run(folder: Path, searcher: Searcher, scheduler: Any = None, at_a_time: int = 1, **options: Any) -> LoggedSearcher:
    """Runs or resumes the trials of a searcher in `folder`."""
    scheduler = scheduler or FIFOScheduler()
    with begin(Folder(folder), metric="loss", mode="min") as session:
        logged = LoggedSearcher(searcher, scheduler=scheduler, **options)
        logged.set_search_properties("loss", "min", {})
        logged.set_max_concurrency(100 if isinstance(scheduler, DropWorst) else at_a_time)
        scheduler.set_search_properties("loss", "min")
        Loop(session, logged, scheduler, at_a_time).run()
        logged.replayed()
    return logged


def status_of(trial: LoggedTrial) -> str:
    if not trial.ended:
        return "running" if trial.started else "waiting"
    return "failed" if trial.error else "ended"


def outcome(folder: Path) -> list[Any]:
    """Returns the id, the config, the results and the status of each trial, in the order of suggestion."""
    logged = read_log(Folder(folder))
    assert logged is not None
    keys = ("training_iteration", "loss", "done")
    return [
        (trial.trial_id, trial.config, [[result[key] for key in keys] for result in trial.results], status)
        for trial, status in ((trial, status_of(trial)) for trial in logged.trials.values())
    ]


def copies_after_each_line(whole: Path) -> Iterator[tuple[list[dict[str, Any]], Path]]:
    """Yields the lines of a log up to each line, and a copy of the folder with this part of the log."""
    lines = (whole / LOG).read_bytes().splitlines(keepends=True)
    for number in range(1, len(lines)):
        copy = Path(shutil.copytree(whole, whole.parent / "copy"))
        (copy / LOG).write_bytes(b"".join(lines[:number]))
        yield [json.loads(line) for line in lines[:number]], copy
        shutil.rmtree(copy)


class Dependent(Searcher):
    """A searcher of Tune whose suggestions depend on all results so far, intermediate results included."""

    def __init__(self, budget: int = 5, fails: int | None = 3) -> None:
        super().__init__()
        self.budget, self.fails = budget, fails
        self.losses: dict[tuple[str, int], float] = {}
        self.ends: list[tuple[str, bool]] = []
        self.suggested = 0

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        self._metric, self._mode = metric, mode
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str:  # type: ignore[override]  # Ray omits FINISHED
        if self.suggested == self.budget:
            return Searcher.FINISHED
        self.suggested += 1
        number = hashed_score({"losses": list(self.losses.values()), "ends": self.ends})
        return {FAILS: 1} if self.suggested == self.fails else {"x": number, "y": self.suggested}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.losses[trial_id, result["training_iteration"]] = result["loss"]

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if result is not None:  # a `Repeater` passes only the metric
            self.losses[trial_id, result.get("training_iteration", STEPS)] = result["loss"]
        self.ends.append((trial_id, error))


def evolution() -> Searcher:
    return RegularizedEvolution(DOMAINS, budget=5, population=3, sample_size=2, metric="loss", mode="min", seed=0)


SEARCHES: dict[str, tuple[Callable[[], Searcher], int]] = {
    "dependent": (Dependent, 1),
    "evolution": (evolution, 2),
    "random": (lambda: Variants(DOMAINS, num_samples=4, seed=3), 2),
    "grid": (lambda: Variants({"x": tune.grid_search([0, 1, 2]), "y": tune.choice([1, 2])}, seed=3), 2),
    "repeater": (lambda: Repeater(Dependent(budget=3, fails=None), repeat=2), 1),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_that_is_cut_after_any_line_of_its_log_equals_an_undisturbed_one(name: str, tmp_path: Path) -> None:
    make, at_a_time = SEARCHES[name]
    run(tmp_path / "whole", make(), at_a_time=at_a_time)
    expected = outcome(tmp_path / "whole")
    assert len(expected) >= 3
    assert all((len(results), status) in [(STEPS, "ended"), (1, "failed")] for _, _, results, status in expected)
    for lines, copy in copies_after_each_line(tmp_path / "whole"):
        run(copy, make(), at_a_time=at_a_time)
        assert outcome(copy) == expected, lines[-1]
        ended = {line["trial"] for line in lines if line["event"] == "ended"}
        again = (copy / LOG).read_text().splitlines()[len(lines) :]
        assert not ended & {json.loads(line).get("trial") for line in again}, "an ended trial reached Tune again"


def asha() -> ResumedASHA:
    scheduler = ASHAScheduler(max_t=STEPS, grace_period=1, reduction_factor=2)
    return ResumedASHA.from_scheduler(scheduler)


def drop_worst() -> DropWorst:
    return DropWorst(trials=6, keep=2, at=2)


@pytest.mark.parametrize("make", [asha, drop_worst])
def test_a_scheduler_decides_the_same_after_a_cut(make: Callable[[], Any], tmp_path: Path) -> None:
    def search() -> Searcher:
        return RandomSearch(DOMAINS, budget=6, metric="loss", mode="min", seed=1)

    run(tmp_path / "whole", search(), make())
    expected = outcome(tmp_path / "whole")
    assert {len(results) for _, _, results, _ in expected} >= {2, STEPS}, "some stop early"
    for lines, copy in copies_after_each_line(tmp_path / "whole"):
        run(copy, search(), make())
        assert outcome(copy) == expected, lines[-1]


def test_a_run_that_was_cut_several_times_equals_an_undisturbed_one(tmp_path: Path) -> None:
    run(tmp_path / "whole", Dependent())
    expected, copy = outcome(tmp_path / "whole"), tmp_path / "copy"
    shutil.copytree(tmp_path / "whole", copy)
    for kept in (7, 13, 21):
        lines = (copy / LOG).read_bytes().splitlines(keepends=True)
        (copy / LOG).write_bytes(b"".join(lines[:kept]) + lines[kept][:20])
        run(copy, Dependent())
        assert outcome(copy) == expected


# Searchers that suggest other configurations


class OtherFrom(Dependent):
    """Suggests other configurations from a number on."""

    def __init__(self, number: int, fails: int | None = 3) -> None:
        super().__init__(fails=fails)
        self.number = number

    def suggest(self, trial_id: str) -> dict[str, Any] | str:  # type: ignore[override]
        suggestion = super().suggest(trial_id)
        is_other = isinstance(suggestion, dict) and self.suggested >= self.number
        return {**suggestion, "x": -1} if is_other else suggestion  # type: ignore[dict-item]


@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_strict_searcher_names_the_first_trial_that_differs(number: int, tmp_path: Path) -> None:
    run(tmp_path, Dependent())
    with pytest.raises(RunFolderError, match=rf"OtherFrom to suggest .* for trial 0000{number} .*got .*'x': -1"):
        run(tmp_path, OtherFrom(number))


def test_a_searcher_that_ends_earlier_is_named(tmp_path: Path) -> None:
    run(tmp_path, Dependent())
    with pytest.raises(RunFolderError, match=r"trial 00003 .*FINISHED"):
        run(tmp_path, Dependent(budget=2))


def test_a_lenient_searcher_learns_nothing_from_a_trial_that_it_does_not_repeat(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, Dependent(fails=None))
    lines = (tmp_path / LOG).read_bytes().splitlines(keepends=True)
    (tmp_path / LOG).write_bytes(b"".join(lines[:-4]))  # the last trial has not ended
    expected = {trial: config for trial, config, _, _ in outcome(tmp_path)}
    searcher = OtherFrom(4, fails=None)
    run(tmp_path, searcher, strict=False, most=5)
    assert {trial: config for trial, config, _, _ in outcome(tmp_path)} == expected
    assert [trial for trial, error in searcher.ends if error] == ["00004", "00005"]
    assert {trial for trial, _ in searcher.losses} == {"00001", "00002", "00003"}
    assert caplog.text.count("does not learn from this trial") == 2


# Grids and random search


SPACES: dict[str, dict[str, Any]] = {
    "random": {"x": tune.uniform(0, 1), "inner": {"y": tune.choice([1, 2, 3]), "fixed": 5}},
    "grid": {"a": tune.grid_search([1, 2, 3]), "inner": {"b": tune.grid_search(["u", "v"])}, "x": tune.randint(0, 99)},
    "dependent": {
        "a": tune.grid_search([1, 2]),
        "x": tune.uniform(0, 1),
        "y": tune.sample_from(lambda spec: 2 * spec["config"]["a"]),
        "z": tune.sample_from(lambda spec: spec["config"]["y"] + spec["config"]["x"]),
    },
    "fixed": {"a": 1},
}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("num_samples", [1, 3])
def test_variants_are_those_of_tune(space: dict[str, Any], num_samples: int, tmp_path: Path) -> None:
    generator: Any = BasicVariantGenerator(random_state=np.random.RandomState(7))  # as Tune without one
    experiment = Experiment("run", tune.Trainable, config=space, num_samples=num_samples, storage_path=str(tmp_path))
    generator.add_configurations([experiment])
    theirs = []
    while (trial := generator.next_trial()) is not None:
        theirs.append(trial.config)
    variants, ours = Variants(space, num_samples, seed=7), []
    while isinstance(config := variants.suggest("t"), dict):
        ours.append(config)
    assert ours == theirs and variants.suggest("t") == Searcher.FINISHED


def test_functions_receive_the_configuration() -> None:
    """A Tuner passes it, too; a generator of variants without a Tuner passes a specification."""
    double = tune.sample_from(lambda config: 2 * config["a"])
    variants = Variants({"a": tune.grid_search([1, 2]), "b": double, "c": {"d": tune.sample_from(lambda: 3)}})
    expected = [{"a": a, "b": 2 * a, "c": {"d": 3}} for a in (1, 2)]
    assert [variants.suggest("t"), variants.suggest("t")] == expected


# Checkpoints


@pytest.mark.parametrize(("damaged", "first"), [((), 3), ((2,), 2), ((2, 1), 1)])
def test_a_trial_continues_from_its_newest_readable_checkpoint(
    damaged: tuple[int, ...], first: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved = []
    for steps in (2, 1):
        place = tmp_path / f"checkpoint_{steps}"
        place.mkdir()
        (place / "steps.json").write_text("{" if steps in damaged else str(steps))
        saved.append((tune.Checkpoint(str(place)), {"training_iteration": steps, "time_total_s": 100.0 * steps}))
    config = {"value": 1.0, "steps": 3, "log": str(tmp_path / "log"), CHECKPOINTS: saved}
    trial = resumable(Climb, unpickles=True)(config)
    assert CHECKPOINTS not in trial.config
    result = trial.train()
    assert (result["epoch"], result["training_iteration"]) == (first, first)
    assert 100 * (first - 1) <= result["time_total_s"] < 100 * (first - 1) + 60
    assert caplog.text.count("cannot read the checkpoint") == len(damaged)
    trial.reset({"value": 2.0, "steps": 3, "log": str(tmp_path / "log")})
    assert trial.train()["epoch"] == 1, "a reused actor starts another trial"


class Planted:
    """A pickle that creates a file when it is loaded."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return Path.touch, (self.place,)


def test_archrays_trainables_unpickle_no_checkpoint(tmp_path: Path) -> None:
    """Ray unpickles a checkpoint with this file, which a run of another user may contain."""
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "steps.json").write_text("2")
    (tmp_path / "checkpoint" / "_dict_checkpoint.pkl").write_bytes(pickle.dumps(Planted(tmp_path / "executed")))
    saved = [(tune.Checkpoint(str(tmp_path / "checkpoint")), {"training_iteration": 2})]
    for unpickles in (False, True):
        config = {"value": 1.0, "steps": 3, "log": str(tmp_path / "log"), CHECKPOINTS: saved}
        resumable(Climb, unpickles=unpickles)(config).train()
        assert (tmp_path / "executed").exists() == unpickles
