"""An exported model computes the same outputs as the model of the run, for every space, kind and format, also without
archray.
"""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from archray_test_models import SMALL, a_run, bare_python, run_bare, run_of_ensemble, run_of_map, run_of_network

import archray
from archray.errors import InvalidInput, MissingExtra, RunFolderError, UnknownName
from archray.files import Folder
from archray.platform.models.formats import FORMATS
from archray.platform.models.model_files import STATE_DICT, load_model
from archray.platform.run.heartbeat import lock, start_of
from archray.platform.run.layout import HEARTBEAT
from archray.platform.run.run import Run
from archray.trainables.data import load_images
from archray.trainables.nets import exported_program

ALWAYS = ["torch-export", "state-dict", "safetensors", "python"]
TOLERANCE = 1e-4
USER_SPACE = """
from torch import nn
from archray.trainables.spaces import Decision, Space

class Own(Space):
    name = "own"
    decisions = (Decision("width", ("4", "8")),)

    def build(self, architecture, *, in_channels, num_classes):
        width = int(architecture[0])
        layers = nn.Conv2d(in_channels, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        return nn.Sequential(*layers, nn.Linear(width, num_classes))
"""
GAMMA = "kernel=gaussian|preprocess=normalize|gamma=0.5"
KINDS = [
    "nasbench201",
    "darts",
    "darts-none",
    "nasbench1shot1-1",
    "nasbench1shot1-2",
    "nasbench1shot1-3",
    "vit",
    "a space of the user",
    "ensemble (nasbench201)",
    "ensemble (darts, logits)",
    "fourier",
]
ONNX_IN_CI = ("nasbench201", "ensemble (darts, logits)", "fourier")
QUICK = ["fourier"]  # test_search.py covers nasbench201; the graphs of the others take seconds each


def make_run(kind: str, place: Path) -> Run[Any]:
    """A run with a model of this kind."""
    if kind == "fourier":
        return run_of_map(place, GAMMA)
    if kind == "ensemble (nasbench201)":
        return run_of_ensemble(place, "nasbench201", [0, 1])
    if kind == "ensemble (darts, logits)":
        return run_of_ensemble(place, "darts", [0, 1], average="logits")
    if kind == "a space of the user":
        file = place.parent / "own_space.py"
        file.write_text(USER_SPACE)
        return run_of_network(place, f"{file}:Own", network={})
    return run_of_network(place, kind, network=SMALL)


def difference(run: Run[Any], loader: Any) -> float:
    """Returns the largest difference between an exported model and the model of the run, for 1 image and for 7."""
    model, own = loader(), load_model(run)
    worst = 0.0
    for n in (1, 7):
        images = load_images(run.data).test.images[:n]
        with torch.no_grad():
            given = images.numpy() if loader.__name__ == "load_onnx" else images
            worst = max(worst, float((torch.as_tensor(model(given)) - own(images)).abs().max()))
    return worst


def differences(kind: str, formats: list[str], place: Path) -> dict[str, float]:
    run = make_run(kind, place / "run")
    archray.export(run.folder.uri, place / "out", formats=formats)
    loaders = runpy.run_path(str(place / "out" / "load_model.py"))
    worst = {name: difference(run, loaders[FORMATS.get(name).function]) for name in formats}
    print(f"| {kind} |", " | ".join(f"{name} {worst[name]:.1e}" for name in formats))
    return worst


@pytest.mark.parametrize(
    "kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_every_kind_in_the_formats_without_an_extra(kind: str, tmp_path: Path) -> None:
    formats = [name for name in ALWAYS if name != "python" or kind != "a space of the user"]
    assert max(differences(kind, formats, tmp_path).values()) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.ci] * (k in ONNX_IN_CI)) for k in KINDS])
