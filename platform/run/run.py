"""The run folder: all files that a run writes and resumes from."""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pydantic import ValidationError

from archray.cluster.settings import LOCAL
from archray.errors import ArchrayError, RunFolderError, RunInterrupted, TrialCrashed, UnknownName, first_problem
from archray.file_modules import check_copy, code_files
from archray.files import Folder, plain_name
from archray.objects import PLACE, source_in
from archray.platform.config import SearchConfig, flat
from archray.platform.quantities import as_float, deciding_value
from archray.platform.run.documents import Done, Result
from archray.platform.run.heartbeat import holds_nothing
from archray.platform.run.layout import (
    ARRAYS,
    CODE,
    DESCRIPTION,
    DONE,
    FOUND,
    HEARTBEAT,
    MANIFEST,
    MODEL,
    REPEAT,
    command,
    now,
)
from archray.platform.run.manifest import data_checksums, origin
from archray.platform.run.run_summary import read_manifest, worked_seconds, written_result
from archray.platform.run.trust import SIGNATURE, Uses, is_own, reject_code, signature, signed_part
from archray.references import (
    file_hashes,
    is_reference,
    load_reference,
    reference_file,
    split_reference,
    worker_reference,
)
from archray.trainables.data import DataSettings, save_arrays
from archray.trainables.data.load import is_custom_data
from archray.trainables.spaces import is_custom_space

if TYPE_CHECKING:  # imported where used: `archray list` needs no pandas
    import pandas as pd

ConfigT = TypeVar("ConfigT", bound=SearchConfig, covariant=True)


