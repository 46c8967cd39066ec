"""The options of `archray proxies` for the data and the cluster."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import archray
from archray.cluster.settings import ClusterSettings, ResourceSettings
from archray.platform.cli import application
from archray.trainables.data import DataSettings
from archray.trainables.proxies import ProxySettings


def test_options_of_data_actors_and_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: dict[str, Any] = {}

    def proxies(space: str, **options: Any) -> pd.DataFrame:
        passed.update(options)
        return pd.DataFrame({"failure": [None]})

    monkeypatch.setattr(archray, "proxies", proxies)
    options = "--proxies snip --channels 4 --cpus-per-trial 2 --actors 3 --seed 5"
    assignments = "--set data.limit=100 --set network.init=he --set cluster.num_cpus=6 --set resources.gpus_per_trial=0"
    arguments = ["proxies", *options.split(), *assignments.split()]
    shown = CliRunner().invoke(application(arguments), arguments)
    assert shown.exit_code == 0, shown.output
    assert passed["data_settings"] == DataSettings(name="digits", limit=100)
    assert passed["seed"] == 5
    assert passed["resources"] == ResourceSettings(cpus_per_trial=2, gpus_per_trial=0, actors=3)
    assert passed["cluster"] == ClusterSettings(num_cpus=6)
    assert type(passed["settings"]) is ProxySettings
    assert passed["settings"] == ProxySettings(metrics=("snip",), network={"channels": 4, "init": "he"})


def test_an_unknown_option_is_named_with_its_path() -> None:
    for assignment, message in (("data.limitt=5", "data.limitt"), ("resources=2", "resources"), ("limit=5", "limit")):
        arguments = ["proxies", "--set", assignment]
        shown = CliRunner().invoke(application(arguments), arguments)
        assert shown.exit_code != 0 and message in str(shown.exception or shown.output)
