"""`archray.compare`: runs of any kind on the same data, side by side, and the runs that cannot be compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from archray_test_ensemble_report import repeated_ensemble_run
from archray_test_feature_map_report import feature_map_run
from archray_test_report import MADE_WITH, MISSING_NUMBER, hnas_run, section_ids, words, write_run, write_summaries
from archray_test_supernet_report import gradient_run

from archray.errors import InvalidInput, RunFolderError
from archray.platform.compare import compare
from archray.platform.run.run import Run

TESTS = ("test_accuracy", "random_test_accuracy")


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run[Any]]:
    """Two runs that found one network each, and one run with two repeats that found ensembles."""
    place = tmp_path_factory.mktemp("runs")
    made = {
        "hnas": hnas_run(place / "hnas", pool_size=10, trials=4, baseline=2, final_seeds=3, epochs=2),
        "gaea-darts": gradient_run(place / "gaea", epochs=2),
        "nesbs": repeated_ensemble_run(place / "nesbs"),
    }
    for run in made.values():
        write_summaries(run)
    return made


def test_runs_of_networks_are_compared(
    networks: dict[str, Run[Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    table = compare([str(run.folder) for run in networks.values()], out=page)
    assert table.index.tolist() == list(networks)
    for name in ("hnas", "gaea-darts"):
        accuracies = networks[name].table("final", "trials.parquet")["test_accuracy"]
        row = table.loc[name]
        assert row["test_accuracy"] == pytest.approx(accuracies.mean())
        assert row["test_accuracy_std"] == pytest.approx(accuracies.std())
        assert row["test_accuracy_n"] == len(accuracies) and row["repeats"] == 1
    assert table["parameters"]["gaea-darts"] == 3_349_342 and table["multiply_adds"]["gaea-darts"] == 5.452e8
    assert table["trainings"]["hnas"] == 4 + 3 - _comparison(networks["hnas"])
    repeats = table.loc["nesbs"]
    assert (repeats["test_accuracy"], repeats["test_accuracy_n"]) == (pytest.approx(0.955), 2)
    assert repeats["test_accuracy_std"] == pytest.approx(0.01 / 2**0.5) and repeats["members"] == 3
    assert table.loc["nesbs", ["test_nll", "ece", "members_test_accuracy", "ppd"]].notna().all()
    printed, read = capsys.readouterr().out, words(page.read_text())
    for text in (printed, read):
        assert "95.50 ± 0.71 (2)" in text and "93.50 ± 0.71 (2)" in text
        assert "est accuracy (%)" in text and "est accuracy (random) (%)" in text
    assert "nesbs has the highest test accuracy: 95.50 ± 0.71 %" in read
    assert section_ids(page.read_text()) == ["side-by-side"] and "<svg" in page.read_text()
    assert not MISSING_NUMBER.search(read)


def _comparison(run: Run[Any]) -> int:
    return int(run.table("search", "suggestions.parquet")["repeat"].sum())


def test_options_that_differ_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        write_summaries(write_run(tmp_path / f"{epochs}", "hnas", config={"final": {"epochs": epochs}, "seed": epochs}))
        for epochs in (10, 20)
    ]
    table = compare(runs)
    assert table.index.tolist() == ["hnas, 10", "hnas, 20"], "a repeated method is distinguished by its folder"
    printed = capsys.readouterr().out
    assert "final.epochs: 10, 20" in printed and "seed" not in printed


def test_feature_map_searches_are_compared_at_equal_cost(tmp_path: Path) -> None:
    runs = [feature_map_run(tmp_path / f"{number}", repeats=2, candidates=number) for number in (8, 16)]
    page = tmp_path / "page.html"
    table = compare([write_summaries(run) for run in runs], out=page)
    assert table["search_test_accuracy_n"].tolist() == [2, 2]
    assert {"side-by-side", "equal-cost", "over-calls", "over-seconds"} <= set(section_ids(page.read_text()))
    with pytest.raises(RunFolderError, match="Choose another --out"):
        compare([str(runs[0].folder)], out=page)


def test_different_data_raise_an_error_with_the_differences(networks: dict[str, Run[Any]], tmp_path: Path) -> None:
    other = {**MADE_WITH, "data_checksum": "0" * 64}
    config = {"data": {"name": "cifar10", "limit": 500}}
    images = write_summaries(write_run(tmp_path / "cifar", "darts", config=config, manifest=other, documents=_found()))
    with pytest.raises(InvalidInput, match=r"data\.name: digits and cifar10; data\.limit: None and 500"):
        compare([str(networks["hnas"].folder), images])
    moved = write_summaries(write_run(tmp_path / "digits", "darts", manifest=other, documents=_found()))
    with pytest.raises(InvalidInput, match="data_checksum: 9f86d081884c and 000000000000"):
        compare([str(networks["hnas"].folder), moved])


def test_a_validation_part_of_another_size_counts_as_the_same_data(
    networks: dict[str, Run[Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Write such a run as `nesbs` does, whose presets hold out more images."""
    other = {**MADE_WITH, "data_checksum": "0" * 64}
    config = {"data": {"name": "digits", "validation_fraction": 0.3}}
    run = write_summaries(write_run(tmp_path / "more", "darts", config=config, manifest=other, documents=_found()))
    assert len(compare([str(networks["hnas"].folder), run])) == 2
    assert "data.validation_fraction: None, 0.3" in capsys.readouterr().out
    halved = {**other, "test_labels_checksum": "0" * 64}  # the validation part is a part of the test split
    halved_run = write_summaries(
        write_run(tmp_path / "halved", "darts", config=config, manifest=halved, documents=_found())
    )
    with pytest.raises(InvalidInput, match=r"data\.validation_fraction: None and 0\.3"):
        compare([str(networks["hnas"].folder), halved_run])


def _found() -> dict[tuple[str, str], Any]:
    return {("search", "architecture.json"): {"architecture": "|none~0|", "value": 0.5, "metric": "shared_accuracy"}}


def test_runs_that_cannot_be_compared_raise_an_error(networks: dict[str, Run[Any]], tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="archray resume"):
        compare([str(write_run(tmp_path / "unfinished", "hnas").folder)])
    with pytest.raises(InvalidInput, match="got none"):
        compare([])
    with pytest.raises(InvalidInput, match="the same folder twice"):
        compare([str(networks["hnas"].folder)] * 2)
