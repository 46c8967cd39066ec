"""Runs of NASI with the preset smoke: the files that they write, their reports, and their input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from archray_test_run_files import undescribed_names
from archray_test_runs import ONE_AT_A_TIME

import archray
from archray.errors import InvalidInput
from archray.files import Folder
from archray.platform.methods import METHODS, get_method, open_run
from archray.platform.methods.configure import check_config, make_config
from archray.platform.methods.nasi.config import METRICS
from archray.trainables.spaces import get_space
from archray.trainables.spaces.table_space import canonical_string

OPTIONS: dict[str, Any] = {
    "preset": "smoke", "seed": 2, "search_seeds": 2, "selection__keep": 2, "final_epochs": 1, "random": 0,
    "data": "digits", "data__limit": 60, **ONE_AT_A_TIME,
}  # fmt: skip
Search = Callable[..., archray.RunResult]


@pytest.fixture(scope="module")
def search(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Search:
    """Runs NASI in a new folder."""

    def run(**options: Any) -> archray.RunResult:
        return archray.search("nasi", **{**OPTIONS, **options}, out=tmp_path_factory.mktemp("runs") / "run")

    return run


@pytest.fixture(scope="module")
def table_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic table of all cells of NAS-Bench-201 whose last three operations are equal."""
    place, space = tmp_path_factory.mktemp("tables") / "known.csv", get_space("nasbench201")
    cells = [architecture for architecture in space.enumerate() if len(set(architecture[3:])) == 1]
    rows = [(space.encode(cell), sum(map(len, cell)) + 0.01 * number) for number, cell in enumerate(cells)]
    pd.DataFrame(rows, columns=["architecture", "val_accuracy"]).assign(
        test_accuracy=lambda table: table["val_accuracy"] / 2
    ).to_csv(place, index=False)
    return place


@pytest.fixture(scope="module")
def result(search: Search, table_path: Path) -> archray.RunResult:
    return search(space="nasbench201", agreement_table=str(table_path))


