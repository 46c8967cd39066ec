"""Damaged files of a run: every command names the file, and the other runs are listed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import archray
from archray.errors import ArchrayError
from archray.platform.cli import application

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "torn": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "garbage": lambda content: bytes(range(128, 256)) * 4,
    "list": lambda content: b"[1, 2]\n",
    "object": lambda content: b"{}\n",
}
NAMED = {  # the commands that need a file, and so name it
    "manifest.json": ("show", "watch", "report", "compare", "predict", "export", "resume"),
    "summary.json": (),  # counts as missing
    "heartbeat.json": (),  # nobody's
    "architecture.json": ("report",),
    "search/done.json": ("report",),
    "search/trials.parquet": ("report",),
    "model/architecture.json": ("predict", "export"),
    "model/state_dict.pt": ("predict", "export"),
    "report.html": (),
}


@pytest.mark.slow
@pytest.mark.parametrize("file", NAMED)
def test_a_damaged_file_is_named_and_no_command_ends_in_a_traceback(
    finished_run: Callable[[str], archray.RunResult], tmp_path: Path, file: str
) -> None:
    whole, run, image = finished_run("hnas").path, tmp_path / "runs" / "run", tmp_path / "image.png"
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(image)
    shutil.copytree(whole, tmp_path / "runs" / "whole")
    for damage, change in DAMAGES.items():
        if damage in ("list", "object") and not file.endswith(".json"):
            continue
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(whole, run)
        (run / file).write_bytes(change((run / file).read_bytes() if (run / file).exists() else b"[]"))
        for command in (
            ("show", str(run)),
            ("watch", str(run), "--once"),
            ("compare", str(whole), str(run)),
            ("predict", str(run), str(image)),
            ("export", str(run), "--to", str(tmp_path / f"export-{damage}"), "--format", "state-dict"),
            ("report", str(run)),
        ):
            error = CliRunner().invoke(application(command), command).exception
            assert error is None or isinstance(error, ArchrayError | SystemExit), (damage, command, error)
            if (file, damage) != ("architecture.json", "object"):  # which reads as a run without a result
                assert command[0] not in NAMED[file] or Path(file).name in str(error), (damage, command, error)
        listed = CliRunner().invoke(application(("runs",)), ("runs", str(run.parent)))
        assert listed.exit_code == 0 and "whole" in listed.output
