"""End a driver within seconds after the death of its Ray, or after SIGTERM.

A driver of Ray 2.60 waits for minutes for a killed raylet, and a call to a dead GCS ends the process after 60 s,
without a signal handler. So a thread checks whether both still listen. If not, the main thread gets a KeyboardInterrupt
with the reason. If the process has not ended some seconds later, this module ends it.
"""

import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

import ray

from archray.cluster.processes import Process, child_processes, kill
from archray.cluster.ray_compat import hidden_lines
from archray.errors import ArchrayError

INTERVAL_SECONDS = 1.0  # between two attempts to connect
CONNECT_SECONDS = 4.0  # limit of one attempt: a dead machine does not answer
ATTEMPTS = 3  # consecutive attempts without an answer until Ray counts as lost: at most 15 s
END_SECONDS = 10.0  # limit for the end of a driver without Ray, when no trial can save its state
SIGTERM_SECONDS = 24.0  # limit after SIGTERM: Kubernetes and SLURM kill after 30 s
INTERRUPTED = 130  # the exit code after Ctrl-C
SAVED = "finished work is saved"
GCS, RAYLET = "gcs_server", "raylet"  # names of Ray's programs
RAYLET_DIED = "Raylet is terminated."  # the start of Ray's message, which contains the last lines of the raylet's log
# The first two lines of the message of Ray 2.60's monitor after a signal.
AUTOSCALER_TERMINATED = "The autoscaler failed with the following error:\nTerminated with signal "

LastWords = Callable[[str], object]


class _Driver:
    """The state of this process: signals, and the connection to Ray."""

    def __init__(self) -> None:
        self.loss: str | None = None  # the reason why Ray counts as lost
        self.terminated = False  # whether SIGTERM was received
        self.last_words: list[LastWords] = []
        self.addresses: dict[str, tuple[str, int]] = {}  # of the watched processes of Ray
        # The raylet's agents, which without a GCS would wait a minute until they notice the raylet's end.
        self.agents: list[Process] = []
        self.blocks = 0  # number of `interruptible` blocks around the main thread
        self.end: threading.Timer | None = None
        self.ends_at = math.inf  # of the monotonic clock

    def end_within(self, seconds: float) -> None:
        """Ends the process after `seconds`, unless an earlier end is already set."""
        if time.monotonic() + seconds >= self.ends_at:
            return
        if self.end is not None:
            self.end.cancel()
        self.ends_at = time.monotonic() + seconds
        self.end = threading.Timer(seconds, end_now)
        self.end.daemon = True
        self.end.start()

    def enter(self) -> None:
        if not self.blocks:
            self.loss, self.terminated = None, False
        self.blocks += 1

    def leave(self) -> None:
        self.blocks -= 1
        if not self.blocks and self.end is not None:
            self.end.cancel()
            self.end, self.ends_at = None, math.inf


_DRIVER = _Driver()


def own_raylets() -> list[Process]:
    """Returns the raylets that this process has started: one, or none if it has joined a cluster."""
    return [process for process in child_processes() if process.name == RAYLET]


def ray_loss() -> str | None:
    """Returns the reason why the Ray of this process counts as lost; None if it is alive."""
    return _DRIVER.loss


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Handles SIGINT and SIGTERM. Raises: KeyboardInterrupt."""
    received(number)
    raise KeyboardInterrupt


def why_stopped(error: BaseException | None = None) -> str:
    """Returns the reason why the last or current block ended early. error: the exception of the block."""
    # `ray.get` raises its own KeyboardInterrupt, so the exception cannot contain the reason.
    if _DRIVER.loss is not None and not _DRIVER.terminated:  # a SIGTERM to all processes also ends Ray's processes
        return f"{_DRIVER.loss}; {SAVED}"
    return str(error or "") or f"stopped{' by SIGTERM' * _DRIVER.terminated}; {SAVED}"


def received(number: int) -> None:
    """Ends the process in time if the signal is SIGTERM."""
    if number == signal.SIGTERM:
        _DRIVER.terminated = True
        _DRIVER.end_within(SIGTERM_SECONDS)


@contextmanager
def interruptible(last_words: LastWords | None = None) -> Iterator[None]:
    """Handles SIGTERM like Ctrl-C while the block runs on the main thread; does nothing on another thread.

    last_words: called with the reason if this module ends the process; inner blocks first.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    _DRIVER.enter()
    words = [] if last_words is None else [last_words]
    _DRIVER.last_words += words
    try:
        yield
    finally:
        for word in words:
            _DRIVER.last_words.remove(word)
        for number, handler in before.items():
            signal.signal(number, handler)
        _DRIVER.leave()


