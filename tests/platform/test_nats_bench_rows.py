"""NATS-Bench's official files, as the nats_bench package writes and reads them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from archray.errors import InvalidInput, InvalidTable
from archray.platform.bench.table_import import import_nats_bench

ARCHITECTURES = (
    "|nor_conv_3x3~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|",
    "|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|",
    "|none~0|+|none~0|none~1|+|avg_pool_3x3~0|none~1|none~2|",
)
SEEDS = (777, 888)


def accuracy(index: int, epochs: int, seed: int, split: str, epoch: int) -> float:
    """Returns a different value for each combination of arguments."""
    return 10 * index + epochs / 100 + (seed - 777) / 1000 + len(split) / 10 + epoch / 10000


def results(index: int, epochs: int, package: Any) -> dict[str, Any]:
    """The state of an architecture's `ArchResults` after training runs of these numbers of epochs."""
    arch = package.ArchResults(index, ARCHITECTURES[index])
    splits = {"cifar10-valid": ("x-valid", "ori-test"), "cifar10": ("ori-test",), "cifar100": ("x-valid", "x-test")}
    for dataset, evaluated in splits.items():
        for seed in SEEDS[: 1 + index % 2]:
            trained = package.ResultsCount(
                dataset, None, dict.fromkeys(range(epochs), 50.0), dict.fromkeys(range(epochs), 1.0),
                0.1 * (index + 1), 10.0 * (index + 1), {}, seed, epochs, None,
            )  # fmt: skip
            trained.reset_pseudo_train_times(2.0)
            for split in evaluated:
                accuracies = {f"{split}@{e}": accuracy(index, epochs, seed, split, e) for e in range(epochs)}
                trained.update_eval(accuracies, dict.fromkeys(accuracies, 1.0), dict.fromkeys(accuracies, 0.5))
            arch.update(dataset, seed, trained)
    return arch.state_dict()


@pytest.fixture
def simple_folder(tmp_path: Path) -> Path:
    """The contents of `NATS-tss-v1_0-3ffb9-simple`, with three architectures."""
    from nats_bench import api_utils as package  # an optional dependency

    folder = tmp_path / "NATS-tss-v1_0-3ffb9-simple"
    folder.mkdir()
    meta = {"meta_archs": list(ARCHITECTURES), "total_archs": 3, "arch2infos": None, "evaluated_indexes": {0, 1, 2}}
    package.pickle_save(meta, folder / "meta.pickle")
    for index in range(len(ARCHITECTURES)):
        state = {f"{epochs}": results(index, epochs, package) for epochs in (12, 200)}
        package.pickle_save(state, folder / f"{index:06d}.pickle")
    return folder


@pytest.mark.extra("nats-bench")
def test_its_files_form_a_table(simple_folder: Path, tmp_path: Path) -> None:
    table = import_nats_bench(simple_folder, tmp_path / "nats.parquet")
    assert table.architectures == ARCHITECTURES and table.roles.space == "nasbench201"
    assert table.roles.objective == "valid_12" and table.roles.result == "test_200"
    assert table.objective[0] == pytest.approx(accuracy(0, 12, 777, "x-valid", 11))
    both = [accuracy(1, 12, seed, "x-valid", 11) for seed in SEEDS]
    assert table.objective[1] == pytest.approx(sum(both) / 2), "the mean over two training runs"
    assert table.trainings["valid_12"][1] == pytest.approx(both)
    assert table.result[2] == pytest.approx(accuracy(2, 200, 777, "ori-test", 199))
    assert table.seconds is not None and table.seconds[0] == pytest.approx(12 * 2.0 + 0.5)
    assert list(table.epochs) == list(range(1, 13))
    assert table.epochs[3][0] == pytest.approx(accuracy(0, 12, 777, "x-valid", 2))
    assert list(table.costs["params"]) == pytest.approx([0.1, 0.2, 0.3]) and "latency" not in table.costs


@pytest.mark.extra("nats-bench")
def test_another_data_set_and_a_single_file(simple_folder: Path, tmp_path: Path) -> None:
    from nats_bench import api_utils as utilities  # an optional dependency

    states = {index: {"12": results(index, 12, utilities)} for index in range(3)}
    whole = {"meta_archs": list(ARCHITECTURES), "arch2infos": states, "evaluated_indexes": [0, 1, 2]}
    utilities.pickle_save(whole, tmp_path / "NATS-tss-v1_0-3ffb9.pickle")
    table = import_nats_bench(tmp_path / "NATS-tss-v1_0-3ffb9.pickle.pbz2", tmp_path / "o.parquet", dataset="cifar100")
    assert table.objective[0] == pytest.approx(accuracy(0, 12, 777, "x-valid", 11))
    assert table.roles.result == "test_12"


@pytest.mark.extra("nats-bench")
def test_other_files_raise_an_error(simple_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"\(cifar10, cifar100, ImageNet16-120\), got 'mnist'"):
        import_nats_bench(simple_folder, tmp_path / "o.parquet", dataset="mnist")
    with pytest.raises(InvalidTable, match="there is no file or folder"):
        import_nats_bench(tmp_path / "absent", tmp_path / "o.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidTable, match="expected files of NATS-Bench's topology space"):
        import_nats_bench(tmp_path / "empty", tmp_path / "o.parquet")


def test_the_missing_package_is_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nats_bench", None)
    with pytest.raises(InvalidInput, match=r"pip install '\.\[nats-bench\]'"):
        import_nats_bench(tmp_path, tmp_path / "o.parquet")
