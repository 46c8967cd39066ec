"""Costs of archray's driver compared with plain Tune's: processor time, memory, and wall time of sleeping trials.

    python benchmarks/overhead.py driver [--trials 100 250 1000] [--concurrent 2] [--seconds 0]
    python benchmarks/overhead.py wall [--seconds 1 5 30] [--concurrent 1 2 4 8]
    python benchmarks/overhead.py choice [--trials 100 1000 10000]
    py-spy record --format raw --output FILE -- python benchmarks/overhead.py one archray 10000 2 0 evolution

`driver`: seconds of the driver's process (user and system, all threads), growth and peak of its resident memory, and
files in the run's folder, for trials that sleep or have almost no work. The comparison is between `run_trials` with its
callbacks and a searcher over nasbench201, and `tune.Tuner` with random configurations and Tune's defaults. Both have
the same trainable, and reuse actors. `wall`: share of a run's wall time outside of trainables, for trials that sleep:
1 - trials * seconds / (concurrent * wall), from the start of the first trial. Each run has a separate process, and all
share one Ray with a simulated CPU per concurrent trial. `choice`: microseconds of one call of the default scheduler,
with two running trials, none waiting, and all others ended. `one` is one run, for a profile.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
from ray import tune
from rich.console import Console

from archray.cluster.loopback import loopback_only
from archray.cluster.warm_workers import FOR_RAY, warm_python

ARCHITECTURES = 1000  # choices of plain Tune
MEBIBYTE = 2**20


class NearEmpty(tune.Trainable):
    """Reports one result after `seconds` of sleep, with a checkpoint of a few bytes."""

    def setup(self, config: dict[str, Any]) -> None:
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.value = len(new_config["architecture"]) + hash(new_config["architecture"]) % 1000 / 1000
        self.seconds = new_config["settings"]["seconds"]
        return True

    def step(self) -> dict[str, Any]:
        start = time.time()
        time.sleep(self.seconds)
        return {"score": self.value, "epoch": 1, "started": start, "ended": time.time(), "done": True}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        (Path(checkpoint_dir) / "value.json").write_text(json.dumps(self.value))

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.value = json.loads((Path(checkpoint) / "value.json").read_text())


def run_archray(folder: Path, trials: int, at_once: int, seconds: float, searcher: str) -> list[dict[str, Any]]:
    """Runs the trials by archray. Returns their last results."""
    from archray import searchers
    from archray.cluster.settings import ResourceSettings
    from archray.files import Folder
    from archray.platform.engine.stage import Context
    from archray.platform.engine.trial_plan import TrialPlan
    from archray.platform.engine.tuning import run_trials

    options: dict[str, Any] = {"budget": trials, "metric": "score", "mode": "max"}
    kinds = {
        "random": lambda: searchers.RandomSearch("nasbench201", **options),
        "evolution": lambda: searchers.RegularizedEvolution("nasbench201", population=3, sample_size=2, **options),
    }
    plan = TrialPlan(
        trainable=NearEmpty,
        settings={"seconds": seconds},
        metric="score",
        mode="max",
        total=trials,
        searcher=kinds[searcher],
    )
    resources = ResourceSettings(max_concurrent=at_once, gpus_per_trial=0)
    config = SimpleNamespace(resources=resources, method=searcher)
    context: Any = Context(SimpleNamespace(config=config, folder=Folder(folder)), Console(stderr=True, quiet=True))
    run = run_trials(Folder(folder / "search" / "tune-0"), plan, context, search=True)
    return [result.metrics or {} for result in run.ended]


def run_tune(folder: Path, trials: int, at_once: int, seconds: float) -> list[dict[str, Any]]:
    """Runs the trials by plain Tune. Returns their last results."""
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    from archray.trainables.spaces import get_space

    space, names = get_space("nasbench201"), []
    for cell in space.enumerate():
        names.append(space.encode(cell))
        if len(names) == ARCHITECTURES:
            break
    results = tune.Tuner(
        tune.with_resources(NearEmpty, {"cpu": 1}),
        param_space={
            "architecture": tune.choice(names),
            "seed": tune.randint(0, 2**31),
            "settings": {"seconds": seconds},
        },
        tune_config=tune.TuneConfig(
            metric="score", mode="max", num_samples=trials, max_concurrent_trials=at_once, reuse_actors=True
        ),
        run_config=tune.RunConfig(name="tune", storage_path=str(folder), verbose=0),
    ).fit()
    return [results[number].metrics or {} for number in range(len(results))]


def resident() -> float:
    """Returns the resident memory of this process in MiB."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / MEBIBYTE


