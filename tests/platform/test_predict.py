"""`archray predict`: classes of files and arrays from the model of a run or an export, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from archray_test_models import a_run, run_of_ensemble, run_of_map, run_of_network
from PIL import Image
from typer.testing import CliRunner

import archray
from archray.errors import InvalidInput, RunFolderError
from archray.platform.cli import application
from archray.platform.models.model_files import load_model
from archray.platform.run.run import Run
from archray.platform.run_result import RunResult
from archray.trainables.data import load_images


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run[Any]:
    return run_of_network(tmp_path_factory.mktemp("predict") / "run", "nasbench201")


def bytes_of(images: torch.Tensor, run: Run[Any]) -> np.ndarray:
    """Returns normalized digits as 8-bit images of shape (n, 8, 8)."""
    form = load_images(run.data).form
    assert form is not None and form.mean and form.std
    return ((images[:, 0] * form.std[0] + form.mean[0]) * 255).round().to(torch.uint8).numpy()


@pytest.fixture
def pictures(run: Run[Any], tmp_path: Path) -> Path:
    """A folder with the first five test images, one of them in a subfolder, and one file that is no image."""
    folder = tmp_path / "pictures"
    (folder / "more").mkdir(parents=True)
    for number, pixels in enumerate(bytes_of(load_images(run.data).test.images[:5], run)):
        Image.fromarray(pixels).save(folder / ("more" if number == 4 else "") / f"{number}.png")
    (folder / "notes.txt").write_text("no picture")
    return folder


def printed_classes(run: Run[Any], images: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return load_model(run)(images).softmax(1)


def test_files_and_folders_with_the_model_of_a_run(run: Run[Any], pictures: Path) -> None:
    table = archray.predict(run.folder.uri, pictures)
    assert table["image"].tolist() == [
        str(pictures / name) for name in ("0.png", "1.png", "2.png", "3.png", "more/4.png")
    ]
    expected = printed_classes(run, load_images(run.data).test.images[:5])
    np.testing.assert_allclose(table["probability"], expected.amax(1), atol=0.01)  # 16 shades of 256
    one = archray.predict(run.folder.uri, [pictures / "0.png", str(pictures / "more")])
    assert one["image"].tolist() == [str(pictures / "0.png"), str(pictures / "more" / "4.png")]
    assert list(table.columns) == ["image", "rank", "class", "label", "probability"]


def test_arrays_and_tensors_in_python(run: Run[Any]) -> None:
    images = load_images(run.data).test.images[:7]
    expected = printed_classes(run, images)
    result = RunResult(run.folder.uri, "", None)
    normalized = result.predict(images, normalized=True, top=3)
    assert normalized["image"].tolist() == [number for number in range(7) for _ in range(3)]
    assert normalized["rank"].tolist() == [1, 2, 3] * 7
    np.testing.assert_allclose(normalized["probability"], expected.topk(3).values.flatten(), rtol=1e-5)
    assert normalized["label"].tolist() == expected.topk(3).indices.flatten().tolist()
    form = load_images(run.data).form
    assert form is not None and form.mean and form.std
    raw = images * form.std[0] + form.mean[0]
    for given in (raw, raw.numpy(), raw[:, 0], raw.permute(0, 2, 3, 1)):
        np.testing.assert_allclose(result.predict(given)["probability"], expected.amax(1), rtol=1e-4)
    np.testing.assert_allclose(result.predict(bytes_of(images, run))["probability"], expected.amax(1), atol=0.01)


def test_an_export_predicts_the_same_as_its_run(run: Run[Any], tmp_path: Path) -> None:
    images = load_images(run.data).test.images[:7]
    expected = archray.predict(run.folder.uri, images, normalized=True)
    archray.export(run.folder.uri, tmp_path / "out", formats=["state-dict", "safetensors", "python"])
    for name in ("state-dict", "safetensors", "python", None):
        table = archray.predict(tmp_path / "out", images, normalized=True, export_format=name)
        np.testing.assert_allclose(table["probability"], expected["probability"], rtol=1e-5)
    with pytest.raises(InvalidInput, match=r"expected a format .*state-dict, safetensors, python.*, got 'onnx'"):
        archray.predict(tmp_path / "out", images, normalized=True, export_format="onnx")


def test_an_ensemble_returns_probabilities_and_a_feature_map_decision_values(tmp_path: Path) -> None:
    ensemble, mapped = (
        run_of_ensemble(tmp_path / "ensemble", "nasbench201", [0, 1]),
        run_of_map(tmp_path / "map", "kernel=gaussian|preprocess=normalize|gamma=0.5"),
    )
    images = load_images(mapped.data).test.images[:7]
    with torch.no_grad():
        averaged = archray.predict(ensemble.folder.uri, images, normalized=True, top=10).groupby("image")["probability"]
        np.testing.assert_allclose(averaged.sum(), 1, atol=1e-5)
        values = load_model(mapped)(images)
    archray.export(mapped.folder.uri, tmp_path / "out", formats="state-dict")
    for place in (mapped.folder.uri, tmp_path / "out"):
        table = archray.predict(place, images, normalized=True)
        assert table["label"].tolist() == values.argmax(1).tolist() and "probability" not in table
        np.testing.assert_allclose(table["decision_value"], values.amax(1), atol=1e-5)


def test_the_command(run: Run[Any], pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    arguments = ["predict", run.folder.uri, str(pictures / "0.png"), "--top", "2"]
    printed = CliRunner().invoke(application(arguments), arguments)
    assert printed.exit_code == 0, printed.output
    header, first, second = printed.output.splitlines()
    assert header.split() == ["image", "class", "probability"] and first.split()[0] == str(pictures / "0.png")
    assert len(second.split()) == 2
    answer = CliRunner().invoke(application(arguments), [*arguments, "--json"])
    rows = json.loads(answer.output)
    assert [row["rank"] for row in rows] == [1, 2] and rows[0]["probability"] == pytest.approx(
        float(first.split()[2]), abs=1e-4
    )


def test_bad_input_raises_an_error(run: Run[Any], tmp_path: Path) -> None:
    place = run.folder.uri
    (tmp_path / "notes.png").write_text("no picture")
    (tmp_path / "empty").mkdir()
    for images, message in (
        (tmp_path / "notes.png", "notes.png as an image"),
        (tmp_path / "empty", "expected images .* got none"),
        ("absent.png", r"expected an image file at absent\.png"),
        (np.zeros((2, 3, 8, 8)), r"expected images with 1 channel, .*got \(2, 3, 8, 8\)"),
        ([], "expected images with 1 channel"),
    ):
        with pytest.raises(InvalidInput, match=message):
            archray.predict(place, images)
    with pytest.raises(InvalidInput, match=r"top: expected 1 to 10, .*got 11"):
        archray.predict(place, np.zeros((1, 8, 8)), top=11)
    with pytest.raises(InvalidInput, match="expected no format with a run"):
        archray.predict(place, np.zeros((1, 8, 8)), export_format="onnx")
    with pytest.raises(RunFolderError, match="expected the folder of a run or an export"):
        archray.predict(tmp_path, np.zeros((1, 8, 8)))
    a_run(tmp_path / "unfinished", "nasbench201")
    with pytest.raises(RunFolderError, match="contains no trained network yet"):
        archray.predict(tmp_path / "unfinished", np.zeros((1, 8, 8)))


def test_a_feature_map_for_texts_rejects_images(tmp_path: Path) -> None:
    unfinished = a_run(tmp_path / "run", "ngrams", "halving", data="docstrings", data__limit=60)
    described = {"kind": "feature map", "architecture": "", "input": None, "classes": [], "num_classes": 5}
    described |= {"test_accuracy": 0.5, "data": "docstrings"}
    (unfinished.folder / "model").write_json("architecture.json", described)
    with pytest.raises(InvalidInput, match="expected a model of images, got a feature map of texts"):
        archray.predict(unfinished.folder.uri, np.zeros((1, 8, 8)))