@dataclass
class Run(Generic[ConfigT]):
    """One run: its folder, its manifest, its configuration, and the tables and documents of its stages.

    `Run.create` writes `manifest.json` last: a folder without it is not a run. A run with several repeats has no
    stages, but a run for each repeat in `repeat-00`, `repeat-01`, ....
    """

    folder: Folder
    manifest: dict[str, Any]
    config: ConfigT
    trust: bool = True  # whether this process created the run or the user trusts it; otherwise the signature decides

    @classmethod
    def create(
        cls,
        place: str,
        config: ConfigT,  # type: ignore[misc]  # covariant: a run is read far more often than created
        *,
        arrays: Sequence[Any] | None = None,
        command: str | None = None,
        again: bool = False,
    ) -> Self:
        """Creates the folder of a new run.

        Args:
            arrays: arrays of the user, see `save_arrays`.
            again: whether the folder may contain files of a process that was killed while it created a run there.

        Raises: RunFolderError if the folder contains (other) files.
        """
        folder = Folder(place)
        reject_existing(folder, again=again)
        references = {}
        for role, reference in config.references().items():
            file = reference_file(reference) if is_reference(reference) else None
            if file is not None:  # for an installed module the connection reports a node that lacks it
                copies = _copied(file, folder / CODE / role)
                attribute = split_reference(reference)[1]
                references[role] = {"reference": reference, "attribute": attribute, **copies}
        if arrays is not None:
            with tempfile.TemporaryDirectory() as scratch:
                save_arrays(Path(scratch) / ARRAYS, *arrays)
                folder.copy_from(Folder(scratch), [ARRAYS])
        run = cls(folder, {"references": references, "arrays": arrays is not None}, config)
        run.manifest |= {
            "config": config.model_dump(mode="json"),
            **origin(),
            **data_checksums(None if config.starts_without_data else run.data),
            "command": command,
            "created": now(),
            "amended": [],
        }
        run.sign()
        return run

    @classmethod
    def open(
        cls,
        place: str | PathLike[str] | Folder,
        config_of: Callable[[str], type[ConfigT]],
        *,
        trust: bool = False,
        uses: Uses = "code",
    ) -> Self:
        """Opens the run in a folder.

        Args:
            config_of: returns the class of a configuration by the name of its method.
            trust: whether the run's code may execute although this user did not start the run on this machine.
            uses: purpose; `resume` deletes unfinished files of a killed driver.

        Raises: RunFolderError if the folder contains no run, or a configuration that it cannot read; UntrustedCode.
        """
        folder = place if isinstance(place, Folder) else Folder(place)
        manifest = read_manifest(folder)
        for role, reference in manifest["references"].items():
            plain_name(role), plain_name(reference["file"])
            for name in reference.get("modules", ()):
                (folder / CODE / role).local_path(name)  # raises an error for a name that leads out of the folder
        try:
            values = manifest["config"]
            config = config_of(values["method"]).model_validate(values, context={"of_run": True})
        except (ValidationError, UnknownName) as error:
            problem = first_problem(error) if isinstance(error, ValidationError) else error
            raise RunFolderError(
                f"archray cannot read the configuration of {folder}, which is damaged or of another version. Install "
                f"the versions in its {MANIFEST}: {problem}"
            ) from error
        run = cls(folder, manifest, config, trust)
        if not run.trusted and (actions := run.actions(uses)):
            raise reject_code(folder, "run", actions)
        if uses == "resume":
            folder.sweep()
            if trust:
                run.sign()
        return run

    @property
    def trusted(self) -> bool:
        """Whether the run's code may execute: this user started the run on this machine, or trusts it."""
        return self.trust or is_own(self._signed_part(), self.manifest.get(SIGNATURE))

    def actions(self, uses: Uses) -> list[str]:
        """Returns the actions of a command with this purpose, beyond reading data files."""
        if uses == "tables":
            return []
        copies = self.manifest["references"]
        actions = [f"execute {self.folder / CODE / role}/{name}" for role, name in self._code_files()]
        names = {role: name for role, name in self.config.references().items() if role not in copies}
        actions += [f"import {split_reference(name)[0]}" for role, name in names.items() if is_custom_code(role, name)]
        if uses != "code" and (address := self.config.cluster.address) not in (None, LOCAL):
            actions.append(f"connect to the Ray cluster {address}")
        return list(dict.fromkeys(actions))

    def sign(self) -> None:
        """Writes the manifest with this user's signature."""
        self.manifest[SIGNATURE] = signature(self._signed_part())
        self.folder.write_json(MANIFEST, self.manifest)

    def _code_files(self) -> Iterator[tuple[str, str]]:
        """Yields the run's copies of the user's files and their modules: their roles and names."""
        for role, reference in self.manifest["references"].items():
            yield from ((role, name) for name in _code_names(reference))

    def _signed_part(self) -> dict[str, Any]:
        description = {name: self.manifest[name] for name in ("config", "created", "references")}
        mains = {role: reference["file"] for role, reference in self.manifest["references"].items()}
        code = {
            role if name == mains[role] else f"{role}/{name}": (self.folder / CODE / role).sha256(name)
            for role, name in self._code_files()
        }
        return signed_part(description, code)

    def copy_to(self, folder: Folder, config: SearchConfig) -> "Run[Any]":
        """Creates a run in another folder with copies of the user's files and arrays, and another configuration."""
        for role, name in self._code_files():
            (folder / CODE / role).copy_from(self.folder / CODE / role, [name])
        if self.manifest["arrays"]:
            folder.copy_from(self.folder, [ARRAYS])
        manifest = {**self.manifest, "config": config.model_dump(mode="json"), "amended": []}
        run = Run(folder, manifest, config, self.trust)
        run.sign()
        return run

    def data_checksum(self) -> str | None:
        """Returns the checksum in the manifest; adds it if the run started without data."""
        if self.config.starts_without_data and self.manifest["data_checksum"] is None:
            self.manifest |= data_checksums(self.data)
            self.folder.write_json(MANIFEST, self.manifest)
        checksum: str | None = self.manifest["data_checksum"]
        return checksum

    def amend(self, config: SearchConfig) -> None:
        """Changes the configuration of an existing run; the manifest keeps the old configuration."""
        if config == self.config:
            return
        self.manifest["amended"].append({"at": now(), "replaced": self.manifest["config"]})
        self.manifest["config"] = config.model_dump(mode="json")
        self.config = config  # type: ignore[assignment]  # the class stays the same, as the method does
        self.sign()  # a resumed run is trusted

    def table(self, stage: str, name: str) -> "pd.DataFrame":
        """Reads a Parquet table of a stage; empty if it is not written yet. Raises: DamagedFile."""
        import pandas as pd

        return (self.folder / stage).read_parquet(name) if self._is_written(stage, name) else pd.DataFrame()

    def document(self, stage: str, name: str = FOUND) -> dict[str, Any] | None:
        """Reads a JSON file of a stage; None if it is not written yet. Raises: DamagedFile."""
        kind = Result if name == FOUND else dict[str, Any]
        return (self.folder / stage).read_json(name, kind) if self._is_written(stage, name) else None

    def _is_written(self, stage: str, name: str) -> bool:
        """Returns whether a file of a stage exists, or should exist; reading a missing file raises MissingFile."""
        folder = self.folder / stage
        return folder.exists(name) or (folder.exists(DONE) and name in folder.read_json(DONE, Done)["outputs"])

    def pooled(self, stage: str, name: str) -> "pd.DataFrame":
        """Concatenates a table of a stage over all repeats, with a column `repeat`, from 0."""
        import pandas as pd

        runs = self.repeats or [self]
        return pd.concat([run.table(stage, name).assign(repeat=n) for n, run in enumerate(runs)], ignore_index=True)

    @property
    def found(self) -> dict[str, Any] | None:
        """The result of the selection or the search: `architecture` or `members`, `value`; None before its end."""
        stages = ("selection", "pareto", "search")
        document = next(filter(None, map(self.document, stages)), None)
        return None if document is None else _by_its_key(document)

    @property
    def architecture(self) -> str | None:
        """The found architecture; None before the end, and for an ensemble."""
        return (self.found or {}).get("architecture")

    @property
    def result(self) -> dict[str, Any] | None:
        """The result of the run, which is `found` or a network for comparison; None before the end of the search.

        The stages `final` and `baseline` train networks in the same way. The network with the best validation accuracy
        is the result, the network that the search found among equals. If the found architecture is the largest, it
        stays the result even if its training for comparison is the best. A stage that trains networks only for
        comparison writes no `architecture.json`.

        Returns: as `found`, with `final_accuracy` if there is a choice; for a network of the stage `baseline` its
        document with `found`, the architecture that the search found.
        """
        found, other, model = self.found, self.document("baseline"), self.folder / "final" / MODEL
        if found is None or other is None or not model.exists(DESCRIPTION):
            return found
        own = as_float(model.read_json(DESCRIPTION, Result).get("final_accuracy"))
        if as_float(other.get("value")) > own and other.get("architecture") != found["architecture"]:
            return {**_by_its_key(other), "found": found["architecture"]}
        return {**found, "final_accuracy": own}

    @property
    def ended(self) -> dict[str, Any]:
        """The run's `architecture.json` or `findings.json`; empty before the end."""
        return _by_its_key(written_result(self.folder) or {})

    @property
    def repeats(self) -> "list[Run[ConfigT]]":
        """The repeats that have started; empty for a single run."""
        config, folders = type(self.config), [self.folder / n for n in self.folder.folders() if n.startswith(REPEAT)]
        return [Run.open(folder, lambda _: config, trust=self.trust, uses="tables") for folder in folders]

    @property
    def best(self) -> "Run[ConfigT]":
        """The repeat with the best value, whose figures a report shows, or the single run itself."""
        return max(self.repeats, key=lambda run: deciding_value(run.ended), default=self)

    @property
    def seconds(self) -> float:
        """Time that processes worked on the run, including start-up, up to now if a process still works."""
        return worked_seconds(self.folder)

    @cached_property
    def space(self) -> str:
        """The name or reference of the space, here and in every worker that has `user_files`."""
        return self.resolved("space", self.config.space)

    @cached_property
    def data(self) -> DataSettings:
        """The data settings, with the run's copies of the user's arrays or file."""
        arrays = f"arrays:{self._local_copy(self.folder, ARRAYS)}" if self.manifest["arrays"] else None
        return self.config.data.model_copy(update={"name": arrays or self.resolved("data", self.config.data.name)})

    def resolved(self, role: str, name: str) -> str:
        """Resolves a name of the configuration, here and in workers, to the run's copy of a user's file.

        Raises: UntrustedCode; RunFolderError for a file that the run has not copied.
        """
        reference = self.manifest["references"].get(role)
        if not is_custom_code(role, name) and reference is None:
            return name
        if not self.trusted:
            raise reject_code(self.folder, "run", self.actions("code"))
        if reference is None:
            if split_reference(name)[0].endswith(".py"):
                raise RunFolderError(f"expected a copy of {name} in {self.folder / CODE}, which has none for {role}")
            return name
        local = f"{self._user_file(role)}:{reference['attribute']}"
        load_reference(local)  # so that this process also resolves the module's name
        return worker_reference(local)

    @cached_property
    def user_files(self) -> list[Path]:
        """Local copies of the user's files in the run, which archray sends to the workers."""
        references = self.manifest["references"]
        if references and not self.trusted:
            raise reject_code(self.folder, "run", self.actions("code"))
        return [self._user_file(role) for role in references]

    def _user_file(self, role: str) -> Path:
        """Returns the local copy of a user's file, next to copies of its modules. Raises: as `check_copy`."""
        folder, names = self.folder / CODE / role, _code_names(self.manifest["references"][role])
        file, *_ = (self._local_copy(folder, name) for name in names)
        check_copy(file, names)
        return file

    @cached_property
    def _scratch(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="archray-"))

    def _local_copy(self, folder: Folder, name: str) -> Path:
        """Returns the file of a local run, or a local copy if the run is in an object store."""
        local = folder.local_path(name)
        if local is None:
            local = self._scratch / folder.name / name
            local.parent.mkdir(parents=True, exist_ok=True)
            local.write_bytes(folder.read_bytes(name))
        return local


