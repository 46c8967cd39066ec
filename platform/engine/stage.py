"""Stages: what a recipe is made of, done one after another, each reading what the one before wrote."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console

from archray.cluster.connect import connect
from archray.errors import RunInterrupted
from archray.files import Folder
from archray.platform.run.run import Run, digest, now

if TYPE_CHECKING:
    from ray.tune import ResultGrid

    from archray.platform.engine.tuning import TuneOptions

DONE = "done.json"


@dataclass
class Context:
    """What a stage is given: the run, where to talk to the person, and what the caller told Tune.

    `grids` collects the `ResultGrid` of every stage that ran Tune in this process.
    """

    run: Run
    console: Console
    tune_options: TuneOptions
    grids: dict[str, ResultGrid] = field(default_factory=dict)

    def folder(self, stage: str) -> Folder:
        return self.run.folder / stage


@dataclass(frozen=True)
class Stage:
    """One step of a recipe.

    Attributes:
        name: the stage's folder in the run.
        title: what it does, for the terminal.
        inputs: the part of the configuration it reads and the checksums of what it reads of other stages,
            JSON-able. A stage whose inputs have changed is not done.
        execute: does the work in the stage's folder; called again on the same folder after an interruption.
        needs_ray: whether Ray must be there.
    """

    name: str
    title: str
    inputs: Callable[[Context], dict[str, Any]]
    execute: Callable[[Context, Folder], None]
    needs_ray: bool = True


def is_done(stage: Stage, context: Context) -> bool:
    """Whether the stage has ended, with the inputs it would have now, and its files are as it left them."""
    folder = context.folder(stage.name)
    if not folder.exists(DONE):
        return False
    done = folder.read_json(DONE)
    if done["inputs"] != digest(stage.inputs(context)):
        return False
    return all(folder.exists(name) and folder.sha256(name) == checksum for name, checksum in done["outputs"].items())


def run_stages(stages: Sequence[Stage], context: Context) -> None:
    """Does every stage that is not done, in order; connects to Ray when the first one needs it.

    Raises: RunInterrupted, naming the stage and the command that continues.
    """
    console = context.console
    with ExitStack() as stack:
        connected = False
        for number, stage in enumerate(stages, start=1):
            label = f"[{number}/{len(stages)}] {stage.name}"
            if is_done(stage, context):
                console.print(f"[dim]{label}: done before[/dim]")
                continue
            console.print(f"[bold]{label}[/bold]: {stage.title}")
            if stage.needs_ray and not connected:
                run = context.run
                stack.enter_context(connect(run.config.cluster, user_files=run.user_files, announce=console.print))
                connected = True
            try:
                _execute(stage, context)
            except (KeyboardInterrupt, RunInterrupted) as error:
                place = context.run.folder
                raise RunInterrupted(
                    f"{label}: {error or 'stopped; what was finished is saved'}. Continue with: archray resume {place}"
                ) from error


def _execute(stage: Stage, context: Context) -> None:
    folder = context.folder(stage.name).create()
    started = time.monotonic()
    stage.execute(context, folder)
    seconds = time.monotonic() - started
    folder.write_json(
        DONE,
        {
            "inputs": digest(stage.inputs(context)),
            "outputs": {name: folder.sha256(name) for name in folder.files() if name != DONE},
            "finished": now(),
            "seconds": round(seconds, 1),
        },
    )
    context.console.print(f"[dim]    {seconds:.0f} s[/dim]")
