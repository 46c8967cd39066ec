"""Tune's state: a snapshot of its files in one file, and a journal of later events of the trials.

With several files, a kill could leave a mix of new and old files. For example, a limiter from before the end of a trial
waits forever with the trials from after its end. A snapshot therefore names its journal, which starts empty; the
journal of another snapshot does not count. A line of the journal is a step of Tune with the states of the trials that
had an event. The searcher's state follows from these states, see `restore`.
"""

import io
import json
import time
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from archray.cluster.ray_compat import EXPERIMENT_STATE
from archray.errors import DamagedFile, MissingFile, UnreadableFile
from archray.files import Folder, plain_name
from archray.platform.run.layout import JOURNAL, RESULTS, SNAPSHOT
from archray.plurals import count

Event = Sequence[str]  # id of a trial, and its state in the two parts that Tune saves


def write_snapshot(folder: Folder, states: Mapping[str, bytes | Path]) -> str:
    """Replaces the snapshot by these state files; returns the name of the journal that follows.

    Args:
        folder: folder of a Tune run.
        states: content by name, or a file with the content, which is not loaded into memory.
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


def event_line(events: Sequence[Event]) -> bytes:
    """Returns the line of a journal for the events of one step of Tune, in order."""
    return json.dumps(events).encode()


def read_snapshot(folder: Folder) -> dict[str, bytes]:
    """Reads the state files of a Tune run's snapshot, sorted by name; empty without a snapshot."""
    archive = _snapshot(folder)
    return {} if archive is None else _states(folder, archive)


def read_kept(folder: Folder) -> tuple[dict[str, bytes], list[Event]]:
    """Reads the state files of a Tune run's snapshot, and the later events in order."""
    while (archive := _snapshot(folder)) is not None:
        try:
            lines = folder.read_json_lines(archive.comment.decode())
        except FileNotFoundError:
            lines = []
        now = _snapshot(folder)
        if now is not None and now.comment == archive.comment:  # else the active run has started a new journal
            return _states(folder, archive), [event for line in lines for event in line]
    return {}, []


def _snapshot(folder: Folder) -> zipfile.ZipFile | None:
    if not folder.exists(SNAPSHOT):
        return None
    try:
        return zipfile.ZipFile(io.BytesIO(folder.read_bytes(SNAPSHOT)))
    except UnreadableFile:
        raise
    except (zipfile.BadZipFile, DamagedFile) as error:
        raise lost_state(folder, SNAPSHOT, error) from error


def _states(folder: Folder, archive: zipfile.ZipFile) -> dict[str, bytes]:
    """Returns the contents by name. Raises: RunFolderError for a name that is a path; DamagedFile."""
    names = [plain_name(name) for name in sorted(archive.namelist())]
    try:
        return {name: archive.read(name) for name in names}
    except Exception as error:  # a wrong checksum, or a header that only a damaged file has
        raise lost_state(folder, SNAPSHOT, error) from error


def lost_state(folder: Folder, name: str, why: object) -> DamagedFile:
    """Builds the error for a file of a Tune run without which its trials cannot continue.

    Args:
        folder: folder of the Tune run.
        why: as in `DamagedFile.at`.
    """
    trials = count(len((folder / RESULTS).files()), "trial")
    advice = (
        f"delete the folder {folder} and repeat the command: archray then runs the {trials} of this folder again, and "
        "keeps everything else"
    )
    error = DamagedFile if folder.exists(name) else MissingFile
    return error.at(f"{folder}/{name}", why.reason if isinstance(why, DamagedFile) else why, advice)


def is_experiment_state(name: str) -> bool:
    """Returns whether a state file contains the state of the trials."""
    return name.startswith(EXPERIMENT_STATE)


def experiment_state(folder: Folder) -> bytes | None:
    """Reads the last state of a Tune run's trials, as Tune's JSON; None if it is missing."""
    states, events = read_kept(folder)
    experiments = [state for name, state in states.items() if is_experiment_state(name)]
    return updated(experiments[-1], events) if experiments else None


def kept_trials(folder: Folder) -> list[dict[str, Any]]:
    """Reads the trials in a Tune run's last state, with `trial_id` and `status`."""
    state = experiment_state(folder)
    return [] if state is None else [json.loads(trial) for trial, _ in json.loads(state)["trial_data"]]


def updated(state: bytes, events: Iterable[Event]) -> bytes:
    """Updates Tune's state of the trials by `events`."""
    newest = {trial_id: saved for trial_id, *saved in events}
    if not newest:
        return state
    whole = json.loads(state)
    trials = {json.loads(saved[0])["trial_id"]: saved for saved in whole["trial_data"]}
    whole["trial_data"] = list({**trials, **newest}.values())
    return json.dumps(whole).encode()