@pytest.mark.extra("export")
def test_onnx_of_every_kind(kind: str, tmp_path: Path) -> None:
    assert differences(kind, ["onnx"], tmp_path)["onnx"] < TOLERANCE


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.extra("export")
def test_int8_onnx_and_its_loss_of_accuracy(tmp_path: Path) -> None:
    run = run_of_map(tmp_path / "run", GAMMA)
    archray.export(run.folder.uri, tmp_path / "out", formats="onnx", int8=True)
    int8 = json.loads((tmp_path / "out" / "model.json").read_text())["int8"]
    data = load_images(run.data)
    rough = runpy.run_path(str(tmp_path / "out" / "load_model.py"))["load_onnx"]("model-int8.onnx")
    accuracy = (rough(data.test.images.numpy()).argmax(1) == data.test.labels.numpy()).mean()
    own = (load_model(run).predict(data.test.images) == data.test.labels).double().mean()
    assert int8["test_accuracy"] == pytest.approx(accuracy) and int8["float_test_accuracy"] == pytest.approx(float(own))
    assert int8["accuracy_cost"] == pytest.approx(float(own) - accuracy)
    assert int8["test_images"] == len(data.test) and int8["calibration_images"] == len(data.train)
    predicted = archray.predict(tmp_path / "out", data.test.images[:9], normalized=True, export_format="int8")
    assert predicted["label"].tolist() == rough(data.test.images[:9].numpy()).argmax(1).tolist()


# Environments without archray

CODE = """
import json, sys
try:
    import archray
except ImportError:
    pass
else:
    raise SystemExit("archray is here")
sys.path.insert(0, "out")
import load_model
"""


@pytest.mark.slow
@pytest.mark.ci
def test_it_loads_with_torch_alone(tmp_path: Path) -> None:
    run = run_of_network(tmp_path / "run", "nasbench201")
    archray.export(run.folder.uri, tmp_path / "out", formats=["torch-export", "python"])
    images = load_images(run.data).test.images[:3]
    torch.save(images, tmp_path / "images.pt")
    code = CODE + (
        "import torch\nimages = torch.load('images.pt')\n"
        "torch.save([load_model.load_torch_export()(images), load_model.load_python()(images)], 'outputs.pt')\n"
        "assert 'numpy' not in sys.modules"
    )
    ended = run_bare(code, tmp_path, bare_python(tmp_path, "torch"))
    assert ended.returncode == 0, ended.stderr
    for outputs in torch.load(tmp_path / "outputs.pt"):
        torch.testing.assert_close(outputs, load_model(run)(images))


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.extra("export")
def test_it_loads_with_onnxruntime_alone(tmp_path: Path) -> None:
    run = run_of_ensemble(tmp_path / "run", "nasbench201", [0, 1])
    archray.export(run.folder.uri, tmp_path / "out", formats="onnx", int8=True)
    images = load_images(run.data).test.images[:7]
    np.save(tmp_path / "images.npy", images.numpy())
    code = CODE + (
        "import numpy as np\nimages = np.load('images.npy')\n"
        "np.save('one.npy', load_model.load_model()(images[:1]))\n"
        "np.save('seven.npy', load_model.load_model()(images))\n"
        "np.save('int8.npy', load_model.load_onnx('model-int8.onnx')(images))\n"
        "assert 'torch' not in sys.modules"
    )
    ended = run_bare(code, tmp_path, bare_python(tmp_path, "onnxruntime", "numpy"))
    assert ended.returncode == 0, ended.stderr
    expected = load_model(run)(images).detach().numpy()
    np.testing.assert_allclose(np.load(tmp_path / "one.npy"), expected[:1], atol=TOLERANCE)
    np.testing.assert_allclose(np.load(tmp_path / "seven.npy"), expected, atol=TOLERANCE)
    assert np.load(tmp_path / "int8.npy").shape == expected.shape


# Folder


