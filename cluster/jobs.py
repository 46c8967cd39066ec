"""archray's command as a Ray job: sent to the head of a cluster with the package, followed, stopped."""

from __future__ import annotations

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
from typing import TYPE_CHECKING, Any

from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]

from archray.cluster.connect import (
    ANSWER_SECONDS,
    GET_TOKEN,
    ClusterError,
    Unreachable,
    runtime_environment,
    send_given_token,
    token_source,
)
from archray.errors import MissingExtra

if TYPE_CHECKING:  # needs what comes with ray[default]
    from ray.job_submission import JobSubmissionClient

VERSION = "/api/version"  # of the dashboard, which asks for the token as for all that does something
PYTHON = "python -m archray.platform.cli"  # the Python of the head, where archray's dependencies are
NO_AGENT, AGENT_SECONDS = "No available agent", 60.0  # a head that has just come up has nothing yet that starts jobs
LOST_LOG_SECONDS = 2.0  # before a log is asked for again
FAILED, STOPPED = 1, 130  # exit codes, as archray reports what it could not do, and that it was interrupted
# The job's driver brings modules too, those of the user's files among them: without this Ray refuses to have both.
JOB_VARIABLES = {"RAY_OVERRIDE_JOB_RUNTIME_ENV": "1"}
TALKATIVE = (  # of uploads and connections
    "ray.dashboard.modules.job.sdk",
    "ray.dashboard.modules.dashboard_sdk",
    "ray._private.runtime_env.packaging",
)
UNSENT = (".git", ".venv", "__pycache__", "archray-runs", ".mypy_cache", ".pytest_cache", ".ruff_cache")


def job_client(address: str) -> JobSubmissionClient:
    """A client of the cluster whose dashboard is at `address`, a URL.

    Raises: ClusterError, within seconds, if no dashboard of Ray answers there or it does not take our token;
        MissingExtra without ray[default].
    """
    try:
        _check_dashboard(address)
        from ray.job_submission import JobSubmissionClient

        for name in TALKATIVE:
            logging.getLogger(name).setLevel(logging.WARNING)
        return JobSubmissionClient(address)
    except Exception as error:  # Ray says in plain ones what it cannot do
        if isinstance(error, ImportError) or "ray[default]" in str(error):
            raise MissingExtra(
                f"jobs need more of Ray than is installed: pip install 'ray[default]' ({error})"
            ) from error
        raise ClusterError(f"cannot reach the Ray cluster at {address}: {error}") from error


def submit_job(
    client: JobSubmissionClient, command: str, files: Mapping[str, Path], working_dir: Path | None = None, *, name: str
) -> str:
    """Sends `archray COMMAND` with the package, in the layout of a wheel; returns the job's id.

    Args:
        command: what follows `archray`, quoted for a shell.
        files: the user's files by their places in the job's folder, in which the command runs.
        working_dir: a folder whose content is in the job's folder too, except for UNSENT.
        name: what the job is called in Ray's dashboard.

    Raises: ClusterError if the cluster does not take it.
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
        environment = runtime_environment([], package, local=False)
        environment |= {"working_dir": str(folder), "env_vars": JOB_VARIABLES}
        deadline = time.monotonic() + AGENT_SECONDS
        while True:
            try:
                return client.submit_job(
                    entrypoint=f"{PYTHON} {command}",
                    runtime_env=environment,
                    metadata={"job_name": name, "command": f"archray {command}"},
                )
            except Exception as error:
                if NO_AGENT not in str(error) or time.monotonic() > deadline:
                    raise ClusterError(f"the Ray cluster did not take the job: {error}") from error


def follow_job(client: JobSubmissionClient, job: str, write: Callable[[str], Any]) -> int:
    """Gives what a job prints to `write`, from its beginning until it ends; its exit code.

    A connection that is lost is made again, as long as the head answers.

    Raises: ClusterError if there is no such job, or the head answers no more.
    """
    written = 0

    async def tail() -> None:
        nonlocal written
        passed = 0  # a log begins from its beginning each time
        async for text in client.tail_job_logs(job):
            passed += len(text)
            new = text[max(0, len(text) - (passed - written)) :] if passed > written else ""
            written = max(written, passed)
            write(new)

    while True:
        try:
            asyncio.run(tail())
        except Exception as error:  # aiohttp's, Ray's plain ones: whether the job goes on is asked below
            lost: Exception | None = error
        else:
            lost = None
        try:
            details = client.get_job_info(job)
        except Exception as error:
            raise ClusterError(f"job {job}: the cluster says nothing of it: {error}") from (lost or error)
        if details.status.is_terminal():
            break
        time.sleep(LOST_LOG_SECONDS)
    write(client.get_job_logs(job)[written:])
    if details.status == "SUCCEEDED":
        return 0
    if details.status == "STOPPED":
        return STOPPED
    if details.driver_exit_code is None:  # it never began: Ray says why
        write(f"{details.message}\n")
    return details.driver_exit_code or FAILED


def stop_job(client: JobSubmissionClient, job: str) -> bool:
    """Ends a job, as Ctrl-C would; whether it was still on. Raises: ClusterError."""
    try:
        return client.stop_job(job)
    except Exception as error:
        raise ClusterError(f"job {job} cannot be stopped: {error}") from error


def _check_dashboard(address: str) -> None:
    """Raises: Unreachable unless the dashboard of a Ray cluster answers there, and takes our token."""
    if not address.startswith(("http://", "https://")):
        raise Unreachable(f"expected the URL of its dashboard, such as http://HOST:8265, got {address}")
    try:
        _ask(address, {})
    except PermissionError as error:
        if not send_given_token():
            raise Unreachable(f"it asks for a token, and none was given; {GET_TOKEN}") from error
        try:
            _ask(address, AuthenticationTokenLoader.instance().get_token_for_http_header())
        except PermissionError:
            raise Unreachable(f"it does not take the token in {token_source()}; {GET_TOKEN}") from error


def _ask(address: str, headers: Mapping[str, str]) -> None:
    """Raises: PermissionError if a token is asked for; Unreachable if no dashboard of Ray answers."""
    request = urllib.request.Request(address.rstrip("/") + VERSION, headers=dict(headers))
    other = "what answers there is not the dashboard of a Ray cluster; its port is 8265 unless the head has another"
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            if "ray_version" not in json.load(answer):
                raise Unreachable(other)
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            raise PermissionError(error.reason) from error
        raise Unreachable(f"{other} ({error})") from error
    except urllib.error.URLError as error:
        raise Unreachable(f"nothing answers there ({error.reason}); is the cluster up, and its port open?") from error
    except (OSError, ValueError) as error:  # no HTTP, or no JSON; too slow
        raise Unreachable(f"{other} ({error})") from error
