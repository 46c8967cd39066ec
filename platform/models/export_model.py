"""Export of a run's trained model to a folder: files of the formats, `model.json`, a loader, a README."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import archray
from archray.errors import DamagedFile, InvalidInput, MissingExtra, RunFolderError, install_command
from archray.files import Folder
from archray.platform.models.formats import FORMATS, ONNX_FILE, Portable, Predict, onnx_prediction
from archray.platform.models.model_files import load_model, trained
from archray.platform.models.rebuilt_model import FEATURE_MAP, MODEL_CARD, NETWORK, SPACE, space_files
from archray.platform.run.heartbeat import lock
from archray.platform.run.layout import CODE, HEARTBEAT
from archray.platform.run.manifest import digest
from archray.platform.run.run import Run, reject_existing
from archray.platform.run.trust import SIGNATURE, signature, signed_part
from archray.plurals import count
from archray.trainables.checkpoint import STATE_FILE
from archray.trainables.data import load_images
from archray.trainables.data.dataset import Dataset, Split
from archray.trainables.ensembles.ensemble import KIND as ENSEMBLE
from archray.trainables.feature_maps.classifier import FourierClassifier
from archray.trainables.nets.exported_program import IMAGES
from archray.trainables.spaces import is_custom_space

LOADER, README = "load_model.py", "README.md"
DEFAULT = ("torch-export", "state-dict")
INT8_FILE = "model-int8.onnx"
CALIBRATION = 512  # number of training images that calibrate the ranges of activations
BATCH = 64
# The quantized operations. Normalizations that no convolution absorbs, and operations after the logits, stay float32.
QUANTIZED = ("Conv", "Gemm", "MatMul", "Add", "Concat", "Relu", "MaxPool", "AveragePool", "GlobalAveragePool")
OUTPUTS = {NETWORK: "logits", ENSEMBLE: "probabilities", FEATURE_MAP: "decision values"}


def export_model(
    run: Run[Any],
    to: Folder,
    formats: Sequence[str] | None = None,
    *,
    int8: bool = False,
    member: int | None = None,
) -> list[str]:
    """Writes the run's model in one or more formats, with `model.json`, `load_model.py` and `README.md`.

    With several repeats, the function exports the best repeat by validation accuracy. It writes no file before all
    contents are complete.

    Args:
        to: new or empty folder, or a folder with the same export, which is rewritten.
        formats: names of FORMATS; None: torch-export and state-dict, or only state-dict for a feature map of texts.
        int8: whether to add an int8 ONNX graph, calibrated on the run's training images, with its test accuracy.
        member: number, from 1, of a member of the Pareto set; None: the most accurate.

    Returns: names of the files.
    Raises: RunFolderError if the run has no trained model yet, or `to` has other content; UnknownName for a format;
    MissingExtra; InvalidInput for a model that a format cannot represent, or an unknown member.
    """
    names = _checked(formats, int8)
    best, source, _ = trained(run, member)
    again = _holds_export(to, source)
    if not again:
        reject_existing(to, "--to")
    model, run = portable(run, member), best
    if formats is None and model.module is None:
        names = ["state-dict"]
    contents: dict[str, bytes] = {}
    files = {}
    for name in names:
        written = FORMATS.get(name).write(model)
        contents |= written
        files[name] = sorted(written)
    if int8:
        contents[INT8_FILE] = quantize(contents[ONNX_FILE], load_images(run.data).train)
        model.card["int8"] = int8_entry(contents[ONNX_FILE], contents[INT8_FILE], load_images(run.data))
    card = {**model.card, "formats": files}
    contents[LOADER] = loader_text(names, card).encode()
    contents[README] = readme_text(names, files, card).encode()
    with lock(to, "archray export"):
        others = {*to.files(), *to.folders()} - {HEARTBEAT, MODEL_CARD, *contents, SPACE}
        if again and others:
            names_of_others = ", ".join(sorted(others))
            raise RunFolderError(f"{to} contains another export of the run ({names_of_others}). Choose another --to")
        if not again:
            reject_existing(to, "--to")  # another export may have written to it meanwhile
        for name in space_files(card):
            to.write_bytes(name, (run.folder / CODE).read_bytes(name))
        for name, content in contents.items():
            to.write_bytes(name, content)
        card[SIGNATURE] = signature(signed_export(to, card))
        to.write_bytes(MODEL_CARD, (json.dumps(card, indent=2, ensure_ascii=False) + "\n").encode())  # marks completion
    return sorted({*to.files(), *space_files(card)})


def _holds_export(to: Folder, source: Folder) -> bool:
    """Returns whether a folder contains a complete export of the model in `source`, with the same weights."""
    if not to.exists(MODEL_CARD):
        return False
    try:
        card = to.read_json(MODEL_CARD)
    except DamagedFile:
        return False
    return bool(card.get("weights") == _weights(source))


def _weights(source: Folder) -> str:
    """Returns the identity of a model: a digest of the checksums of its files in the run."""
    return digest({name: source.sha256(name) for name in source.files()})


def signed_export(folder: Folder, card: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the signed part of an export: `model.json`, and the files that a format executes."""
    names = [*(FORMATS.get(name).code for name in FORMATS), *space_files(card)]
    files = [name for name in names if name is not None and folder.exists(name)]
    return signed_part(card, {name: folder.sha256(name) for name in files})


