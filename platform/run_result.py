"""What a search returns: what was found, how good it is, and Tune's own results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from archray.errors import InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.methods.method import open_run
from archray.platform.run.run import TRIALS, Run

if TYPE_CHECKING:
    import torch
    from ray import tune

    from archray.trainables.feature_maps.classifier import Classifier


@dataclass(frozen=True)
class RunResult:
    """A run that has ended.

    Attributes:
        path: its folder.
        architecture: what was found, as the space's string; None for an ensemble.
        members: the architectures of the ensemble that was found.
        validation_accuracy: in the search; None where the architecture was given. test_accuracy: the mean over the
            final trainings. Fractions.
        grids: the `ResultGrid` of every stage that ran Tune in this process: `search`, `final`, `baseline`.
        repeats: the results of the repeats, of which this is the best on validation.
    """

    path: str
    architecture: str | None
    validation_accuracy: float | None
    test_accuracy: float | None
    members: Sequence[str] = ()
    grids: Mapping[str, tune.ResultGrid] = field(default_factory=dict, repr=False)
    repeats: Sequence[RunResult] = field(default=(), repr=False)

    @classmethod
    def of(cls, run: Run[Any], grids: Mapping[str, Any] | None = None) -> RunResult:
        """The result of a run that has ended. Raises: RunFolderError if it has not."""
        ended = run.ended
        if not ended:
            raise RunFolderError(f"{run.folder} has not ended; continue it with 'archray resume {run.folder}'")
        return cls(
            str(run.folder),
            ended.get("architecture"),
            ended.get("validation_accuracy", ended["value"]),
            ended["test_accuracy"],
            tuple(ended.get("members", ())),
            grids or {},
        )

    @property
    def result_grid(self) -> tune.ResultGrid:
        """Tune's results of the search. Raises: InvalidInput if the search stage had ended before."""
        if "search" not in self.grids:
            raise InvalidInput(
                f"the search of {self.path} ended in an earlier process; read {self.path}/trials.parquet"
            )
        return self.grids["search"]

    @property
    def trials(self) -> pd.DataFrame:
        """All trials of all stages."""
        return Folder(self.path).read_parquet(TRIALS)

    def model(self) -> torch.nn.Module | Classifier:
        """The trained network or ensemble, on the CPU, in evaluation mode; of a feature map, its classifier."""
        from archray.platform.models.model_files import load_model

        return load_model(open_run(self.path))
