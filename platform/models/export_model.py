"""A run's trained model as a folder that leaves the house: the formats asked for, `model.json`, a loader, a README."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

import archray
from archray.errors import DamagedFile, InvalidInput, RunFolderError
from archray.files import Folder, plain_name
from archray.platform.models.export_folder import LOADER, README, loader_text, readme_text
from archray.platform.models.export_format import CARD, FEATURE_MAP, FORMATS, NETWORK, Portable
from archray.platform.models.formats.onnx import FILE as ONNX_FILE
from archray.platform.models.model_files import load_model, trained
from archray.platform.models.quantised import FILE as INT8_FILE
from archray.platform.models.quantised import int8_entry, quantise
from archray.platform.run.heartbeat import lock
from archray.platform.run.layout import CODE, HEARTBEAT
from archray.platform.run.manifest import digest
from archray.platform.run.run import Run, refuse_existing
from archray.platform.run.trust import SIGNATURE, signature, signed_part
from archray.trainables.checkpoint import STATE_FILE
from archray.trainables.data import load_images
from archray.trainables.ensembles.ensemble import KIND as ENSEMBLE
from archray.trainables.feature_maps.classifier import FourierClassifier
from archray.trainables.spaces import is_own_space

DEFAULT = ("torch-export", "state-dict")
OUTPUTS = {NETWORK: "logits", ENSEMBLE: "probabilities", FEATURE_MAP: "decision values"}


def export_model(
    run: Run[Any],
    to: Folder,
    formats: Sequence[str] | None = None,
    *,
    int8: bool = False,
    member: int | None = None,
) -> list[str]:
    """Writes the run's model in one format or several, and beside it `model.json`, `load_model.py` and `README.md`.

    Of several repeats the best on validation. Nothing is written before all contents are there.

    Args:
        to: a new or empty folder, or one that holds the same export, which is written again.
        formats: names of FORMATS; None: torch-export and state-dict, of a feature map over texts the latter alone.
        int8: an int8 ONNX graph as well, calibrated on the run's training images, with its test accuracy.
        member: of a run that ends with a set, the number of a member, from 1; None: the most accurate.

    Returns: the names of the files.
    Raises: RunFolderError if the run has no trained model yet, or `to` holds something else; UnknownName for a format;
    MissingExtra; InvalidInput for a model that a format cannot hold, or a member that there is not.
    """
    names = _checked(formats, int8)
    best, source, _ = trained(run, member)
    again = _holds_export(to, source)
    if not again:
        refuse_existing(to, "--to")
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
        contents[INT8_FILE] = quantise(contents[ONNX_FILE], load_images(run.data).train)
        model.card["int8"] = int8_entry(contents[ONNX_FILE], contents[INT8_FILE], load_images(run.data))
    card = {**model.card, "formats": files}
    contents[LOADER] = loader_text(names, card).encode()
    contents[README] = readme_text(names, files, card).encode()
    with lock(to, "archray export"):
        others = {*to.files(), *to.folders()} - {HEARTBEAT, CARD, *contents, card["space_file"]}
        if again and others:
            told = ", ".join(sorted(others))
            raise RunFolderError(f"{to} holds another export of the run ({told}); choose another --to")
        if not again:
            refuse_existing(to, "--to")  # what another export has written meanwhile
        if card["space_file"] is not None:
            to.copy_from(run.folder / CODE / "space", [card["space_file"]])
        for name, content in contents.items():
            to.write_bytes(name, content)
        card[SIGNATURE] = signature(signed_export(to, card))
        to.write_bytes(CARD, (json.dumps(card, indent=2, ensure_ascii=False) + "\n").encode())  # last: all is there
    return to.files()


def _holds_export(to: Folder, source: Folder) -> bool:
    """Whether a folder holds a complete export of the model in `source`: one of the same weights."""
    if not to.exists(CARD):
        return False
    try:
        card = to.read_json(CARD)
    except DamagedFile:
        return False
    return bool(card.get("weights") == _weights(source))


def _weights(source: Folder) -> str:
    """What tells models apart: a digest of the checksums of their files in the run."""
    return digest({name: source.sha256(name) for name in source.files()})


def signed_export(folder: Folder, card: Mapping[str, Any]) -> dict[str, Any]:
    """What of an export its signature is of: `model.json`, and the files that some format executes."""
    names = [FORMATS.get(name).code for name in FORMATS] + [card["space_file"]]
    files = [name for name in names if name is not None and folder.exists(plain_name(name))]
    return signed_part(card, {name: folder.sha256(name) for name in files})


def code_of(name: str, card: Mapping[str, Any]) -> list[str]:
    """The files and modules of an export that its format `name` executes; not archray's own."""
    if (code := FORMATS.get(name).code) is not None or name == "onnx":
        return [] if code is None else [code]
    if card["space_file"] is not None:
        return [plain_name(card["space_file"])]
    spaces = [card, *card.get("members", ())]
    return sorted({each["space"] for each in spaces if is_own_space(each.get("space", ""))})


def portable(run: Run[Any], member: int | None = None) -> Portable:
    """The model of a run, and `model.json` as far as no format is needed. Raises: as `trained`."""
    model = load_model(run, member)
    run, folder, described = trained(run, member)
    kind = described.get("kind", NETWORK)
    reference = run.manifest["references"].get("space")
    card = {
        "kind": kind,
        **described,
        **({} if member is None else {"member": member}),
        "space_file": None if reference is None else reference["file"],
        "output": OUTPUTS[kind],
        "weights": _weights(folder),
        "archray": archray.__version__,
        "torch": torch.__version__,
    }
    if isinstance(model, FourierClassifier):
        return Portable(card, model.network(), run.space)
    if isinstance(model, torch.nn.Module):
        return Portable(card, model, run.space)
    return Portable(card, None, run.space, folder.read_bytes(STATE_FILE))


def _checked(formats: Sequence[str] | None, int8: bool) -> list[str]:
    """The formats, each once. Raises: UnknownName; MissingExtra; InvalidInput for none, or int8 without onnx."""
    names = list(dict.fromkeys(DEFAULT if formats is None else formats))
    if not names:
        raise InvalidInput(f"expected a format or several, got none; choose of {', '.join(FORMATS)}")
    for name in names:
        FORMATS.get(name).check()
    if int8 and "onnx" not in names:
        raise InvalidInput(f"expected the format onnx for --int8, got {', '.join(names)}; add --format onnx")
    return names
