"""Whether a run that has begun is the search that a command asks for."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from archray.errors import RunFolderError
from archray.platform.config import SearchConfig, flat
from archray.platform.run.layout import command
from archray.platform.run.run import Run
from archray.references import split_reference


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
