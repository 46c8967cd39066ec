"""Where the model of a member lies, of a set that a search with several objectives ended with; or why it has none."""

from __future__ import annotations

from typing import Any

from archray.errors import InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.run.layout import command
from archray.platform.run.pareto_front import front_of
from archray.platform.run.run import Run
from archray.plurals import count


def member_folder(run: Run[Any], member: int) -> Folder:
    """The folder of the model of a member that was trained in full; of several repeats, of the best one's set.

    member: its number, from 1, as in `run.pareto`.
    Raises: InvalidInput if the run has no such member; RunFolderError if that was not trained.
    """
    row = member_row(run, member)
    if (place := row.get("model")) is not None:
        folder = run.best.folder
        for name in place.split("/"):
            folder = folder / name
        return folder
    if (reason := row.get("failure")) is not None:
        raise RunFolderError(f"the final training of member {member} of {run.folder} failed: {reason}; choose another")
    raise RunFolderError(
        f"member {member} of {run.folder} has not had the final training; train all members, then export it: "
        f"{command('resume', run.folder, '--final-members', 'all')}"
    )


def member_row(run: Run[Any], member: int) -> dict[str, Any]:
    """What `run.pareto` says of a member, without what is missing.

    Raises: InvalidInput if there is none; RunFolderError if the set is not written yet.
    """
    if getattr(run.config, "final_members", None) is None:
        raise InvalidInput(
            f"expected a run that ends with a set, for member {member}, got {run.folder}, which searched for one "
            "objective and has one model; leave the member out"
        )
    front = front_of(run.best.folder)
    if front.empty:
        raise RunFolderError(f"{run.folder} has no set yet; finish it with: {command('resume', run.folder)}")
    if not 1 <= member <= len(front):
        raise InvalidInput(
            f"expected a member from 1 to {len(front)}, as {run.folder} ended with {count(len(front), 'member')}, got "
            f"{member}; list them with: {command('show', run.folder)}"
        )
    return {str(name): value for name, value in front.iloc[member - 1].dropna().items()}
