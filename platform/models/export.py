"""What a run trained, read back or written as files that load elsewhere; its description says what kind it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from archray.errors import RunFolderError
from archray.files import Folder
from archray.platform.models.feature_map_model import KIND as FEATURE_MAP
from archray.platform.models.feature_map_model import export_classifier, load_written
from archray.platform.models.network_model import (
    DESCRIPTION,
    export_ensemble,
    export_network,
    load_members,
    load_network,
)
from archray.platform.run.layout import CODE, MODEL
from archray.platform.run.run import Run, refuse_existing
from archray.trainables.ensembles.ensemble import KIND as ENSEMBLE
from archray.trainables.feature_maps.classifier import Classifier


@dataclass(frozen=True)
class ModelKind:
    """load: folder and run -> the model. export: folder, a new folder, run and description -> its files there."""

    load: Callable[[Folder, Run[Any]], torch.nn.Module | Classifier]
    export: Callable[[Folder, Folder, Run[Any], dict[str, Any]], None]


NETWORK = "network"
KINDS = {
    NETWORK: ModelKind(load_network, export_network),
    ENSEMBLE: ModelKind(load_members, export_ensemble),
    FEATURE_MAP: ModelKind(load_written, export_classifier),
}


def load_model(run: Run[Any]) -> torch.nn.Module | Classifier:
    """The trained network of a run, or its ensemble, on the CPU, in evaluation mode, or its feature map's classifier.

    Raises: RunFolderError if there is none yet.
    """
    folder, described = _model_folder(run)
    return _kind(described).load(folder, run)


def export_model(run: Run[Any], to: Folder) -> list[str]:
    """Writes state_dict, description, a loader and a `torch.export` program; returns the names of the files.

    Of a feature map there is no program, and the state says all that its classifier needs.

    Raises: RunFolderError if the run has no trained network yet, or `to` is not empty.
    """
    source, described = _model_folder(run)
    refuse_existing(to)
    reference = run.manifest["references"].get("space")
    if reference is not None:
        described["space_file"] = reference["file"]
        to.copy_from(run.folder / CODE / "space", [reference["file"]])
    to.write_json(DESCRIPTION, described)
    _kind(described).export(source, to, run, described)
    return to.files()


def _model_folder(run: Run[Any]) -> tuple[Folder, dict[str, Any]]:
    folder = run.folder / MODEL
    if not folder.exists(DESCRIPTION):
        raise RunFolderError(f"{run.folder} holds no trained network yet; finish it with 'archray resume {run.folder}'")
    return folder, folder.read_json(DESCRIPTION)


def _kind(described: dict[str, Any]) -> ModelKind:
    return KINDS[described.get("kind", NETWORK)]
