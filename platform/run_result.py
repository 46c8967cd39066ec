"""The result of a search, which `archray.load` opens: architecture, accuracies, trials, Tune's own results."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from archray.errors import InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.quantities import DECIDING, deciding_value
from archray.platform.run.layout import TRIALS, command
from archray.platform.run.run_summary import RunSummary, front_of

if TYPE_CHECKING:  # a result is read without them
    import pandas as pd
    import torch
    from ray import tune

    from archray.trainables.feature_maps.classifier import Classifier


@dataclass(frozen=True)
class RunResult:
    """A run that has ended. `archray.show` shows one that has not.

    Attributes:
        path: its folder.
        architecture: the result, as the space's string; None for an ensemble.
        members: the architectures of the ensemble.
        findings: the conclusions of a study, a sentence each.
        test_accuracy: the mean over the final training runs; of repeats, over them. A fraction, as all accuracies.
        validation_accuracy: of weights that the search trained for this architecture alone; None without them.
        selection_accuracy: on validation data, in the selection; None without one.
        shared_accuracy: on validation data, with shared weights; None without them.
        grids: the `ResultGrid` of every stage that ran Tune in this process: `search`, `final`, `baseline`.
        repeats: the results of the repeats; this one is the best on validation.
        trust: whether the run's code may run although this user did not start it on this machine.
    """

    path: str
    architecture: str | None
    test_accuracy: float | None
    validation_accuracy: float | None = None
    selection_accuracy: float | None = None
    shared_accuracy: float | None = None
    members: Sequence[str] = ()
    findings: Sequence[str] = ()
    grids: "Mapping[str, tune.ResultGrid]" = field(default_factory=dict, repr=False)
    repeats: "Sequence[RunResult]" = field(default=(), repr=False)
    trust: bool = field(default=False, repr=False, compare=False)

    @classmethod
    def of(cls, summary: RunSummary, grids: Mapping[str, Any] | None = None, *, trust: bool = False) -> "RunResult":
        """The result of a run that has ended. Raises: RunFolderError if it has not."""
        path = summary.path
        if summary.state == "running":
            raise RunFolderError(f"{path} has not ended; see its progress with: {command('watch', path)}")
        if summary.state != "done":
            raise RunFolderError(
                f"{path} has not ended ({summary.reason}); see its results with: {command('show', path)}; "
                f"continue it with: {command('resume', path)}"
            )
        if summary.repeats:
            return over_repeats(path, [cls.of(repeat, trust=trust) for repeat in summary.repeats], summary.result)
        result = summary.result
        keys = ("architecture", "test_accuracy", "validation_accuracy", "selection_accuracy", "shared_accuracy")
        values: dict[str, Any] = {key: result.get(key) for key in keys}
        return cls(
            path,
            **values,
            members=tuple(result.get("members", ())),
            findings=tuple(summary.findings),
            grids=grids or {},
            trust=trust,
        )

    @property
    def summary(self) -> RunSummary:
        """The content of `archray.show`: method, space, data, stages and their seconds, the trials of the search."""
        return RunSummary.read(self.path)

    @property
    def result_grid(self) -> "tune.ResultGrid":
        """Tune's results of the search. Raises: InvalidInput if the search stage ended in an earlier process."""
        if "search" not in self.grids:
            raise InvalidInput(
                f"the search of {self.path} ended in an earlier process; its trials are in `.trials`, and in "
                f"{self.path}/{TRIALS}"
            )
        return self.grids["search"]

    @property
    def trials(self) -> "pd.DataFrame":
        """All trials of all stages."""
        return Folder(self.path).read_parquet(TRIALS)

    @property
    def pareto(self) -> "pd.DataFrame":
        """The non-dominated architectures of a search with several objectives, the most accurate first.

        A row per member: member (its number, from 1), architecture, number (of the training run, from 1), the
        objectives, hypervolume_contribution, further costs; after a final training run test_accuracy, its deviation,
        parameters, multiply_adds, and the folder of the model; with a table, its result.
        Raises: InvalidInput if the search had one objective, or several repeats.
        """
        if self.repeats:
            raise InvalidInput(f"{self.path} has repeats with a set each: `.repeats[0].pareto`")
        if (front := front_of(Folder(self.path))).empty:
            raise InvalidInput(f"{self.path} searched for one objective; search by nsga2 or pareto-pool for a set")
        return front

    def model(self, member: int | None = None) -> "torch.nn.Module | Classifier":
        """The trained network or ensemble, on the CPU, in evaluation mode; of a feature map, its classifier.

        member: a fully trained member of `pareto`, by its number; None: the most accurate.
        Raises: InvalidInput if there is no such member; RunFolderError if it was not trained; UntrustedCode if the run
        contains code, this user did not start it on this machine, and `load` got no `trust=True`.
        """
        # torch, which no other part of a result needs
        from archray.platform.methods import open_run
        from archray.platform.models.model_files import load_model

        return load_model(open_run(self.path, trust=self.trust), member)

    def predict(
        self, images: Any, *, top: int = 1, normalised: bool = False, member: int | None = None
    ) -> "pd.DataFrame":
        """The classes of images by the model: a row per image and rank, as `archray.predict`.

        images: files and folders; or arrays or tensors as the data set's were before it normalised them.
        member: as of `model`.
        """
        from archray.platform.predict import predict  # torch

        return predict(self.path, images, top=top, normalised=normalised, member=member, trust=self.trust)


def over_repeats(path: str, repeats: Sequence[RunResult], document: Mapping[str, Any]) -> RunResult:
    """The repeat that is best on validation, with the test accuracy of all. document: their run's JSON."""
    best = max(repeats, key=lambda result: deciding_value({key: getattr(result, key) for key in DECIDING}))
    return replace(best, path=path, test_accuracy=document.get("test_accuracy"), repeats=tuple(repeats))


def load(path: str | os.PathLike[str], *, trust: bool = False) -> RunResult:
    """The result of a run that has ended, from its folder, in any process: as `search` returned it.

    Args:
        path: the run's folder, a path or a pyarrow URI.
        trust: whether `model()` and `predict()` may run the run's code although you did not start it on this machine;
            see docs/trust.md. `load` itself runs none.

    Its `grids` are empty: Tune's own results exist only in the process that ran the search.

    Raises: RunFolderError for a folder without a run, or for one that has not ended.
    """
    return RunResult.of(RunSummary.read(path), trust=trust)
