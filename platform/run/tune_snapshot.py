"""Tune's state: a snapshot of its files, whole in one, and a journal of what became of the trials after it.

Of two files a kill would leave one new and one old. Seen: a limiter of the moment before a trial had ended, with the
trials of the moment after, waited for ever. So a snapshot names its journal, which begins empty: the journal of another
snapshot is none of its own. A line of the journal is a step of Tune's, with the states of the trials in which something
happened; the searcher's state follows from them, see `state_replay`.
"""

import io
import json
import time
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from archray.errors import DamagedFile
from archray.files import Folder, plain_name
from archray.platform.run.layout import JOURNAL, SNAPSHOT

Event = Sequence[str]  # a trial's id, and its state in the two parts in which Tune saves it


def write_snapshot(folder: Folder, states: Mapping[str, bytes | Path]) -> str:
    """Keeps state files, by their names, in the place of what was kept; the name of the journal that follows.

    folder: of a Tune run. states: the content of each, or a file that has it, which is not taken into memory.
    """
    journal = f"{JOURNAL}{time.time_ns()}.jsonl"
    with folder.whole_file(SNAPSHOT) as stream, zipfile.ZipFile(stream, "w") as archive:
        archive.comment = journal.encode()
        for name, state in states.items():
            if isinstance(state, bytes):
                archive.writestr(name, state)
            else:
                archive.write(state, name)
    for name in folder.files():
        if name.startswith(JOURNAL):
            folder.delete(name)
    return journal


def append_events(folder: Folder, journal: str, events: Sequence[Event]) -> None:
    """Adds what happened in a step of Tune's, in its order."""
    folder.append_line(journal, json.dumps(events).encode())


def read_snapshot(folder: Folder) -> dict[str, bytes]:
    """The state files that were kept, by their names in order; none if none were. folder: of a Tune run."""
    archive = _snapshot(folder)
    return {} if archive is None else _states(archive)


def read_kept(folder: Folder) -> tuple[dict[str, bytes], list[Event]]:
    """The state files that were kept, and what happened afterwards, in its order. folder: of a Tune run."""
    while (archive := _snapshot(folder)) is not None:
        try:
            lines = folder.read_json_lines(archive.comment.decode())
        except FileNotFoundError:
            lines = []
        now = _snapshot(folder)
        if now is not None and now.comment == archive.comment:  # else the run, which goes on, has begun another journal
            return _states(archive), [event for line in lines for event in line]
    return {}, []


def _snapshot(folder: Folder) -> zipfile.ZipFile | None:
    if not folder.exists(SNAPSHOT):
        return None
    try:
        return zipfile.ZipFile(io.BytesIO(folder.read_bytes(SNAPSHOT)))
    except zipfile.BadZipFile as error:
        raise DamagedFile.at(f"{folder}/{SNAPSHOT}", error) from error


def _states(archive: zipfile.ZipFile) -> dict[str, bytes]:
    """The contents by name. Raises: RunFolderError for a name that is a path."""
    return {plain_name(name): archive.read(name) for name in sorted(archive.namelist())}


def is_experiment_state(name: str) -> bool:
    """Whether a state file is the one with the trials."""
    return name.startswith("experiment_state-")


def experiment_state(folder: Folder) -> bytes | None:
    """The last kept state of the trials, as Tune's JSON; None if there is none. folder: of a Tune run."""
    states, events = read_kept(folder)
    experiments = [state for name, state in states.items() if is_experiment_state(name)]
    return laid_over(experiments[-1], events) if experiments else None


def laid_over(state: bytes, events: Iterable[Event]) -> bytes:
    """Tune's state of the trials, with those that `events` speak of as these say."""
    newest = {trial_id: saved for trial_id, *saved in events}
    if not newest:
        return state
    whole = json.loads(state)
    trials = {json.loads(saved[0])["trial_id"]: saved for saved in whole["trial_data"]}
    whole["trial_data"] = list({**trials, **newest}.values())
    return json.dumps(whole).encode()
