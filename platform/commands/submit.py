"""`archray submit`: run an `archray` command as a job on a Ray cluster, from any machine that reaches its dashboard."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import typer

from archray.errors import InvalidInput
from archray.file_modules import code_files
from archray.platform.commands.runs import INTERRUPTED
from archray.platform.commands.search import option_value, with_method
from archray.platform.run.layout import RUNS
from archray.platform.run.layout import command as command_text

ADDRESS = "RAY_API_SERVER_ADDRESS"  # Ray's variable
SENT = (".py", ".toml", ".json", ".yaml", ".yml", ".csv", ".gz", ".parquet", ".npz")  # files of the user, not data sets
PLACES = ("--out", "--data-dir")  # options with folders that every node must see


def submit(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND ...", help="Command to run: -- search hnas --out /shared/run"),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help=f"URL of the cluster's Ray dashboard. Default: {ADDRESS}."),
    ] = None,
    working_dir: Annotated[
        Path | None, typer.Option(help="Folder to upload. The command runs in a copy of it.", exists=True)
    ] = None,
    runtime_env: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Ray runtime environment of the job (.yaml, .json): pip, env_vars, ...", exists=True
        ),
    ] = None,
    submission_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Id of the job. Default: Ray chooses one.")
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return when the job is submitted.")] = False,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Resume a run. Same as -- resume RUN. Put options after --.")
    ] = None,
    attach: Annotated[str | None, typer.Option(metavar="JOB", help="Follow an earlier job.")] = None,
    stop: Annotated[str | None, typer.Option(metavar="JOB", help="Stop a job. Its run can be resumed.")] = None,
) -> None:
    """Run a command as a job on a Ray cluster, and follow it: archray submit -- search hnas --out /shared/runs/1

    The job includes archray and your files in the command (--space own_space.py:MySpace, --config FILE). --out and
    --data-dir must be visible to every node: a shared folder, or s3://...

    Ctrl-C leaves the job running. The exit code is the exit code of the job.
    """
    if sum(map(bool, (command and not resume, resume, attach, stop))) != 1:
        raise InvalidInput("expected exactly one of '-- COMMAND ...', --resume RUN, --attach JOB and --stop JOB")
    from archray.cluster.jobs import job_client, stop_job, submit_job  # Ray

    address = (address or os.environ.get(ADDRESS) or "").rstrip("/")
    if not address:  # Ray's default is port 8265 of this machine, where another search may have its own Ray
        raise InvalidInput(
            "expected the URL of the cluster's Ray dashboard, got none. Pass --address http://HOST:8265, or set "
            f"{ADDRESS}. 'ray start --head' prints the URL"
        )
    if stop:
        was_running = stop_job(job_client(address), stop)
        typer.echo(f"Job {stop} {'is being stopped' if was_running else 'has already ended'}.")
        return
    if attach:
        raise typer.Exit(_follow(address, attach))
    words, files = job_command(["resume", resume, *(command or [])] if resume else command or [])
    text = shlex.join(words)
    environment = _environment(runtime_env)
    client = job_client(address)
    job = submit_job(
        client, text, files, working_dir, name=job_name(words), runtime_env=environment, submission_id=submission_id
    )
    typer.echo(f"Job {job}: archray {text}")
    typer.echo(f"Ray dashboard: {address}/#/jobs/{job}")
    if words[0] == "search" and (run := option_value("--out", words)) and not option_value("--out", command or []):
        typer.echo(
            f"The run is in {run}, in the home folder of Ray's user on the head node. All nodes must share this "
            "folder. Choose another one with --out."
        )
    if run := resume or option_value("--out", words):
        again = command_text("submit", "--address", address, "--resume", run)
        typer.echo(f"To resume if the job or its node fails: {again}")
    if no_wait:
        typer.echo(f"To follow it: {command_text('submit', '--address', address, '--attach', job)}")
        return
    raise typer.Exit(_follow(address, job))


def _environment(file: Path | None) -> dict[str, Any]:
    """Reads a runtime environment. Raises: InvalidInput, also for one with a working folder."""
    if file is None:
        return {}
    from archray.platform.config import read_config_file  # numpy: `--help` does not need it

    environment = read_config_file(file)
    if "working_dir" in environment:
        raise InvalidInput(f"--runtime-env: expected no working_dir in {file}, got one. Use --working-dir")
    return environment


def job_command(words: Sequence[str]) -> tuple[list[str], Mapping[str, Path]]:
    """Returns the words of a command for a job, and the user's files in it by their paths in the job's folder.

    A search without `--out` receives one, since Ray deletes the job's folder at its end.

    Raises: InvalidInput for a folder that only this machine sees.
    """
    words, files = list(words), dict[str, Path]()
    if words[:1] == ["search"]:
        words[1:] = with_method(words[1:])
    if words[:1] == ["submit"]:
        raise InvalidInput("expected a command other than 'submit', got 'submit'. Remove the second 'submit'")
    for option in PLACES:
        _check_place(option, option_value(option, words))
    if words[0] == "resume" and len(words) > 1:
        _check_place("RUN", words[1])
    if words[0] == "search" and len(words) > 1 and not words[1].startswith("-"):
        if option_value("--out", words) is None and not {"--help", "-h", "--dry-run"} & set(words):
            words += ["--out", f"~/{RUNS}/{words[1]}-{datetime.now():%Y%m%d-%H%M%S}"]
    return [_sent(word, files) for word in words], files


def job_name(words: Sequence[str]) -> str:
    """Returns the name of a job in Ray's dashboard: `hnas digits-1`, like the run itself, or `resume digits-1`."""
    if words[0] == "search" and len(words) > 1 and (run := option_value("--out", words)):
        return f"{words[1]} {_last_part(run)}"
    return f"resume {_last_part(words[1])}" if words[0] == "resume" and len(words) > 1 else words[0]


