"""The texts of an export's folder beside the model: `load_model.py`, of a few lines, and the README."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from archray.platform.models.export_format import CARD, FEATURE_MAP, FORMATS
from archray.plurals import count

LOADER, README = "load_model.py", "README.md"

_HEAD = '''"""Loads the exported WHAT; run as a script, prints what it is."""

import json
from pathlib import Path

here = Path(__file__).resolve().parent
described = json.loads((here / "model.json").read_text())
'''

_NORMALISE = '''

def normalise(images):
    """Images (n, C, H, W), an array or a tensor of floats SCALE, as the model takes them."""
    images = images.clone() if hasattr(images, "clone") else images.copy()
    for channel, (mean, std) in enumerate(zip(described["input"]["mean"], described["input"]["std"])):
        images[:, channel] = (images[:, channel] - mean) / std
    return images
'''

_TAIL = """

load_model = FUNCTION

if __name__ == "__main__":
    print(json.dumps(described, indent=2))
    print("load_model() gives", load_model())
"""


def loader_text(formats: Sequence[str], card: Mapping[str, Any]) -> str:
    """`load_model.py`: a function for each format; `load_model` is that of the first that needs no archray."""
    entries = [FORMATS.get(name) for name in formats]
    functions = [entry.function for entry in entries]
    first = next((entry.function for entry in entries if entry.needs != "archray"), functions[0])
    text = _HEAD.replace("WHAT", card["kind"])
    form = card["input"]
    if form is not None and form["mean"] is not None:
        text += _NORMALISE.replace("SCALE", "in 0..1" if form["unit"] else "on the scale of the data")
    text += "".join(f"\n{entry.loader}" for entry in entries)
    return text + _TAIL.replace("FUNCTION", first)


def readme_text(formats: Sequence[str], files: Mapping[str, Sequence[str]], card: Mapping[str, Any]) -> str:
    """`README.md`: what the model takes and gives, how good it is, and how each format is loaded."""
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
        lines += ["", "It takes texts, a sequence of strings."]
    else:
        lines += ["", *_input_lines(form), "", *_output_lines(card)]
    lines += ["", f"All of this is in `{CARD}` too, for programs.", ""]
    for name in formats:
        entry = FORMATS.get(name)
        lines += [f"## {name}", "", f"{', '.join(f'`{file}`' for file in files[name])}: {entry.holds}.", ""]
        lines += [f"Needs {entry.needs}.", "", "```python", f"from load_model import {entry.function}", ""]
        lines += [f"model = {entry.function}()", f"outputs = model({'texts' if form is None else 'images'})", "```", ""]
        if name == "onnx" and "int8" in card:
            lines += [*_int8_lines(card["int8"]), ""]
    if form is not None:
        lines += ["With archray installed: `archray predict FOLDER IMAGES...`, whatever the format.", ""]
    return "\n".join(lines)


def _int8_lines(int8: Mapping[str, Any]) -> list[str]:
    accuracies = f"{int8['test_accuracy']:.4f} instead of {int8['float_test_accuracy']:.4f}"
    return [
        f'`{int8["file"]}` is the same with 8-bit weights and activations: `load_onnx("{int8["file"]}")`.',
        f"Its test accuracy is {accuracies} ({count(int8['test_images'], 'image')}).",
        f"It was calibrated on {count(int8['calibration_images'], 'training image')}.",
    ]


def _input_lines(form: Mapping[str, Any]) -> list[str]:
    channels, size = form["channels"], form["size"]
    lines = [f"It takes images `(n, {channels}, {size}, {size})`, float32, of any `n` from 1."]
    if form["mean"] is None:
        return [*lines, "How the data set normalised them is not known to archray."]
    scale = "Values in 0..1 (8-bit ones divided by 255)" if form["unit"] else "Values on the scale of the data"
    mean, std = (", ".join(f"{value:.6g}" for value in form[name]) for name in ("mean", "std"))
    lines += [f"{scale}, less the mean ({mean}), divided by the deviation ({std}), per channel: `normalise(images)`."]
    if form["crop"] is not None:
        lines += [f"Of a picture the square in its middle, {form['crop']:g} of the shorter side, was resized."]
    return lines


def _output_lines(card: Mapping[str, Any]) -> list[str]:
    lines = [f"It gives {card['output']} `(n, {card['num_classes']})`; the largest is the class."]
    if card["output"] == "logits":
        lines += ["Their softmax are probabilities."]
    if card["kind"] == FEATURE_MAP:
        lines += ["They are no probabilities."]
    if card["classes"]:
        lines += [f"The classes: {', '.join(card['classes'])}."]
    return lines
