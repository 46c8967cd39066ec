"""The Tune trainable of feature-map selection. Khodak et al. 2020, Algorithm 1 and appendix B."""

import itertools
import math
from typing import Any

from pydantic import Field, field_validator
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn

from archray.errors import InvalidInput
from archray.trainables.data import DataSettings, TextDataset, data_kind, load_data, load_images, load_text
from archray.trainables.feature_maps import fourier_features, hashed_ngrams, problems
from archray.trainables.feature_maps.features import FeatureMap
from archray.trainables.feature_maps.linear import loss_bound
from archray.trainables.feature_maps.ridge import SolveFailed
from archray.trainables.feature_maps.solve_settings import SolveSettings
from archray.trainables.spaces import get_space
from archray.trainables.spaces.feature_map import FeatureMapSpace
from archray.trainables.tune.settings import TrialSettings
from archray.trainables.tune.trial import Result, TrialFailed, TrialTrainable, candidates_of, read_whole_number

SECONDS = ("seconds", "seconds_featurize", "seconds_solve", "seconds_score")
ACCURACIES_AND_LOSSES = ("validation_accuracy", "validation_loss", "test_accuracy", "test_loss")
LEADER = (
    "leader_points", "leader_validation_error", "leader_test_error", "leader_validation_clipped", "leader_test_clipped",
    "train_points", "test_points", "loss_bound", "weight_norm",
)  # fmt: skip