def _last_part(run: str) -> str:
    return PurePosixPath(run.partition("?")[0]).name


def _check_place(option: str, place: str | None) -> None:
    if place is not None and "://" not in place and not place.startswith(("/", "~")):
        raise InvalidInput(
            f"{option}: expected a folder that every node of the cluster sees, such as /shared/runs/1 or "
            f"s3://bucket/run, got {place}. Ray deletes the working folder of a job when the job ends"
        )


def _sent(word: str, files: dict[str, Path]) -> str:
    """Rewrites a word of a command, such as `--space=own.py:A` or `table:rows.csv`, and adds its files to `files`.

    A `.py` file comes with the modules of its folder that it imports.
    """
    before, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    parts = []
    for part in value.split(","):
        pieces = part.split(":")
        for number, piece in enumerate(pieces):
            file = Path(piece).expanduser()
            if file.suffix in SENT and file.is_file():
                inside = not file.is_absolute() and ".." not in file.parts
                place = PurePosixPath(file.as_posix() if inside else f"sent-{len(files)}/{file.name}")
                pieces[number] = str(place)
                sent = code_files(file) if file.suffix == ".py" else {file.name: file}
                files.update({str(place.parent / name): path for name, path in sent.items()})
        parts.append(":".join(pieces))
    return before + equals + ",".join(parts)


def _follow(address: str, job: str) -> int:
    """Prints the output of a job until it ends or Ctrl-C; returns the exit code."""
    from archray.cluster.jobs import follow_job, job_client  # Ray

    stop = command_text("submit", "--address", address, "--stop", job)
    typer.echo(f"Ctrl-C leaves the job running. To stop it: {stop}")

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    try:
        code = follow_job(job_client(address), job, write)
    except KeyboardInterrupt:
        again = command_text("submit", "--address", address, "--attach", job)
        typer.echo(f"\nDetached. The job continues. To follow it again: {again}")
        return INTERRUPTED
    typer.echo(f"Job {job} ended with exit code {code}.")
    return code