def code_of(name: str, card: Mapping[str, Any]) -> list[str]:
    """Returns the files and modules of an export, except archray's, that its format `name` executes."""
    if (code := FORMATS.get(name).code) is not None or name == "onnx":
        return [] if code is None else [code]
    if names := space_files(card):
        return names
    spaces = {entry.get("space", "") for entry in (card, *card.get("members", ()))}
    return sorted(space for space in spaces if is_custom_space(space))


def portable(run: Run[Any], member: int | None = None) -> Portable:
    """Loads the model of a run, and the entries of `model.json` that are independent of formats.

    Raises: the errors of `trained`.
    """
    model = load_model(run, member)
    run, folder, described = trained(run, member)
    kind = described.get("kind", NETWORK)
    reference = run.manifest["references"].get("space")
    card = {
        "kind": kind,
        **described,
        **({} if member is None else {"member": member}),
        "space_file": None if reference is None else f"{SPACE}/{reference['file']}",
        "space_modules": [] if reference is None else list(reference.get("modules", ())),
        "output": OUTPUTS[kind],
        "weights": _weights(folder),
        "archray": archray.__version__,
        "torch": torch.__version__,
    }
    if isinstance(model, FourierClassifier):
        model = model.network()
    if isinstance(model, torch.nn.Module):
        return Portable(card, model, run.space)
    return Portable(card, None, run.space, folder.read_bytes(STATE_FILE))


def _checked(formats: Sequence[str] | None, int8: bool) -> list[str]:
    """Returns the distinct formats. Raises: UnknownName; MissingExtra; InvalidInput for none, or int8 without onnx."""
    names = list(dict.fromkeys(DEFAULT if formats is None else formats))
    if not names:
        raise InvalidInput(f"expected at least one format of {', '.join(FORMATS)}, got none")
    for name in names:
        FORMATS.get(name).check()
    if int8 and "onnx" not in names:
        raise InvalidInput(f"expected the format onnx for --int8, got {', '.join(names)}. Add --format onnx")
    return names


# An int8 ONNX graph


def quantize(graph: bytes, train: Split) -> bytes:
    """Quantizes weights (per channel) and activations of a graph to 8 bits, by ONNX Runtime's static quantization.

    Up to CALIBRATION training images calibrate the activations. Inputs and outputs stay float32.

    Raises: MissingExtra without the quantization tools.
    """
    try:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process
    except ImportError as error:
        raise MissingExtra(
            f"int8 requires onnxruntime and onnx, which cannot be imported ({error}). Run {install_command('export')}"
        ) from error
    batches = train.in_order(BATCH, slice(CALIBRATION))

    class Batches(CalibrationDataReader):
        def get_next(self) -> dict[str, Any] | None:
            batch = next(batches, None)
            return None if batch is None else {IMAGES: batch[0].cpu().numpy()}

    with tempfile.TemporaryDirectory() as scratch:
        source, prepared, quantized = (str(Path(scratch) / name) for name in ("a.onnx", "b.onnx", "c.onnx"))
        Path(source).write_bytes(graph)
        quant_pre_process(source, prepared, skip_symbolic_shape=True)  # folds normalization into convolutions
        quantize_static(
            prepared,
            quantized,
            Batches(),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            op_types_to_quantize=list(QUANTIZED),
        )
        return Path(quantized).read_bytes()


def accuracy_of(predict: Predict, split: Split) -> float:
    """Returns the fraction of images whose predicted class is correct."""
    hits = total = 0
    for images, labels in split.in_order(BATCH):
        hits += int((predict(images.cpu()).argmax(1) == labels.cpu()).sum())
        total += len(labels)
    return hits / total


def int8_entry(graph: bytes, quantized: bytes, dataset: Dataset) -> dict[str, Any]:
    """Returns the entry of the int8 graph in `model.json`; both accuracies use the same test images."""
    exact, rough = (accuracy_of(onnx_prediction(content), dataset.test) for content in (graph, quantized))
    return {
        "file": INT8_FILE,
        "test_accuracy": rough,
        "float_test_accuracy": exact,
        "accuracy_cost": exact - rough,
        "test_images": len(dataset.test),
        "calibration_images": min(CALIBRATION, len(dataset.train)),
        "bytes": len(quantized),
        "float_bytes": len(graph),
    }


# Texts of `load_model.py` and the README

_HEAD = '''"""Load the exported WHAT. As a script, print its description."""

import json
from pathlib import Path

here = Path(__file__).resolve().parent
described = json.loads((here / "model.json").read_text())
'''

