"""Searches over a model with choices, as a user sees them: check, methods, exports, a kill, and two nodes."""

import runpy
import subprocess
import sys

import pytest
import torch
from archray_test_command import finish, kill_when, logged, outputs_without_archray, start
from archray_test_faults import results_of_run
from archray_test_models import run_of_network
from archray_test_runs import ONE_AT_A_TIME
from typer.testing import CliRunner

import archray
from archray.errors import InvalidInput
from archray.platform.cli import application
from archray.platform.models.model_files import load_model
from archray.platform.report.cell import cell_section
from archray.trainables.data import load_images
from archray.trainables.spaces import get_space

SMALL = {"preset": "smoke", "data": "digits", "data__limit": 200, **ONE_AT_A_TIME}


@pytest.fixture
def space(repository):
    return f"{repository}/examples/own_model.py:network"


def check(*arguments, exit_code=0):
    result = CliRunner().invoke(application(["check"]), ["check", *arguments], env={"COLUMNS": "400"})
    assert result.exit_code == exit_code, result.exception
    return result.output


def test_check_prints_decisions_sizes_and_methods(space):
    printed = check(space, "--image-size", "8", "--in-channels", "1")
    assert "own_model.py:network: 972 architectures, 6 decisions" in printed
    assert "│ width    │ 16, 24, 32" in printed and "│ block3   │ conv3, conv5, skip" in printed
    smallest, largest = 16 * 10 + 170, 32 * 10 + 4 * (25 * 32 * 32 + 64) + 330  # stem, blocks, classifier
    assert f"parameters: {smallest:,} to {largest:,} in " in printed
    methods = next(line for line in printed.splitlines() if line.startswith("methods: "))
    assert {"random", "hnas", "gaea-darts", "rs-ws", "nesbs", "sliced-supernet"} <= set(methods[9:].split(", "))
    assert (
        "not gaea-pc-darts, pc-darts: Choice 'block0': Expected alternatives that are functions of channels" in printed
    )
    assert "not nasi: Width 'width': Expected a method that trains or mixes widths" in printed
    assert "Width 'width': Supernets normalize by the statistics of the batch" in printed


UNEQUAL = """
from torch import nn
from archray import Width

class Sum(nn.Module):
    def __init__(self, *widths):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(1, width, 1) for width in widths)

    def forward(self, x):
        return sum(conv(x) for conv in self.convs)

def network(in_channels, num_classes):
    widths = [Width([4, 8], name=name) for name in "ab"]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[0], num_classes)]
    return nn.Sequential(Sum(*widths), *head)
"""


def test_check_counts_networks_that_cannot_run(tmp_path):
    (tmp_path / "unequal.py").write_text(UNEQUAL)
    printed = check(f"{tmp_path}/unequal.py:network", "--image-size", "8", "--in-channels", "1", exit_code=1)
    assert "the metric naswot fails: expected a network with nn.ReLU modules" in printed and "snip fails" not in printed
    assert "2 of 4 sampled architectures cannot run. The first error:\nSum (0): 'the network a=8|b=4 of " in printed
    assert "parameters: 66 to 122 in 2 sampled architectures" in printed


ALLOWED = """
from torch import nn
from archray import Choice, ModelSpace

def network(in_channels, num_classes, channels=8):
    layer = Choice({"conv": nn.Conv2d(channels, channels, 3), "other": OTHER}, name="layer")
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes)]
    return nn.Sequential(nn.Conv2d(in_channels, channels, 1), layer, *head)

nothing = ModelSpace(network, constraint=lambda chosen: False)
"""


def test_check_fails_if_the_default_network_or_all_networks_fail(tmp_path):
    pool, average = ALLOWED.replace("OTHER", "nn.MaxPool2d(2)"), ALLOWED.replace("OTHER", "nn.AvgPool2d(3, 1)")
    for text, name, options, message in (
        (pool, "network", (), "Choice 'layer': Expected outputs of one shape"),
        (average, "nothing", (), "Expected a constraint that some architectures meet"),
        (average, "network", ("--channels", "1000000"), "expected networks that fit in memory"),
    ):
        (tmp_path / "allowed.py").write_text(text)
        printed = check(f"{tmp_path}/allowed.py:{name}", "--image-size", "8", *options, exit_code=1)
        assert "The networks of the space cannot run:\n" in printed and message in printed


def test_check_serves_built_in_spaces():
    assert "15,625 architectures, 6 decisions" in check("nasbench201", "--channels", "4", "--cells", "1")
    assert "methods: fast-halving, halving" in check("fourier")


