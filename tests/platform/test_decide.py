"""Plain searches that decide training hyperparameters together with the architecture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from archray_test_plain_report import plain_content
from archray_test_report import rendered, words, write_run

import archray
from archray.errors import InvalidInput
from archray.platform.config import config_text
from archray.platform.methods.catalog import METHODS, get_method
from archray.platform.methods.configure import check_config, make_config
from archray.platform.methods.plain.config import JointConfig
from archray.trainables.spaces import get_space

DECIDING = [name for name in METHODS if issubclass(get_method(name).config, JointConfig)]


def config(method: str = "random", *decide: str, file: Any = None, settings: tuple[str, ...] = ()) -> Any:
    return make_config(method, "smoke", file, {"decide": list(decide) or None}, settings)


def test_plain_searches_that_train_every_architecture_can_decide() -> None:
    assert set(DECIDING) == {"random", "evolution", "local-search", "reinforce", "asha", "bohb"}
    for method in DECIDING:
        assert config(method, "train.lr=0.01,0.1").training_decisions == {"train.lr": (0.01, 0.1)}


def test_values_have_the_types_of_their_fields() -> None:
    decided = config("random", "train.weight_decay=0,5e-4", "train.nesterov=true,false", "train.grad_clip=null,5")
    assert decided.decide == {
        "train.grad_clip": (None, 5.0),
        "train.nesterov": (True, False),
        "train.weight_decay": (0.0, 5e-4),
    }
    check_config(decided)


def test_a_file_the_flag_and_the_written_configuration_agree(tmp_path: Path) -> None:
    expected = config("asha", "train.lr=0.01,1e-1", "train.augmentation.cutout=0,2")
    content = {"decide": {"train.lr": [0.01, 0.1], "train.augmentation.cutout": [0, 2]}}
    (tmp_path / "decide.yaml").write_text(yaml.safe_dump(content))
    assert config("asha", file=tmp_path / "decide.yaml") == expected
    assert (
        config("asha", file={"decide": {"train": {"lr": "0.01, 0.1", "augmentation": {"cutout": [0, 2]}}}}) == expected
    )
    assert (
        config("asha", settings=("decide.train.lr=[0.01, 0.1]", "decide.train.augmentation.cutout=[0, 2]")) == expected
    )
    (tmp_path / "whole.yaml").write_text(config_text(expected))
    assert config("asha", file=tmp_path / "whole.yaml") == expected
    assert type(expected).model_validate_json(expected.model_dump_json()) == expected


@pytest.mark.parametrize(
    ("decide", "error"),
    [
        (["train.lr"], "expected KEY=VALUE,VALUE such as train.lr=0.01,0.1, got 'train.lr'$"),
        (["train.lr=0.1"], "expected two or more distinct values for train.lr, got 0.1. Set"),
        (["train.lr=0.1,1e-1"], "expected two or more distinct values for train.lr, got 0.1, 0.1. Set"),
        (["train.lr=0.1,1", "train.lr=0.2,2"], "expected each key once, got train.lr twice"),
        (["train.lr=0.1,-1"], r"expected values that train accepts, got train.lr=-1 \(Input should be greater than 0"),
        (["train.batch_size=16,many"], "got train.batch_size=\"many\""),
        (["train.batch_size=16,2.5"], "got train.batch_size=2.5"),
        (["train.amp=16,true"], "got train.amp=16"),
        (["train.momentum=0,0.9"], "expected momentum above 0 with nesterov"),
        (["train.momentum=0,0.9", "train.nesterov=true,false"], "train.momentum=0"),
        (["train.cycles=1,2"], "train.cycles=2 .*cycles of at most the number of epochs, 1"),
        (["train.epochs=1,2"], "expected a key other than train.epochs"),
        (["train.lrr=1,2"], "Did you mean 'train.lr'?"),
        (["lr=1,2"], "expected a hyperparameter of train, got 'lr'"),
        (["network.channels=4,8"], "expected a hyperparameter of train, got 'network.channels'"),
        (["train.augmentation=null,1"], "expected a hyperparameter of train"),
    ],
)  # fmt: skip
def test_wrong_decisions_raise_an_error(decide: list[str], error: str) -> None:
    with pytest.raises(InvalidInput, match=error) as raised:
        config("random", *decide)
    assert str(raised.value).count(", got ['") == 0


def test_decided_values_must_fit_the_final_training_too() -> None:
    fits = {"train": {"epochs": 4}, "final": {"epochs": 4}}
    assert config("random", "train.cycles=1,4", file=fits).decide
    with pytest.raises(InvalidInput, match=r"expected values that final accepts, got train\.cycles=4"):
        config("random", "train.cycles=1,4", file={"train": {"epochs": 4}})


@pytest.mark.parametrize(
    "method", ["hnas", "zero-cost", "zero-cost-evolution", "rank-surrogate", "robot", "pareto-pool"]
)
def test_searches_over_a_scored_pool_name_the_reason(method: str) -> None:
    with pytest.raises(InvalidInput, match=f"{method} does not support decide: it selects from a pool .* random"):
        config(method, "train.lr=0.1,1")
    with pytest.raises(InvalidInput, match="does not support decide"):
        config(method, file={"decide": {"train.lr": [0.1, 1]}})


def test_several_objectives_and_tables_name_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nsga2 does not support decide: its Pareto front"):
        config("nsga2", "train.lr=0.1,1")
    table = tmp_path / "table.csv"
    cells = [
        "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|",
        "|none~0|+|none~0|none~1|+|none~0|none~1|skip_connect~2|",
    ]
    pd.DataFrame({"architecture": cells, "objective": [0.1, 0.2], "result": [0.1, 0.2]}).to_csv(table, index=False)
    with pytest.raises(InvalidInput, match="a table of networks that were trained with one set of hyperparameters"):
        check_config(make_config("random", "smoke", None, {"space": f"table:{table}", "decide": ["train.lr=0.1,1"]}))


def test_the_report_shows_the_cell_and_the_decided_values(tmp_path: Path) -> None:
    tables, documents = plain_content()
    rates = dict(zip(tables["search", "trials.parquet"]["architecture"], [0.01, 0.1] * 6, strict=True))
    for table in tables.values():
        if "architecture" in table:
            table["architecture"] = [f"{name};train.lr={rates[name]}" for name in table["architecture"]]
    found = documents["", "architecture.json"]
    rate = rates[found["architecture"]]
    documents = {key: {**found, "architecture": f"{found['architecture']};train.lr={rate}"} for key in documents}
    decide = {"decide": {"train.lr": [0.01, 0.1]}}
    text = words(rendered(write_run(tmp_path / "run", "random", tables=tables, documents=documents, config=decide)))
    assert f"Decided train.lr = {rate}" in text and "train.lr No." in text


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.usefixtures("ray_session")
def test_a_search_decides_the_learning_rate_and_the_final_training_uses_it(tmp_path: Path) -> None:
    options: dict[str, Any] = {"preset": "smoke", "data__limit": 200, "max_concurrent": 1, "cost": ["parameters"]}
    options |= {"epochs": 2, "final_epochs": 2}  # after one of two epochs, the learning rate is half of the decided one
    run = tmp_path / "run"
    result = archray.search("random", **options, decide=["train.lr=0.01,0.1"], budget=2, out=run)
    cell, _, rate = str(result.architecture).partition(";train.lr=")
    get_space("nasbench201").decode(cell)
    found = json.loads((run / "architecture.json").read_text())
    assert found["architecture"] == result.architecture and found["training"] == {"train.lr": float(rate)}
    trials = result.trials
    assert set(trials["stage"]) == {"search", "final", "baseline"}
    assert trials["architecture"].str.contains(r";train\.lr=0\.0?1$").all() and trials["parameters"].notna().all()
    compared = trials[trials["stage"].isin(["final", "baseline"])]
    assert compared.set_index("architecture")["validation_accuracy"].idxmax() == result.architecture
    assert json.loads((run / "model" / "architecture.json").read_text())["architecture"] == cell
    assert result.model() is not None
    for stage in ("search", "final", "baseline"):
        curves = pd.read_parquet(run / stage / "curves.parquet").query("epoch == 1")
        decided = [float(name.rpartition("=")[2]) for name in curves["architecture"]]
        assert decided and np.allclose(2 * curves["lr"], decided)
    report = words((run / "report.html").read_text())
    assert f"Decided train.lr = {rate}" in report

    archray.resume(run, budget=4)
    table = pd.read_parquet(run / "search" / "trials.parquet")
    assert len(table) == 4 and list(table["architecture"][:2]) == list(
        trials["architecture"][trials["stage"] == "search"]
    )
