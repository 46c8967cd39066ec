"""The run folder: everything that a run wrote, and from which it resumes."""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import ValidationError

from archray.cluster.settings import LOCAL
from archray.errors import ArchrayError, RunFolderError, RunInterrupted, TrialCrashed, UnknownName, first_problem
from archray.files import Folder, plain_name
from archray.platform.config import SearchConfig, flat
from archray.platform.quantities import deciding_accuracy
from archray.platform.run.documents import Done, Result
from archray.platform.run.heartbeat import holds_nothing
from archray.platform.run.layout import ARRAYS, CODE, DONE, FOUND, HEARTBEAT, MANIFEST, REPEAT, command
from archray.platform.run.manifest import (
    NO_CHECKSUMS,
    check_versions,
    data_checksums,
    git_commit,
    hardware,
    now,
    versions,
)
from archray.platform.run.run_summary import read_manifest, worked_seconds, written_result
from archray.platform.run.trust import SIGNATURE, Uses, is_own, refuse_code, signature, signed_part
from archray.references import is_reference, load_reference, split_reference, worker_reference
from archray.trainables.data import DataSettings, save_arrays
from archray.trainables.data.load import is_own_data
from archray.trainables.spaces import is_own_space

if TYPE_CHECKING:
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
    trust: bool = True  # whether this process made it, or the user said so; otherwise its signature decides

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
        run.sign()
        return run

    @classmethod
    def open(
        cls,
        place: str | PathLike[str] | Folder,
        config_of: Callable[[str], type[ConfigT]],
        *,
        force: bool = False,
        trust: bool = False,
        uses: Uses = "code",
    ) -> Run[ConfigT]:
        """The run in a folder.

        Args:
            config_of: name of a method -> the class of its configuration.
            trust: whether its code may run although this user did not start it on this machine.
            uses: what of it is used; of a run whose `state` is, versions are checked, and files deleted that a killed
                driver left unfinished.

        Raises: RunFolderError if the folder holds no run, or other versions made it; UntrustedCode.
        """
        folder = place if isinstance(place, Folder) else Folder(place)
        manifest = read_manifest(folder)
        for role, kept in manifest["references"].items():
            plain_name(role), plain_name(kept["file"])
        try:
            values = manifest["config"]
            config = config_of(values["method"]).model_validate(values, context={"of_run": True})
        except (ValidationError, UnknownName) as error:
            problem = first_problem(error) if isinstance(error, ValidationError) else error
            raise RunFolderError(
                f"{folder} has a configuration that this archray cannot read, damaged or of another version; install "
                f"the versions of its {MANIFEST}: {problem}"
            ) from error
        run = cls(folder, manifest, config, trust)
        if not run.trusted and (actions := run.actions(uses)):
            raise refuse_code(folder, "run", actions)
        if uses == "state":
            check_versions(manifest, str(folder), force)
            folder.sweep()
            if trust:
                run.sign()
        return run

    # Whose it is

    @property
    def trusted(self) -> bool:
        """Whether its code may run: this user started it on this machine, or said so."""
        return self.trust or is_own(self._signed_part(), self.manifest.get(SIGNATURE))

    def actions(self, uses: Uses) -> list[str]:
        """What a command that uses so much of the run would do, beyond reading files of data."""
        if uses == "tables":
            return []
        kept = self.manifest["references"]
        actions = [f"execute {self.folder / CODE / role / each['file']}" for role, each in kept.items()]
        named = {role: name for role, name in self.config.references().items() if role not in kept}
        actions += [f"import {split_reference(name)[0]}" for role, name in named.items() if is_own_code(role, name)]
        if uses != "code" and (address := self.config.cluster.address) not in (None, LOCAL):
            actions.append(f"connect to the Ray cluster {address}")
        if uses == "state":
            actions.append("read state that Ray Tune has pickled")
        return list(dict.fromkeys(actions))

    def sign(self) -> None:
        """Writes the manifest, signed as a run of this user's."""
        self.manifest[SIGNATURE] = signature(self._signed_part())
        self.folder.write_json(MANIFEST, self.manifest)

    def _signed_part(self) -> dict[str, Any]:
        kept = self.manifest["references"]
        described = {name: self.manifest[name] for name in ("config", "created", "references")}
        files = {role: self.folder / CODE / role for role in kept}
        return signed_part(described, {role: files[role].sha256(each["file"]) for role, each in kept.items()})

    def copy_to(self, folder: Folder, config: SearchConfig) -> Run[Any]:
        """A run in another folder with this one's copies of the user's files and arrays, and another configuration."""
        for role, kept in self.manifest["references"].items():
            (folder / CODE / role).copy_from(self.folder / CODE / role, [kept["file"]])
        if self.manifest["arrays"]:
            folder.copy_from(self.folder, [ARRAYS])
        manifest = {**self.manifest, "config": config.model_dump(mode="json"), "amended": []}
        run = Run(folder, manifest, config, self.trust)
        run.sign()
        return run

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
        self.sign()  # of a run that is resumed, and so trusted

    # What its stages wrote

    def table(self, stage: str, name: str) -> pd.DataFrame:
        """A Parquet table of a stage; empty where it has not been written. Raises: DamagedFile."""
        import pandas as pd

        return (self.folder / stage).read_parquet(name) if self._is_written(stage, name) else pd.DataFrame()

    def document(self, stage: str, name: str = FOUND) -> dict[str, Any] | None:
        """A JSON file of a stage; None where it has not been written. Raises: DamagedFile."""
        kind = Result if name == FOUND else dict[str, Any]
        return (self.folder / stage).read_json(name, kind) if self._is_written(stage, name) else None

    def _is_written(self, stage: str, name: str) -> bool:
        """Whether a file of a stage is there, or should be: reading it then says that it is missing."""
        folder = self.folder / stage
        return folder.exists(name) or (folder.exists(DONE) and name in folder.read_json(DONE, Done)["outputs"])

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
        return [
            Run.open(self.folder / name, lambda _: type(self.config), trust=self.trust, uses="tables") for name in names
        ]

    @property
    def best(self) -> Run[ConfigT]:
        """The repeat with the best value, whose figures a report shows; a run of one itself."""

        def worth(run: Run[Any]) -> float:
            deciding = deciding_accuracy(run.ended)
            return -math.inf if deciding is None else deciding[1]

        return max(self.repeats, key=worth, default=self)

    @property
    def seconds(self) -> float:
        """How long processes worked on the run, start-up included, up to now if one still does."""
        return worked_seconds(self.folder)

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
        """A name of the configuration as it resolves here and in workers: the run's own copy of a user's file.

        Raises: UntrustedCode; RunFolderError for a file of which the run has no copy.
        """
        reference = self.manifest["references"].get(role)
        if not is_own_code(role, name) and reference is None:
            return name
        if not self.trusted:
            raise refuse_code(self.folder, "run", self.actions("code"))
        if reference is None:
            if split_reference(name)[0].endswith(".py"):
                raise RunFolderError(f"expected a copy of {name} in {self.folder / CODE}, which has none for {role}")
            return name
        local = f"{self._local_copy(self.folder / CODE / role, reference['file'])}:{reference['attribute']}"
        load_reference(local)  # so that the module's name resolves in this process too
        return worker_reference(local)

    @cached_property
    def user_files(self) -> list[Path]:
        """Local copies of the files of the user's that the run kept: they travel to the workers."""
        references = self.manifest["references"].items()
        if references and not self.trusted:
            raise refuse_code(self.folder, "run", self.actions("code"))
        return [self._local_copy(self.folder / CODE / role, kept["file"]) for role, kept in references]

    @cached_property
    def _scratch(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="archray-"))

    def _local_copy(self, folder: Folder, name: str) -> Path:
        """The file itself in a local run; a copy of it where the run lies on an object store."""
        local = folder.local_path(name)
        if local is None:
            local = self._scratch / folder.name / name
            local.parent.mkdir(exist_ok=True)
            local.write_bytes(folder.read_bytes(name))
        return local


