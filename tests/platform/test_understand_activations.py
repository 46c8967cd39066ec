"""The study of activations: its tables, its conclusions, its page, a complete run that is killed and resumed, and bad
input.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from archray_test_activations import activations_run
from archray_test_command import finish, kill_when, logged, start
from archray_test_run_files import undescribed_names
from scipy.stats import kendalltau, rankdata

from archray.errors import ArchrayError, InvalidInput, UnknownName
from archray.platform.methods.configure import check_config, make_config
from archray.platform.methods.understanding.activations.config import ActivationsConfig
from archray.platform.methods.understanding.activations.tables import Share, search_counts, teacher_counts
from archray.platform.run.run import Run
from archray.trainables.data import save_arrays


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run[ActivationsConfig]:
    return activations_run(tmp_path_factory.mktemp("activations") / "run")


def test_pairs_equal_the_rows_of_activations(run: Run[ActivationsConfig]) -> None:
    rows = run.table("shared", "activations.parquet").set_index(["labels", "number", "activation"])
    pairs = run.table("shared", "pairs.parquet")
    assert len(rows) == 2 * 3 * 3 and len(pairs) == 2 * (2 * 3 * 3)
    for pair in pairs[pairs["alpha_of"].eq("searched")].itertuples():
        first, second = (rows.loc[(pair.labels, pair.number, name)] for name in (pair.first, pair.second))
        assert pair.first_risk == first["shared"] < second["shared"] == pair.second_risk
        assert pair.conclusion == (first["alpha"] > second["alpha"])
        assert pair.condition == (first["distance"] >= second["distance"])


def test_agreements_are_kendalls_tau(run: Run[ActivationsConfig]) -> None:
    rows, agreements = (run.table("shared", f"{name}.parquet") for name in ("activations", "agreements"))
    for one in agreements[agreements["ranking"].isin(["alpha", "shared"])].itertuples():
        part = rows[rows["labels"].eq(one.labels) & rows["number"].eq(one.number)]
        ranking = -part["alpha"] if one.ranking == "alpha" else part["shared"]
        assert one.kendall == pytest.approx(kendalltau(rankdata(ranking), rankdata(part[one.reference])).statistic)
        assert one.top == (ranking.idxmin() == part[one.reference].idxmin())
    assert set(agreements["ranking"]) == {"alpha", "shared", "uniform", "initial", "random"}


def test_counts_add_up_and_theorems_have_no_exception(run: Run[ActivationsConfig]) -> None:
    for count, pairs in zip(teacher_counts(run), (30, 90), strict=True):
        assert count.met.holds == count.met.number
        assert sum(share.number for share in (count.met, count.unmet) if share) == pairs
    for count in search_counts(run, "best"):
        assert count.met is None or count.met.holds == count.met.number
    table = run.table("shared", "pairs.parquet")
    table = table[table["alpha_of"].eq("searched")]
    for count in search_counts(run):
        part = table[table["labels"].eq(count.labels)]
        shares = [share for share in (count.met, count.unmet) if share]
        assert sum(share.holds for share in shares) == part["conclusion"].sum()
        assert sum(share.number for share in shares) == len(part) == 9


def test_wilsons_interval() -> None:
    low, high = Share(8, 10).interval  # by its formula with z = 1.959964
    assert (low, high) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"activation": ["relu", "tanhh"]}, UnknownName, "there is no activation 'tanhh'; did you mean 'tanh'"),
        ({"activation": ["relu"]}, InvalidInput, "expected two or more distinct activations, got relu"),
        ({"activation": ["relu,relu"]}, InvalidInput, "distinct activations, got relu, relu"),
        (
            {"activation": ["relu", "cos"]},
            InvalidInput,
            "expected problem.outside to be an activation outside of .*, got cos",
        ),
        ({"outside": "cosine"}, UnknownName, "there is no activation 'cosine'; .*choose one of cos, elu"),
        ({"seeds": 0}, InvalidInput, "seeds: Input should be greater than or equal to 1, got 0"),
        ({"labels": ["true"]}, InvalidInput, "labels.0: Input should be 'realizable', 'noisy', 'outside' or 'data'"),
        ({"labels": ["data"]}, InvalidInput, "expected a data set with labels, got gaussian"),
        ({"data": "digits", "samples": 1750}, InvalidInput, "expected 1812 or more points .* of digits. Lower samples"),
        ({"data": "docstrings"}, InvalidInput, "expected images as data for activations, got docstrings"),
        ({"space": "nasbench201"}, InvalidInput, "only activations of two-layer networks. Remove --space"),
        ({"rate": 0.0}, InvalidInput, "problem.rate: Input should be greater than 0"),
    ],
)
def test_bad_input_raises_an_error(options: dict[str, object], error: type[ArchrayError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        check_config(make_config("activations", "smoke", None, options))
    assert "\n" not in str(caught.value)


def test_data_of_one_class_raise_an_error(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((200, 4, 4, 1), dtype=np.float32)
    save_arrays(tmp_path / "two.npz", images, np.arange(200) % 2)
    options = {"data": f"arrays:{tmp_path / 'two.npz'}", "samples": 40, "validation": 40}
    check_config(make_config("activations", "smoke", None, options))
    with np.load(tmp_path / "two.npz") as stored:
        np.savez(tmp_path / "one.npz", **{**stored, "y_train": np.zeros_like(stored["y_train"])})
    with pytest.raises(InvalidInput, match="expected two or more classes in y_train"):
        check_config(make_config("activations", "smoke", None, {**options, "data": f"arrays:{tmp_path / 'one.npz'}"}))


def test_labels_of_the_data_need_a_data_set() -> None:
    assert make_config("activations", "demo", None, {}).labels == ("realizable", "noisy", "outside")
    assert make_config("activations", "demo", None, {"data": "digits"}).labels[-1] == "data"
    some = make_config("activations", "demo", None, {"activation": ["relu,tanh", "sin"], "labels": ["noisy,outside"]})
    assert some.problem.activations == ("relu", "tanh", "sin") and some.labels == ("noisy", "outside")
    assert some.sizes == (2, 3) and make_config("activations", "demo", None, {}).sizes == (2, 3, 5)


# Complete run

COMMAND = (
    "understand", "activations", "relu", "tanh", "quadratic", "--preset", "smoke", "--data", "digits",
    "--labels", "realizable", "--labels", "data", "--seeds", "3", "--samples", "60", "--validation", "60",
    "--teachers", "70", "--max-concurrent", "1", "--set", "cluster.dashboard=false",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_study_killed_in_every_stage_equals_an_undisturbed_one(tmp_path: Path) -> None:
    finish(*COMMAND, "--out", "undisturbed", cwd=tmp_path)
    whole, killed = tmp_path / "undisturbed", tmp_path / "killed"
    command = (*COMMAND, "--out", "killed")
    for in_progress in (
        lambda: len(list((killed / "teachers" / "shards").glob("*.parquet"))) >= 2,
        lambda: logged(killed / "shared", "result"),
    ):
        process = start(*command, cwd=tmp_path)
        kill_when(process, in_progress, tmp_path)
        command = ("resume", "killed")
    assert not (killed / "shared" / "done.json").exists()
    finish(*command, cwd=tmp_path)
    for table in ("teachers/teachers", "shared/activations", "shared/pairs", "shared/agreements"):
        one, other = (pd.read_parquet(folder / f"{table}.parquet") for folder in (killed, whole))
        pd.testing.assert_frame_equal(one, other)
    assert json.loads((killed / "findings.json").read_text()) == json.loads((whole / "findings.json").read_text())
    assert undescribed_names(whole) == []
    sections = re.findall('<section id="([^"]+)"', (whole / "report.html").read_text())
    assert sections == ["claims", "agreement", "ranks", "alpha", "failures", "manifest"]
