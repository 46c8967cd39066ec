"""The log of a Tune run: what a kill, a defect or another user can write into it, and what is read from it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from archray.errors import DamagedFile, RunFolderError
from archray.files import Folder
from archray.platform.durable.replay import continued
from archray.platform.durable.session import begin
from archray.platform.engine.trial_tables import epochs_of
from archray.platform.run.trial_log import LOG, RUN, SHORT, LoggedRun, kept_result, line_of, plain_config, read_log

SESSION = b'{"event": "session", "folder": "session-1"}'
SUGGESTED = b'{"event": "suggested", "trial": "1", "config": {"seed": 1}}'
RESULT = b'{"event": "result", "trial": "1", "result": {"loss": 0.5, "training_iteration": 1}}'
HALF = b'{"event": "result", "trial": "1", "resu'


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """The folder of a Tune run, in a run whose name has a special meaning in JSON, a shell and a URI."""
    return Folder(tmp_path / 'größe 😀 it\'s "1" #2 50%' / "search" / "tune-0")


def logged(folder: Folder, *lines: bytes) -> LoggedRun:
    folder.write_bytes(LOG, b"\n".join([*lines, b""]))
    run = read_log(folder)
    assert run is not None
    return run


def reported(iteration: int, **entries: Any) -> bytes:
    result = {"training_iteration": iteration, **entries}
    return json.dumps({"event": "result", "trial": "1", "result": result}).encode()


def saved(iteration: int, path: str = "") -> bytes:
    path = path or f"session-1/search-001/checkpoint_{iteration:06d}"
    return json.dumps({"event": "checkpoint", "trial": "1", "path": path, "iteration": iteration}).encode()


# Incomplete and damaged lines


@pytest.mark.parametrize(
    "lines",
    [
        [SESSION, SUGGESTED, RESULT, HALF],
        [SESSION, SUGGESTED, HALF, SESSION, RESULT],
        [SESSION, SUGGESTED, HALF, SESSION, HALF, SESSION, RESULT, HALF],
        [HALF[:1], SESSION, SUGGESTED, b"", RESULT, b"\xff\xfe"],
        [SESSION, SUGGESTED, RESULT, SESSION[:-1]],
    ],
)
def test_an_incomplete_line_is_dropped_at_the_end_and_before_a_session(folder: Folder, lines: list[bytes]) -> None:
    """SIGKILL leaves it, and the next session begins a new line."""
    [trial] = logged(folder, *lines).trials.values()
    assert trial.config == {"seed": 1} and trial.last_result.get("loss", 0.5) == 0.5


@pytest.mark.parametrize("content", [b"", HALF, HALF + b"\n", SESSION[:-1]])
def test_a_log_without_a_session_is_empty(folder: Folder, content: bytes) -> None:
    assert read_log(folder) is None
    folder.write_bytes(LOG, content)
    assert read_log(folder) is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (HALF, "JSON"),
        (b"\xff\xfe", "utf-8"),
        (b"[1, 2]", "object"),
        (b'{"event": "enqed", "trial": "1"}', "event"),
        (b'{"event": "ended", "trial": "2"}', "trial 2 was not suggested"),
        (b'{"event": "ended"}', "was not suggested"),
        (SUGGESTED, "suggested twice"),
        (b'{"event": "ended", "trial": "../1"}', "trial"),
        (b'{"event": "ended", "trial": 1}', "trial"),
        (b'{"event": "ended", "trial": "1", "error": 1}', "error"),
        (b'{"event": "session", "log_schema": 2, "versions": {"archray": "9.9"}}', "schema 1, got 2.*archray 9.9"),
        (b'{"event": "checkpoint", "trial": "1", "path": "a", "iteration": -1}', "iteration"),
        (b'{"event": "checkpoint", "trial": "1", "path": "a", "iteration": 1' + b"0" * 5000 + b"}", ""),
        (b'{"event": "result", "trial": "1", "result": {"a": 1' + b"0" * 5000 + b"}}", ""),
        (b'{"event": "result", "trial": "1", "result": ' + b'{"a": ' * 50_000, ""),
        (b'{"event": "result", "trial": "1", "result": {"a": ' + b"[" * 50_000 + b"]" * 50_000 + b"}}", ""),
        (b'{"event": "session", "time": NaN}', "time"),
    ],
    ids=lambda value: value[:60] if isinstance(value, bytes) else "",
)
def test_a_damaged_line_is_named(folder: Folder, line: bytes, reason: str) -> None:
    with pytest.raises(DamagedFile, match=rf"log\.jsonl .*line 3: .*{reason}") as caught:
        logged(folder, SESSION, SUGGESTED, line, RESULT)
    assert caught.value.place == f"{folder}/{LOG}" and f"delete the folder {folder}" in str(caught.value)


# Paths


@pytest.mark.parametrize(
    "weights",
    [
        "/etc/passwd",
        "weights",
        "file:///etc/passwd",
        "s3://bucket/weights",
        f"{RUN}/../other/weights",
        f"{RUN}/search/..",
        f"file://{RUN}/a/../../../etc/passwd",
        f"{RUN}-other/weights",
        f"/etc/passwd?{RUN}/weights",
        f"s3://bucket/{RUN}/weights",
        "HERE/../other",
    ],
)
def test_weights_out_of_the_run_are_damage(folder: Folder, weights: str) -> None:
    weights = weights.replace("HERE", folder.parent.parent.path)
    with pytest.raises(DamagedFile, match="line 3: "):
        logged(folder, SESSION, SUGGESTED, reported(1, weights=weights), RESULT)


def test_weights_inside_of_the_run_are_read(folder: Folder) -> None:
    run = folder.parent.parent.path
    for weights in (f"{run}/search/x", f"file://{run}/search/x"):
        line = line_of("result", run, trial="1", result={"weights": weights})
        assert RUN in line.decode()
        assert logged(folder, SESSION, SUGGESTED, line).trials["1"].last_result == {"weights": weights}


def test_the_weights_of_a_user_may_be_anywhere(folder: Folder) -> None:
    folder.write_bytes(LOG, b"\n".join([SESSION, SUGGESTED, reported(1, weights="s3://bucket/x")]))
    run = read_log(folder, trusted=True)
    assert run is not None and run.trials["1"].last_result["weights"] == "s3://bucket/x"


@pytest.mark.parametrize("path", ["/etc", "../../../outside", "session-1/../../../outside", "session-1/link"])
def test_a_checkpoint_out_of_the_run_is_not_read(folder: Folder, tmp_path: Path, path: str) -> None:
    (tmp_path / "outside").mkdir()
    (folder / "session-1").create()
    (Path(folder.path) / "session-1" / "link").symlink_to(tmp_path / "outside")
    logged(folder, SESSION, SUGGESTED, RESULT, saved(1, path))
    with begin(folder) as session, pytest.raises(RunFolderError, match="leads out"):
        continued(session, session.open["1"])


def test_paths_follow_a_moved_run(folder: Folder, tmp_path: Path) -> None:
    run = folder.parent.parent
    paths = {"a": f"{run.path}/search/weights", "b": f"file://{run.path}/x", "c": f"arrays:{run.path}/arrays.npz"}
    beside = {"d": f"{run.path}-2/weights", "e": f"/data{run.path}/x", "f": "a/b"}
    with begin(folder) as session:
        session.record("suggested", "1", config={**paths, **beside})
    assert run.path not in json.loads(folder.read_bytes(LOG).splitlines()[1])["config"]["a"]
    moved = Path(run.path).rename(tmp_path / "elsewhere")
    again = read_log(Folder(moved / "search" / "tune-0"))
    assert again is not None
    assert again.trials["1"].config == {
        **{key: value.replace(run.path, str(moved)) for key, value in paths.items()},
        **beside,
    }


@pytest.mark.parametrize(
    ("name", "place"), [("run/search/tune-0", "run"), ("run/repeat-01/search/tune-0", "run"), ("run/tune-0", "")]
)
def test_the_run_of_a_tune_run_contains_its_repeats(tmp_path: Path, name: str, place: str) -> None:
    with begin(Folder(tmp_path / name)) as session:
        session.record("suggested", "1", config={"pool": f"{tmp_path / place}/pool.parquet"})
    line = json.loads(Folder(tmp_path / name).read_bytes(LOG).splitlines()[1])
    assert line["config"]["pool"] == f"{RUN}/pool.parquet"


# Results


def test_results_after_the_last_checkpoint_do_not_count_in_the_next_session(folder: Folder) -> None:
    lines = [SESSION, SUGGESTED, reported(1), saved(1), reported(2), saved(2), reported(3), reported(4)]
    [trial] = logged(folder, *lines).trials.values()
    assert [result["training_iteration"] for result in trial.results] == [1, 2, 3, 4]
    again = logged(folder, *lines, SESSION, reported(3, again=True), saved(3), SESSION)
    [trial] = again.trials.values()
    assert [result["training_iteration"] for result in trial.results] == [1, 2, 3] and trial.last_result["again"]
    replayed = [event.result["training_iteration"] for event in again.events if event.event == "result"]
    assert replayed == [1, 2, 3, 4, 3], "decisions of the searcher and the scheduler may depend on all results"
    [trial] = logged(folder, SESSION, SUGGESTED, reported(1), SESSION).trials.values()
    assert trial.results == [] and trial.checkpoints == []


def test_the_results_of_an_ended_trial_count(folder: Folder) -> None:
    lines = [SESSION, SUGGESTED, reported(1), b'{"event": "ended", "trial": "1", "has_result": true}', SESSION]
    run = logged(folder, *lines)
    assert (
        len(run.trials["1"].results) == 1
        and run.ended_before == 1
        and run.trials["1"].ended
        and not run.trials["1"].error
    )


@pytest.mark.parametrize(("fresh", "iterations"), [(False, [1]), (True, [])])
def test_a_reopened_trial_is_open(folder: Folder, fresh: bool, iterations: list[int]) -> None:
    reopened = json.dumps({"event": "reopened", "trial": "1", "fresh": fresh}).encode()
    ended = b'{"event": "ended", "trial": "1", "error": true}'
    run = logged(folder, SESSION, SUGGESTED, reported(1), saved(1), ended, SESSION, reopened)
    [trial] = run.open_trials
    assert not trial.error and [result["training_iteration"] for result in trial.results] == iterations
    assert trial.saved_iteration == len(iterations)


def test_numbers_are_kept_exactly(folder: Folder) -> None:
    values = [math.nan, math.inf, -math.inf, 0.1 + 0.2, 5e-324, 1.7976931348623157e308, -0.0, 2**62, True]
    result = {"training_iteration": 1, **{f"v{number}": value for number, value in enumerate(values)}}
    line = line_of("result", "/run", trial="1", result=kept_result(result))
    [trial] = logged(folder, SESSION, SUGGESTED, line).trials.values()
    assert list(map(repr, trial.last_result.values())) == list(map(repr, result.values()))


def test_long_lists_are_kept_in_last_results_only() -> None:
    result = {"short": list(range(SHORT)), "long": list(range(SHORT + 1)), "array": np.arange(SHORT + 1), "done": False}
    assert kept_result(result) == {"short": result["short"], "done": False}
    last = kept_result({**result, "done": True})
    assert last["long"] == last["array"] == list(range(SHORT + 1))


def test_entries_that_json_cannot_represent_are_omitted() -> None:
    class Layer: ...

    entries = {"a": np.float32(0.5), "b": np.int64(3), "c": (1, (2,)), "d": {"e": np.arange(2)}, "f": None, "g": "x"}
    plain = {"a": 0.5, "b": 3, "c": [1, [2]], "d": {"e": [0, 1]}, "f": None, "g": "x"}
    assert plain_config({**entries, "layer": Layer(), "layers": [Layer()], "nested": {"layer": Layer()}}) == plain
    assert kept_result({**entries, "layer": Layer(), "config": {}, "config/a": 1, "trial_id": "x"}) == plain


def test_a_repeated_epoch_replaces_the_earlier_report(folder: Folder) -> None:
    lines = [reported(1, epoch=1, loss=1.0), reported(2, epoch=2, loss=0.5), reported(3, epoch=2, loss=0.4)]
    run = logged(folder, SESSION, SUGGESTED, *lines)
    table = epochs_of(list(run.trials.values()))
    assert table["loss"].tolist() == [1.0, 0.4] and table["trial_id"].tolist() == ["1", "1"]
    assert epochs_of([]).empty
