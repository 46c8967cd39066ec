"""The result of a run, as `archray.load` opens it: architecture, accuracies, trials, results of Ray Tune."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from archray.errors import InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.quantities import DECIDING, deciding_value
from archray.platform.run.layout import REPORT, TRIALS, command
from archray.platform.run.run_summary import RunSummary, front_of
from archray.platform.show import head_of

if TYPE_CHECKING:  # reading a result does not need them
    import pandas as pd
    import torch
    from ray import tune

    from archray.trainables.feature_maps.classifier import Classifier


@dataclass(frozen=True)
class RunResult:
    """The result of a finished run. For an unfinished run, use `archray.show`.

    Attributes:
        path: folder of the run.
        architecture: architecture of the result, as a string of the space; None for an ensemble.
        origin: `search` if the search found the architecture. `random`, `largest` or `space` for a random architecture,
            the largest one, or one of all architectures of a small space, with a better validation accuracy after the
            same training.
        members: architectures of the ensemble.
        findings: conclusions of a study, one sentence each.
        test_accuracy: mean over the final training runs, or over the repeats. All accuracies are fractions.
        final_accuracy: validation accuracy after the final training; None without a comparison.
        validation_accuracy: validation accuracy with weights that the search trained for this architecture alone; None
            without such weights, and for a result that the search did not find.
        selection_accuracy: validation accuracy in the selection stage; None without this stage.
        shared_accuracy: validation accuracy with shared weights; None without them.
        parameters: number of parameters of the network, mean over the final training runs; None without them.
        grids: the `ResultGrid` of every stage that ran Tune in this process: `search`, `final`, `baseline`. The
            checkpoint of a trial is None if archray has deleted it; see `ResourceSettings.keep_checkpoints`.
        repeats: results of the repeats; the other attributes describe the best repeat by validation accuracy.
        trust: whether the run's code may execute although this user did not start the run on this machine.

    Example:
        ```python
        result = archray.load("runs/first")
        network = result.model()  # torch.nn.Module in evaluation mode, on the CPU
        trials = result.trials.query("stage == 'search'")  # pandas.DataFrame
        ```
    """

    path: str
    architecture: str | None
    test_accuracy: float | None
    origin: str = "search"
    final_accuracy: float | None = None
    validation_accuracy: float | None = None
    selection_accuracy: float | None = None
    shared_accuracy: float | None = None
    parameters: float | None = None
    members: Sequence[str] = ()
    findings: Sequence[str] = ()
    grids: "Mapping[str, tune.ResultGrid]" = field(default_factory=dict, repr=False)
    repeats: "Sequence[RunResult]" = field(default=(), repr=False)
    trust: bool = field(default=False, repr=False, compare=False)

    @classmethod
    def of(cls, summary: RunSummary, grids: Mapping[str, Any] | None = None, *, trust: bool = False) -> "RunResult":
        """Returns the result of a finished run. Raises: RunFolderError for an unfinished run."""
        path = summary.path
        if summary.state == "running":
            raise RunFolderError(
                f"expected a finished run, got {path}, which has not ended. See its progress with: "
                f"{command('watch', path)}"
            )
        if summary.state != "done":
            raise RunFolderError(
                f"expected a finished run, got {path}, which has not ended ({summary.reason}). See its results with: "
                f"{command('show', path)}. Continue with: {command('resume', path)}"
            )
        if summary.repeats:
            return over_repeats(path, [cls.of(repeat, trust=trust) for repeat in summary.repeats], summary.result)
        result = summary.result
        values: dict[str, Any] = {
            key: result.get(key) for key in ("architecture", "test_accuracy", *DECIDING, "parameters")
        }
        return cls(
            path,
            **values,
            origin=result.get("origin") or "search",
            members=tuple(result.get("members", ())),
            findings=tuple(summary.findings),
            grids=grids or {},
            trust=trust,
        )

    @property
    def summary(self) -> RunSummary:
        """The content that `archray.show` prints: method, space, data, stages with seconds, trials of the search."""
        return RunSummary.read(self.path)

    @property
    def result_grid(self) -> "tune.ResultGrid":
        """Ray Tune's results of the search. Raises: InvalidInput if the search stage ended in an earlier process."""
        if "search" not in self.grids:
            raise InvalidInput(
                f"Ray Tune's results exist only in the process that ran the search, and the search of {self.path} "
                f"ended in an earlier process. Use `.trials` or {self.path}/{TRIALS}"
            )
        return self.grids["search"]

    @property
    def trials(self) -> "pd.DataFrame":
        """All trials of all stages."""
        return Folder(self.path).read_parquet(TRIALS)

    @property
    def costs(self) -> dict[str, float]:
        """The costs of the found network that the run reports (`--cost`, `--constraint`), by name; empty without them.

        With several repeats they are those of the best repeat.
        """
        from archray.platform.methods import open_run  # NumPy
        from archray.trainables.costs import cost_column

        run = open_run(self.path, uses="tables").best
        columns = map(cost_column, getattr(run.config, "cost_names", ()))
        trials = run.folder.read_parquet(TRIALS)
        found = trials[trials["architecture"] == self.architecture]
        values = {name: found[name].dropna() for name in columns if name in found}
        return {name: float(column.iloc[0]) for name, column in values.items() if len(column)}

    def _repr_html_(self) -> str | None:
        """The first lines of `archray show` and a link to the report, for notebooks; None if the run has moved."""
        try:
            lines = head_of(self.summary)
        except RunFolderError:
            return None
        report = escape(f"{self.path}/{REPORT}")
        if "://" not in self.path:  # a notebook opens paths relative to its folder
            report = f'<a href="{escape(quote(os.path.relpath(self.path)))}/{REPORT}">{report}</a>'
        cells = [*((escape(label), escape(text)) for label, text in lines), ("report", report)]
        left = 'style="text-align: left"'
        rows = (f"<tr><th {left}>{label}</th><td {left}>{cell}</td></tr>" for label, cell in cells)
        return f"<table>{''.join(rows)}</table>"

    @property
    def pareto(self) -> "pd.DataFrame":
        """The non-dominated architectures of a search with several objectives, the most accurate first.

        Each row is a member of the set: member (number from 1), architecture, number (of the training run, from 1),
        the objectives, hypervolume_contribution, further costs. After final training runs a row also has
        test_accuracy, its standard deviation, parameters, multiply_adds, and the folder of the model. A search on a
        table adds the result in the table.

        Raises: InvalidInput if the search had one objective, or several repeats.
        """
        if self.repeats:
            raise InvalidInput(
                f"expected a run without repeats, got {self.path}, in which every repeat has a set. Use "
                "`.repeats[0].pareto`"
            )
        if (front := front_of(Folder(self.path))).empty:
            raise InvalidInput(
                f"expected a search with several objectives, got {self.path} with one. Use the methods nsga2 or "
                "pareto-pool to find a Pareto set"
            )
        return front

    def model(self, member: int | None = None) -> "torch.nn.Module | Classifier":
        """Loads the trained network or ensemble on the CPU in evaluation mode, or the classifier of a feature map.

        Args:
            member: number of a fully trained member of `pareto`; None: the most accurate.

        Raises: InvalidInput if there is no such member; RunFolderError if it was not trained; UntrustedCode if the run
        contains code, this user did not start it on this machine, and `load` was called without `trust=True`.
        """
        # torch, which the rest of a result does not need
        from archray.platform.methods import open_run
        from archray.platform.models.model_files import load_model

        return load_model(open_run(self.path, trust=self.trust), member)

    def predict(
        self, images: Any, *, top: int = 1, normalized: bool = False, member: int | None = None
    ) -> "pd.DataFrame":
        """Classifies images with the model: a row per image and rank, as `archray.predict`.

        Args:
            images: files and folders; or arrays or tensors before the data set's normalization.
            top: number of classes per image.
            normalized: whether arrays are already normalized.
            member: as in `model`.
        """
        from archray.platform.predict import predict  # torch

        return predict(self.path, images, top=top, normalized=normalized, member=member, trust=self.trust)


def over_repeats(path: str, repeats: Sequence[RunResult], document: Mapping[str, Any]) -> RunResult:
    """Returns the best repeat by validation accuracy, with the mean test accuracy over all repeats.

    Args:
        document: result of the run in its JSON.
    """
    best = max(repeats, key=lambda result: deciding_value({key: getattr(result, key) for key in DECIDING}))
    return replace(best, path=path, test_accuracy=document.get("test_accuracy"), repeats=tuple(repeats))


def load(path: str | os.PathLike[str], *, trust: bool = False) -> RunResult:
    """Loads the result of a finished run from its folder, as `search` returned it.

    The `grids` of the result are empty: Ray Tune's results exist only in the process that ran the search.

    Args:
        path: folder of the run, a path or a pyarrow URI.
        trust: whether `model()` and `predict()` may execute the run's code although you did not start the run on this
            machine; see docs/trust.md. `load` itself executes no code of the run.

    Returns: the result.
    Raises: RunFolderError for a folder without a run, or with an unfinished run.

    Example:
        ```python
        result = archray.load("runs/first")
        print(result.architecture, result.test_accuracy)
        ```
    """
    return RunResult.of(RunSummary.read(path), trust=trust)
