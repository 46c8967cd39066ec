"""Fork Ray workers from a process that has already imported the modules of trials.

The first trial of a worker uses over five seconds of CPU before it trains, most of them for `import torch` and similar
imports, and every stage of a run has new workers. Ray starts workers with the `py_executable` of the runtime
environment. Here it is this file, which passes its arguments, environment and files to a process that forks. The forked
process runs Ray's own worker program from its first line.
"""

import marshal
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# The modules that Ray imports, but not Ray itself, which reads its variables and a token at import. Optimizers import
# torch._dynamo. These modules neither start threads nor use a GPU, which a fork would break.
FOR_RAY = (
    "filelock", "fsspec.implementations.local", "google.protobuf.json_format", "jsonschema", "pydantic.dataclasses",
    "requests", "rich.live", "yaml",
)  # fmt: skip
MODULES = ("pyarrow", "pandas", "pydantic", "torch", "torch._dynamo", "torch.utils.flop_counter", *FOR_RAY)
STANDARD_FILES = (0, 1, 2)
SIZE_BYTES = 8
_OUTER: ContextVar[str | None] = ContextVar("py_executable of an outer block", default=None)


@contextmanager
def warm_python(modules: Sequence[str] = MODULES) -> Iterator[str]:
    """Runs the process to fork from during the block; yields the `py_executable` for Ray.

    An inner block uses the process of the outer block, so that a caller can start the imports before `connect`.

    Args:
        modules: the modules that the process imports. Before it has imported them, and after its death, workers start
            as usual.
    """
    import subprocess
    import tempfile

    if (outer := _OUTER.get()) is not None:
        yield outer
        return
    with tempfile.TemporaryDirectory(prefix="archray-workers-") as folder:
        place = f"{folder}/warm"
        # torch reads the number of threads at import; Ray sets it to the CPUs of a worker, usually one.
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        command = [sys.executable, __file__, "serve", place, *modules]
        # It also ends when its standard input is closed by a kill. Like Ray's workers, it survives Ctrl-C.
        server = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True)
        with server:
            python = f"{sys.executable} -I -S {__file__} {place} {sys.executable}"
            token = _OUTER.set(python)
            try:
                yield python
            finally:
                _OUTER.reset(token)
                server.kill()  # after an error before Ray starts, it may still import for seconds


def ask(place: str, python: str, arguments: list[str]) -> None:
    """Requests a forked worker, and ends when it ends: Ray watches this process until the worker has registered."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(place)
        except OSError:  # the process to fork from is not ready
            os.execv(python, [python, *arguments])
        request = marshal.dumps({"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()})
        socket.send_fds(connection, [len(request).to_bytes(SIZE_BYTES, "big")], STANDARD_FILES)
        connection.sendall(request)
        connection.recv(1)  # no data arrives; it returns when the worker has closed its end


def serve(place: str, modules: Sequence[str]) -> dict[str, Any]:
    """Forks for every request until standard input is closed. Returns the request in the forked process."""
    import gc
    import importlib
    import select
    import shutil
    import signal

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(64)  # requests during the imports wait
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # otherwise a collection in a child would copy all shared pages
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for the children
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            shutil.rmtree(os.path.dirname(place), ignore_errors=True)  # the parent process may have been killed
            os._exit(0)  # immediately, without libraries' messages about leaks
        connection, _ = listener.accept()
        if os.fork() == 0:
            os.setpgid(0, 0)  # Ray may kill a worker with its process group, which would include the parent
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return received(connection)
        connection.close()


def received(connection: socket.socket) -> dict[str, Any]:
    """Reads a request, and uses its standard files in this process."""
    size, files, _, _ = socket.recv_fds(connection, SIZE_BYTES, len(STANDARD_FILES))
    request = b""
    while len(request) < int.from_bytes(size, "big"):
        request += connection.recv(2**16)
    for file, standard in zip(files, STANDARD_FILES, strict=True):
        os.dup2(file, standard)
        os.close(file)
    return {"connection": connection, **marshal.loads(request)}


def become(request: dict[str, Any]) -> None:
    """Runs the requested program as the main program."""
    import runpy

    program = request["arguments"][0]
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = request["arguments"]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = dict.fromkeys([os.path.dirname(program), *filter(None, paths), *sys.path[1:]])
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        become(serve(sys.argv[2], sys.argv[3:]))
    else:
        ask(sys.argv[1], sys.argv[2], sys.argv[3:])
