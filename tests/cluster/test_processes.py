"""Processes in /proc: children that run, have ended, or are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

from archray.cluster.processes import child_processes, kill, own_processes

PROGRAM = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"


def test_a_killed_process_has_ended_until_its_parent_waits() -> None:
    program = subprocess.Popen([sys.executable, "-c", "print('a b', flush=True); input()"], stdin=-1, stdout=-1)
    program.stdout.readline()
    (process,) = [process for process in child_processes() if process.number == program.pid]
    assert process.parent == os.getpid() and process.runs and "print('a b'" in process.command
    kill([replace(process, started=process.started - 1)])  # an earlier process had the same number
    assert process.runs and not process.ended
    kill([process])
    (ended,) = [process for process in child_processes() if process.number == program.pid]
    assert ended.ended and not ended.runs and not process.runs
    program.communicate()
    assert program.pid not in [process.number for process in child_processes()]
    kill([process])


def test_children_of_children_belong_to_this_process() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=-1) as program:
        while not child_processes(program.pid):
            pass
        (child,) = child_processes(program.pid)
        numbers = [process.number for process in own_processes()]
        assert numbers[0] == os.getpid() and {program.pid, child.number} <= set(numbers)
        program.communicate(b"\n")
