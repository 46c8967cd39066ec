"""The part of the conformance suite about a state of an earlier moment, with what happened since: see `replay`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from archray.searchers.base import ArchraySearcher
from archray.searchers.drive_searcher import drive
from archray.searchers.ledger import TuneTrial
from archray.searchers.replay import replay
from archray.searchers.testing.expectations import Expectations


class ReplayConformance(Expectations):
    """Of archray's searchers; others have no `replay` to pass."""

    budget: int
    fresh: Callable[..., Searcher]
    evaluate: Callable[[], Any]

    def test_replayed_from_an_earlier_state(self, tmp_path: Path) -> None:
        """Saved in the middle, and told what happened afterwards: it is as it was when its driver was killed."""
        searcher = self.fresh()
        if not isinstance(searcher, ArchraySearcher):
            return
        events: list[TuneTrial] = []
        suggest, complete = searcher.suggest, searcher.on_trial_complete

        def suggesting(trial_id: str) -> Any:
            config = suggest(trial_id)
            if isinstance(config, dict):
                events.append(TuneTrial(trial_id, {"settings": {}, **config}, "PENDING", {}))
            return config

        def completing(trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
            complete(trial_id=trial_id, result=result, error=error)
            events.append(TuneTrial(trial_id, {}, "ERROR" if error else "TERMINATED", result or {}))

        searcher.suggest = suggesting  # type: ignore[method-assign]
        searcher.on_trial_complete = completing  # type: ignore[method-assign]
        options: dict[str, Any] = {"concurrency": 2, "completion_seed": 1}
        drive(searcher, self.evaluate(), max_trials=max(1, self.budget // 2), **options)
        searcher.save(str(tmp_path / "state"))
        before = len(events)
        drive(searcher, self.evaluate(), max_trials=self.budget // 4 + 1, **options)
        restored: Any = self.fresh()
        restored.restore(str(tmp_path / "state"))
        replay(restored, events[before - 1 :])  # one that the state has may be among them
        assert restored.get_state() == searcher.get_state()
