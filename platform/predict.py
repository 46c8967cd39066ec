"""Predictions of a model of a run or an export for images: files, folders, arrays or tensors."""

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
from archray.platform.models.rebuilt_model import FEATURE_MAP, MODEL_CARD, space_files
from archray.platform.run.layout import MANIFEST
from archray.platform.run.trust import SIGNATURE, is_own, reject_code
from archray.settings import LARGEST
from archray.trainables.data.image_folder import SUFFIXES, image_files
from archray.trainables.data.image_form import ImageForm

BATCH = 256  # images per forward pass
INT8 = "int8"  # a format name of exports, in addition to FORMATS


class ModelCard(BaseModel):
    """Schema of an export's `model.json`, without the description of the model."""

    kind: str
    input: Any
    formats: Annotated[dict[str, list[str]], Field(min_length=1)]
    classes: list[str]
    num_classes: Annotated[int, Field(ge=1, le=LARGEST)]
    output: str
    space_file: str | None
    space_modules: list[str] = []
    int8: dict[str, Any] | None = None


def predict(
    path: str | os.PathLike[str],
    images: Any,
    *,
    top: int = 1,
    normalized: bool = False,
    export_format: str | None = None,
    member: int | None = None,
    trust: bool = False,
) -> pd.DataFrame:
    """Classifies images with the model of a run or an export.

    Args:
        path: folder of a run or an export, a path or a pyarrow URI.
        images: a file, a folder of files, or a list of them; or an array or tensor of images, (n, C, H, W) or
            (n, H, W, C), before the data set's normalization: 8-bit, or floats (usually 0..1). archray converts them to
            the channels and the size of the data set.
        top: number of rows per image, for its most probable classes.
        normalized: whether arrays are already normalized, like the inputs of `run.model()`.
        export_format: format of an export to use, or `int8`; None: the first format.
        member: number of a member of the Pareto set in `run.pareto`; None: the most accurate.
        trust: whether code in the folder may execute although you did not create it on this machine; see
            docs/trust.md.

    Returns: a row per image and rank: `image` (path or number), `rank` from 1, `class` (name, or number as text),
    `label` (number), and `probability`, or `decision_value` for a feature map.
    Raises: UntrustedCode; RunFolderError for a folder without a trained model; InvalidInput for inputs that are not
    images, other channels, an unknown member, or a model of texts; MissingExtra.

    Example:
        ```python
        table = archray.predict("runs/first", "photos", top=3)
        table = archray.predict("exported", images, export_format="onnx")  # an array (n, C, H, W) or (n, H, W, C)
        ```
    """
    folder = Folder(path)
    if folder.exists(MODEL_CARD):
        if member is not None:
            raise InvalidInput(f"expected no member with an export, got {member}. Pass the folder of the run")
        with tempfile.TemporaryDirectory() as scratch:
            model, card = _exported(folder, export_format, Path(scratch), trust)
            return _table(model, card, images, top, normalized)
    if not folder.exists(MANIFEST):
        raise RunFolderError(f"expected the folder of a run or an export, got {folder}, which contains neither")
    if export_format is not None:
        raise InvalidInput(f"expected no format with a run, got {export_format}. Pass the folder of its export")
    run = open_run(path, trust=trust)
    if trained(run, member)[2]["input"] is None:
        raise _of_texts(folder)
    run_model = portable(run, member)
    return _table(prediction_of(run_model.network), run_model.card, images, top, normalized)


def _exported(folder: Folder, name: str | None, scratch: Path, trust: bool) -> tuple[Predict, dict[str, Any]]:
    """Loads the model and the `model.json` of an export.

    Args:
        scratch: local folder for the files of a remote export.
    """
    folder.read_json(MODEL_CARD, ModelCard)
    card = read_described(folder, MODEL_CARD)
    if card["input"] is None:
        raise _of_texts(folder)
    for file in (*folder.files(), *space_files(card)):
        folder.local_path(file)  # raises an error for a link to a place outside the folder
    choices = [*card["formats"], *([INT8] if INT8 in card else [])]
    name = choices[0] if name is None else name
    if name not in choices:
        raise InvalidInput(f"expected a format of {folder} ({', '.join(choices)}), got {name!r}")
    if name == INT8:
        return onnx_prediction(folder.read_bytes(plain_name(card[INT8]["file"]))), card
    if not trust and not is_own(signed_export(folder, card), card.get(SIGNATURE)):
        if code := code_of(name, card):
            raise reject_code(folder, "export", [f"execute {line}" for line in code])
    place = folder.local_path()
    if place is None:
        Folder(scratch).copy_from(folder, {*folder.files(), *space_files(card)})
        place = scratch
    return FORMATS.get(name).open(place, card), card


def _of_texts(folder: Folder) -> InvalidInput:
    return InvalidInput(
        f"expected a model of images, got a feature map of texts in {folder}. Pass the texts to its classifier: "
        "archray.load(RUN).model().predict([...])"
    )


def _table(model: Predict, card: dict[str, Any], images: Any, top: int, normalized: bool) -> pd.DataFrame:
    form = ImageForm.model_validate(card["input"])
    classes = list(card["classes"]) or [str(label) for label in range(card["num_classes"])]
    if not 1 <= top <= len(classes):
        raise InvalidInput(f"top: expected 1 to {len(classes)}, the number of classes, got {top}")
    outputs: list[Tensor] = []
    names: list[str | int] = []
    if files := _files(images):
        if normalized:
            raise InvalidInput("expected normalized=True only with arrays, got image files. Leave it out")
        for start in range(0, len(files), BATCH):
            outputs.append(model(form.of_files(files[start : start + BATCH])))
        names += map(str, files)
    else:
        for batch in form.of_arrays(images, normalized=normalized).split(BATCH):
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
    """Returns the image files, sorted in each folder; empty if `images` are not paths."""
    if isinstance(images, str | os.PathLike):
        images = [images]
    if not (isinstance(images, Sequence) and images and all(isinstance(image, str | os.PathLike) for image in images)):
        return []
    files: list[Path] = []
    for path in (Path(image).expanduser() for image in images):
        if not path.is_dir():
            files.append(path)
            continue
        inside = sorted(map(Path, image_files(path)))
        if not inside:
            raise InvalidInput(f"expected images ({', '.join(sorted(SUFFIXES))}) in {path}, got none")
        files += inside
    return files