def _by_its_key(document: dict[str, Any]) -> dict[str, Any]:
    """What was found, its `value` also under the key of the quantity that it is, the document's `metric`."""
    return {**document, document["metric"]: document["value"]} if "metric" in document else document


def is_own_code(role: str, name: str) -> bool:
    """Whether the name that a configuration has for a role is a reference to code that is not archray's."""
    if role == "space":
        return is_own_space(name)
    if role == "data":
        return is_own_data(name)
    return is_reference(name)


def refuse_existing(folder: Folder, option: str = "--out", *, again: bool = False) -> None:
    """Raises: RunFolderError if the folder holds anything. option: what named it.

    again: what `Run.create` writes before the manifest may be there.
    """
    if folder.exists(MANIFEST):
        raise RunFolderError(
            f"{folder} holds a run already; choose another {option}, or continue it with: {command('resume', folder)}"
        )
    if (local := folder.local_path()) is not None and local.is_file():
        raise RunFolderError(f"{folder} is a file; choose another {option}")
    left = {*folder.files(), *folder.folders()}
    if again and all(name in (CODE, ARRAYS) or name.startswith(HEARTBEAT) for name in left):
        return
    if not holds_nothing(folder):
        raise RunFolderError(f"{folder} exists and is not empty; choose another {option}")


@contextmanager
def removed_if_refused(folder: Folder) -> Iterator[None]:
    """Empties the folder of a new run if it is refused in the block before there is work that `resume` could continue.

    So the corrected command finds the folder as this one did.
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
    """Whether a stage is done, or has folders: those of trials, of rows that arrived, of what was set aside."""
    folders = [run / name for name in run.folders() if name != CODE]
    return any(_has_work(each) if each.exists(MANIFEST) else each.exists(DONE) or each.folders() for each in folders)


# Comparison of an existing run with the search that a command requests.


def check_same_search(run: Run[Any], config: SearchConfig) -> None:
    """That the run was begun with `config`, wherever either runs, and that the user's files are as they were.

    Raises: RunFolderError, with what differs.
    """
    own, asked = (flat(each.model_dump(mode="json", exclude={"cluster"})) for each in (run.config, config))
    differing = [
        f"{key} is {own.get(key)!r}, not {asked.get(key)!r}"
        for key in sorted(own.keys() | asked.keys())
        if own.get(key) != asked.get(key)
    ]
    for kept in run.manifest["references"].values():
        file = Path(split_reference(kept["reference"])[0])
        if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() != kept["sha256"]:
            differing.append(f"{file} is as it was when it began, which has changed since")
    if differing:
        raise RunFolderError(
            f"{run.folder} holds another search: there {'; '.join(differing)}. Choose another --out, or "
            f"continue that search with: {command('resume', run.folder)}"
        )
