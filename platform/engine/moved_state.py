"""The state of a Tune run whose folder was moved: what it says of the old place, said of the new one.

Tune's state names the run by its path: in the storage of trials and of what generates them, in configurations (data, a
pool, weights to start from) and in the searcher that its pickle holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray import cloudpickle

from archray.files import Folder
from archray.platform.run.layout import REPEAT
from archray.platform.run.tune_snapshot import Event, is_experiment_state

OURS = ("ray.tune", "ray.train", "ray.air", "archray")  # modules of the objects that are looked into
PICKLED = "CLOUDPICKLE_FALLBACK"  # the `_type` of what Tune's JSON holds as a pickle, in hexadecimal


def mended(files: Mapping[str, bytes], events: Sequence[Event], folder: Folder) -> tuple[dict[str, bytes], list[Event]]:
    """State files and journal of the Tune run that is now in `folder`; as they are, where it was there before.

    files: by name, pickles and JSON, one with the trials among them. Only what lies in the run is said to have moved.
    """
    place = next((_place_of(state) for name, state in files.items() if is_experiment_state(name)), None)
    if place is None or place == folder.path:
        return dict(files), list(events)
    old, new = _run_of(place), _run_of(folder.path)
    # In a path of its own, after a URI's scheme, or after a word such as `arrays:`; not in the middle of another path.
    pattern = re.compile(rf"((?<=://)|(?<![\w./-])){re.escape(old)}(?=/|$)")

    def mend(text: str) -> str:
        return pattern.sub(lambda match: new, text)

    now = {name: _mended_file(state, mend) for name, state in files.items()}
    return now, [[trial_id, *_mended_trial(saved, mend)] for trial_id, *saved in events]


def _place_of(state: bytes) -> str | None:
    """Where the trials were stored, by Tune's state of them."""
    for saved, _ in json.loads(state)["trial_data"]:
        storage = cloudpickle.loads(bytes.fromhex(json.loads(saved)["storage"]["value"]))
        return str(storage.experiment_fs_path)
    return None


def _run_of(path: str) -> str:
    """The folder of the run in which a Tune run lies, in that of a stage; of a repeat that of all repeats."""
    run = path.rsplit("/", 2)[0]
    parent, _, name = run.rpartition("/")
    return parent if name.startswith(REPEAT) else run


def _mended_file(state: bytes, mend: Callable[[str], str]) -> bytes:
    try:
        whole = json.loads(state)
    except ValueError:
        return cloudpickle.dumps(_mended(cloudpickle.loads(state), mend, {}))
    if "trial_data" in whole:
        whole["trial_data"] = [_mended_trial(saved, mend) for saved in whole["trial_data"]]
        return json.dumps(whole).encode()
    return json.dumps(_mended(whole, mend, {})).encode()


def _mended_trial(saved: Sequence[str], mend: Callable[[str], str]) -> list[str]:
    """The parts of a trial's state, each JSON in itself."""
    return [json.dumps(_mended(json.loads(part), mend, {})) for part in saved]


def _mended(value: Any, mend: Callable[[str], str], seen: dict[int, tuple[Any, Any]]) -> Any:
    """`value` with its strings mended; objects are changed in place, each once."""
    if isinstance(value, str):
        return mend(value)
    if isinstance(value, dict) and value.get("_type") == PICKLED:
        content = _mended(cloudpickle.loads(bytes.fromhex(value["value"])), mend, seen)
        return {**value, "value": cloudpickle.dumps(content).hex()}
    if id(value) in seen:
        return seen[id(value)][1]
    if isinstance(value, tuple) and type(value) is tuple:
        entries = tuple(_mended(entry, mend, seen) for entry in value)
        seen[id(value)] = value, entries  # with the old one, lest another object gets its id
        return entries
    seen[id(value)] = value, value
    if isinstance(value, dict):
        for key, entry in list(value.items()):
            value[key] = _mended(entry, mend, seen)
    elif isinstance(value, list):
        value[:] = [_mended(entry, mend, seen) for entry in value]
    elif not isinstance(value, type) and type(value).__module__.startswith(OURS) and hasattr(value, "__dict__"):
        for name, entry in list(vars(value).items()):
            vars(value)[name] = _mended(entry, mend, seen)
    return value
