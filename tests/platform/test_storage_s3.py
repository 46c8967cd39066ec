"""A run on an object store: moto's server on loopback, with a driver that is killed in the middle."""

import re
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from archray_test_command import PATIENCE, finish, found_values, kill_when, start, wait_until
from archray_test_models import run_of_network
from pyarrow import fs
from typer.testing import CliRunner

import archray
from archray.disks import ArrowFiles
from archray.errors import StoreError
from archray.files import Folder
from archray.line_writer import LineWriter
from archray.platform.cli import application
from archray.platform.run.heartbeat import lock
from archray.platform.run.layout import HEARTBEAT
from archray.platform.run.trial_log import LoggedTrial, read_log

moto = pytest.importorskip("moto.server", reason="moto is not installed: pip install '.[test]'")

COMMAND = (
    "search", "hnas", "--preset", "smoke", "--pool-size", "8", "--budget", "3", "--epochs", "3", "--final-epochs", "2",
    "--random", "1", "--seed", "3", "--max-concurrent", "1", "--set", "resources.actors=1",
    "--set", "cluster.dashboard=false", "--set", "train.batch_size=16", "--set", "final.batch_size=16",
)  # fmt: skip


@pytest.fixture
def store(monkeypatch, tmp_path):
    """Returns the URI of a new run on a server of this process; the keys are environment variables."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "for-tests")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"s3://bucket/{tmp_path.name}?endpoint_override={host}:{port}&scheme=http&allow_bucket_creation=true"
    server.stop()


def test_a_folder_keeps_the_query_of_its_uri(store):
    folder = Folder(store)
    (folder / "stage").write_json("done.json", {"seconds": 1.5})
    place, _, query = store.partition("?")
    assert (folder / "stage").uri == f"{place}/stage?{query}"
    assert (folder / "stage").parent.uri == store and (folder / "stage").name == "stage"
    again = Folder((folder / "stage").uri)
    assert again.read_json("done.json") == {"seconds": 1.5}
    assert folder.folders() == ["stage"] and again.files() == ["done.json"]


class Forbidden(BaseHTTPRequestHandler):
    """A store that rejects every request, as for a user without credentials."""

    def reject(self):
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_DELETE = do_GET = do_HEAD = do_POST = do_PUT = reject

    def log_message(self, *arguments):
        pass


@pytest.fixture
def forbidden(store):
    """Returns the URI of a folder on a store that rejects every request."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Forbidden) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"s3://bucket/runs?endpoint_override=127.0.0.1:{server.server_port}&scheme=http"
        server.shutdown()


@pytest.mark.parametrize(
    "operation",
    [
        Folder.create,
        Folder.files,
        Folder.remove,
        Folder.set_aside,
        lambda folder: folder.exists("a"),
        lambda folder: folder.delete("a"),
        lambda folder: folder.read_bytes("a"),
        lambda folder: folder.write_bytes("a", b""),
    ],
)
def test_a_rejected_request_names_the_store_the_reason_and_the_remedy(forbidden, operation):
    with pytest.raises(StoreError, match=r"s3://bucket/runs.*ACCESS_DENIED.*Check the URI, the network"):
        operation(Folder(forbidden))


@pytest.mark.parametrize(
    "command",
    [
        ("show", "STORE"),
        ("runs", "STORE"),
        ("resume", "STORE"),
        ("watch", "STORE"),
        ("report", "STORE"),
        ("predict", "STORE", "image.png"),
        ("compare", "STORE"),
        ("export", "RUN", "--to", "STORE"),
        ("search", "random", "--preset", "smoke", "--out", "STORE"),
        ("search", "random", "--preset", "smoke", "--out", "STORE", "--dry-run"),
    ],
)
def test_commands_on_a_store_that_rejects_requests_end_with_one_line(forbidden, tmp_path, command):
    places = {"STORE": forbidden, "RUN": run_of_network(tmp_path / "run", "nasbench201").folder.uri}
    command = [places.get(word, word) for word in command]
    result = CliRunner().invoke(application(command), command)
    assert isinstance(result.exception, StoreError) and "ACCESS_DENIED" in str(result.exception), result.exception


