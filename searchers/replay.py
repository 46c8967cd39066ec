"""A searcher told again what became of its trials after its state was saved."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from archray.searchers.base import ArchraySearcher
from archray.searchers.ledger import TuneTrial

logger = logging.getLogger(__name__)


def replay(searcher: ArchraySearcher, trials: Sequence[TuneTrial]) -> None:
    """Calls a restored searcher as Tune has called it since.

    trials: in the order in which something happened, each as it was then; those that the searcher had suggested before
    may be among them. Since a suggestion follows from what was told before it, the searcher suggests the same again; a
    space of the user's own that draws otherwise each time is given what was trained.

    Raises: what the searcher raises.
    """
    for trial in trials:
        if searcher.ledger.of_trial(trial.trial_id) is None:
            searcher.suggest(trial.trial_id)
        record = searcher.ledger.of_trial(trial.trial_id)
        if record is None:
            logger.warning("%s does not suggest trial %s again", type(searcher).__name__, trial.trial_id)
            continue
        trained = {key: trial.config.get(key, value) for key, value in record.config.items()}
        if trained != record.config:
            logger.warning("trial %s was suggested as %s, now as %s", trial.trial_id, trained, record.config)
            record.config = trained
        if record.ended and not (record.errored and trial.ended and not trial.failed):
            continue
        if trial.failed:
            searcher.on_trial_complete(trial_id=trial.trial_id, error=True)
        elif trial.ended:
            searcher.on_trial_complete(trial_id=trial.trial_id, result=trial.last_result)
        elif trial.last_result:
            searcher.on_trial_result(trial_id=trial.trial_id, result=trial.last_result)
