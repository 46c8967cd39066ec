"""Rough estimates of the time of stages, from a measured batch, in this process and without Ray."""

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np
import torch

from archray.cluster.settings import AUTO, ResourceSettings, capacity, check_address, share_of_trials
from archray.errors import ArchrayError
from archray.platform.config import SearchConfig
from archray.platform.engine.stage import Stage, Work
from archray.platform.quantities import duration
from archray.plurals import count
from archray.trainables.data import load_images
from archray.trainables.data.dataset import Dataset, Split, proxy_batch
from archray.trainables.devices import choose_device
from archray.trainables.nets import build
from archray.trainables.proxies import ProxySettings
from archray.trainables.spaces import get_space
from archray.trainables.supernets.settings import SupernetTrainingSettings, build_mixing
from archray.trainables.supernets.trainer import SupernetTrainer
from archray.trainables.training import Trainer
from archray.trainables.training_settings import TrainingSettings
from archray.trainables.tune.scorers import PoolScorer, ScoredBatch

BATCHES = 2  # measured after as many for warm-up
NETWORKS = 3  # random architectures, whose mean time counts
# Seconds of Ray and the driver, measured with the demo of rank-surrogate on 2 CPUs
RUN_SECONDS = 10.0  # start and end of Ray
STAGE_SECONDS = 3.0  # start of actors
EPOCH_SECONDS = 0.2  # result and checkpoint of an epoch


def estimate(config: SearchConfig, stages: Sequence[Stage[Any]]) -> str:
    """Returns a sentence with the estimated minutes of a run, and of each stage; or why there is no estimate.

    It loads the data and trains or scores random networks for some seconds, with the threads of one trial.
    """
    work = {stage.name: stage.amount(config) for stage in stages}
    measurable = {name: amount for name, amount in work.items() if isinstance(amount, Work) and amount.items}
    resources: ResourceSettings = config.resources
    if not measurable:
        return "No estimate: no stage trains or scores networks in a number that is set in advance."
    if check_address(config.cluster) is not None or resources.custom or resources.autoscales:
        return "No estimate: the nodes of the cluster are not known in advance."
    if config.data.streamed or resources.train_workers > 1:
        return "No estimate for streamed data or several workers per training run."
    try:
        place, slots = _slots(config)
        if slots == 0:
            return f"No estimate: a trial does not fit on {place}."
        with _threads_of_a_trial(resources):
            seconds = dict(_seconds(config, measurable, slots))
    except (ArchrayError, RuntimeError) as error:  # the run reports it, with advice
        return f"No estimate: {error}"
    excluded = [stage.name for stage in stages if stage.name not in seconds]
    total = (RUN_SECONDS + sum(seconds.values())) * config.repeats
    parts = ", ".join(f"{name} {duration(value)}" for name, value in seconds.items())
    sample = f"{count(BATCHES, 'batch', 'batches')} of {count(NETWORKS, 'random network')}"
    return (
        f"Estimate: about {total / 60:.1f} minutes on {place} ({parts}{'; per repeat' if config.repeats > 1 else ''}), "
        f"with up to {count(slots, 'trial')} at a time. It is rough: measured now on {sample}, "
        f"plus typical times of Ray. Not included: {', '.join(excluded)}."
    )


def _slots(config: SearchConfig) -> tuple[str, int]:
    """Returns this machine in words, and the number of concurrent trials on it."""
    resources: ResourceSettings = config.resources
    cpus = config.cluster.num_cpus or len(os.sched_getaffinity(0))
    gpus = torch.cuda.device_count() if config.cluster.num_gpus is None else config.cluster.num_gpus
    share = 1.0 if gpus else 0.0  # as `ResourceSettings.gpus`, which asks Ray for the nodes
    if resources.gpus_per_trial is not None:
        share = resources.gpus_per_trial
    elif resources.trials_per_gpu not in (None, AUTO):
        share = share_of_trials(int(resources.trials_per_gpu))
    slots = capacity(resources.cpus_per_trial, share, [(cpus, gpus)])
    place = count(cpus, "CPU") + (f" and {count(gpus, 'GPU')}" if gpus else "")
    return place, min(slots, resources.max_concurrent or slots)


