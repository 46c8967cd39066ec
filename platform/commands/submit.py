"""`archray submit`: a command of archray's as a job on a Ray cluster, from any machine that reaches its dashboard."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from archray.errors import InvalidInput
from archray.platform.commands.runs import INTERRUPTED
from archray.platform.commands.search import option_value
from archray.platform.run.layout import RUNS
from archray.platform.run.layout import command as command_text

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
SENT = (".py", ".toml", ".json", ".yaml", ".yml", ".csv", ".gz", ".parquet", ".npz")  # files of a person, not data sets
PLACES = ("--out", "--data-dir")  # options whose folders the cluster must see


def submit(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND ...", help="The command: -- search hnas --out /shared/run")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help=f"The dashboard of the cluster. Default: RAY_API_SERVER_ADDRESS, or {DEFAULT_ADDRESS}."),
    ] = None,
    working_dir: Annotated[
        Path | None, typer.Option(help="A folder that is sent too; the command runs in its copy.", exists=True)
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Continue a run: the same as -- resume RUN; options after --.")
    ] = None,
    attach: Annotated[str | None, typer.Option(metavar="JOB", help="Follow a job that was sent before.")] = None,
    stop: Annotated[str | None, typer.Option(metavar="JOB", help="End a job; its run can be resumed.")] = None,
) -> None:
    """Send a command to a Ray cluster as a job, and follow it: archray submit -- search hnas --out /shared/runs/1

    archray itself is sent along, and so are your own files that the command names (--space own_space.py:MySpace,
    --config FILE). --out and --data-dir are places that every node sees: a shared folder, or s3://...

    Ctrl-C leaves the job running. The exit code is the job's.
    """
    if sum(map(bool, (command and not resume, resume, attach, stop))) != 1:
        raise InvalidInput("expected one of '-- COMMAND ...', --resume RUN, --attach JOB and --stop JOB")
    from archray.cluster.jobs import job_client, stop_job, submit_job  # which loads Ray

    address = (address or os.environ.get("RAY_API_SERVER_ADDRESS") or DEFAULT_ADDRESS).rstrip("/")
    if stop:
        was_on = stop_job(job_client(address), stop)
        typer.echo(f"Job {stop} {'is being stopped' if was_on else 'had ended'}.")
        return
    if attach:
        raise typer.Exit(_follow(address, attach))
    words, files = job_command(["resume", resume, *(command or [])] if resume else command or [])
    text = shlex.join(words)
    job = submit_job(job_client(address), text, files, working_dir, name=job_name(words))
    typer.echo(f"Job {job}: archray {text}")
    typer.echo(f"Ray dashboard: {address}/#/jobs/{job}")
    if words[0] == "search" and (run := option_value("--out", words)) and not option_value("--out", command or []):
        typer.echo(
            f"The run lies in {run}, in the home of the user that Ray runs as on the head: all nodes must share it. "
            "Say where with --out."
        )
    if run := resume or option_value("--out", words):
        typer.echo(f"Should the job or its node die: {command_text('submit', '--address', address, '--resume', run)}")
    raise typer.Exit(_follow(address, job))


def job_command(words: Sequence[str]) -> tuple[list[str], Mapping[str, Path]]:
    """A command as it runs in a job, and the user's files that it names, by their places in the job's folder.

    A search without `--out` gets one: the job's own folder is deleted when it has ended.

    Raises: InvalidInput for a place that only this machine knows.
    """
    words, files = list(words), dict[str, Path]()
    if words[:1] == ["submit"]:
        raise InvalidInput("a job cannot send jobs: leave out the second 'submit'")
    for option in PLACES:
        _check_place(option, option_value(option, words))
    if words[0] == "resume" and len(words) > 1:
        _check_place("RUN", words[1])
    if words[0] == "search" and len(words) > 1 and not words[1].startswith("-"):
        if option_value("--out", words) is None and not {"--help", "-h", "--dry-run"} & set(words):
            words += ["--out", f"~/{RUNS}/{words[1]}-{datetime.now():%Y%m%d-%H%M%S}"]
    return [_sent(word, files) for word in words], files


def job_name(words: Sequence[str]) -> str:
    """What the job of a command is called in Ray's dashboard: `hnas digits-1`, as the run itself; `resume digits-1`."""
    if words[0] == "search" and len(words) > 1 and (run := option_value("--out", words)):
        return f"{words[1]} {_last_part(run)}"
    return f"resume {_last_part(words[1])}" if words[0] == "resume" and len(words) > 1 else words[0]


def _last_part(run: str) -> str:
    return PurePosixPath(run.partition("?")[0]).name


def _check_place(option: str, place: str | None) -> None:
    if place is not None and "://" not in place and not place.startswith(("/", "~")):
        raise InvalidInput(
            f"{option} {place}: expected a place that every node of the cluster sees, such as /shared/runs/1 or "
            "s3://bucket/run; the folder that a job runs in is deleted when it has ended"
        )


def _sent(word: str, files: dict[str, Path]) -> str:
    """A word of a command as it is in the job, and its files into `files`: `--space=own.py:A`, `table:rows.csv`."""
    before, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    parts = []
    for part in value.split(","):
        pieces = part.split(":")
        for number, piece in enumerate(pieces):
            file = Path(piece).expanduser()
            if file.suffix in SENT and file.is_file():
                inside = not file.is_absolute() and ".." not in file.parts
                pieces[number] = file.as_posix() if inside else f"sent-{len(files)}/{file.name}"
                files[pieces[number]] = file
        parts.append(":".join(pieces))
    return before + equals + ",".join(parts)


def _follow(address: str, job: str) -> int:
    """Prints what a job prints until it ends, or Ctrl-C; the exit code."""
    from archray.cluster.jobs import follow_job, job_client  # which loads Ray

    typer.echo(
        f"Ctrl-C leaves the job running. To end it: {command_text('submit', '--address', address, '--stop', job)}"
    )

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    try:
        code = follow_job(job_client(address), job, write)
    except KeyboardInterrupt:
        again = command_text("submit", "--address", address, "--attach", job)
        typer.echo(f"\nDetached; the job goes on. Follow it again: {again}")
        return INTERRUPTED
    typer.echo(f"Job {job} ended with exit code {code}.")
    return code
