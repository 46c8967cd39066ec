"""The run folder: everything a run made, and from which it resumes."""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import ValidationError

from archray.errors import RunFolderError
from archray.files import Folder
from archray.platform.config import SearchConfig
from archray.platform.quantities import deciding_accuracy
from archray.platform.run.layout import ARRAYS, CODE, DONE, FOUND, MANIFEST, REPEAT
from archray.platform.run.manifest import (
    NO_CHECKSUMS,
    check_versions,
    data_checksums,
    git_commit,
    hardware,
    now,
    versions,
)
from archray.platform.run.run_summary import read_manifest, written_result
from archray.references import is_reference, load_reference, split_reference, worker_reference
from archray.trainables.data import DataSettings, save_arrays

if TYPE_CHECKING:  # a run is opened without
    import pandas as pd

ConfigT = TypeVar("ConfigT", bound=SearchConfig, covariant=True)


@dataclass
class Run(Generic[ConfigT]):
    """One run: its folder, its manifest, its configuration, and the tables and documents that its stages wrote.

    `manifest.json` is written last when a run is created: a folder without one is no run. A run of several repeats
    has no stages of its own but a run in `repeat-00`, `repeat-01`, ... for each.
    """

    folder: Folder
    manifest: dict[str, Any]
    config: ConfigT

    @classmethod
    def create(
        cls,
        place: str,
        config: ConfigT,  # type: ignore[misc]  # covariant: a run is read far more than it is made
        *,
        arrays: Sequence[Any] | None = None,
        command: str | None = None,
        again: bool = False,
    ) -> Run[ConfigT]:
        """Makes the folder of a new run. arrays: the user's, see `save_arrays`.

        again: whether the folder may hold what a process left that was killed while it made a run there.

        Raises: RunFolderError if there is something (else) in the folder already.
        """
        folder = Folder(place)
        refuse_existing(folder, again=again)
        references = {}
        for role, reference in config.references().items():
            file, attribute = split_reference(reference) if is_reference(reference) else ("", "")
            if file.endswith(".py"):  # of an installed module the connection says which node lacks it
                name, content = Path(file).name, Path(file).read_bytes()
                (folder / CODE / role).write_bytes(name, content)
                sha256 = hashlib.sha256(content).hexdigest()
                references[role] = {"reference": reference, "file": name, "attribute": attribute, "sha256": sha256}
        if arrays is not None:
            with tempfile.TemporaryDirectory() as scratch:
                save_arrays(Path(scratch) / ARRAYS, *arrays)
                folder.copy_from(Folder(scratch), [ARRAYS])
        run = cls(folder, {"references": references, "arrays": arrays is not None}, config)
        run.manifest |= {
            "config": config.model_dump(mode="json"),
            "versions": versions(),
            "hardware": hardware(),
            "git_commit": git_commit(),
            **(dict(NO_CHECKSUMS) if config.begins_without_data else data_checksums(run.data)),
            "command": command,
            "created": now(),
            "amended": [],
        }
        folder.write_json(MANIFEST, run.manifest)
        return run

    @classmethod
    def open(
        cls,
        place: str | PathLike[str] | Folder,
        config_of: Callable[[str], type[ConfigT]],
        *,
        force: bool = False,
        to_resume: bool = False,
    ) -> Run[ConfigT]:
        """The run in a folder.

        Args:
            config_of: name of a method -> the class of its configuration.
            to_resume: whether its versions are checked, and files deleted that a killed driver left unfinished.

        Raises: RunFolderError if the folder holds no run, or other versions made it.
        """
        folder = place if isinstance(place, Folder) else Folder(place)
        manifest = read_manifest(folder)
        if to_resume:
            check_versions(manifest, str(folder), force)
            folder.sweep()
        try:
            config = config_of(manifest["config"]["method"]).model_validate(manifest["config"])
        except ValidationError as error:
            raise RunFolderError(
                f"{folder} has a configuration that this archray cannot read, of another version perhaps; install the "
                f"versions of its manifest.json: {error}"
            ) from error
        return cls(folder, manifest, config)

    def copy_to(self, folder: Folder, config: SearchConfig) -> Run[Any]:
        """A run in another folder with this one's copies of the user's files and arrays, and another configuration."""
        for role, kept in self.manifest["references"].items():
            (folder / CODE / role).copy_from(self.folder / CODE / role, [kept["file"]])
        if self.manifest["arrays"]:
            folder.copy_from(self.folder, [ARRAYS])
        manifest = {**self.manifest, "config": config.model_dump(mode="json"), "amended": []}
        folder.write_json(MANIFEST, manifest)
        return Run(folder, manifest, config)

    def data_checksum(self) -> str | None:
        """The manifest's; where the run began without data they are read now, for the manifest, too."""
        if self.config.begins_without_data and self.manifest["data_checksum"] is None:
            self.manifest |= data_checksums(self.data)
            self.folder.write_json(MANIFEST, self.manifest)
        checksum: str | None = self.manifest["data_checksum"]
        return checksum

    def amend(self, config: SearchConfig) -> None:
        """Changes the configuration of a run that exists; the manifest keeps the one it replaces."""
        if config == self.config:
            return
        self.manifest["amended"].append({"at": now(), "replaced": self.manifest["config"]})
        self.manifest["config"] = config.model_dump(mode="json")
        self.config = config  # type: ignore[assignment]  # of the same class: the method does not change
        self.folder.write_json(MANIFEST, self.manifest)

    # What its stages wrote

    def table(self, stage: str, name: str) -> pd.DataFrame:
        """A Parquet table of a stage; empty where it has not been written."""
        import pandas as pd

        folder = self.folder / stage
        return folder.read_parquet(name) if folder.exists(name) else pd.DataFrame()

    def document(self, stage: str, name: str = FOUND) -> dict[str, Any] | None:
        """A JSON file of a stage; None where it has not been written."""
        folder = self.folder / stage
        return folder.read_json(name) if folder.exists(name) else None

    def pooled(self, stage: str, name: str) -> pd.DataFrame:
        """A table of a stage with those of all repeats under each other, and a column `repeat`, from 0."""
        import pandas as pd

        runs = self.repeats or [self]
        return pd.concat([run.table(stage, name).assign(repeat=n) for n, run in enumerate(runs)], ignore_index=True)

    @property
    def found(self) -> dict[str, Any] | None:
        """What the search found, or what was selected of it: `architecture` or `members`, `value`; None before."""
        stages = ("selection", "pareto", "search")
        document = next(filter(None, map(self.document, stages)), None)
        return None if document is None else _by_its_key(document)

    @property
    def architecture(self) -> str | None:
        """The one architecture that was found; None before, and of an ensemble."""
        return (self.found or {}).get("architecture")

    @property
    def ended(self) -> dict[str, Any]:
        """What the run's own `architecture.json`, or `findings.json`, says; nothing of one that has not ended."""
        return _by_its_key(written_result(self.folder) or {})

    @property
    def repeats(self) -> list[Run[ConfigT]]:
        """The repeats that have begun; none of a run of one."""
        names = [name for name in self.folder.folders() if name.startswith(REPEAT)]
        return [Run.open(self.folder / name, lambda _: type(self.config)) for name in names]

    @property
    def best(self) -> Run[ConfigT]:
        """The repeat with the best value, whose figures a report shows; a run of one itself."""

        def worth(run: Run[Any]) -> float:
            deciding = deciding_accuracy(run.ended)
            return -math.inf if deciding is None else deciding[1]

        return max(self.repeats, key=worth, default=self)

    @property
    def seconds(self) -> float:
        """The time that the stages that are done took, all together, of all repeats."""
        stages = [self.folder / name for name in self.folder.folders()]
        own = float(sum(stage.read_json(DONE)["seconds"] for stage in stages if stage.exists(DONE)))
        return own + sum(run.seconds for run in self.repeats)

    # What the user gave

    @cached_property
    def space(self) -> str:
        """The name or reference that resolves the space here and in every worker that has `user_files`."""
        return self.resolved("space", self.config.space)

    @cached_property
    def data(self) -> DataSettings:
        """The data settings as they hold here: the run's own arrays, and the user's file, in the run's folder."""
        own = f"arrays:{self._local_copy(self.folder, ARRAYS)}" if self.manifest["arrays"] else None
        return self.config.data.model_copy(update={"name": own or self.resolved("data", self.config.data.name)})

    def resolved(self, role: str, name: str) -> str:
        """A name of the configuration as it resolves here and in workers: the run's own copy of a user's file."""
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
        return [self._local_copy(self.folder / CODE / role, kept["file"]) for role, kept in references]

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


def _by_its_key(document: dict[str, Any]) -> dict[str, Any]:
    """What was found, its `value` also under the key of the quantity that it is, the document's `metric`."""
    return {**document, document["metric"]: document["value"]} if "metric" in document else document


def refuse_existing(folder: Folder, option: str = "--out", *, again: bool = False) -> None:
    """Raises: RunFolderError if the folder holds anything. option: what named it.

    again: what `Run.create` writes before the manifest may be there.
    """
    if folder.exists(MANIFEST):
        raise RunFolderError(
            f"{folder} holds a run already; continue it with 'archray resume {folder}', or choose another {option}"
        )
    if (local := folder.local_path()) is not None and local.is_file():
        raise RunFolderError(f"{folder} is a file; choose another {option}")
    if again and {*folder.files(), *folder.folders()} <= {CODE, ARRAYS}:
        return
    if not folder.is_empty():
        raise RunFolderError(f"{folder} exists and is not empty; choose another {option}")