def _copied(file: Path, folder: Folder) -> dict[str, Any]:
    """Copies a user's file and its modules to a folder of the run; returns their manifest entries."""
    hashes = {}
    for name, path in code_files(file).items():
        content = path.read_bytes()
        folder.write_bytes(name, content)
        hashes[name] = hashlib.sha256(content).hexdigest()
    return {"file": file.name, "sha256": hashes.pop(file.name), "modules": hashes}


def _code_names(reference: Mapping[str, Any]) -> list[str]:
    """Returns the names of the copies of a user's file and of its modules."""
    return [reference["file"], *reference.get("modules", ())]  # runs of older versions have no modules


def _by_its_key(document: dict[str, Any]) -> dict[str, Any]:
    """Adds the `value` of a result under the key of its quantity, `metric`."""
    return {**document, document["metric"]: document["value"]} if "metric" in document else document


def is_custom_code(role: str, name: str) -> bool:
    """Returns whether a name in a configuration is a reference to code outside archray."""
    if role == "space":
        return is_custom_space(name)
    if role == "data":
        return is_custom_data(name)
    return is_reference(name)


def reject_existing(folder: Folder, option: str = "--out", *, again: bool = False) -> None:
    """Checks that a folder is empty.

    Args:
        option: option of the command, for the message.
        again: whether the folder may contain files that `Run.create` writes before the manifest.

    Raises: RunFolderError unless the folder is empty.
    """
    if folder.exists(MANIFEST):
        raise RunFolderError(
            f"{folder} already contains a run. Choose another {option}, or continue with: {command('resume', folder)}"
        )
    if (local := folder.local_path()) is not None and local.is_file():
        raise RunFolderError(f"expected a folder, got the file {folder}. Choose another {option}")
    names = {*folder.files(), *folder.folders()}
    if again and all(name in (CODE, ARRAYS) or name.startswith(HEARTBEAT) for name in names):
        return
    if not holds_nothing(folder):
        raise RunFolderError(
            f"expected a new or empty folder, got {folder}, which is not empty. Choose another {option}"
        )


