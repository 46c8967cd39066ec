"""The official files of NATS-Bench, read by its own package `nats-bench` (Dong et al. 2021), as rows of a table."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from archray.errors import InvalidInput, InvalidTable, MissingExtra

if TYPE_CHECKING:
    import pandas as pd

DATASETS = ("cifar10", "cifar100", "ImageNet16-120")
SHORT = "12"  # epochs of the training that a search is told of, as in thesis 7.5 (note H4)


def nats_bench_rows(place: str | Path, dataset: str = "cifar10") -> pd.DataFrame:
    """A row for each architecture of NATS-Bench's topology space, or of its size space if `sss` is in the file's name.

    Args:
        place: a folder of the simple kind, `NATS-tss-v1_0-3ffb9-simple` (one file for each architecture, read one by
            one), or one `.pickle.pbz2` file with all. They are pickles: read only what you trust.
        dataset: `cifar10`, `cifar100` or `ImageNet16-120`.

    Returns: `index`, `architecture`; for each training there is, of 12 and 200 epochs or 1, 12 and 90, `valid_12` and
    `test_12`, their means over the trainings; `valid_12_seed0`, ... of each training; `seconds_12`, of the training and
    one evaluation; `valid_12@1` to `valid_12@12`, after each epoch; `params` (M), `flops` (M), `latency` (s).
    CIFAR-10's validation accuracies are of trainings on half of its training images, as the benchmark has it.

    Raises: MissingExtra without the package; InvalidInput for another data set; InvalidTable for files that cannot
        be read.
    """
    import pandas as pd

    if dataset not in DATASETS:
        raise InvalidInput(f"NATS-Bench has no data set {dataset!r}; choose one of {', '.join(DATASETS)}")
    path = Path(place).expanduser()
    if not path.exists():
        raise InvalidTable(f"there is no file and no folder {path}; give NATS-Bench's, see its README for the download")
    package = _package()
    space = "size" if "sss" in path.name else "topology"
    try:
        api = package.create(str(path), space, fast_mode=path.is_dir(), verbose=False)
        rows = [_row(api, index, dataset) for index in range(len(api))]
    except (OSError, AssertionError, ValueError, KeyError, EOFError) as error:
        raise InvalidTable(f"{path} cannot be read as NATS-Bench's {space} space ({error!r})") from error
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def _package() -> ModuleType:
    try:
        import nats_bench
    except ImportError as error:
        raise MissingExtra(
            f"NATS-Bench's files are read by its package, which is not installed ({error}): "
            "pip install 'archray[nats-bench]'"
        ) from error
    return nats_bench


def _row(api: Any, index: int, dataset: str) -> dict[str, Any]:
    """Everything of one architecture, which is then forgotten: all of them are some gigabytes."""
    told: dict[str, Any] = {"index": index, "architecture": api.arch(index)}
    searched = "cifar10-valid" if dataset == "cifar10" else dataset  # what the validation accuracies are of
    api.get_more_info(index, searched, hp=SHORT, is_random=False)  # reads the architecture's file
    for hp in sorted(api.arch2infos_dict[index], key=int):
        results, epochs = api.arch2infos_dict[index][hp], int(hp)
        told[f"valid_{epochs}"] = _accuracy(results, searched, "x-valid")
        told[f"test_{epochs}"] = _accuracy(results, dataset, "ori-test" if dataset == "cifar10" else "x-test")
        for number, seed in enumerate(results.dataset_seed.get(searched, ())):
            told[f"valid_{epochs}_seed{number}"] = _accuracy(results, searched, "x-valid", seed=seed)
        told[f"seconds_{epochs}"] = _seconds(results, searched)
        if hp == SHORT:
            for epoch in range(1, epochs + 1):
                told[f"valid_{epochs}@{epoch}"] = _accuracy(results, searched, "x-valid", epoch=epoch)
    costs = api.get_cost_info(index, searched, hp=SHORT)
    told |= {name: np.nan if costs[name] is None else costs[name] for name in ("params", "flops", "latency")}
    if api.fast_mode:
        del api.arch2infos_dict[index]
        api.evaluated_indexes.discard(index)
    return told


def _accuracy(results: Any, dataset: str, split: str, epoch: int | None = None, seed: int | None = None) -> float:
    """Percent; the mean over trainings, or that of one; NaN where the benchmark has none."""
    try:
        metrics = results.get_metrics(
            dataset, split, iepoch=None if epoch is None else epoch - 1, is_random=False if seed is None else seed
        )
    except (KeyError, ValueError):
        return float("nan")
    return float(metrics["accuracy"])


def _seconds(results: Any, dataset: str) -> float:
    """Of the training and one evaluation, as the package's `simulate_train_eval` counts; NaN where it has no times."""
    try:
        train = results.get_metrics(dataset, "train", is_random=False)
        valid = results.get_metrics(dataset, "x-valid", is_random=False)
    except (KeyError, ValueError):
        return float("nan")
    if train["all_time"] is None or valid["all_time"] is None:
        return float("nan")
    return float(train["all_time"] + valid["all_time"] / (valid["iepoch"] + 1))
