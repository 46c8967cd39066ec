"""A user's space and metric under HNAS: killed, and resumed elsewhere after the original files were deleted and
changed.
"""

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

import archray
from archray.trainables.data import DataSettings, load_images, proxy_batch
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.proxies import ProxySettings, get_proxy
from archray.trainables.spaces import get_space

PROXIES = """
import archray
from archray.cluster.settings import ClusterSettings
from archray.trainables.nets import NetworkSettings
from archray.trainables.proxies import ProxySettings

metrics = ("snip", "own_metric.py:grad_sign", "own_metric.py:fails")
table = archray.proxies(
    out="pool.parquet",
    size=3,
    settings=ProxySettings(metrics=metrics, batch_size=16, network=NetworkSettings(channels=4, cells=1)),
    cluster=ClusterSettings(num_cpus=1, num_gpus=0, dashboard=False),
)
"""


def reference(name, attribute, files):
    """Returns the manifest entry of a user's file.

    Args:
        files: content of the file and of its modules, by name.
    """
    hashes = {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
    sha256 = hashes.pop(name)
    return {
        "reference": f"{name}:{attribute}", "file": name, "attribute": attribute, "sha256": sha256, "modules": hashes
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_examples_resume_elsewhere_after_a_kill(repository, tmp_path):
    here, elsewhere, examples = tmp_path / "here", tmp_path / "elsewhere", repository / "examples"
    here.mkdir()
    elsewhere.mkdir()
    shutil.copy(examples / "own_space.py", here)
    shutil.copy(examples / "own_metric.py", here)
    (here / "my_space.py").write_text("from own_space import ResidualSpace\n")
    process = start(
        "search", "hnas", "--space", "my_space.py:ResidualSpace", "--proxy", "own_metric.py:grad_sign",
        "--preset", "smoke", "--pool-size", "6", "--budget", "2", "--random", "1", "--final-epochs", "1",
        "--max-concurrent", "1", "--set", "resources.actors=1", "--set", "pool.chunk=1",
        "--set", "cluster.dashboard=false", "--out", "run", cwd=here,
    )  # fmt: skip
    run = here / "run"
    kill_when(process, lambda: list(run.glob("pool/shards/part-*.parquet")), here)

    # The copies in the run count.
    my_space = (here / "my_space.py").read_bytes()
    (here / "my_space.py").unlink()
    (here / "own_space.py").write_text("raise AssertionError('the copy in the run counts')\n")
    (here / "own_metric.py").write_text("def grad_sign(network, images, labels):\n    return 1.0\n")
    finish("resume", str(run), cwd=elsewhere)

    kept = json.loads((run / "manifest.json").read_text())["references"]
    copies = {
        "space": {"my_space.py": my_space, "own_space.py": (examples / "own_space.py").read_bytes()},
        "proxy-grad_sign": {"own_metric.py": (examples / "own_metric.py").read_bytes()},
    }
    assert kept == {
        "space": reference("my_space.py", "ResidualSpace", copies["space"]),
        "proxy-grad_sign": reference("own_metric.py", "grad_sign", copies["proxy-grad_sign"]),
    }
    for role, files in copies.items():
        assert {file.name: file.read_bytes() for file in (run / "code" / role).iterdir()} == files
    own_space = f"{run}/code/space/my_space.py:ResidualSpace"
    found, space = json.loads((run / "search" / "architecture.json").read_text())["architecture"], get_space(own_space)
    assert space.encode(space.decode(found)) == found
    trials = pd.read_parquet(run / "trials.parquet")
    assert trials["failure"].isna().all() and len(trials) == 2 + 1 + 1

    pool = pd.read_parquet(run / "pool" / "pool.parquet")
    assert {"kappa", "grad_sign"} <= set(pool.columns) and "ntk_trace" not in pool
    scored = expected_values(pool["architecture"], own_space, f"{examples}/own_metric.py:grad_sign")
    np.testing.assert_allclose(pool["grad_sign"], scored, rtol=1e-3)  # signs of zeros depend on the threads
    assert pool["grad_sign"].nunique() > 3
    assert json.loads((run / "search" / "objective.json").read_text())["proxy"] == "grad_sign"
    assert found in set(pool["architecture"])
    assert "grad_sign" in (run / "report.html").read_text()

    # An export includes the file of the space.
    archray.export(run, elsewhere / "export")
    message = subprocess.run(
        [sys.executable, "-c", "import load_model; print(load_model.build_model())"],
        cwd=elsewhere / "export",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert message.returncode == 0 and "Sequential" in message.stdout, message.stderr


@pytest.mark.slow
def test_a_metric_works_next_to_one_that_fails(repository, tmp_path):
    example = tmp_path / "own_metric.py"
    source = (repository / "examples" / "own_metric.py").read_bytes()
    example.write_bytes(source + b"\n\ndef fails(network, images, labels):\n    return {}['no such key']\n")
    subprocess.run([sys.executable, "-c", PROXIES], cwd=tmp_path, check=True, timeout=300)
    table = pd.read_parquet(tmp_path / "pool.parquet")
    assert list(table.columns) == [
        "architecture", "snip", "grad_sign", "fails", "failure", "seconds", "parameters", "device",
    ]  # fmt: skip
    scored = expected_values(table["architecture"], "nasbench201", f"{repository}/examples/own_metric.py:grad_sign")
    np.testing.assert_allclose(table["grad_sign"], scored, rtol=1e-3)
    assert table["fails"].isna().all()
    message = (
        r"fails: '[\w.]+:fails' failed when archray called it: KeyError: 'no such key' \(.*own_metric.*, line \d+\)"
    )
    assert table["failure"].str.match(message).all(), list(table["failure"])
    assert not (tmp_path / "pool.parquet.parts").exists()


def expected_values(architectures, space, metric):
    """Computes the metric directly, on the batch and the networks of the preset `smoke`."""
    data = load_images(DataSettings())
    settings = ProxySettings()
    images, labels = proxy_batch(data, 16, settings.seed, settings.augment)
    function = get_proxy(metric).function
    values = []
    for architecture in architectures:
        network = build(
            space,
            architecture,
            network=NetworkSettings(channels=4, cells=1),
            in_channels=data.in_channels,
            num_classes=data.num_classes,
            seed=settings.seed,
            for_scoring=True,
        )
        values.append(function(network, torch.clone(images), labels))
    return values


NOTEBOOK = """
from torch import nn
import archray
from archray import Choice, ModelSpace
from own_blocks import conv

def make(kernels):
    def network(in_channels, num_classes):
        layer = Choice({str(k): conv(in_channels, k) for k in kernels}, name="layer")
        return nn.Sequential(layer, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, num_classes))
    return network

space = ModelSpace(make((1, 3, 5, 7)), constraint=lambda chosen: chosen["layer"] != "7", name="mine")
cluster = {"cluster__num_cpus": 1, "cluster__num_gpus": 0, "cluster__dashboard": False}
result = archray.search(
    "random", space=SPACE, data="digits", preset="smoke", budget=1, random=0, data__limit=60, out="run", **cluster
)
print(result.architecture)
"""
ELSEWHERE = """
import sys
import archray

if __name__ == "__main__":
    result = archray.resume(sys.argv[1], budget=3)
    assert result.trials["failure"].isna().all() and (result.trials["stage"] == "search").sum() == 3
    assert not (result.trials["architecture"] == "layer=7").any()
    print(archray.load(sys.argv[1]).model()[0])
    archray.export(sys.argv[1], "export", formats="state-dict")
"""


@pytest.mark.slow
@pytest.mark.parametrize("space", ["make((1, 3, 5))", "space"])
def test_a_model_of_a_notebook_resumes_elsewhere(tmp_path, space):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    blocks = "from torch import nn\n\ndef conv(channels, k):\n    return nn.Conv2d(channels, 4, k, padding=k // 2)\n"
    (here / "own_blocks.py").write_text(blocks)
    run([sys.executable, "-c", NOTEBOOK.replace("SPACE", space)], here)
    (here / "own_blocks.py").unlink()
    (elsewhere / "go_on.py").write_text(ELSEWHERE)
    assert "Conv2d" in run([sys.executable, "go_on.py", str(here / "run")], elsewhere)
    loaded = run([sys.executable, "-c", "import load_model; print(load_model.build_model())"], elsewhere / "export")
    assert "Sequential" in loaded


OBJECTS = """
import numpy as np
from torch import nn
import archray
from archray import Choice, Width
from archray.trainables.data.dataset import make_dataset
from archray.trainables.data.raw import RawData

width = Width([4, 6, 8], name="width")
layer = Choice({"same": nn.Identity(), "conv": nn.Conv2d(width, width, 1)}, name="layer")
model = nn.Sequential(
    nn.Conv2d(1, width, 3, padding=1), layer, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 3)
)
labels = np.arange(150) % 3

def bright(settings):
    images = np.random.default_rng(0).normal(labels[:, None, None, None], 1, (150, 1, 6, 6))
    return make_dataset(RawData(train=(images.astype(np.float32), labels), num_classes=3), settings)

def outputs(network, images, labels):
    return network(images).abs().mean().item()

def watts(network, image_shape):
    return sum(p.numel() for p in network.parameters()) / 1000

cluster = {"cluster__num_cpus": 1, "cluster__num_gpus": 0, "cluster__dashboard": False}
archray.search(
    "rank-surrogate", space=model, data=bright, proxies=["snip", outputs], cost=watts, constraint="watts < 0.1",
    preset="smoke", budget=1, random=0, out="run", **cluster
)
"""
OBJECTS_ELSEWHERE = """
import sys
import archray
import pandas

if __name__ == "__main__":
    result = archray.resume(sys.argv[1], budget=2)
    assert result.trials["failure"].isna().all() and (result.trials["stage"] == "search").sum() == 2
    pool = pandas.read_parquet(sys.argv[1] + "/pool/pool.parquet")
    assert pool["outputs"].notna().all() and (pool["watts"] < 0.1).all()
    print(archray.load(sys.argv[1]).costs["watts"])
"""


@pytest.mark.slow
def test_functions_and_a_model_of_a_notebook_resume_elsewhere(tmp_path):
    run([sys.executable, "-c", OBJECTS], tmp_path)
    (tmp_path / "go_on.py").write_text(OBJECTS_ELSEWHERE)
    (tmp_path / "elsewhere").mkdir()
    printed = run([sys.executable, "../go_on.py", str(tmp_path / "run")], tmp_path / "elsewhere")
    assert float(printed.splitlines()[-1]) < 0.1


def run(command, folder):
    """Runs a program in a folder; returns its output."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