@contextmanager
def removed_after_error(folder: Folder) -> Iterator[None]:
    """Empties the folder of a new run after an error in the block, unless there is work to resume.

    The corrected command can then use the same folder.
    """
    try:
        yield
    except (RunInterrupted, TrialCrashed):
        raise
    except ArchrayError:
        if not _has_work(folder):
            for name in folder.files():
                if not name.startswith(HEARTBEAT):
                    folder.delete(name)
            for name in folder.folders():
                (folder / name).remove()
        raise


def _has_work(run: Folder) -> bool:
    """Returns whether a stage is done, or has folders (of trials, scored rows, or an earlier attempt)."""
    folders = [run / name for name in run.folders() if name != CODE]
    return any(_has_work(part) if part.exists(MANIFEST) else part.exists(DONE) or part.folders() for part in folders)


def check_same_search(run: Run[Any], config: SearchConfig) -> None:
    """Checks that a run has `config` (on any cluster) and the same user files. Raises: RunFolderError."""
    old, new = (flat(values.model_dump(mode="json", exclude={"cluster"})) for values in (run.config, config))
    keys = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    differences = [f"{key} is {old.get(key)!r}, not {new.get(key)!r}" for key in keys]
    for role, reference in run.manifest["references"].items():
        file = reference_file(reference["reference"])
        if file is not None and file.is_file():
            hashes = {reference["file"]: reference["sha256"], **reference.get("modules", {})}
            changed = sorted({name for name, _ in hashes.items() ^ file_hashes(file).items()})
            if reference["reference"].startswith(f"{PLACE}:"):  # pickles of equal code may differ
                copy = (run.folder / CODE / role).read_bytes(reference["file"])
                changed = [] if source_in(copy) == source_in(file.read_bytes()) else changed
            differences += [f"{file.parent / name} differs from its present content" for name in changed]
    if differences:
        raise RunFolderError(
            f"{run.folder} contains a run with another configuration: there {'; '.join(differences)}. Choose another "
            f"--out, or resume that run with: {command('resume', run.folder)}"
        )