def test_the_folder_describes_the_model(tmp_path: Path) -> None:
    run = run_of_network(tmp_path / "run", "nasbench201")
    files = archray.export(run.folder.uri, formats=["python", "safetensors", "python"])
    out = tmp_path / "run" / "export"
    names = ["README.md", "load_model.py", "model.json", "model.safetensors", "network.py", "state_dict.pt"]
    assert files == [str(out / name) for name in names]
    card = json.loads((out / "model.json").read_text())
    assert card["formats"] == {
        "python": ["network.py", "state_dict.pt"], "safetensors": ["model.safetensors", "network.py"]
    }  # fmt: skip
    assert card["kind"] == "network" and card["archray"] == archray.__version__ and card["output"] == "logits"
    assert card["input"]["channels"] == 1 and card["input"]["size"] == 8 and card["classes"] == list("0123456789")
    readme = (out / "README.md").read_text()
    assert card["architecture"] in readme and "load_python()" in readme and "test accuracy 0.5000" in readme
    loaders = runpy.run_path(str(out / "load_model.py"))
    data = load_images(run.data)
    raw = data.test.images * card["input"]["std"][0] + card["input"]["mean"][0]
    torch.testing.assert_close(loaders["normalize"](raw), data.test.images)
    np.testing.assert_allclose(loaders["normalize"](raw.numpy()), data.test.images, atol=1e-5)


def test_a_missing_extra_raises_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_of_network(tmp_path / "run", "nasbench201")
    monkeypatch.setattr(exported_program, "ONNX_PACKAGES", ("onnx", "no_such_package"))
    with pytest.raises(MissingExtra, match=r"cannot import .*no_such_package.*pip install '\.\[export\]'"):
        archray.export(tmp_path / "run", tmp_path / "out", formats=["python", "onnx"])
    assert not (tmp_path / "out").exists()


def test_an_export_can_be_repeated(tmp_path: Path) -> None:
    for seed in (0, 1):
        torch.manual_seed(seed)
        run_of_network(tmp_path / f"run-{seed}", "nasbench201")
    out = tmp_path / "out"
    first = archray.export(tmp_path / "run-0", out, formats="state-dict")
    (out / "README.md").write_text("changed")
    assert archray.export(tmp_path / "run-0", out, formats="state-dict") == first
    assert (out / "README.md").read_text() != "changed"
    archray.export(tmp_path / "run-0", out, formats=["state-dict", "python"])
    with pytest.raises(RunFolderError, match="Choose another --to"):  # files of the other format would remain
        archray.export(tmp_path / "run-0", out, formats="state-dict")
    state = tmp_path / "run-1" / "model" / STATE_DICT
    content = torch.load(state, weights_only=True)
    torch.save({name: value + 1 for name, value in content.items()}, state)
    with pytest.raises(RunFolderError, match=r"not empty\. Choose another --to"):
        archray.export(tmp_path / "run-1", out, formats=["state-dict", "python"])


def test_bad_input_raises_an_error(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run_of_network(run, "nasbench201")
    with pytest.raises(UnknownName, match="did you mean 'torch-export'"):
        archray.export(run, tmp_path / "out", formats="torchexport")
    with pytest.raises(InvalidInput, match=r"expected the format onnx for --int8, got python\. Add --format onnx"):
        archray.export(run, tmp_path / "out", formats="python", int8=True)
    with pytest.raises(InvalidInput, match=r"expected at least one format of .*, got none"):
        archray.export(run, tmp_path / "out", formats=[])
    assert not (tmp_path / "out").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match=r"not empty\. Choose another --to"):
        archray.export(run, tmp_path / "full", formats="python")
    a_run(tmp_path / "unfinished", "nasbench201")
    with pytest.raises(RunFolderError, match=r"no trained network yet\. Finish it with: archray resume"):
        archray.export(tmp_path / "unfinished", tmp_path / "out")
    with lock(Folder(tmp_path / "unfinished"), "archray search"):
        beat = json.loads((tmp_path / "unfinished" / HEARTBEAT).read_text())
    other = {**beat, "pid": os.getppid(), "started": start_of(os.getppid())}
    (tmp_path / "unfinished" / HEARTBEAT).write_text(json.dumps(other))
    with pytest.raises(RunFolderError, match="It is running; follow it with: archray watch"):
        archray.export(tmp_path / "unfinished", tmp_path / "out")


@pytest.mark.extra("export")
def test_a_model_that_draws_paths_has_no_onnx_graph(tmp_path: Path) -> None:
    run_of_ensemble(tmp_path / "run", "darts", [0], drop_path={"probability": 0.1, "seed": 0})
    with pytest.raises(InvalidInput, match="got a model of mc-droppath"):
        archray.export(tmp_path / "run", tmp_path / "out", formats="onnx")
