"""A search of short trainings that goes on from the same search of a smaller budget, where the run was extended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun
from archray.platform.methods.training_stages import training_plan
from archray.searchers import ArchraySearcher

SEARCHER = "searcher.json"  # the state of the searcher when the search ended


def search_plan(context: Context[Any], tuned: Folder, make: Callable[[], Any], **plan: Any) -> TrialPlan:
    """A plan of the short trainings that a searcher asks for.

    Args:
        tuned: of Tune, in the folder of the stage.
        make: makes the searcher, which is then told the trials of the smaller budget, if there are any.
        plan: further fields of `TrialPlan`.
    """
    config, stage = context.config, tuned.parent
    smaller: dict[str, Any] | None = stage.read_json(SEARCHER) if stage.exists(SEARCHER) else None

    def searcher() -> Any:
        searcher = make()
        if smaller is not None and isinstance(searcher, ArchraySearcher):
            searcher.set_state(smaller)
        return searcher

    return training_plan(
        context,
        config.train,
        test=False,
        total=config.search.budget,
        before=0 if smaller is None else len(smaller["ledger"]["records"]),
        searcher=searcher,
        **plan,
    )


def write_state(folder: Folder, run: TuneRun) -> None:
    """Writes what `search_plan` goes on from; nothing of a searcher of Tune's."""
    searcher = run.searcher()
    if isinstance(searcher, ArchraySearcher):
        folder.write_json(SEARCHER, searcher.get_state())
