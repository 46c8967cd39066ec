"""The run folder: everything a run made, and from which it resumes."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from archray.cluster.connect import worker_reference
from archray.errors import RunFolderError
from archray.files import Folder
from archray.platform.config import SearchConfig
from archray.platform.run.manifest import check_versions, git_commit, hardware, versions
from archray.registry import file_module_name, is_reference, load_reference, split_reference
from archray.trainables.data import DataSettings

CODE = "code"  # copies of the user's files, as they were when the run began
ARRAYS = "arrays.npz"  # arrays given through Python


@dataclass
class Run:
    """One run: its folder, its manifest, and its configuration.

    `manifest.json` is written last when a run is created: a folder without one is no run.
    """

    folder: Folder
    manifest: dict[str, Any]
    config: SearchConfig

    @classmethod
    def create(
        cls,
        place: str,
        config: SearchConfig,
        *,
        arrays: Callable[[Path], None] | None = None,
        command: str | None = None,
    ) -> Run:
        """Makes the folder of a new run. `arrays(path)` writes the user's arrays as an `.npz`.

        Raises: RunFolderError if there is something in the folder already.
        """
        from archray.trainables.data import load_data

        folder = Folder(place)
        refuse_existing(folder)
        named = {"space": config.space, "data": config.data.name}
        references = {role: kept for role, name in named.items() if (kept := _keep_user_file(folder, role, name))}
        if arrays is not None:
            with tempfile.TemporaryDirectory() as scratch:
                arrays(Path(scratch) / ARRAYS)
                folder.write_bytes(ARRAYS, (Path(scratch) / ARRAYS).read_bytes())
        run = cls(folder, {"references": references, "arrays": arrays is not None}, config)
        run.manifest |= {
            "config": config.model_dump(mode="json"),
            "versions": versions(),
            "hardware": hardware(),
            "git_commit": git_commit(),
            "data_checksum": load_data(run.data).checksum(),
            "command": command,
            "created": now(),
            "amended": [],
        }
        run.write_manifest()
        return run

    @classmethod
    def open(cls, place: str | Folder, *, force: bool = False, to_resume: bool = False) -> Run:
        """The run in a folder. Raises: RunFolderError if it is none, or other versions made it."""
        from archray.platform.methods import config_class

        folder = place if isinstance(place, Folder) else Folder(place)
        if not folder.exists("manifest.json"):
            raise RunFolderError(f"{folder} holds no run (no manifest.json); give the folder that --out named")
        manifest = folder.read_json("manifest.json")
        if "config" not in manifest or "versions" not in manifest:
            raise RunFolderError(f"{folder}/manifest.json is none of archray's; give the folder that --out named")
        if to_resume:
            check_versions(manifest, str(folder), force)
        config = config_class(manifest["config"]["method"]).model_validate(manifest["config"])
        return cls(folder, manifest, config)

    def copy_to(self, folder: Folder, manifest: dict[str, Any], config: SearchConfig) -> Run:
        """A run in another folder with this one's copies of the user's files and arrays."""
        for role, kept in self.manifest["references"].items():
            (folder / CODE / role).write_bytes(kept["file"], (self.folder / CODE / role).read_bytes(kept["file"]))
        if self.manifest["arrays"]:
            folder.write_bytes(ARRAYS, self.folder.read_bytes(ARRAYS))
        copy = Run(folder, manifest, config)
        copy.write_manifest()
        return copy

    def write_manifest(self) -> None:
        self.folder.write_json("manifest.json", self.manifest)

    def amend(self, config: SearchConfig) -> None:
        """Changes the configuration of a run that exists; the manifest keeps the one it replaces."""
        if config == self.config:
            return
        self.manifest["amended"].append({"at": now(), "replaced": self.manifest["config"]})
        self.manifest["config"] = config.model_dump(mode="json")
        self.config = config
        self.write_manifest()

    @cached_property
    def space(self) -> str:
        """The name or reference that resolves the space here and in every worker that has `user_files`."""
        return self._resolved("space", self.config.space)

    @cached_property
    def data(self) -> DataSettings:
        """The data settings as they hold here: the run's own arrays, and the user's file, in the run's folder."""
        if self.manifest["arrays"]:
            return self.config.data.model_copy(update={"name": f"arrays:{self._local_copy(self.folder, ARRAYS)}"})
        return self.config.data.model_copy(update={"name": self._resolved("data", self.config.data.name)})

    def _resolved(self, role: str, name: str) -> str:
        reference = self.manifest["references"].get(role)
        if reference is None:
            return name
        local = f"{self._local_copy(self.folder / CODE / role, reference['file'])}:{reference['attribute']}"
        load_reference(local)  # so that the module's name resolves in this process too
        return worker_reference(local)

    @cached_property
    def user_files(self) -> list[Path]:
        """Local copies of the files of the user's that the run kept: they travel to the workers."""
        references = self.manifest["references"].items()
        copies = [self._local_copy(self.folder / CODE / role, kept["file"]) for role, kept in references]
        return list({file_module_name(copy): copy for copy in copies}.values())

    @cached_property
    def _scratch(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="archray-"))

    def _local_copy(self, folder: Folder, name: str) -> Path:
        """The file itself in a local run; a copy of it where the run lies on an object store."""
        local = folder.local_path()
        if local is None:
            local = self._scratch / folder.path.rpartition("/")[2]
            local.mkdir(exist_ok=True)
            (local / name).write_bytes(folder.read_bytes(name))
        return local / name


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def digest(value: Mapping[str, Any]) -> str:
    """A short hash of JSON-able values, the same for equal ones."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def refuse_existing(folder: Folder) -> None:
    """Raises: RunFolderError if the folder holds anything."""
    if folder.exists("manifest.json"):
        raise RunFolderError(
            f"{folder} holds a run already; continue it with 'archray resume {folder}', or choose another --out"
        )
    if not folder.is_empty():
        raise RunFolderError(f"{folder} exists and is not empty; choose another --out")


def _keep_user_file(folder: Folder, role: str, reference: str) -> dict[str, str] | None:
    """Copies the file that `path.py:attribute` names into the run; returns what the manifest keeps of it."""
    if not is_reference(reference):
        return None
    place, attribute = split_reference(reference)
    if not place.endswith(".py"):
        return None  # an installed module: every node has it, or the connection says that it lacks it
    path = Path(place)
    (folder / CODE / role).write_bytes(path.name, path.read_bytes())
    return {
        "reference": reference,
        "file": path.name,
        "attribute": attribute,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