def peak() -> float:
    """Returns the largest resident memory of this process in MiB since the last reset."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def one_run(which: str, trials: int, at_once: int, seconds: float, searcher: str) -> dict[str, float]:
    """Returns the costs of a run in this process.

    Returns: `cpu` and `wall` seconds, `memory` and `peak` above the memory at the start in MiB, the number of `files`,
    and overhead shares.
    """
    run = {
        "archray": lambda f, n, side_by_side: run_archray(f, n, side_by_side, seconds, searcher),
        "tune": lambda f, n, side_by_side: run_tune(f, n, side_by_side, seconds),
    }[which]
    with tempfile.TemporaryDirectory() as scratch:
        run(Path(scratch) / "warm", 8, 2)  # imports
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        memory, used = resident(), resource.getrusage(resource.RUSAGE_SELF)
        start = time.time()
        results = run(Path(scratch) / "run", trials, at_once)
        now = resource.getrusage(resource.RUSAGE_SELF)
        wall = time.time() - start
        assert len(results) == trials
        inside = sum(result["ended"] - result["started"] for result in results)
        busy = max(result["ended"] for result in results) - min(result["started"] for result in results)
        return {
            "cpu": now.ru_utime - used.ru_utime + now.ru_stime - used.ru_stime,
            "wall": wall,
            "memory": resident() - memory,
            "peak": peak() - memory,
            "files": sum(path.is_file() for path in (Path(scratch) / "run").rglob("*")),
            "outside": 1 - inside / (at_once * wall),
            "between": 1 - inside / (at_once * busy),
        }


def measured(which: str, trials: int, at_once: int, seconds: float, searcher: str) -> dict[str, float]:
    """Calls `one_run` in a separate process, on the Ray of this process."""
    command = [sys.executable, __file__, "one", which, str(trials), str(at_once), str(seconds), searcher]
    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    costs: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return costs


def microseconds_of_a_choice(trials: int) -> dict[str, float]:
    """Returns the smallest processor time of seven repetitions for the default scheduler of each program."""
    from ray.tune.experiment import Trial
    from ray.tune.schedulers import FIFOScheduler

    from archray.platform.engine.trial_plan import SubmissionOrder

    tune.register_trainable("near_empty", NearEmpty)
    made = [Trial("near_empty", stub=True) for _ in range(trials)]
    for number, trial in enumerate(made):
        trial.status = Trial.RUNNING if number >= trials - 2 else Trial.TERMINATED
    controller = SimpleNamespace(get_trials=lambda: made, get_live_trials=lambda: set(made[-2:]))
    calls = max(1, 200_000 // trials)

    def one_call(scheduler: FIFOScheduler) -> float:
        start = time.process_time()
        for _ in range(calls):
            scheduler.choose_trial_to_run(controller)
        return 1e6 * (time.process_time() - start) / calls

    schedulers = {"Ray Tune": FIFOScheduler(), "archray": SubmissionOrder()}
    return {name: min(one_call(scheduler) for _ in range(7)) for name, scheduler in schedulers.items()}


def print_row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["driver", "wall", "choice", "one"])
    parser.add_argument("one", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--trials", type=int, nargs="+", default=[100, 250, 1000])
    parser.add_argument("--searcher", default="evolution", choices=["random", "evolution"])
    parser.add_argument("--seconds", type=float, nargs="+", help="default: 0, and for wall 1, 5 and 30")
    parser.add_argument("--concurrent", type=int, nargs="+", help="default: 2, and for wall 1, 2, 4 and 8")
    parser.add_argument("--which", nargs="+", default=["archray", "tune"])
    options = parser.parse_args()
    if options.what == "one":
        which, trials, at_once, seconds, searcher = options.one
        with warm_python(("pyarrow", "pandas", *FOR_RAY)) as python:  # a worker without torch takes less memory
            with loopback_only():
                ray.init(
                    address=os.environ.get("RAY_ADDRESS", "local"),
                    log_to_driver=False,
                    logging_level="error",
                    runtime_env={"py_executable": python},
                )
            print(json.dumps(one_run(which, int(trials), int(at_once), float(seconds), searcher)))
        return
    if options.what == "choice":
        print("| trials | Ray Tune, µs | archray, µs |\n|---|---|---|")
        for trials in options.trials:
            print_row(trials, *(f"{taken:.1f}" for taken in microseconds_of_a_choice(trials).values()))
        return
    wall = options.what == "wall"
    options.seconds = options.seconds or ([1, 5, 30] if wall else [0])
    options.concurrent = options.concurrent or ([1, 2, 4, 8] if wall else [2])
    # By default, Ray starts a process per CPU before there is a trial.
    os.environ.update(RAY_enable_worker_prestart="0", RAY_prestart_worker_first_driver="0")
    with loopback_only():
        ray.init(address="local", num_cpus=max(options.concurrent), include_dashboard=False, log_to_driver=False)
    if wall:
        print("| seconds | concurrent | trials | outside of trainables | between the first and the last | wall, s |")
        print("|---|---|---|---|---|---|")
        for seconds in options.seconds:
            for at_once in options.concurrent:
                trials = at_once * max(4, round(40 / seconds))
                row = measured("archray", trials, at_once, seconds, options.searcher)
                cells = [f"{seconds:g}", at_once, trials, f"{row['outside']:.1%}", f"{row['between']:.1%}"]
                print_row(*cells, f"{row['wall']:.1f}")
        return
    print("| trials | concurrent | program | CPU, s | per trial, ms | growth, MiB | peak, MiB | files | wall, s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for trials in options.trials:
        for at_once in options.concurrent:
            for which in options.which:
                row = measured(which, trials, at_once, options.seconds[0], options.searcher)
                cells = [
                    f"{row['cpu']:.1f}",
                    f"{1000 * row['cpu'] / trials:.1f}",
                    *map(round, (row["memory"], row["peak"])),
                ]
                print_row(trials, at_once, which, *cells, row["files"], round(row["wall"]))


if __name__ == "__main__":
    main()
