"""Costs of archray's driver compared with plain Tune's: processor time, memory, and wall time of sleeping trials.

    python benchmarks/overhead.py cpu [--trials 100 250 1000] [--searcher evolution]
    python benchmarks/overhead.py memory [--trials 5000]
    python benchmarks/overhead.py wall [--seconds 1 5 30] [--concurrent 1 2 4 8]

`cpu`: seconds of the driver's process (user and system, all threads) from the first trial to the last, for trials with
almost no work. The comparison is between `run_trials` with its callbacks and a searcher over nasbench201, and
`tune.Tuner` with random configurations and Tune's defaults. Both have the same trainable, two trials at a time, and
reuse actors. `memory`: growth of the resident memory of the same processes. `wall`: share of a run's wall time outside
of trainables, for trials that sleep, on simulated CPUs: 1 - trials * seconds / (concurrent * wall), from the start of
the first trial. Each run has a separate process, and all share one Ray.
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


def one_run(which: str, trials: int, at_once: int, seconds: float, searcher: str) -> dict[str, float]:
    """Returns the costs of a run in this process: `cpu` and `wall` seconds, `memory` in MiB, and overhead shares."""
    run = {
        "archray": lambda f, n: run_archray(f, n, at_once, seconds, searcher),
        "tune": lambda f, n: run_tune(f, n, at_once, seconds),
    }[which]
    with tempfile.TemporaryDirectory() as scratch:
        run(Path(scratch) / "warm", 4 * at_once)  # imports, and the workers
        memory, used = resident(), resource.getrusage(resource.RUSAGE_SELF)
        start = time.time()
        results = run(Path(scratch) / "run", trials)
        now = resource.getrusage(resource.RUSAGE_SELF)
        wall = time.time() - start
        assert len(results) == trials
        inside = sum(result["ended"] - result["started"] for result in results)
        busy = max(result["ended"] for result in results) - min(result["started"] for result in results)
        return {
            "cpu": now.ru_utime - used.ru_utime + now.ru_stime - used.ru_stime,
            "wall": wall,
            "memory": resident() - memory,
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


def print_row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["cpu", "memory", "wall", "one"])
    parser.add_argument("one", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--trials", type=int, nargs="+")
    parser.add_argument("--searcher", default="evolution", choices=["random", "evolution"])
    parser.add_argument("--seconds", type=float, nargs="+", default=[1, 5, 30])
    parser.add_argument("--concurrent", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--which", nargs="+", default=["archray", "tune"])
    options = parser.parse_args()
    if options.what == "one":
        which, trials, at_once, seconds, searcher = options.one
        with loopback_only():
            ray.init(log_to_driver=False, logging_level="error")
        print(json.dumps(one_run(which, int(trials), int(at_once), float(seconds), searcher)))
        return
    cpus = max(options.concurrent) if options.what == "wall" else 2  # simulated CPUs
    with loopback_only():
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    if options.what == "wall":
        print("| seconds | concurrent | trials | outside of trainables | between the first and the last | wall, s |")
        print("|---|---|---|---|---|---|")
        for seconds in options.seconds:
            for at_once in options.concurrent:
                trials = at_once * max(4, round(40 / seconds))
                row = measured("archray", trials, at_once, seconds, options.searcher)
                cells = [f"{seconds:g}", at_once, trials, f"{row['outside']:.1%}", f"{row['between']:.1%}"]
                print_row(*cells, f"{row['wall']:.1f}")
        return
    unit = {"cpu": "driver's CPU, s", "memory": "growth, MiB"}[options.what]
    print(f"| trials | archray, {unit} | Tune, {unit} | ratio | wall, s | Tune's wall, s |\n|---|---|---|---|---|---|")
    for trials in options.trials or {"cpu": [100, 250, 1000], "memory": [5000]}[options.what]:
        rows = {which: measured(which, trials, 2, 0.0, options.searcher) for which in options.which}
        values = [rows[w][options.what] if w in rows else 0.0 for w in ("archray", "tune")]
        walls = [rows[w]["wall"] if w in rows else 0.0 for w in ("archray", "tune")]
        print_row(
            trials,
            *(f"{value:.1f}" for value in values),
            f"{values[0] / values[1]:.2f}" if values[1] else "",
            *map(round, walls),
        )


if __name__ == "__main__":
    main()
