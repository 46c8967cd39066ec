"""Run the `archray` command as a Ray job: submit it to a cluster with the package, follow it, and stop it."""

import asyncio
import json
import logging
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from archray.cluster import connect
from archray.cluster.connect import ClusterError, Unreachable
from archray.errors import MissingExtra

JobClient: TypeAlias = Any  # ray.job_submission.JobSubmissionClient, which needs ray[default]

VERSION = "/api/version"  # of the dashboard; this request needs the token, too
PYTHON = "python -m archray.platform.cli"  # the head's Python, which has archray's dependencies
NO_AGENT, AGENT_SECONDS = "No available agent", 60.0  # a new head cannot start jobs immediately
LOST_LOG_SECONDS = 2.0  # wait before the next request for a log
FAILED, STOPPED = 1, 130  # archray's exit codes after an error and after an interrupt
# Loggers of Ray whose INFO lines are hidden.
TALKATIVE = ("dashboard.modules.job.sdk", "dashboard.modules.dashboard_sdk", "_private.runtime_env.packaging")
UNSENT = (".git", ".venv", "__pycache__", "archray-runs", ".mypy_cache", ".pytest_cache", ".ruff_cache")


def job_client(address: str) -> JobClient:
    """Returns a client of the cluster whose dashboard is at `address`.

    Args:
        address: the dashboard's URL.

    Raises: ClusterError, within seconds, if no dashboard of Ray answers or if it rejects the token; MissingExtra
    without ray[default].

    Example:
        ```python
        client = job_client("http://127.0.0.1:8265")
        job = submit_job(client, "search random --preset smoke --out /shared/run", {}, name="smoke")
        exit_code = follow_job(client, job, print)
        ```
    """
    try:
        connect.secure_token(print, create=False)
        headers = _check_dashboard(address)
        from ray.job_submission import JobSubmissionClient

        for name in TALKATIVE:
            logging.getLogger(f"ray.{name}").setLevel(logging.WARNING)
        return JobSubmissionClient(address, headers=headers)
    except Exception as error:  # Ray raises plain Exceptions
        if isinstance(error, ImportError) or "ray[default]" in str(error):
            message = f"Expected ray[default], which jobs need ({error}). Run pip install 'ray[default]'."
            raise MissingExtra(message) from error
        raise ClusterError(f"cannot reach the Ray cluster at {address}: {_reason(error)}.") from error


def submit_job(
    client: JobClient,
    command: str,
    files: Mapping[str, Path],
    working_dir: Path | None = None,
    *,
    name: str,
    runtime_env: Mapping[str, Any] | None = None,
    submission_id: str | None = None,
) -> str:
    """Submits `archray COMMAND` with the package in the layout of a wheel; returns the job's id.

    Args:
        client: see `job_client`.
        command: the words after `archray`, quoted for a shell.
        files: the user's files, by their paths in the job's folder, in which the command runs.
        working_dir: a folder whose content is copied to the job's folder, except for UNSENT.
        name: name of the job in Ray's dashboard.
        runtime_env: Ray's runtime environment of the job, in addition to archray's.
        submission_id: id of the job; None: Ray chooses one.

    Raises: ClusterError if the cluster rejects the job.
    """
    with tempfile.TemporaryDirectory(prefix="archray-job-") as scratch:
        folder, package = Path(scratch) / "job", Path(scratch) / "package"
        package.mkdir()
        if working_dir is None:
            folder.mkdir()
        else:
            shutil.copytree(working_dir, folder, ignore=shutil.ignore_patterns(*UNSENT))
        for place, file in files.items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / place)
        environment = connect.runtime_environment([], package, local=False)
        wanted = dict(runtime_env or {})
        environment["py_modules"] = [*environment.get("py_modules", []), *wanted.pop("py_modules", [])]
        environment |= {**wanted, "working_dir": str(folder)}
        deadline = time.monotonic() + AGENT_SECONDS
        while True:
            try:
                return client.submit_job(
                    entrypoint=f"{PYTHON} {command}",
                    runtime_env=environment,
                    submission_id=submission_id,
                    metadata={"job_name": name, "command": f"archray {command}"},
                )
            except Exception as error:
                if NO_AGENT not in str(error) or time.monotonic() > deadline:
                    raise ClusterError(f"The Ray cluster rejected the job: {_reason(error)}.") from error