def test_a_method_that_cannot_search_the_model_names_the_choice_before_a_run(space, tmp_path):
    for method, message in (("nasi", "Width 'width'"), ("pc-darts", "Choice 'block0'")):
        with pytest.raises(InvalidInput, match=message):
            archray.search(method, space=space, out=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()


def test_the_report_lists_choices_with_the_parameters_that_alternatives_add(space, tmp_path):
    run = run_of_network(tmp_path / "run", space, decide={"train.lr": [0.01, 0.1]})
    found = "width=24|depth=2|block0=conv3|block1=skip|block2=conv3|block3=conv3"
    described = run.folder / "model"
    described.write_json("architecture.json", {**described.read_json("architecture.json"), "architecture": found})
    (run.folder / "search").write_json("architecture.json", {"architecture": f"{found};train.lr=0.1", "value": 0.5})
    table = cell_section(run).body
    conv5 = 24 * 24 * (25 - 9)
    assert f"conv5 (+{conv5:,})" in table and table.count("unused") == 2  # block2 and block3


def command(method, space):
    """A search with its own Ray, which sends the user's file to the workers."""
    options = ("--data", "digits", "--preset", "smoke", "--max-concurrent", "1", "--set", "data.limit=200")
    return ("search", method, "--space", space, *options, "--set", "cluster.dashboard=false")


def search(method, space, cwd, *options):
    finish(*command(method, space), *options, "--out", "run", cwd=cwd)
    return archray.load(cwd / "run")


METHODS = ("gdas", "enas", "rs-ws", "supernet-halving", "sliced-supernet", "random", "hnas", "nesbs")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("method", [pytest.param("gaea-darts", marks=pytest.mark.ci), *METHODS])
def test_a_whole_run(method, space, tmp_path):
    run = search(method, space, tmp_path)
    assert (run.architecture is None) == (method == "nesbs")  # an ensemble
    assert run.architecture is None or get_space(space).decode(run.architecture)
    assert "block0" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nasi_searches_nasbench201_with_choices(repository, tmp_path):
    reference = f"{repository}/examples/nasbench201_with_choices.py:network"
    assert get_space(reference).decode(search("nasi", reference, tmp_path).architecture)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_constraint_and_a_penalty_bound_a_model(space, tmp_path):
    options = ("--constraint", "parameters <= 20k", "--cost-weight", "1.0")
    network = search("gaea-darts", space, tmp_path, *options).model()
    assert sum(parameter.numel() for parameter in network.parameters()) <= 20_000


@pytest.mark.slow
@pytest.mark.parametrize("model", ["own_model.py:network", "existing_models.py:resnet18"])
def test_exports_run_without_archray(model, repository, tmp_path):
    run = run_of_network(tmp_path / "run", f"{repository}/examples/{model}")
    archray.export(run.folder.uri, tmp_path / "out", formats=["torch-export", "state-dict"])
    images = load_images(run.data).test.images[:7]
    torch.save(images, tmp_path / "out" / "images.pt")
    with torch.no_grad():
        expected = load_model(run)(images)
    torch.testing.assert_close(outputs_without_archray(tmp_path / "out", images), expected)


@pytest.mark.slow
@pytest.mark.extra("export")
@pytest.mark.parametrize(
    "model", ["own_model.py:network", "existing_models.py:resnet18", "existing_models.py:mobilenet_v3_small"]
)
def test_onnx(model, repository, tmp_path):
    run = run_of_network(tmp_path / "run", f"{repository}/examples/{model}")
    archray.export(run.folder.uri, tmp_path / "out", formats="onnx")
    load = runpy.run_path(str(tmp_path / "out" / "load_model.py"))["load_onnx"]
    images = load_images(run.data).test.images[:5]
    with torch.no_grad():
        torch.testing.assert_close(torch.as_tensor(load()(images.numpy())), load_model(run)(images), atol=1e-4, rtol=0)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_search_of_a_model_resumes(space, tmp_path):
    arguments = command("gaea-darts", space)
    finish(*arguments, "--out", "undisturbed", cwd=tmp_path)
    run = tmp_path / "killed"
    process = start(*arguments, "--out", "killed", cwd=tmp_path)
    kill_when(process, lambda: logged(run / "search", "result"), tmp_path)
    finish("resume", "killed", cwd=tmp_path)
    assert results_of_run(run) == results_of_run(tmp_path / "undisturbed")


TWO_NODES = """
import sys
from ray.cluster_utils import Cluster
import archray
small = {"num_gpus": 0, "object_store_memory": 100 * 2**20}
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **small})
cluster.add_node(num_cpus=1, **small)
cluster.wait_for_nodes()
options = {"address": cluster.address, "max_concurrent": 2}
run = archray.search("rs-ws", space=sys.argv[1], data="digits", preset="smoke", out=sys.argv[2], **options)
print(run.architecture)
cluster.shutdown()
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_search_of_a_model_on_two_nodes(space, tmp_path):
    program = [sys.executable, "-c", TWO_NODES, space, str(tmp_path / "run")]
    printed = subprocess.run(program, check=True, timeout=500, capture_output=True, text=True).stdout
    assert get_space(space).decode(printed.splitlines()[-1])
