"""Tune's state, kept whole in one file: of two files a kill would leave one new and one old.

Seen: a limiter of the moment before a trial had ended, with the trials of the moment after, waited for ever.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

from archray.files import Folder
from archray.platform.run.layout import SNAPSHOT


def write_snapshot(folder: Folder, states: Mapping[str, bytes]) -> None:
    """Keeps state files, by their names. folder: of a Tune run."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, state in states.items():
            archive.writestr(name, state)
    folder.write_bytes(SNAPSHOT, content.getvalue())


def read_snapshot(folder: Folder) -> dict[str, bytes]:
    """The state files that were kept, by their names in order; none if none were. folder: of a Tune run."""
    if not folder.exists(SNAPSHOT):
        return {}
    with zipfile.ZipFile(io.BytesIO(folder.read_bytes(SNAPSHOT))) as archive:
        return {name: archive.read(name) for name in sorted(archive.namelist())}


def is_experiment_state(name: str) -> bool:
    """Whether a state file is the one with the trials."""
    return name.startswith("experiment_state-")


def experiment_state(folder: Folder) -> bytes | None:
    """The last kept state of the trials, as Tune's JSON; None if there is none. folder: of a Tune run."""
    states = [state for name, state in read_snapshot(folder).items() if is_experiment_state(name)]
    return states[-1] if states else None