def follow_job(client: JobClient, job: str, write: Callable[[str], Any]) -> int:
    """Passes the output of a job to `write`, from the start of the job to its end; returns its exit code.

    It reconnects as long as the head answers.

    Args:
        client: see `job_client`.
        job: the job's id.
        write: called with each piece of the output.

    Raises: ClusterError if there is no such job, or no answer.
    """
    written = 0

    async def tail() -> None:
        nonlocal written
        passed = 0  # each request returns the log from its start
        async for text in client.tail_job_logs(job):
            passed += len(text)
            new = text[max(0, len(text) - (passed - written)) :] if passed > written else ""
            written = max(written, passed)
            write(new)

    while True:
        lost: Exception | None = None
        try:
            asyncio.run(tail())
        except Exception as error:  # of aiohttp or Ray; the job may still run
            lost = error
        try:
            details = client.get_job_info(job)
        except Exception as error:
            raise ClusterError(f"The cluster returned no state of job {job}: {_reason(error)}.") from (lost or error)
        if details.status.is_terminal():
            break
        time.sleep(LOST_LOG_SECONDS)
    write(client.get_job_logs(job)[written:])
    if details.status == "SUCCEEDED":
        return 0
    if details.status == "STOPPED":
        return STOPPED
    if details.driver_exit_code is None:  # it did not start; the message contains the reason
        write(f"{details.message}\n")
    return details.driver_exit_code or FAILED


def stop_job(client: JobClient, job: str) -> bool:
    """Stops a job, as Ctrl-C does; returns whether it was running.

    Args:
        client: see `job_client`.
        job: the job's id.

    Raises: ClusterError if the cluster does not stop it.
    """
    try:
        return bool(client.stop_job(job))
    except Exception as error:
        raise ClusterError(f"Job {job} cannot be stopped: {_reason(error)}.") from error


def _reason(error: Exception) -> str:
    """Returns the text of an error without its final period; Ray adds a period to the text of the dashboard."""
    return str(error).rstrip(".\n ")


def _check_dashboard(address: str) -> dict[str, str]:
    """Returns the HTTP headers with the token that the dashboard of the Ray cluster at `address` accepts.

    Raises: Unreachable unless a dashboard answers and accepts the token.
    """
    if not address.startswith(("http://", "https://")):
        raise Unreachable(f"expected the URL of its dashboard, such as http://HOST:8265, got {address}")
    try:
        return _request(address, {})
    except PermissionError as error:
        if not (token := connect.send_token()):
            raise Unreachable(f"the cluster requires a token, but none was given. {connect.GET_TOKEN}.") from error
        try:
            return _request(address, {"Authorization": f"Bearer {token}"})
        except PermissionError:
            raise Unreachable(
                f"the cluster rejects the token in {connect.token_source()}. {connect.GET_TOKEN}."
            ) from error


def _request(address: str, headers: dict[str, str]) -> dict[str, str]:
    """Returns the headers of an accepted request.

    Raises: PermissionError if the dashboard requires a token; Unreachable if no dashboard of Ray answers.
    """
    request = urllib.request.Request(address.rstrip("/") + VERSION, headers=headers)
    other = "the server at this address is not the dashboard of a Ray cluster, whose default port is 8265"
    try:
        with urllib.request.urlopen(request, timeout=connect.ANSWER_SECONDS) as answer:
            if "ray_version" not in json.load(answer):
                raise Unreachable(other)
        return headers
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            raise PermissionError(error.reason) from error
        raise Unreachable(f"{other} ({error})") from error
    except urllib.error.URLError as error:
        raise Unreachable(
            f"no answer ({error.reason}). Check that the cluster is running and that its port is open."
        ) from error
    except (OSError, ValueError) as error:  # not HTTP, not JSON, or too slow
        raise Unreachable(f"{other} ({error})") from error
