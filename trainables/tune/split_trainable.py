"""The trial of a study of validation sets: one problem with training, validation and test points. Note U6."""

import json
import math
from typing import Any

from pydantic import Field

from archray.errors import InvalidInput
from archray.settings import Seed
from archray.trainables.activations.two_layer import get_activations
from archray.trainables.data import DataSettings, load_images
from archray.trainables.tune.trial import Result, TrialFailed, TrialTrainable, read_whole_number
from archray.trainables.validation_split import problem
from archray.trainables.validation_split.measures import measure_split
from archray.trainables.validation_split.settings import TEACHER_DATA, Form, SplitSettings
from archray.trainables.validation_split.spectral import measure_rank_one, measure_spectral


class SplitTrialSettings(SplitSettings):
    """All options of a `SplitTrainable`.

    Attributes:
        data: Data set. `gaussian`: Gaussian inputs, labeled by the teacher. Others: images, one class against the rest.
        device: Torch device of the trial.
        threads: Number of torch threads (default: the number of CPUs that Tune assigned to the trial).
        seed: Seed of a trial whose config has no `seed`.
    """

    data: DataSettings = DataSettings(name=TEACHER_DATA)
    device: str = "cpu"
    threads: int | None = Field(None, ge=1)
    seed: Seed = 0


class SplitTrainable(TrialTrainable):
    """Measures one problem, in one step.

    Config: see `TrialTrainable`; `parameters`: h, the number of candidates; `spectral` (optional): whether to measure
    the spectral solutions instead of validation against test.

    Every result contains, as JSON, `rows`, one per size of the validation set (`measure_split`, or `measure_rank_one`
    and `measure_spectral` with the `design` of each), and `whole`, the other values of `measure_split`; `score`, the
    excess test loss at the largest size, or the largest difference of a spectral solution; `failure` and `done`.
    """

    settings_type = SplitTrialSettings
    failures = (TrialFailed, InvalidInput)
    _settings: SplitTrialSettings

    def _read(self, config: dict[str, Any]) -> None:
        self._parameters = read_whole_number(config, "parameters", 2, least=2)
        self._spectral = bool(config.get("spectral", False))
        check_problem(self._settings, self._parameters)

    def _step(self) -> Result:
        settings, seed = self._settings, self._seed
        if self._spectral:
            rows = self._spectral_rows()
            return self._results(rows, {}, max(row["difference"] for row in rows))
        measures = measure_split(
            split_problem(settings, self._parameters, settings.form, seed),
            settings.validation_sizes,
            architectures=settings.architectures,
            steps=settings.steps,
            seed=seed,
        )
        return self._results(measures.rows, measures.whole, measures.rows[-1]["excess"])

    def _spectral_rows(self) -> list[dict[str, Any]]:
        settings, seed, sizes = self._settings, self._seed, self._settings.validation_sizes
        gaussian = measure_rank_one(
            sizes,
            parameters=self._parameters,
            dimension=settings.width,
            train=settings.train_size,
            noise=settings.noise,
            seed=seed,
        )
        rows = [{"design": "gaussian", **row} for row in gaussian]
        forms: tuple[Form, ...] = ("activation", "kernels")
        for form in forms:
            measured = measure_spectral(
                split_problem(settings, self._parameters, form, seed), sizes, steps=settings.steps, seed=seed
            )
            rows += [{"design": form, **row} for row in measured]
        return rows

    def _results(self, rows: list[dict[str, Any]], whole: dict[str, float], score: float) -> Result:
        return {"rows": json.dumps(rows), "whole": json.dumps(whole), "score": score, "failure": None, "done": True}

    def _failed(self, reason: str) -> Result:
        return {"rows": "[]", "whole": "{}", "score": math.nan, "failure": reason, "done": True}


def split_problem(settings: SplitTrialSettings, parameters: int, form: Form, seed: int) -> problem.SplitProblem:
    """Creates the problem of a seed, with the first `parameters` candidates."""
    names, scales = zip(*settings.candidates[:parameters], strict=True)
    activations = [problem.scaled(*candidate) for candidate in zip(get_activations(names), scales, strict=True)]
    if settings.data.name == TEACHER_DATA:
        return problem.teacher_problem(activations, settings, form, seed)
    pool, test = problem.points_of(load_images(settings.data))
    return problem.data_problem(activations, settings, pool, test, form, seed)


def check_problem(settings: SplitTrialSettings, parameters: int) -> None:
    """Raises: InvalidInput for too few candidates or data points, or models that do not interpolate."""
    get_activations(settings.activations)
    count = len(settings.candidates)
    if parameters > count:
        raise InvalidInput(
            f"expected at most as many parameters as candidates, {count} ({len(settings.activations)} activations at "
            f"{len(settings.scales)} scales), got {parameters}. Add activations or scales"
        )
    inputs = settings.inputs
    if settings.data.name != TEACHER_DATA:
        data = load_images(settings.data)
        inputs = data.train.batch(slice(1)).numel()
        problem.check_points(len(data.train) + len(data.validation), len(data.test), settings.sizes)
    features = problem.feature_dimension(settings.width, inputs, settings.layers)
    if settings.train_size >= features:
        raise InvalidInput(
            f"expected fewer training points than features, so that every model interpolates, got "
            f"{settings.train_size} and {features}; raise width above {settings.train_size} or lower train_size"
        )
