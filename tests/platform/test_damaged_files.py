"""Every command names a damaged file of a run, and lists the other runs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import archray
from archray.errors import ArchrayError, DamagedFile
from archray.files import Folder
from archray.platform.cli import application
from archray.platform.engine.tuning import TuneRun

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "torn": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "garbage": lambda content: bytes(range(128, 256)) * 4,
    "list": lambda content: b"[1, 2]\n",
    "object": lambda content: b"{}\n",
    "nested": lambda content: b"[" * 100_000,
    "huge": lambda content: b'{"value": 1' + b"0" * 5000 + b"}",
}
JSON_ONLY = ("list", "object", "nested", "huge")
COMMANDS_BY_FILE = {  # the commands that need the file and so name it
    "manifest.json": ("show", "watch", "report", "compare", "predict", "export", "resume"),
    "summary.json": (),  # counts as missing
    "heartbeat.json": (),  # belongs to no command
    "architecture.json": ("report",),
    "search/done.json": ("report",),
    "search/trials.parquet": ("report",),
    "model/architecture.json": ("predict", "export"),
    "model/state_dict.pt": ("predict", "export"),
    "report.html": (),
}


COMMANDS = ("show", "watch", "report", "compare", "predict", "export", "resume")
# File, keys, value, and the commands that need the file and so name it
WRONG: list[tuple[str, str, Any, tuple[str, ...]]] = [
    ("manifest.json", "config", [], COMMANDS),
    ("manifest.json", "config.method", "ha\x1b[31mas", ("report", "compare", "predict", "export", "resume")),
    ("manifest.json", "config.data", "digits", COMMANDS),
    ("manifest.json", "created", "yesterday", COMMANDS),
    ("manifest.json", "versions", 3, COMMANDS),
    ("summary.json", "stages", "x", ()),
    ("summary.json", "listings.0.rows", {"a": 1}, ()),
    ("summary.json", "result.test_accuracy", "good", ()),
    ("summary.json", "result.architecture", "\x1b[31mred\x9b2J", ()),
    ("summary.json", "reason", "\u202enwod edispu", ()),
    ("architecture.json", "architecture", 5, ("report",)),
    ("architecture.json", "test_accuracy", {"best": 5}, ("report",)),
    ("search/architecture.json", "architecture", "|nor_conv_9x9~0|", ("report",)),
    ("search/done.json", "outputs", ["trials.parquet"], ("report",)),
    ("heartbeat.json", "pid", 10**30, ()),
    ("model/architecture.json", "num_classes", 10**9, ("predict", "export")),
    ("model/architecture.json", "network", {"channels": []}, ("predict", "export")),
    ("model/architecture.json", "kind", [], ("predict", "export")),
]


def commands(run: Path, whole: Path, tmp_path: Path) -> list[tuple[str, ...]]:
    image = tmp_path / "image.png"
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(image)
    return [
        ("show", str(run)),
        ("show", str(run), "--json"),
        ("watch", str(run), "--once"),
        ("compare", str(whole), str(run)),
        ("predict", str(run), str(image)),
        ("export", str(run), "--to", str(tmp_path / "export"), "--format", "state-dict"),
        ("report", str(run)),
    ]


def run_command(command: tuple[str, ...], named: str | None) -> str:
    """Runs a command that may fail only with an error of archray, and returns its output.

    If `named` is given, the command must fail and its error must contain this text.
    """
    result = CliRunner().invoke(application(command), command)
    error = result.exception
    assert error is None or isinstance(error, ArchrayError | SystemExit), (command, error)
    assert "\n" not in str(error) and not set("\x1b\x07\x9b\u202e") & set(f"{error}{result.output}")
    assert named is None or named in str(error), (command, error)
    return result.output


@pytest.mark.parametrize(("file", "keys", "value", "named"), WRONG)
def test_a_document_with_wrong_types_is_named(
    finished_run: Callable[[str], archray.RunResult],
    tmp_path: Path,
    file: str,
    keys: str,
    value: Any,
    named: tuple[str, ...],
) -> None:
    whole, run = Path(finished_run("hnas").path), tmp_path / "runs" / "run"
    shutil.copytree(whole, run)
    shutil.copytree(whole, tmp_path / "runs" / "whole")
    beat = {"at": "2026-01-01T00:00:00+00:00", "host": "", "processes": "", "pid": 1}
    document = beat if file == "heartbeat.json" else json.loads((run / file).read_text())
    inner, *path, last = document, *keys.split(".")
    for key in path:
        inner = inner[int(key) if isinstance(inner, list) else key]
    inner[int(last) if isinstance(inner, list) else last] = value
    (run / file).write_text(json.dumps(document))
    for command in commands(run, whole, tmp_path):
        if command[0] in {"show", "watch", *named}:
            run_command(command, Path(file).name if command[0] in named else None)
    if "resume" in named:
        run_command(("resume", str(run)), Path(file).name)
    assert "whole" in run_command(("runs", str(run.parent)), None)


@pytest.mark.parametrize(
    ("lost", "named"),
    [
        ("search/trials.parquet", "search/trials.parquet is missing"),
        ("search", "search/done.json is missing"),
        ("*/", "the folder of every stage is missing"),
        ("model", "model/"),
        pytest.param("model/state_dict.pt", "state_dict.pt", marks=pytest.mark.slow),
    ],
)
def test_the_missing_file_of_a_partly_copied_run_is_named(
    finished_run: Callable[[str], archray.RunResult], tmp_path: Path, lost: str, named: str
) -> None:
    whole, run = Path(finished_run("hnas").path), tmp_path / "run"
    shutil.copytree(whole, run)
    for place in [*run.glob(lost)]:
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    before = (run / "report.html").read_bytes()
    if "model" in lost:
        archray.report(run)  # it needs no weights
    else:
        with pytest.raises(DamagedFile, match=r"done\.json|trials\.parquet"):
            archray.report(run)
        assert (run / "report.html").read_bytes() == before
    shown = run_command(("show", str(run)), None)
    assert named in shown and "archray resume" in shown
    assert named in str(archray.runs(tmp_path)[0].reason)
    for command in commands(run, whole, tmp_path):
        if command[0] in ("predict", "export") and "model" in lost:
            run_command(command, named)


@pytest.mark.parametrize("damage", ["torn", "foreign", "none"])
def test_damaged_tables_of_an_earlier_stage_are_rewritten(tmp_path: Path, damage: str) -> None:
    folder, lines = Folder(tmp_path), list[str]()
    run = TuneRun(folder, None, None, None)  # type: ignore[arg-type]
    vars(run).update(trials=pd.DataFrame({"trial_id": ["b"]}), curves=pd.DataFrame({"trial_id": ["b"]}))
    folder.write_parquet("trials.parquet", pd.DataFrame({"other" if damage == "foreign" else "trial_id": ["a"]}))
    if damage == "torn":
        folder.write_bytes("trials.parquet", b"PAR1")
    run.write_tables(folder, lines.append, keep_earlier=True)
    kept = ["a", "b"] if damage == "none" else ["b"]
    assert list(folder.read_parquet("trials.parquet")["trial_id"]) == kept
    assert ["trials.parquet is damaged" in line for line in lines] == ([] if damage == "none" else [True])


@pytest.mark.slow
@pytest.mark.parametrize("file", COMMANDS_BY_FILE)
def test_a_damaged_file_is_named_without_a_traceback(
    finished_run: Callable[[str], archray.RunResult], tmp_path: Path, file: str
) -> None:
    whole, run = finished_run("hnas").path, tmp_path / "runs" / "run"
    shutil.copytree(whole, tmp_path / "runs" / "whole")
    for damage, change in DAMAGES.items():
        if damage in JSON_ONLY and not file.endswith(".json"):
            continue
        shutil.rmtree(run, ignore_errors=True)
        shutil.rmtree(tmp_path / "export", ignore_errors=True)
        shutil.copytree(whole, run)
        (run / file).write_bytes(change((run / file).read_bytes() if (run / file).exists() else b"[]"))
        for command in commands(run, Path(whole), tmp_path):
            run_command(command, Path(file).name if command[0] in COMMANDS_BY_FILE[file] else None)
        assert "whole" in run_command(("runs", str(run.parent)), None)


def test_exchanged_stages_raise_an_error_and_a_resume_repeats_them(
    finished_run: Callable[[str], archray.RunResult], tmp_path: Path
) -> None:
    whole, run = Path(finished_run("hnas").path), tmp_path / "run"
    shutil.copytree(whole, run)
    for source, target in (("final", "other"), ("baseline", "final"), ("other", "baseline")):
        (run / source).rename(run / target)
    with pytest.raises(DamagedFile, match=rf"final/done\.json .*the stage final .*'archray resume {run}'"):
        archray.report(run)
    assert (run / "report.html").read_bytes() == (whole / "report.html").read_bytes()
    archray.resume(run)
    archray.report(run)
    assert json.loads((run / "architecture.json").read_text()) == json.loads((whole / "architecture.json").read_text())


def negate(weights: Path) -> bytes:
    """Replaces weights by their negatives; returns the old content."""
    before = weights.read_bytes()
    state = torch.load(weights, weights_only=True)
    torch.save({name: -tensor if tensor.is_floating_point() else tensor for name, tensor in state.items()}, weights)
    return before


def test_replaced_weights_raise_an_error_and_a_resume_restores_them(
    finished_run: Callable[[str], archray.RunResult], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run("hnas").path, run)
    trained = "baseline" if "found" in json.loads((run / "architecture.json").read_text()) else "final"
    before = negate(run / "model" / "state_dict.pt")
    negate(run / trained / "model" / "state_dict.pt")
    for command in commands(run, run, tmp_path):
        if command[0] in ("predict", "export"):
            run_command(command, "model/state_dict.pt")
    with pytest.raises(DamagedFile, match=r"its checksum differs .*'archray resume"):
        archray.load(run).model()
    assert not (tmp_path / "export").exists()
    archray.resume(run)
    archray.load(run).model()
    assert (run / "model" / "state_dict.pt").read_bytes() == before


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize("loss", ["torn searcher", "other searcher", "no trials", "empty log"])
def test_a_resume_restores_a_search_without_the_state_of_its_end(
    finished_run: Callable[[str], archray.RunResult], tmp_path: Path, loss: str
) -> None:
    whole, run = Path(finished_run("hnas").path), tmp_path / "run"
    shutil.copytree(whole, run)
    search = run / "search"
    if loss == "torn searcher":
        cut(search / "searcher.json")
    elif loss == "other searcher":
        (search / "searcher.json").write_text("{}")
    else:
        (search / "trials.parquet").unlink()
        folder = next(search.glob("tune-*"))
        shutil.rmtree(folder) if loss == "no trials" else (folder / "log.jsonl").write_bytes(b"")
    with pytest.raises(DamagedFile, match="'archray resume RUN' rewrites"):
        archray.report(run)
    archray.resume(run)
    archray.report(run)
    records = [json.loads((place / "search/searcher.json").read_text())["ledger"]["records"] for place in (run, whole)]
    suggested = [[record["config"]["architecture"] for record in ledger] for ledger in records]
    assert suggested[0] == suggested[1]


@pytest.mark.parametrize(
    "file",
    [
        "final/tune-*/*/*/checkpoint_*/state.pt",
        "pool/shards/part-00000.parquet",
        pytest.param("search/concurrency.json", marks=pytest.mark.slow),
        pytest.param("search/tune-*/log.jsonl", marks=pytest.mark.slow),
    ],
)
def test_the_advice_of_a_resume_helps(
    finished_run: Callable[[str], archray.RunResult], tmp_path: Path, file: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run("hnas").path, run)
    (run / file.partition("/")[0] / "done.json").unlink()
    damaged = next(run.glob(file))
    contents = {".json": b"{}", ".jsonl": damaged.read_bytes().replace(b'"ended"', b'"enqed"')}
    damaged.write_bytes(contents.get(damaged.suffix, damaged.read_bytes()[:9]))
    with pytest.raises(DamagedFile, match=damaged.name) as caught:
        archray.resume(run)
    advice = re.search(r"delete (the folder )?(?P<place>\S+) and repeat the command", str(caught.value))
    assert advice is not None, caught.value
    place = Path(advice["place"])
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    archray.resume(run)
    archray.report(run)


@pytest.mark.slow
def test_a_damaged_tune_run_is_named_before_ray_starts(
    finished_run: Callable[[str], archray.RunResult], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run("hnas").path, run)
    (run / "search" / "done.json").unlink()
    log = next(run.glob("search/tune-*/log.jsonl"))
    log.write_bytes(log.read_bytes().replace(b'"event": "ended"', b'"event": "enqed"', 1))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["config"]["cluster"]["address"] = "127.0.0.1:9"  # no Ray answers there
    (run / "manifest.json").write_text(json.dumps(manifest))
    command = [sys.executable, "-m", "archray.platform.cli", "resume", str(run), "--trust"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "log.jsonl as archray wrote it" in done.stderr and "delete the folder" in done.stderr, done.stderr
