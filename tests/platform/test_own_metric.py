"""A user's own metric: HNAS killed, and resumed elsewhere after the file has changed; `archray.proxies`."""

import hashlib
import json
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from archray_test_command import finish, kill_when, start

from archray.errors import InvalidInput
from archray.platform.methods.configure import check_config, make_config
from archray.trainables.data import DataSettings, load_images, proxy_batch
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.proxies import ProxySettings, get_proxy

PROXIES = """
import archray
from archray.cluster.connect import ClusterSettings
from archray.trainables.nets import NetworkSettings
from archray.trainables.proxies import ProxySettings

metrics = ("snip", "own_metric.py:grad_sign", "own_metric.py:fails")
table = archray.proxies(
    out="pool.parquet",
    size=3,
    settings=ProxySettings(metrics=metrics, batch_size=16, network=NetworkSettings(channels=4, cells=1)),
    cluster=ClusterSettings(num_cpus=2, num_gpus=0, dashboard=False),
)
"""


@pytest.mark.timeout(600)
def test_the_example_killed_and_resumed_elsewhere(repository, tmp_path):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    example = here / "own_metric.py"
    shutil.copy(repository / "examples" / "own_metric.py", example)
    source = example.read_bytes()
    process = start(
        "search", "hnas", "--proxy", "own_metric.py:grad_sign", "--preset", "smoke", "--out", "run",
        "--set", "cluster.dashboard=false", "--set", "pool.chunk=1", cwd=here,
    )  # fmt: skip
    run = here / "run"
    kill_when(process, lambda: list(run.glob("pool/shards/part-*.parquet")), here)

    example.write_text("def grad_sign(network, images, labels):\n    return 1.0\n")  # the run's copy counts
    finish("resume", str(run), cwd=elsewhere)

    kept = json.loads((run / "manifest.json").read_text())["references"]
    assert kept == {
        "proxy-grad_sign": {
            "reference": "own_metric.py:grad_sign",
            "file": "own_metric.py",
            "attribute": "grad_sign",
            "sha256": hashlib.sha256(source).hexdigest(),
        }
    }
    assert (run / "code" / "proxy-grad_sign" / "own_metric.py").read_bytes() == source
    pool = pd.read_parquet(run / "pool" / "pool.parquet")
    assert {"ntk_trace", "kappa", "grad_sign"} <= set(pool.columns)
    reference = f"{repository}/examples/own_metric.py:grad_sign"
    scored = own_values(pool["architecture"], reference)
    np.testing.assert_allclose(pool["grad_sign"], scored, rtol=1e-3)  # signs of zeros depend on the threads
    assert pool["grad_sign"].nunique() > 3
    assert json.loads((run / "search" / "objective.json").read_text())["proxy"] == "grad_sign"
    assert json.loads((run / "architecture.json").read_text())["architecture"] in set(pool["architecture"])
    assert "grad_sign" in (run / "report.html").read_text()

    # beside a metric that fails, from Python
    example.write_bytes(source + b"\n\ndef fails(network, images, labels):\n    return {}['no such key']\n")
    subprocess.run([sys.executable, "-c", PROXIES], cwd=here, check=True, timeout=300)
    table = pd.read_parquet(here / "pool.parquet")
    assert list(table.columns) == [
        "architecture", "snip", "grad_sign", "fails", "failure", "seconds", "parameters",
    ]  # fmt: skip
    np.testing.assert_allclose(table["grad_sign"], own_values(table["architecture"], reference), rtol=1e-3)
    assert table["fails"].isna().all()
    assert table["failure"].str.endswith("fails: KeyError: 'no such key'").all()
    assert not (here / "pool.parquet.parts").exists()


def own_values(architectures, reference):
    """The metric by itself, on the batch and the networks that `smoke` scores with."""
    data = load_images(DataSettings())
    settings = ProxySettings()
    images, labels = proxy_batch(data, 16, settings.seed, settings.augment)
    function = get_proxy(reference).function
    values = []
    for architecture in architectures:
        network = build(
            "nasbench201",
            architecture,
            network=NetworkSettings(channels=4, cells=1),
            in_channels=data.in_channels,
            num_classes=data.num_classes,
            seed=settings.seed,
            for_scoring=True,
        )
        values.append(function(network, torch.clone(images), labels))
    return values


def test_a_metric_that_hnas_cannot_maximise_is_refused(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        "def loss(network, images, labels):\n    return 1.0\n\n\n"
        "loss.direction = 'min'\n\n\n"
        "def kappa(network, images, labels):\n    return 1.0\n"
    )
    for name, message in (("loss", "looks for a large M, and .*own.py:loss"), ("kappa", "the column 'kappa'")):
        config = make_config("hnas", "smoke", None, {"proxy": f"{file}:{name}"})
        with pytest.raises(InvalidInput, match=message):
            check_config(config)


def test_a_table_may_have_been_scored_with_any_metric(tmp_path):
    table = tmp_path / "pool.csv"
    architecture = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|"
    pd.DataFrame({"architecture": [architecture], "mine": [1.0], "kappa": [2.0]}).to_csv(table, index=False)
    for proxy in ("mine", "gone.py:mine"):
        config = make_config("hnas", "smoke", None, {"proxy": proxy, "pool": str(table)})
        check_config(config)
        assert config.references() == {"space": "nasbench201", "data": "digits"}
        assert config.metric == "mine"
    with pytest.raises(InvalidInput, match="has no column yours; it has architecture, mine, kappa"):
        check_config(make_config("hnas", "smoke", None, {"proxy": "yours", "pool": str(table)}))