@contextmanager
def _threads_of_a_trial(resources: ResourceSettings) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, int(resources.cpus_per_trial)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _seconds(config: SearchConfig, work: Mapping[str, Work], slots: int) -> Iterator[tuple[str, float]]:
    """Yields the seconds of stages: their items run in rounds of `slots`."""
    dataset = load_images(config.data, device=choose_device("cpu" if config.cluster.num_gpus == 0 else "auto"))
    measured: list[tuple[Any, float]] = []  # stages with equal settings need one measurement
    for name, amount in work.items():
        seconds = next((seconds for unit, seconds in measured if unit == amount.unit), None)
        if seconds is None:
            measured.append((amount.unit, seconds := seconds_of(amount.unit, config, dataset)))
        if not math.isnan(seconds):
            rounds = math.ceil(amount.items / slots)
            yield name, STAGE_SECONDS + rounds * (seconds + amount.epochs * EPOCH_SECONDS)


@singledispatch
def seconds_of(unit: Any, config: Any, dataset: Dataset) -> float:
    """Measures the seconds of one training run, or of the score of one architecture, by the type of its settings.

    NaN for other settings.
    """
    return math.nan


@seconds_of.register
def _(unit: TrainingSettings, config: Any, dataset: Dataset) -> float:
    space, small = get_space(config.space), _first_batches(dataset, unit.batch_size)
    rng, seconds = np.random.default_rng(config.seed), []
    for _ in range(NETWORKS):
        network = build(
            space,
            space.sample(rng),
            network=config.network,
            in_channels=dataset.in_channels,
            num_classes=dataset.num_classes,
            seed=config.seed,
        )
        trainer = Trainer(network, small, _two_epochs(unit), seed=config.seed)
        seconds.append(_epoch_seconds(trainer, small, dataset))
    return float(np.mean(seconds)) * unit.epochs


@seconds_of.register
def _(unit: SupernetTrainingSettings, config: Any, dataset: Dataset) -> float:
    # A part of the training data trains the architecture, so that two steps of the weights need more images.
    settings, small = _two_epochs(unit, warmup_epochs=0), _first_batches(dataset, 2 * unit.batch_size)
    options: dict[str, Any] = {"in_channels": dataset.in_channels, "num_classes": dataset.num_classes}
    supernet = config.supernet.build(config.space, seed=config.seed, **options)
    relaxation, optimizer = config.supernet.relaxation, config.supernet.optimizer
    mixing = build_mixing(supernet, relaxation, optimizer, seed=config.seed, device=dataset.train.device)
    trainer = SupernetTrainer(supernet, small, mixing, settings, seed=config.seed)
    return _epoch_seconds(trainer, small, dataset) * unit.epochs


@seconds_of.register
def _(unit: ProxySettings, config: Any, dataset: Dataset) -> float:
    space = get_space(config.space)
    batch = ScoredBatch(*proxy_batch(dataset, unit.batch_size, unit.seed, unit.augment), dataset.num_classes)
    scorer = PoolScorer(config.space, batch, unit.model_dump(mode="json"), str(dataset.train.device))
    rng = np.random.default_rng(config.seed)
    scorer(space.encode(space.sample(rng)))  # warm-up
    rows = [scorer(space.encode(space.sample(rng))) for _ in range(NETWORKS)]
    return float(np.mean([float(row["seconds"] or 0) for row in rows]))


def _two_epochs(settings: Any, **more: Any) -> Any:
    return settings.model_copy(update={"epochs": 2, **({"cycles": 1} if hasattr(settings, "cycles") else {}), **more})


def _first_batches(dataset: Dataset, size: int) -> Dataset:
    """Returns the data set with BATCHES batches of training and validation images."""

    def part(split: Split) -> Split:
        rows = slice(min(BATCHES * size, len(split)))
        return Split(split.batch(rows), split.labels[rows])

    return replace(dataset, train=part(dataset.train), validation=part(dataset.validation))


def _epoch_seconds(trainer: Trainer | SupernetTrainer, small: Dataset, dataset: Dataset) -> float:
    """Measures the training and the evaluation of the few images of `trainer`; scales both to the whole data set."""

    def timed(work: Any) -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    trainer.evaluate(small.validation)  # warm-up of both passes
    trainer.epoch()
    training = timed(trainer.epoch) / len(small.train) * len(dataset.train)
    validation = timed(lambda: trainer.evaluate(small.validation)) / max(1, len(small.validation))
    return training + validation * len(dataset.validation)
