"""Runs of other users: no command leaves their folder or executes their code without --trust, and some commands never
do.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from archray_test_models import a_run, run_of_ensemble, run_of_network
from ray import cloudpickle

import archray
from archray.errors import ArchrayError, DamagedFile, RunFolderError, UntrustedCode
from archray.files import Folder
from archray.platform.methods import open_run
from archray.platform.models.model_files import load_model
from archray.platform.run.trust import key_file
from archray.trainables.spaces import NASBench201

TOUCH = """
import os
from pathlib import Path
Path(os.environ["ARCHRAY_TEST_MARKER"]).touch()
"""
SPACE = """
import numpy, touching
from archray.trainables.spaces import NASBench201

class Own(NASBench201):
    pass
"""
CODE = ("own_space.py", "touching.py")  # the user's file, and the module of its folder that it imports
IMAGES = np.zeros((2, 8, 8, 1), dtype=np.uint8)


class Malicious:
    """An object whose pickle touches a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.file}",)


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that the code of these runs creates when it is executed."""
    monkeypatch.setenv("ARCHRAY_TEST_MARKER", str(tmp_path / "executed"))
    return tmp_path / "executed"


@pytest.fixture
def own_run(tmp_path: Path, marker: Path) -> Path:
    """A run of this user with a space in a file."""
    source = tmp_path / "own_space.py"
    source.write_text(f"{SPACE}\n# {tmp_path}")  # each test has another module
    (tmp_path / "touching.py").write_text(TOUCH)
    run = run_of_network(tmp_path / "mine" / "run", f"{source}:Own")
    for folder in (run.folder, run.folder / "search"):
        folder.write_json("architecture.json", {"architecture": load_described(run.folder), "value": 0.5})
    marker.unlink()
    return tmp_path / "mine" / "run"


@pytest.fixture
def foreign_run(own_run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The same run of another user or machine, with another key."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return own_run


def load_described(folder: Folder) -> str:
    return str((folder / "model").read_json("architecture.json")["architecture"])


def edit(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


def files_of(place: Path) -> dict[str, bytes]:
    return {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}


def forget_modules(*modules: str) -> None:
    """Forgets executed modules.

    A user's file is executed once per process, and these tests check whether it is executed at all.
    """
    import sys

    for name in [name for name in sys.modules if name.startswith(("own_space_", *modules))]:
        del sys.modules[name]


# Commands that execute the code of a run if it is trusted
EXECUTING: dict[str, Callable[[Path, bool], Any]] = {
    "report": lambda run, trust: archray.report(run, trust=trust),
    "export": lambda run, trust: archray.export(run, trust=trust, formats="state-dict"),
    "predict": lambda run, trust: archray.predict(run, IMAGES, trust=trust),
    "model": lambda run, trust: archray.load(run, trust=trust).model(),
    "resume": lambda run, trust: open_run(run, trust=trust, uses="resume").space,
    "attack": lambda run, trust: open_run(run, trust=trust, uses="cluster").space,
}


@pytest.mark.parametrize("command", EXECUTING)
def test_code_of_another_user_runs_only_with_trust(foreign_run: Path, marker: Path, command: str) -> None:
    forget_modules()
    before = files_of(foreign_run)
    with pytest.raises(UntrustedCode, match=r"own_space\.py.*touching\.py.*--trust"):
        EXECUTING[command](foreign_run, False)
    assert not marker.exists() and files_of(foreign_run) == before
    EXECUTING[command](foreign_run, True)
    assert marker.exists()


@pytest.mark.parametrize("command", EXECUTING)
def test_a_run_of_this_user_needs_no_trust_after_a_move(own_run: Path, tmp_path: Path, command: str) -> None:
    moved = Path(shutil.copytree(own_run, tmp_path / "elsewhere" / "renamed"))
    EXECUTING[command](moved, False)


@pytest.mark.parametrize("name", CODE)
def test_changed_code_of_this_users_run_needs_trust_again(own_run: Path, marker: Path, name: str) -> None:
    file = own_run / "code" / "space" / name
    file.write_text(file.read_text() + "\n# changed")
    with pytest.raises(UntrustedCode):
        archray.report(own_run)
    assert not marker.exists()


def test_a_module_added_to_this_users_run_or_export_raises_an_error(
    own_run: Path, marker: Path, tmp_path: Path
) -> None:
    archray.export(own_run, tmp_path / "export", formats="state-dict")
    forget_modules()
    marker.unlink(missing_ok=True)
    for folder in (own_run / "code" / "space", tmp_path / "export" / "space"):
        (folder / "numpy.py").write_text(TOUCH)
    for command in EXECUTING.values():
        with pytest.raises(RunFolderError, match=r"got own_space\.py, numpy\.py, touching\.py"):
            command(own_run, True)
    with pytest.raises(RunFolderError, match=r"got own_space\.py, numpy\.py, touching\.py"):
        archray.predict(tmp_path / "export", IMAGES)
    assert not marker.exists()


@pytest.mark.parametrize("change", ["references", "config"])
def test_a_changed_manifest_of_this_users_run_needs_trust_again(own_run: Path, change: str) -> None:
    def other(manifest: dict[str, Any]) -> None:
        if change == "references":
            manifest["references"]["space"]["attribute"] = "Path"
        else:
            manifest["config"]["data"]["name"] = "shutil:rmtree"

    edit(own_run / "manifest.json", other)
    with pytest.raises(UntrustedCode):
        archray.report(own_run)


def test_a_pickled_space_needs_trust(tmp_path: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = NASBench201()
    space.on_load = Malicious(marker)  # type: ignore[attr-defined]
    run = a_run(tmp_path / "run", space)
    assert run.config.space == "object:space:space"
    forget_modules("space_")
    marker.unlink()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for uses in ("tables", "code", "resume"):
        with pytest.raises(UntrustedCode, match=r"code/space/space\.py"):
            open_run(run.folder, uses=uses).space  # noqa: B018  # a property that would load it
    assert not marker.exists()
    open_run(run.folder, trust=True).space  # noqa: B018
    assert marker.exists()


def test_a_module_in_a_manifest_needs_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(tmp_path / "run", "nasbench201").folder.local_path()
    assert run is not None
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    archray.report(run)  # archray's spaces and data are not code of the run
    edit(run / "manifest.json", lambda manifest: manifest["config"].update(space="antigravity:geohash"))
    with pytest.raises(UntrustedCode, match="antigravity"):
        archray.report(run)


def test_commands_that_show_runs_never_execute_their_code(foreign_run: Path, marker: Path, tmp_path: Path) -> None:
    forget_modules()
    archray.show(foreign_run)
    archray.runs(foreign_run.parent)
    archray.watch(foreign_run, once=True)
    archray.load(foreign_run)
    second = shutil.copytree(foreign_run, tmp_path / "second")
    archray.compare([foreign_run, second], out=tmp_path / "compared.html")
    assert open_run(foreign_run, uses="tables").config.space.endswith(":Own")
    with pytest.raises(UntrustedCode):
        open_run(foreign_run, uses="tables").space  # noqa: B018  # a property that would load it
    assert not marker.exists()


@pytest.mark.slow
@pytest.mark.ci
def test_a_resume_without_code_needs_no_trust_and_reads_no_pickle(
    finished_run: Callable[[str], archray.RunResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, run = finished_run("hnas"), tmp_path / "run"
    shutil.copytree(whole.path, run)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for stage in ("search", "final"):
        (run / stage / "done.json").unlink()
    pickles = list(run.glob("*/tune-*/**/*.pkl"))
    assert pickles, "Tune writes some"
    for file in pickles:
        file.write_bytes(cloudpickle.dumps(Malicious(tmp_path / "executed")))
    assert archray.resume(run).architecture == whole.architecture
    assert not (tmp_path / "executed").exists()


def test_a_resume_that_joins_a_cluster_needs_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(tmp_path / "run", "nasbench201").folder.uri
    edit(Path(run) / "manifest.json", lambda manifest: manifest["config"]["cluster"].update(address="192.0.2.7:6379"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for resume in (archray.resume, lambda run: archray.search("random", out=run, or_resume=True)):
        with pytest.raises(UntrustedCode, match=r"connect to the Ray cluster 192\.0\.2\.7"):
            resume(run)
    open_run(run, trust=True, uses="resume")
    open_run(run, uses="resume")  # from now on the run belongs to this user


def test_a_machine_that_cannot_store_the_key_trusts_nothing(
    own_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))  # no folder can be made here
    run = a_run(tmp_path / "second", "nasbench201")
    assert run.trusted and run.manifest["signature"] is None, "the process that started it continues"
    with pytest.raises(UntrustedCode, match=str(tmp_path / "file")):
        archray.report(own_run)


def test_only_the_user_can_read_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = a_run(tmp_path / "run", "nasbench201")
    assert stat.S_IMODE(key_file().stat().st_mode) == 0o600 and stat.S_IMODE(key_file().parent.stat().st_mode) == 0o700
    assert open_run(run.folder).trusted
    key_file().chmod(0o644)
    assert not open_run(run.folder).trusted


# Paths


def test_a_manifest_cannot_name_files_elsewhere(foreign_run: Path, marker: Path, tmp_path: Path) -> None:
    """An absolute path, a path with `..`, and a file without a copy in the run are rejected even with trust."""
    evil = tmp_path / "evil.py"
    evil.write_text(TOUCH)
    whole = (foreign_run / "manifest.json").read_text()
    changes: list[Callable[[dict[str, Any]], Any]] = [
        lambda manifest: manifest["references"]["space"].update(file=str(evil)),
        lambda manifest: manifest["references"]["space"].update(file="../../../../evil.py"),
        lambda manifest: manifest["references"]["space"].update(modules={"../../../../evil.py": ""}),
        lambda manifest: manifest["references"]["space"].update(modules={str(evil): ""}),
        lambda manifest: manifest.update(
            references={"../../..": {**manifest["references"]["space"], "file": "evil.py"}}
        ),
        lambda manifest: (manifest["config"].update(space=f"{evil}:Own"), manifest["references"].clear()),
    ]
    outside = files_of(tmp_path)
    for change in changes:
        (foreign_run / "manifest.json").write_text(whole)
        edit(foreign_run / "manifest.json", change)
        for command in ("export", "predict", "model", "resume", "attack"):
            forget_modules("evil_")
            with pytest.raises(RunFolderError) as caught:
                EXECUTING[command](foreign_run, True)
            assert not isinstance(caught.value, UntrustedCode)
            assert not marker.exists()
    (foreign_run / "manifest.json").write_text(whole)
    assert {n: c for n, c in files_of(tmp_path).items() if "state/" not in n} == {
        n: c for n, c in outside.items() if "state/" not in n
    }


@pytest.mark.parametrize("name", CODE)
def test_links_that_lead_out_of_a_run_are_not_followed(
    foreign_run: Path, tmp_path: Path, marker: Path, name: str
) -> None:
    file = foreign_run / "code" / "space" / name
    file.rename(tmp_path / "moved.py")
    file.symlink_to(tmp_path / "moved.py")
    with pytest.raises(RunFolderError, match="leads out"):
        archray.report(foreign_run, trust=True)
    (foreign_run / "summary.json").unlink(missing_ok=True)
    (foreign_run / "summary.json").symlink_to(tmp_path / "moved.py")
    with pytest.raises(RunFolderError, match="leads out"):
        archray.show(foreign_run)
    assert not marker.exists()


@pytest.mark.parametrize("kind", ["network", "ensemble"])
def test_weights_that_would_execute_code_raise_an_error(tmp_path: Path, marker: Path, kind: str) -> None:
    make = {"network": run_of_network, "ensemble": lambda place, space: run_of_ensemble(place, space, (0, 1))}[kind]
    run = make(tmp_path / "run", "nasbench201")
    torch.save(Malicious(marker), tmp_path / "run" / "model" / "state_dict.pt")
    with pytest.raises(DamagedFile, match="state_dict") as caught:
        load_model(run)
    assert not marker.exists() and "weights_only" not in str(caught.value)


@pytest.mark.parametrize(("kind", "entry"), [("network", float("nan")), ("ensemble", "text"), ("export", None)])
def test_weights_that_are_not_finite_tensors_are_named(tmp_path: Path, kind: str, entry: Any) -> None:
    run = (run_of_ensemble if kind == "ensemble" else run_of_network)(
        tmp_path / "run", "nasbench201", *([(0, 1)] if kind == "ensemble" else [])
    )
    place = tmp_path / "run" / "model"
    if kind == "export":
        place = tmp_path / "export"
        archray.export(run.folder.uri, place, formats="state-dict")
    state = torch.load(place / "state_dict.pt", weights_only=True)
    name = next(name for name, weights in state.items() if weights.is_floating_point())
    state[name] = torch.full_like(state[name], entry) if isinstance(entry, float) else entry
    torch.save(state, place / "state_dict.pt")
    with pytest.raises(DamagedFile, match=rf"state_dict\.pt.*{name}"):
        archray.predict(place if kind == "export" else place.parent, IMAGES)
    if kind != "export":
        with pytest.raises(DamagedFile, match=r"state_dict\.pt"):
            archray.export(place.parent, tmp_path / "to", formats="state-dict")


@pytest.mark.parametrize(("classes", "kind"), [("ten", "export"), (-1, "ensemble"), (10**9, "export")])
def test_an_impossible_number_of_classes_is_named(tmp_path: Path, kind: str, classes: Any) -> None:
    make = {"export": run_of_network, "ensemble": lambda place, space: run_of_ensemble(place, space, (0, 1))}[kind]
    run, file = make(tmp_path / "run", "nasbench201"), tmp_path / "run" / "model" / "architecture.json"
    if kind == "export":
        archray.export(run.folder.uri, tmp_path / "export", formats="state-dict")
        file = tmp_path / "export" / "model.json"
    edit(file, lambda card: (card["members"][1] if kind == "ensemble" else card).update(num_classes=classes))
    with pytest.raises(DamagedFile, match=file.name):
        archray.predict(file.parent if kind == "export" else run.folder.uri, IMAGES)


# Exports


@pytest.mark.parametrize("name", ["python", "torch-export", "state-dict"])
def test_an_export_that_executes_code_needs_trust(
    own_run: Path, marker: Path, tmp_path: Path, name: str, monkeypatch
) -> None:
    export = tmp_path / "export"
    archray.export(own_run, export, formats=name)
    archray.predict(shutil.copytree(export, tmp_path / "moved"), IMAGES)
    forget_modules()
    marker.unlink(missing_ok=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(UntrustedCode, match="--trust"):
        archray.predict(export, IMAGES)
    assert not marker.exists()
    archray.predict(export, IMAGES, trust=True)


def test_an_exported_space_file_is_inside_the_export(own_run: Path, tmp_path: Path) -> None:
    archray.export(own_run, tmp_path / "export", formats="state-dict")
    elsewhere = (str(tmp_path / "own_space.py"), "../own_space.py")
    changes = [{"space_file": file} for file in elsewhere] + [{"space_modules": [file]} for file in elsewhere]
    for change in changes:
        edit(tmp_path / "export" / "model.json", lambda card, change=change: card.update(change))
        with pytest.raises(RunFolderError):
            archray.predict(tmp_path / "export", IMAGES, trust=True)


def test_a_description_writes_no_code_into_an_export(own_run: Path, tmp_path: Path) -> None:
    def inject(described: dict[str, Any]) -> None:
        described["input"]["channels"] = '"""\nimport os\n"""'

    edit(own_run / "model" / "architecture.json", inject)
    with pytest.raises((ArchrayError, ValueError)):
        archray.export(own_run, tmp_path / "export", formats="python")
    assert not (tmp_path / "export" / "network.py").exists()