_NORMALIZE = '''

def normalize(images):
    """Normalize images (n, C, H, W), an array or a tensor of floats SCALE, for the model."""
    images = images.clone() if hasattr(images, "clone") else images.copy()
    for channel, (mean, std) in enumerate(zip(described["input"]["mean"], described["input"]["std"])):
        images[:, channel] = (images[:, channel] - mean) / std
    return images
'''

_TAIL = """

load_model = FUNCTION

if __name__ == "__main__":
    print(json.dumps(described, indent=2))
    print("load_model() returns", load_model())
"""


def loader_text(formats: Sequence[str], card: Mapping[str, Any]) -> str:
    """Returns `load_model.py`: a function per format; `load_model` is the function of the first format without archray.

    If all formats require archray, it is the function of the first format.
    """
    entries = [FORMATS.get(name) for name in formats]
    functions = [entry.function for entry in entries]
    first = next((entry.function for entry in entries if entry.needs != "archray"), functions[0])
    text = _HEAD.replace("WHAT", card["kind"])
    form = card["input"]
    if form is not None and form["mean"] is not None:
        text += _NORMALIZE.replace("SCALE", "in 0..1" if form["unit"] else "on the scale of the data")
    text += "".join(f"\n{entry.loader}" for entry in entries)
    return text + _TAIL.replace("FUNCTION", first)


def readme_text(formats: Sequence[str], files: Mapping[str, Sequence[str]], card: Mapping[str, Any]) -> str:
    """Returns `README.md`: inputs, outputs and accuracy of the model, and how to load each format."""
    form = card["input"]
    lines = [f"# A {card['kind']} that archray found", ""]
    if "members" in card:
        lines += [f"{count(len(card['members']), 'member')}:", ""]
        lines += [f"- `{member['architecture']}`" for member in card["members"]]
    else:
        lines += [f"`{card['architecture']}`"]
    accuracy = card.get("test_accuracy")
    lines += ["", f"Trained on {card['data']}" + (f"; test accuracy {accuracy:.4f}." if accuracy is not None else ".")]
    if form is None:
        lines += ["", "Input: texts, a sequence of strings."]
    else:
        lines += ["", *_input_lines(form), "", *_output_lines(card)]
    lines += ["", f"`{MODEL_CARD}` contains this description for programs.", ""]
    for name in formats:
        entry = FORMATS.get(name)
        lines += [f"## {name}", "", f"{', '.join(f'`{file}`' for file in files[name])}: {entry.holds}.", ""]
        lines += [f"Requires {entry.needs}.", "", "```python", f"from load_model import {entry.function}", ""]
        lines += [f"model = {entry.function}()", f"outputs = model({'texts' if form is None else 'images'})", "```", ""]
        if name == "onnx" and "int8" in card:
            lines += [*_int8_lines(card["int8"]), ""]
    if form is not None:
        lines += ["With archray installed, `archray predict FOLDER IMAGES...` works for all formats.", ""]
    return "\n".join(lines)


def _int8_lines(int8: Mapping[str, Any]) -> list[str]:
    accuracies = f"{int8['test_accuracy']:.4f} instead of {int8['float_test_accuracy']:.4f}"
    return [
        f'`{int8["file"]}` is the same model with 8-bit weights and activations: `load_onnx("{int8["file"]}")`.',
        f"Its test accuracy is {accuracies} ({count(int8['test_images'], 'image')}).",
        f"Its activations were calibrated on {count(int8['calibration_images'], 'training image')}.",
    ]


def _input_lines(form: Mapping[str, Any]) -> list[str]:
    channels, size = form["channels"], form["size"]
    lines = [f"Input: images `(n, {channels}, {size}, {size})`, float32, `n` at least 1."]
    if form["mean"] is None:
        return [*lines, "The data set has its own normalization, which archray does not record."]
    scale = "Values in 0..1 (8-bit values divided by 255)" if form["unit"] else "Values on the scale of the data"
    mean, std = (", ".join(f"{value:.6g}" for value in form[name]) for name in ("mean", "std"))
    scale = scale[:1].lower() + scale[1:]
    text = f"Normalize them with `normalize(images)`: {scale}, minus the mean ({mean}), divided by the standard"
    lines += [f"{text} deviation ({std}), per channel."]
    if form["crop"] is not None:
        lines += [f"Training images were center crops of {form['crop']:g} of the shorter side, resized."]
    return lines


def _output_lines(card: Mapping[str, Any]) -> list[str]:
    lines = [f"Output: {card['output']} `(n, {card['num_classes']})`. The class is the largest value."]
    if card["output"] == "logits":
        lines += ["Their softmax gives probabilities."]
    if card["kind"] == FEATURE_MAP:
        lines += ["They are not probabilities."]
    if card["classes"]:
        lines += [f"Classes: {', '.join(card['classes'])}."]
    return lines
