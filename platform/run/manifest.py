"""The origin of a run: versions, hardware, the commit of archray, checksums of the data."""

import hashlib
import json
import math
import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import archray
from archray.trainables.data import DataSettings, load_data
from archray.trainables.data.load import file_checksums
from archray.trainables.spaces import get_space
from archray.trainables.spaces.table_space import PREFIX, TableSpace

PACKAGES = ("ray", "torch", "torchvision", "numpy", "scipy", "scikit-learn", "scikit-optimize", "pandas", "pyarrow")
COMPARED = ("python", "archray", "ray")


def origin() -> dict[str, Any]:
    """Returns versions, hardware and commit for a manifest."""
    return {"versions": _versions(), "hardware": _hardware(), "git_commit": _git_commit()}


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "archray": archray.__version__}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):  # a renamed fork; the import that needs it raises an error
            versions[package] = version(package)
    return versions


def _hardware() -> dict[str, Any]:
    """Returns the hardware of the driver's machine. `memory_gib` is None if unknown."""
    import torch

    from archray.trainables.devices import machine_memory  # torch

    memory = machine_memory()
    return {
        "machine": platform.machine(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1) if math.isfinite(memory) else None,
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }


def _git_commit() -> str | None:
    """Returns the commit of the checkout, with `-dirty` if files were changed; None outside a checkout."""
    root = Path(archray.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        return subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True, timeout=10).strip()
    except (OSError, subprocess.SubprocessError):
        return None


def data_checksums(settings: DataSettings | None) -> dict[str, Any]:
    """Returns checksums of the data and of the test labels; None for data that are not opened yet.

    For CIFAR, `data_files` has the checksums of the files. For a table of evaluations, the table is the data, without
    labels.
    """
    if settings is None:
        return {"data_checksum": None, "test_labels_checksum": None}
    import numpy as np

    table = get_space(settings.name) if settings.name.startswith(PREFIX) else None
    if isinstance(table, TableSpace):
        return {"data_checksum": table.file.checksum, "test_labels_checksum": None}
    data = load_data(settings)
    labels = hashlib.sha256(np.asarray(data.test.labels).tobytes()).hexdigest()
    files = file_checksums(settings)
    checksums = {"data_checksum": data.checksum(), "test_labels_checksum": labels}
    return {**checksums, "data_files": files} if files else checksums


def other_versions(manifest: dict[str, Any]) -> str | None:
    """Returns the versions that started a run, in words, if others are installed; else None."""
    new, old = _versions(), manifest["versions"]
    differences = [f"{name} {old.get(name)} (now {new[name]})" for name in COMPARED if old.get(name) != new[name]]
    return " and ".join(differences) or None


def digest(value: Mapping[str, Any]) -> str:
    """Returns a short hash of JSON-serializable values; equal values have equal hashes."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