class FeatureMapSettings(TrialSettings):
    """All options of a `FeatureMapTrainable`. Problems with texts are solved on the CPU.

    Attributes:
        space: `fourier`, `ngrams`, or a reference to a custom space derived from one of these.
        solve: Options of the linear problem and its solver.
        dimension: Number of features of a solve without `budget` in the config.
        rungs: Increasing numbers of features of the steps of a config with `architecture` (default: one step with
            `dimension`).
        threads: Number of BLAS and torch threads (default: the number of CPUs that Tune assigned to the trial).
        evaluate_test: Whether to evaluate a standalone solve on the test points.
    """

    space: str = "fourier"
    solve: SolveSettings = SolveSettings()
    dimension: int = Field(2000, ge=1)
    rungs: tuple[int, ...] = ()
    threads: int | None = Field(None, ge=1)
    evaluate_test: bool = True

    @field_validator("rungs")
    @classmethod
    def _increasing(cls, rungs: tuple[int, ...]) -> tuple[int, ...]:
        if any(rung < 1 for rung in rungs) or any(a >= b for a, b in itertools.pairwise(rungs)):
            raise ValueError(f"expected increasing numbers of features, 1 or more, got {rungs}")
        return rungs

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Numbers of features of the steps of a config with `architecture`."""
        return self.rungs or (self.dimension,)


class FeatureMapTrainable(TrialTrainable):
    """Solves one regularized problem per step, with a feature map for every point.

    Config: see `TrialTrainable`, and either

    - `candidates` (strings of the space), `budget` (features; optional): one step, one solve with weights that the
      candidates share; with a single candidate it is that map's standalone solve. Or
    - `architecture` (a string of the space), `first_rung` (optional): step k is a standalone solve with
      `rungs[first_rung + k]` features.

    `warm_start` changes nothing, because a linear problem is solved completely. Every result contains

    - `scores`: one per candidate in order. Smaller is better for score="loss", larger for "accuracy". NaN for a
      candidate whose loss is infinite or NaN; the worst of the others' for one without a validation point.
    - `score`: the mean of the scores that are not NaN. `points`: number of validation points of each score.
    - `weights`: None. `dimension`. `candidates_left`: number of candidates. `resource`: dimension / first rung.
    - `seconds` and its parts `seconds_featurize` (training points), `seconds_solve`, `seconds_score` (validation
      points), without the test points, and `solver_calls`: totals of this trial so far.
    - `validation_accuracy`, `validation_loss`, `test_accuracy`, `test_loss` of a standalone solve, else NaN.
    - `leader`: the candidate with the best score. With the weights of this solve, also if they are shared:
      `leader_points` (validation points), `leader_validation_error` and `leader_test_error` (the share of misclassified
      points), `leader_validation_clipped` and `leader_test_clipped` (mean losses of decision values clipped to
      [-1, 1], between 0 and `loss_bound`).
    - `train_points`, `test_points`, `weight_norm` (Frobenius, without the intercept), `failure`, `done`.

    Infinite or NaN results are a failed result. Raises: InvalidInput also for solves beyond `memory_gib`.
    """

    settings_type = FeatureMapSettings
    failures = (TrialFailed, SolveFailed)
    _settings: FeatureMapSettings
    _problem: problems.Problem | None = None  # cached for the next trial of a reused actor
    _problem_key: Any = None
    _classifier: dict[str, Any] | None  # state of the last step's classifier, if it was a standalone solve

    def _state(self) -> dict[str, Any]:
        architecture = self._names[0] if len(self._names) == 1 else None
        return {"architecture": architecture, "classifier": self._classifier, "steps": self._steps}

    def _load(self, state: dict[str, Any]) -> None:
        self._steps, self._classifier = state["steps"], state["classifier"]

    def _read(self, config: dict[str, Any]) -> None:
        space = feature_map_space(self._settings.space)
        _check_data_kind(space, self._settings.data)
        self._kind = space.data_kind
        self._names, self._dimensions = _solves_of(config, self._settings)
        self._maps: list[FeatureMap] = [space.configuration(name) for name in self._names]
        self._steps = 0

    def _build(self) -> None:
        settings = self._settings
        key = (settings.data, settings.solve, self._kind, self._device)
        if self._problem is None or self._problem_key != key:
            self._problem = None  # free its memory before the next one is built
            if self._kind == "text":
                self._problem = problems.NGramProblem(load_text(settings.data), settings.solve)
            else:
                images = load_images(settings.data, device=str(self._device))
                self._problem = problems.FourierProblem(images, settings.solve)
            self._problem_key = key
        self._problem.check(self._maps, self._dimensions[-1])

    def _step(self) -> Result:
        assert self._problem is not None  # otherwise the trial has failed
        self._classifier = None
        solved = self._problem.solve(self._maps, self._dimensions[self._steps], self._seed)
        scores = solved.scores(self._settings.solve)
        if all(map(math.isnan, scores)):
            raise TrialFailed("expected a candidate with a finite validation loss, got none")
        sign = 1 if self._settings.solve.score == "loss" else -1
        numbers = [i for i, score in enumerate(scores) if solved.points[i] and not math.isnan(score)]
        leader = min(numbers, key=lambda i: sign * scores[i])
        values = dict.fromkeys(ACCURACIES_AND_LOSSES, math.nan)
        test = self._problem.test(solved, leader) if self._settings.evaluate_test else problems.NOT_TESTED
        if solved.classifier is not None:  # for a single map
            self._classifier = solved.classifier.state()
            metrics = solved.accuracies[0], solved.losses[0], test.accuracy, test.loss
            values = dict(zip(ACCURACIES_AND_LOSSES, metrics, strict=True))
        before = self._result or dict.fromkeys(SECONDS, 0.0)
        seconds = {name: before[name] + getattr(solved, name) for name in SECONDS}
        values |= {
            "leader_points": solved.points[leader],
            "leader_validation_error": 1 - solved.accuracies[leader],
            "leader_test_error": 1 - test.accuracy,
            "leader_validation_clipped": solved.clipped[leader],
            "leader_test_clipped": test.clipped,
            "train_points": self._problem.sizes[0],
            "test_points": self._problem.test_count,
            "loss_bound": loss_bound(self._problem.loss, self._problem.classes),
            "weight_norm": solved.solution.weight_norm,
        }
        return self._results(scores, solved.points, {**seconds, **values, "leader": self._names[leader]})

    def _results(self, scores: list[float], points: list[int], values: Result, failure: str | None = None) -> Result:
        """values: of SECONDS, of ACCURACIES_AND_LOSSES and of LEADER, in this order, and `leader`."""
        dimension = self._dimensions[self._steps]
        finite = [score for score in scores if not math.isnan(score)]
        self._steps += 1
        return {
            "scores": scores,
            "score": sum(finite) / len(finite) if finite else math.nan,
            "points": points,
            "weights": None,
            "dimension": dimension,
            "resource": dimension // self._settings.dimensions[0],
            "candidates_left": len(self._maps),
            "solver_calls": self._steps,
            **values,
            "failure": failure,
            "done": failure is not None or self._steps == len(self._dimensions),
        }

    def _failed(self, reason: str) -> Result:
        count = len(self._maps)
        values: Result = dict.fromkeys((*SECONDS, *ACCURACIES_AND_LOSSES, *LEADER), math.nan) | {"leader": None}
        return self._results([math.nan] * count, [0] * count, values, failure=reason)

    def _set_threads(self, threads: int) -> None:
        """Sets the threads of torch and of the BLAS of SciPy and NumPy."""
        super()._set_threads(threads)
        threadpool_limits(threads, user_api="blas")

    def _release(self) -> None:
        self._classifier = None


def _solves_of(config: dict[str, Any], settings: FeatureMapSettings) -> tuple[list[str], tuple[int, ...]]:
    """Returns the strings of the maps, and the dimension of each step."""
    candidates = candidates_of(config, "feature map")
    if candidates is not None:
        return list(candidates), (read_whole_number(config, "budget", settings.dimension, least=1),)
    architecture = config.get("architecture")
    if not isinstance(architecture, str):
        raise InvalidInput(
            f"expected `candidates` or `architecture` (a string of the space) in the config, got {sorted(config)}"
        )
    first = read_whole_number(config, "first_rung", 0, least=0)
    dimensions = settings.dimensions[first:]
    if not dimensions:
        raise InvalidInput(f"expected `first_rung` below {len(settings.dimensions)}, the number of rungs, got {first}")
    return [architecture], dimensions


def feature_map_space(name_or_reference: str) -> FeatureMapSpace:
    """Returns the space with that name. Raises: InvalidInput if it is not a space of feature maps; UnknownName."""
    space = get_space(name_or_reference)
    if not isinstance(space, FeatureMapSpace):
        raise InvalidInput(
            f"expected a space of feature maps, got {name_or_reference!r}, whose architectures are networks. "
            "Choose fourier or ngrams"
        )
    return space


def _check_data_kind(space: FeatureMapSpace, data: DataSettings) -> None:
    """Raises: InvalidInput if the space's maps are for another kind of data."""
    kind = data_kind(data)
    if kind != space.data_kind:
        example = "docstrings" if space.data_kind == "text" else "digits"
        raise InvalidInput(
            f"expected {space.data_kind} for the space {space.name}, got {data.name!r} ({kind}); try {example!r}"
        )


def check_memory(solve: SolveSettings, *, data: DataSettings, space: str, dimension: int) -> None:
    """Checks that solves with `dimension` features fit into `solve.memory_gib`. It reads the data for their size.

    Raises: InvalidInput, with the required memory; as `load_data`.
    """
    feature_maps = feature_map_space(space)
    _check_data_kind(feature_maps, data)
    loaded = load_data(data)
    if isinstance(loaded, TextDataset):
        hashed_ngrams.check_ngram_memory(solve, len(loaded.train), loaded.num_classes, dimension)
    else:
        inputs = loaded.train.batch(slice(1)).numel()
        fourier_features.check_fourier_memory(solve, len(loaded.train), inputs, loaded.num_classes, dimension)