@pytest.mark.slow
def test_a_store_that_does_not_answer_is_named_without_a_traceback(store, tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # it does not listen
        uri = f"s3://bucket/runs?endpoint_override=127.0.0.1:{closed.getsockname()[1]}&scheme=http"
        done = start("show", uri, cwd=tmp_path).wait(timeout=PATIENCE)
    log = (tmp_path / "log.txt").read_text()
    assert done == 2 and "archray: Expected access to s3://bucket/runs/manifest.json" in log, log
    assert "Traceback" not in log and log.count("\n") == 1


class ReplacedOnce:
    """A file system that replaces a file right after it is opened for the first time."""

    def __init__(self, filesystem, content):
        self.filesystem, self.content = filesystem, content

    def __getattr__(self, name):
        return getattr(self.filesystem, name)

    def open_input_stream(self, path):
        stream = self.filesystem.open_input_stream(path)
        if self.content is not None:
            with self.filesystem.open_output_stream(path) as replaced:
                replaced.write(self.content)
            self.content = None
        return stream


@pytest.mark.parametrize("content", [b"longer than before", b"short"])
def test_a_file_that_is_replaced_during_a_read_is_read_completely(store, content):
    folder = Folder(store)
    folder.create().write_bytes("table.parquet", b"as before")
    filesystem = folder._disk.filesystem
    cut = ReplacedOnce(filesystem, content).open_input_stream(f"{folder.path}/table.parquet").read()
    assert len(cut) <= len(b"as before"), "the behavior of pyarrow alone"
    folder.write_bytes("table.parquet", b"as before")
    folder._disk = ArrowFiles(ReplacedOnce(filesystem, content))
    assert folder.read_bytes("table.parquet") == content


def test_lines_grow_on_a_store(store):
    folder = Folder(store) / "results"
    with LineWriter(folder, "log") as writer:
        for number in range(3):
            writer.append(b"%d" % number)
            writer.flush()
    objects = folder._disk.filesystem.get_file_info(fs.FileSelector(folder.path))
    assert len(objects) == 3 and folder.files() == ["log"] and folder.read_bytes("log") == b"0\n1\n2\n"
    folder.delete("log")
    assert folder.files() == [] and not folder.exists("log")


LOCK = """
import sys
from archray.files import Folder
from archray.line_writer import LineWriter
from archray.platform.run.heartbeat import lock
with lock(Folder(sys.argv[1]), "archray test"):
    print("locked")
"""


def test_a_run_on_a_store_has_one_writer(store):
    """A second process is rejected while the first holds the lock, and gets the lock afterwards."""
    command = [sys.executable, "-c", LOCK, store]
    with lock(Folder(store), "archray search"):
        second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 1 and "archray search (process" in second.stderr
    assert subprocess.run(command, capture_output=True, text=True).stdout == "locked\n"
    assert Folder(store).files() == [], f"{HEARTBEAT} is deleted with the lock"


def trials_of(stage: Folder) -> dict[str, LoggedTrial]:
    """Returns the logged trials of a stage by id."""
    logs = [read_log(stage / name) for name in stage.folders()]
    return {name: trial for logged in logs if logged for name, trial in logged.trials.items()}


def downloaded(folder: Folder, to: Path) -> Path:
    """Copies all files of a run on the store to the local disk."""
    for name in folder.folders():
        downloaded(folder / name, to / name)
    Folder(to).create().copy_from(folder)
    return to


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_and_resumed_run_on_a_store_equals_one_on_a_disk(store, tmp_path, capsys):
    finish(*COMMAND, "--out", "local", cwd=tmp_path)

    run = Folder(store)
    process = start(*COMMAND, "--out", store, cwd=tmp_path)
    wait_until(process, lambda: any(trial.ended for trial in trials_of(run / "search").values()), tmp_path)
    seen = archray.watch(store, once=True)
    kill_when(process, lambda: True, tmp_path)
    assert seen.stage is not None and seen.stage.name == "search" and "of 3 trials" in capsys.readouterr().out
    assert not (run / "search").exists("done.json")
    before = trials_of(run / "search")
    finish("resume", store, cwd=tmp_path)

    after = trials_of(run / "search")
    assert len(after) == 3
    for name, trial in before.items():
        assert after[name].started == trial.started and after[name].config == trial.config
        if trial.ended:
            assert repr(after[name].results) == repr(trial.results), "no finished trial ran again"  # NaN included
    assert found_values(downloaded(run, tmp_path / "copy")) == found_values(tmp_path / "local")
    assert sorted(files_of(tmp_path / "copy")) == sorted(files_of(tmp_path / "local"))

    loaded = archray.load(store)
    assert loaded.architecture == archray.load(tmp_path / "local").architecture
    archray.show(store)
    assert loaded.architecture is not None and loaded.architecture in capsys.readouterr().out
    assert archray.report(store).startswith(store.partition("?")[0])
    finish("export", store, "--to", "exported", cwd=tmp_path)
    assert any((tmp_path / "exported").iterdir())


def files_of(run: Path) -> set[str]:
    """Returns the files of a run, without those of Tune and names that are unique to a run."""
    kept = {file.relative_to(run).as_posix() for file in run.rglob("*") if file.is_file()}
    return {re.sub(r"part-\d+", "part", name) for name in kept if "tune-" not in name}
