"""Predictions for images (files, folders, arrays or tensors) by the model of a run or of an export."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
from pydantic import BaseModel, Field
from torch import Tensor

from archray.errors import InvalidInput, RunFolderError
from archray.files import Folder, plain_name
from archray.platform.methods import open_run
from archray.platform.models.export_model import code_of, portable, signed_export
from archray.platform.models.formats import FORMATS, Predict, onnx_prediction, prediction_of
from archray.platform.models.model_files import read_described, trained
from archray.platform.models.rebuilt_model import CARD, FEATURE_MAP
from archray.platform.run.layout import MANIFEST
from archray.platform.run.trust import SIGNATURE, is_own, refuse_code
from archray.settings import LARGEST
from archray.trainables.data.image_folder import SUFFIXES
from archray.trainables.data.image_form import ImageForm

BATCH = 256  # images at once
INT8 = "int8"  # of an export, in addition to its formats


class Card(BaseModel):
    """`model.json` of an export, without the description of its model."""

    kind: str
    input: Any
    formats: Annotated[dict[str, list[str]], Field(min_length=1)]
    classes: list[str]
    num_classes: Annotated[int, Field(ge=1, le=LARGEST)]
    output: str
    space_file: str | None
    int8: dict[str, Any] | None = None


def predict(
    path: str | os.PathLike[str],
    images: Any,
    *,
    top: int = 1,
    normalised: bool = False,
    export_format: str | None = None,
    member: int | None = None,
    trust: bool = False,
) -> pd.DataFrame:
    """The classes of images by the model of a run or of an export.

    Args:
        path: the folder of a run, or of an export, a path or a pyarrow URI.
        images: files and folders of files, one or a list; or images, (n, C, H, W) or (n, H, W, C), an array or a
            tensor, as before the data set's normalization: 8-bit, or floats (usually 0..1). They are converted to the
            channels and the size of the data set.
        top: rows per image: its most probable classes.
        normalised: whether arrays are normalized already, as the inputs of `run.model()`.
        export_format: of an export with several formats; also `int8`. None: the first.
        member: of a run with a Pareto set, the number of a member in `run.pareto`; None: the most accurate.
        trust: whether its code may run although you did not make it on this machine; see docs/trust.md.

    Returns: a row per image and rank: `image` (its path, or its number), `rank` from 1, `class` (its name, or its
    number as text), `label` (its number), and `probability`; of a feature map `decision_value` instead.
    Raises: UntrustedCode; RunFolderError for a folder without a trained model; InvalidInput for inputs that are no
    images, other channels, an unknown member, and for a model of texts; MissingExtra.
    """
    folder = Folder(path)
    if folder.exists(CARD):
        if member is not None:
            raise InvalidInput(f"expected no member of an export, got {member}; give the folder of the run")
        with tempfile.TemporaryDirectory() as scratch:
            model, card = _exported(folder, export_format, Path(scratch), trust)
            return _table(model, card, images, top, normalised)
    if not folder.exists(MANIFEST):
        raise RunFolderError(f"{folder} holds neither a run nor an export; give the folder of one")
    if export_format is not None:
        raise InvalidInput(f"expected no format of a run, got {export_format}; give the folder of its export")
    run = open_run(path, trust=trust)
    if trained(run, member)[2]["input"] is None:
        raise _of_texts(folder)
    run_model = portable(run, member)
    return _table(prediction_of(run_model.network), run_model.card, images, top, normalised)


def _exported(folder: Folder, name: str | None, scratch: Path, trust: bool) -> tuple[Predict, dict[str, Any]]:
    """The model of an export, and its `model.json`. scratch: for the files of one that is elsewhere."""
    folder.read_json(CARD, Card)
    card = read_described(folder, CARD)
    if card["input"] is None:
        raise _of_texts(folder)
    for file in folder.files():
        folder.local_path(file)  # raises an error for a link out of the folder
    choices = [*card["formats"], *([INT8] if INT8 in card else [])]
    name = choices[0] if name is None else name
    if name not in choices:
        raise InvalidInput(f"expected a format that {folder} has, {', '.join(choices)}, got {name!r}")
    if name == INT8:
        return onnx_prediction(folder.read_bytes(plain_name(card[INT8]["file"]))), card
    if not trust and not is_own(signed_export(folder, card), card.get(SIGNATURE)):
        if code := code_of(name, card):
            raise refuse_code(folder, "export", [f"execute {line}" for line in code])
    place = folder.local_path()
    if place is None:
        Folder(scratch).copy_from(folder)
        place = scratch
    return FORMATS.get(name).open(place, card), card


def _of_texts(folder: Folder) -> InvalidInput:
    return InvalidInput(
        f"expected a model of images, got a feature map over texts in {folder}; give texts to its classifier: "
        "archray.load(RUN).model().predict([...])"
    )


def _table(model: Predict, card: dict[str, Any], images: Any, top: int, normalised: bool) -> pd.DataFrame:
    form = ImageForm.model_validate(card["input"])
    classes = list(card["classes"]) or [str(label) for label in range(card["num_classes"])]
    if not 1 <= top <= len(classes):
        raise InvalidInput(f"expected top from 1 to the {len(classes)} classes, got {top}")
    outputs: list[Tensor] = []
    names: list[str | int] = []
    if files := _files(images):
        if normalised:
            raise InvalidInput("expected files without normalised=True: it is said of arrays")
        for start in range(0, len(files), BATCH):
            outputs.append(model(form.of_files(files[start : start + BATCH])))
        names += map(str, files)
    else:
        for batch in form.of_arrays(images, normalised=normalised).split(BATCH):
            outputs.append(model(batch))
        names += range(sum(map(len, outputs)))
    values, column = torch.cat(outputs).detach().double(), "probability"
    if card["kind"] == FEATURE_MAP:
        column = "decision_value"
    elif card["output"] == "logits":
        values = values.softmax(1)
    best = values.topk(top, dim=1)
    rows = [
        {"image": name, "rank": rank, "class": classes[label], "label": label, column: value}
        for name, labels, numbers in zip(names, best.indices.tolist(), best.values.tolist(), strict=True)
        for rank, (label, value) in enumerate(zip(labels, numbers, strict=True), 1)
    ]
    return pd.DataFrame(rows)


def _files(images: Any) -> list[Path]:
    """The image files, sorted in each folder; empty if `images` are no paths."""
    if isinstance(images, str | os.PathLike):
        images = [images]
    if not (isinstance(images, Sequence) and images and all(isinstance(image, str | os.PathLike) for image in images)):
        return []
    files: list[Path] = []
    for path in (Path(image).expanduser() for image in images):
        if not path.is_dir():
            files.append(path)
            continue
        inside = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
        if not inside:
            raise InvalidInput(f"there is no image ({', '.join(sorted(SUFFIXES))}) in {path}; give another folder")
        files += inside
    return files