def page_of(result: archray.RunResult) -> str:
    return (Path(result.path) / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.ci
def test_the_search_stores_the_results_of_each_seed_and_the_best_reward(result: archray.RunResult) -> None:
    folder, space = Folder(result.path), get_space("nasbench201")
    found = (folder / "search").read_parquet("found.parquet")
    assert list(found) == [
        "trial_id", "seed", "architecture", "found_trace", "found_reward", "nu", "distribution", "samples",
        "constants", "failure",
    ]  # fmt: skip
    assert found["seed"].nunique() == len(found) == 2 and found["failure"].isna().all()
    excess = (found["found_trace"] - found["nu"]).clip(lower=0)
    reward = (found["found_trace"] - excess) / found["nu"]  # mu = 1, and nu is the mean of random samples
    assert found["found_reward"].tolist() == pytest.approx(reward.tolist())
    for row in found.to_dict("records"):
        space.check(space.decode(row["architecture"]))
        probabilities = json.loads(row["distribution"])
        assert list(probabilities) == [decision.name for decision in space.decisions]
        assert all(sum(values) == pytest.approx(1) for values in probabilities.values())
        assert {key: len(values) for key, values in json.loads(row["samples"]).items()} == {"trace": 4, "nu": 4}
    best = (folder / "search").read_json("architecture.json")
    assert best["metric"] == "found_reward" and best["value"] == best["found_reward"] == found["found_reward"].max()
    assert result.architecture in found["architecture"].tolist()
    assert undescribed_names(Path(result.path)) == []


@pytest.mark.slow
@pytest.mark.ci
def test_trace_norms_are_compared_on_three_architectures(result: archray.RunResult) -> None:
    agreement = (Folder(result.path) / "agreement").read_parquet("agreement.parquet")
    columns = ["exact", "samples", "batch_4", "batch_8", "batch", "random_labels", "random_inputs"]
    assert len(agreement) == 3 and (agreement[columns] > 0).all(axis=None)
    assert agreement["batch"].tolist() == agreement["batch_8"].tolist()


@pytest.mark.slow
@pytest.mark.ci
def test_architectures_of_a_table_are_scored_with_its_results(result: archray.RunResult, table_path: Path) -> None:
    folder, space = Folder(result.path), get_space("nasbench201")
    scored, message = (folder / "table").read_parquet("table.parquet"), (folder / "table").read_json("table.json")
    values: dict[str, float] = {}
    for row in pd.read_csv(table_path).to_dict("records"):
        values.setdefault(canonical_string(space, row["architecture"]), row["test_accuracy"])
    assert scored["drawn"].sum() == 12 and scored["architecture"].is_unique
    assert scored["result"].tolist() == [values[name] for name in scored["architecture"]]
    assert message["architectures"] == len(values) and message["best"] == max(values.values())
    assert message["column"] == "test_accuracy" and message["mode"] == "max" and message["location"] == str(table_path)
    whole = scored[scored["failure"].isna()]
    assert len(whole) >= 6 and (whole[list(METRICS[:2])] > 0).all(axis=None)
    page = page_of(result)
    assert "test_accuracy of" in page and "Effect of nu and mu" in page


@pytest.mark.slow
def test_the_same_seed_finds_the_same(result: archray.RunResult, search: Search) -> None:
    """Without the comparison, which has a separate seed."""
    again = search(space="nasbench201", agreement=0)
    tables = [(Folder(each.path) / "search").read_parquet("found.parquet") for each in (result, again)]
    same = ["seed", "architecture", "found_reward", "distribution", "samples", "constants"]
    assert tables[0][same].to_dict("list") == tables[1][same].to_dict("list")
    assert (Folder(again.path) / "agreement").read_parquet("agreement.parquet").empty
    assert '<section id="agreement"' not in page_of(again)


@pytest.mark.slow
def test_a_search_on_random_labels_and_inputs_uses_no_data(search: Search) -> None:
    random = {"labels": "random", "inputs": "random", "nasi__image_size": 8, "space": "nasbench201"}
    runs = [search(**random, data=data) for data in ("digits", "gaussian")]
    found = [(Folder(each.path) / "search").read_parquet("found.parquet") for each in runs]
    assert found[0]["samples"].tolist() == found[1]["samples"].tolist()
    assert found[0]["architecture"].tolist() == found[1]["architecture"].tolist()
    comparison = (Folder(runs[0].path) / "agreement").read_parquet("agreement.parquet")
    assert comparison[["random_labels", "random_inputs"]].isna().all(axis=None)
    for run in runs:
        assert open_run(run.path).manifest["data_checksum"], "of the data of the final training"
        assert "random and random" in page_of(run)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"agreement": 1}, "expected agreement to be at least 3 architectures, or 0 for none, got 1"),
        ({"agreement": 2}, "a correlation needs 3 points"),
        ({"agreement_table": "absent.csv"}, "archray cannot read the table"),
        ({"agreement_rows": 2}, "agreement_rows"),
        ({"mu": -1}, r"nasi\.mu"),
        ({"nu": 0}, r"nasi\.nu"),
        ({"labels": "noise"}, r"nasi\.labels"),
        ({"space": "fourier"}, "feature maps, not networks"),
        ({"data": "docstrings"}, "got docstrings, which contains text"),
        ({"search_seeds": 3, "selection__epoch": 9}, r"selection\.epoch"),
    ],
)
def test_bad_input_raises_before_ray_starts(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_config(make_config("nasi", "smoke", None, {"space": "nasbench201", **options}))


def test_a_table_of_another_space_raises_before_ray_starts(table_path: Path, tmp_path: Path) -> None:
    few, undescribed_names = tmp_path / "few.csv", tmp_path / "unknown.csv"
    pd.read_csv(table_path)[:2].to_csv(few, index=False)
    pd.read_csv(table_path)[["architecture"]].to_csv(undescribed_names, index=False)
    for space, table, message in (
        (
            "nasbench1shot1-1",
            table_path,
            "expected a table of architectures of nasbench1shot1-1, got .* with other architectures",
        ),
        ("nasbench201", few, "expected at least 3 architectures in .*few.csv, got 2"),
        ("nasbench201", undescribed_names, "expected a column with the objective"),
    ):
        with pytest.raises(InvalidInput, match=message):
            check_config(make_config("nasi", "smoke", None, {"space": space, "agreement_table": str(table)}))


@pytest.mark.parametrize("space", ["darts", "darts-none", "nasbench201", "nasbench1shot1-1", "nasbench1shot1-3"])
def test_the_constants_of_the_paper(space: str) -> None:
    """Sections 6.4.1, 6.5.1 and 6.5.3. Both networks can be built, without memory."""
    config = make_config("nasi", "paper", None, {"space": space, "data": "digits"})
    config.check()
    nasi = config.nasi
    assert (nasi.steps, nasi.batch_size, nasi.samples, nasi.xi, nasi.temperature) == (100, 64, 50, 1.0, 1.0)
    assert nasi.mu == (2.0 if space.startswith("darts") else 1.0)
    assert nasi.nu_rule == ("adaptive" if space.startswith("nasbench1shot1") else "fixed")
    assert "nasi" in METHODS and get_method("nasi").name == "nasi"
