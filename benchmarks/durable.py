"""Kills of the driver of a Tune experiment: `archray.DurableTuner` compared with `ray.tune.Tuner`.

    pip install '.[tune-searchers]'
    python benchmarks/durable.py --out kills

A process runs an experiment with a searcher and receives SIGKILL at a random moment after the first trial has ended.
A second process restores the experiment and runs it to its end. The script prints, per searcher and tuner, the means
over the kills:

- `finished`: trials that had finished before the kill;
- `repeated`: those of them that ran again, by their configurations;
- `lost`: those of them whose configurations are missing in the final results;
- `results`: trials in the final results, of TRIALS;
- `runs`: trials that ran to their end, in both processes together.

Each kill is a file in OUT. The same command resumes an interrupted benchmark.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import ray
from ray import tune

from archray.errors import ArchrayError
from archray.platform.durable.tuner import DurableTuner
from archray.searchers import RegularizedEvolution

TRIALS, AT_A_TIME = 16, 2
DOMAINS = {"x": tune.uniform(0, 1), "y": tune.choice([1, 2, 3])}
TUNERS = ("DurableTuner", "Tuner")
SEARCHERS = ("optuna", "hyperopt", "evolution")


def name_of(config: Mapping[str, Any]) -> str:
    """Returns what identifies a trial in both processes: its seed, or else its first parameter, which never repeats."""
    return str(float(config.get("seed", config["x"])))


def train(config: dict[str, Any]) -> None:
    """Three steps of 0.1 s without checkpoints."""
    for step in range(3):
        time.sleep(0.1)
        if step == 2:
            with open(config["log"], "a", encoding="utf-8") as file:
                file.write(f"{name_of(config)}\n")
        tune.report({"loss": (config["x"] - 0.3) ** 2 + config["y"]})


def searcher_of(name: str) -> Any:
    if name == "optuna":
        from optuna.samplers import TPESampler
        from ray.tune.search.optuna import OptunaSearch

        return OptunaSearch(sampler=TPESampler(seed=0, n_startup_trials=4))
    if name == "hyperopt":
        from ray.tune.search.hyperopt import HyperOptSearch

        return HyperOptSearch(random_state_seed=0, n_initial_points=4)
    return None


def experiment(kind: str, name: str, folder: Path) -> None:
    """Starts the experiment in `folder`, or restores it; writes the names of its trials to `results.json`."""
    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
    place, log = folder / "experiment", str(folder / "log")
    tuner_class: Any = DurableTuner if kind == "DurableTuner" else tune.Tuner
    if tuner_class.can_restore(str(place)):
        tuner = tuner_class.restore(str(place), train)
    else:
        evolution = name == "evolution"
        options: dict[str, Any] = {"population": 4, "sample_size": 2, "metric": "loss", "mode": "min", "seed": 0}
        search = RegularizedEvolution(DOMAINS, budget=TRIALS, **options) if evolution else searcher_of(name)
        tuner = tuner_class(
            train,
            param_space={"log": log} if evolution else {**DOMAINS, "log": log},
            tune_config=tune.TuneConfig(
                metric="loss",
                mode="min",
                search_alg=search,
                num_samples=-1 if evolution else TRIALS,
                max_concurrent_trials=AT_A_TIME,
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(name=place.name, storage_path=str(folder), verbose=0),
        )
    grid = tuner.fit()
    trials = [name_of(result.config) for result in grid if result.metrics and not result.error]
    (folder / "results.json").write_text(json.dumps(trials))


def kill_once(kind: str, name: str, number: int, folder: Path) -> dict[str, Any]:
    """Runs, kills and restores one experiment."""
    folder.mkdir(parents=True)
    log = folder / "log"
    command = [sys.executable, __file__, "--one", kind, name, str(folder)]

    def ended() -> list[str]:
        return log.read_text().split() if log.exists() else []

    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        target = random.Random(number).randrange(1, TRIALS - 1)  # the kill follows the end of so many trials
        while process.poll() is None and len(ended()) < target:
            time.sleep(0.02)
        time.sleep(random.Random(number).uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        time.sleep(1)  # Ray ends the actors of the killed driver
        before = ended()
        restored = subprocess.run(command, stdout=output, stderr=output, check=False).returncode
    after = ended()[len(before) :]
    place = folder / "results.json"
    results = json.loads(place.read_text()) if place.exists() else []
    return {
        "tuner": kind,
        "searcher": name,
        "kill": number,
        "finished": len(before),
        "repeated": len(set(before) & set(after)),
        "lost": len(set(before) - set(results)),
        "results": len(results),
        "runs": len(before) + len(after),
        "failed": int(restored != 0),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of the experiments")
    parser.add_argument("--kills", type=int, default=20, help="kills per searcher and tuner (default: %(default)s)")
    parser.add_argument("--searchers", nargs="+", choices=SEARCHERS, default=SEARCHERS)
    parser.add_argument("--tuners", nargs="+", choices=TUNERS, default=TUNERS)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # tuner, searcher, folder: one experiment
    options = parser.parse_args(arguments)
    if options.one is not None:
        experiment(options.one[0], options.one[1], Path(options.one[2]))
        return
    if options.out is None:
        raise ArchrayError("expected --out FOLDER, got none")
    ray.init(address="local", num_cpus=AT_A_TIME, include_dashboard=False, log_to_driver=False)
    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
    rows = []
    for number in range(options.kills):
        for name, kind in itertools.product(options.searchers, options.tuners):
            folder = options.out.resolve() / f"{kind}-{name}-{number}"
            if not (folder / "row.json").exists():
                shutil.rmtree(folder, ignore_errors=True)
                row = kill_once(kind, name, number, folder)
                (folder / "row.json").write_text(json.dumps(row))
            rows.append(json.loads((folder / "row.json").read_text()))
            print(rows[-1], file=sys.stderr, flush=True)
    table = (
        pd.DataFrame(rows)
        .groupby(["tuner", "searcher"], sort=False)
        .agg(
            kills=("kill", "count"),
            **{name: (name, "mean") for name in ("finished", "repeated", "lost", "results", "runs")},
            most_repeated=("repeated", "max"),
            most_lost=("lost", "max"),
            failed=("failed", "sum"),
        )
    )
    print(table.reset_index().to_csv(index=False, float_format="%.3g"), end="")


if __name__ == "__main__":
    main()