def hidden_raylet_death() -> AbstractContextManager[None]:
    """Hides two messages of Ray, since archray reports the loss of Ray in one line.

    Ray prints 20 lines of a log when a raylet dies, and a traceback when its autoscaler is terminated.
    """
    return hidden_lines(lambda line: line.startswith((RAYLET_DIED, AUTOSCALER_TERMINATED)))


@contextmanager
def watched() -> Iterator[None]:
    """Interrupts the block when Ray is lost. The block runs on the main thread, and Ray is initialized."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _DRIVER.addresses, ended = _addresses(), threading.Event()
    _DRIVER.agents = [agent for raylet in own_raylets() for agent in child_processes(raylet.number)]
    thread = threading.Thread(target=_watch, args=(ended,), name="archray-ray-watch", daemon=True)
    with interruptible(), hidden_raylet_death(), interrupted_when_lost():
        thread.start()
        try:
            yield
        finally:
            ended.set()
            if _DRIVER.loss:
                kill(_DRIVER.agents)


@contextmanager
def watched_start() -> Iterator[None]:
    """Interrupts the block, which starts a Ray on the main thread, when the GCS of this Ray ends.

    If the raylet ends, Ray raises an error, and the caller may start another Ray.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ended = threading.Event()

    def dead_gcs() -> set[Process]:
        return {process for process in child_processes() if process.name == GCS and process.ended}

    earlier = dead_gcs()

    def watch() -> None:
        attempts = 0  # several in a row, since after a failed start Ray ends its GCS itself and then waits for it
        while not ended.wait(INTERVAL_SECONDS):
            attempts = attempts + 1 if dead_gcs() - earlier else 0
            if attempts == ATTEMPTS:
                _DRIVER.loss = "lost Ray: its GCS ended while Ray started"
                _DRIVER.end_within(END_SECONDS)
                os.kill(os.getpid(), signal.SIGINT)
                return

    threading.Thread(target=watch, name="archray-ray-start", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


@contextmanager
def interrupted_when_lost() -> Iterator[None]:
    """Raises: KeyboardInterrupt for an error in the block if Ray is lost; such errors may precede the signal."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ArchrayError) or not _is_lost():
            raise
        raise KeyboardInterrupt from error


def _watch(ended: threading.Event) -> None:
    while not ended.wait(INTERVAL_SECONDS):
        if _is_lost() and not ended.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            return


def _is_lost() -> bool:
    """Returns whether one of the processes does not answer several times in a row."""
    for name, address in _DRIVER.addresses.items():
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(INTERVAL_SECONDS)
            with suppress(OSError):
                socket.create_connection(address, timeout=CONNECT_SECONDS).close()
                break
        else:
            _DRIVER.loss = f"lost Ray: its {name} at {address[0]}:{address[1]} does not answer"
            _DRIVER.end_within(END_SECONDS)
            return True
    return False


def _addresses() -> dict[str, tuple[str, int]]:
    context = ray.get_runtime_context()
    host, _, port = context.gcs_address.rpartition(":")
    addresses = {"GCS": (host.strip("[]"), int(port))}
    for node in ray.nodes():
        if node["NodeID"] == context.get_node_id():
            addresses["raylet"] = (node["NodeManagerAddress"], int(node["NodeManagerPort"]))
    return addresses


def end_now() -> NoReturn:
    """Ends this process, and a Ray that it started, even if the main thread is waiting."""
    for say in _DRIVER.last_words[::-1] or [lambda why: sys.stderr.write(f"{why}\n")]:
        with suppress(Exception):
            say(why_stopped())
    programs = f"{Path(ray.__file__).parent}{os.sep}"
    kill([process for process in child_processes() if programs in process.command])  # workers end with their raylet
    kill(_DRIVER.agents)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)
