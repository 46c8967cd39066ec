"""The Tune trainable of feature-map selection. Khodak et al. 2020, Algorithm 1 and appendix B."""

import itertools
import math
from typing import Any

from pydantic import Field, field_validator
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn

from archray.errors import InvalidInput
from archray.trainables.data import DataSettings, TextDataset, data_kind, load_data, load_images, load_text
from archray.trainables.feature_maps.linear import loss_bound
from archray.trainables.feature_maps.problems import (
    FeatureMap,
    FourierProblem,
    NGramProblem,
    Problem,
    Solved,
    check_fourier_memory,
    check_ngram_memory,
)
from archray.trainables.feature_maps.ridge import SolveFailed
from archray.trainables.feature_maps.solve_settings import Score, SolveSettings
from archray.trainables.spaces import get_space
from archray.trainables.spaces.feature_map import FeatureMapSpace
from archray.trainables.tune.settings import TrialSettings
from archray.trainables.tune.trial import TrialFailed, TrialTrainable, candidates_of, read_whole_number

SECONDS = ("seconds", "seconds_featurise", "seconds_solve", "seconds_score")
ACCURACIES_AND_LOSSES = ("validation_accuracy", "validation_loss", "test_accuracy", "test_loss")
LEADER = (
    "leader_points", "leader_validation_error", "leader_test_error", "leader_validation_clipped", "leader_test_clipped",
    "train_points", "test_points", "loss_bound", "weight_norm",
)  # fmt: skip


class FeatureMapSettings(TrialSettings):
    """All options of a `FeatureMapTrainable`. Texts are solved for on the CPU.

    Args:
        space: `fourier`, `ngrams`, or a reference to a space of the user's derived from one of these.
        dimension: features of a solve, where the config has no `budget`.
        rungs: dimensions of the steps of a config with `architecture`, increasing; none: one step of `dimension`.
        threads: of BLAS and torch; None: as many as the CPUs that Tune gave the trial.
        evaluate_test: whether a standalone solve is evaluated on the test points.
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
            raise ValueError(f"expected increasing dimensions of 1 or more, got {rungs}")
        return rungs

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Of the steps of a config with `architecture`."""
        return self.rungs or (self.dimension,)


class FeatureMapTrainable(TrialTrainable):
    """Solves one regularised problem per step, every point featurised by a feature map.

    Config: see `TrialTrainable`, and either

    - `candidates` (strings of the space), `budget` (features; optional): one step, one solve with weights that the
      candidates share; of a single candidate it is that map's standalone solve. Or
    - `architecture` (a string of the space), `first_rung` (optional): step k is a standalone solve with
      `rungs[first_rung + k]` features.

    `warm_start` changes nothing: a linear problem is solved whole. Every result holds

    - `scores`: one per candidate in their order, least is best for score="loss", largest for "accuracy"; NaN for a
      candidate whose loss is not finite; of one without a validation point the worst of the others'.
    - `score`: the mean of those that are not NaN. `points`: validation points that each was scored on.
    - `weights`: None. `dimension`. `candidates_left`: how many there were. `resource`: dimension / first rung.
    - `seconds` and its parts `seconds_featurise` (training points), `seconds_solve`, `seconds_score` (validation
      points), without the test points, and `solver_calls`: all of this trial until now.
    - `validation_accuracy`, `validation_loss`, `test_accuracy`, `test_loss` of a standalone solve, else NaN.
    - `leader`: the candidate with the best score, and of it, with the weights of this solve, shared ones too:
      `leader_points` (validation points), `leader_validation_error` and `leader_test_error` (the share of points whose
      class it misses), `leader_validation_clipped` and `leader_test_clipped` (mean losses of decision values clipped to
      [-1, 1], each between 0 and `loss_bound`).
    - `train_points`, `test_points`, `weight_norm` (Frobenius, the intercept left out).
    - `failure`, `done`.

    Numbers that are not finite are a failed result. Raises: InvalidInput for solves beyond `memory_gib`, too.
    """

    settings_type = FeatureMapSettings
    failures = (TrialFailed, SolveFailed)
    _settings: FeatureMapSettings
    _problem: Problem | None = None  # kept for the next trial of a reused actor
    _problem_of: Any = None
    _classifier: dict[str, Any] | None  # the state of what the last step solved for, if it was one map

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
        problem_of = (settings.data, settings.solve, self._kind, self._device)
        if self._problem_of != problem_of:
            self._problem = self._problem_of = None
            if self._kind == "text":
                self._problem = NGramProblem(load_text(settings.data), settings.solve)
            else:
                self._problem = FourierProblem(load_images(settings.data, device=str(self._device)), settings.solve)
            self._problem_of = problem_of
        assert self._problem is not None  # as `_problem_of` says
        self._problem.check(self._maps, self._dimensions[-1])

    def _step(self) -> dict[str, Any]:
        assert self._problem is not None  # else the trial had failed
        self._classifier = None
        solved = self._problem.solve(self._maps, self._dimensions[self._steps], self._seed)
        scores = solved.scores(self._settings.solve)
        if all(map(math.isnan, scores)):
            raise TrialFailed("no candidate has a finite validation loss")
        values = dict.fromkeys(ACCURACIES_AND_LOSSES, math.nan)
        leader = _leader(scores, solved.points, self._settings.solve.score)
        of_leader = self._of_leader(self._problem, solved, leader)
        if solved.classifier is not None:  # of a single map
            self._classifier = solved.classifier.state()
            values |= {"validation_accuracy": solved.accuracies[0], "validation_loss": solved.losses[0]}
            values |= {name: of_leader.pop(name) for name in ("test_loss", "test_accuracy")}
        before = self._result or dict.fromkeys(SECONDS, 0.0)
        seconds = {name: before[name] + getattr(solved, name) for name in SECONDS}
        values |= {name: of_leader[name] for name in LEADER}
        return self._results(scores, solved.points, seconds | values, self._names[leader])

    def _of_leader(self, problem: Problem, solved: Solved, leader: int) -> dict[str, float]:
        """The values of LEADER, and `test_loss` and `test_accuracy` of it; NaN of test points that are left alone."""
        tested = dict.fromkeys(("test_loss", "test_accuracy", "leader_test_error", "leader_test_clipped"), math.nan)
        if self._settings.evaluate_test:
            test = problem.test(solved, leader)
            tested = {
                "test_loss": test.loss,
                "test_accuracy": test.accuracy,
                "leader_test_error": 1 - test.accuracy,
                "leader_test_clipped": test.clipped,
            }
        return tested | {
            "leader_points": solved.points[leader],
            "leader_validation_error": 1 - solved.accuracies[leader],
            "leader_validation_clipped": solved.clipped[leader],
            "train_points": problem.sizes[0],
            "test_points": problem.test_count,
            "loss_bound": loss_bound(problem.loss, problem.classes),
            "weight_norm": solved.solution.weight_norm,
        }

    def _results(
        self,
        scores: list[float],
        points: list[int],
        values: dict[str, float],
        leader: str | None,
        failure: str | None = None,
    ) -> dict[str, Any]:
        """values: of SECONDS, of ACCURACIES_AND_LOSSES and of LEADER, in this order."""
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
            "leader": leader,
            "failure": failure,
            "done": failure is not None or self._steps == len(self._dimensions),
        }

    def _failed(self, reason: str) -> dict[str, Any]:
        count = len(self._maps)
        values = dict.fromkeys((*SECONDS, *ACCURACIES_AND_LOSSES, *LEADER), math.nan)
        return self._results([math.nan] * count, [0] * count, values, leader=None, failure=reason)

    def _set_threads(self, threads: int) -> None:
        """torch's count and, in SciPy and NumPy, that of BLAS."""
        super()._set_threads(threads)
        threadpool_limits(threads, user_api="blas")

    def _release(self) -> None:
        self._classifier = None


def _leader(scores: list[float], points: list[int], score: Score) -> int:
    """The position of the best score among the candidates that have a point. Some score is a number."""
    sign = 1 if score == "loss" else -1
    numbers = [i for i, value in enumerate(scores) if points[i] and not math.isnan(value)]
    return min(numbers, key=lambda i: sign * scores[i])


def _solves_of(config: dict[str, Any], settings: FeatureMapSettings) -> tuple[list[str], tuple[int, ...]]:
    """The strings of the maps, and the dimension of each step."""
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
    """The space of that name. Raises: InvalidInput if it is not one of feature maps; UnknownName."""
    space = get_space(name_or_reference)
    if not isinstance(space, FeatureMapSpace):
        raise InvalidInput(
            f"expected a space of feature maps, got {name_or_reference!r}, whose architectures are networks; "
            "choose fourier or ngrams"
        )
    return space


def _check_data_kind(space: FeatureMapSpace, data: DataSettings) -> None:
    """Raises: InvalidInput if the data are not of the kind that the space's maps are for."""
    kind = data_kind(data)
    if kind != space.data_kind:
        example = "docstrings" if space.data_kind == "text" else "digits"
        raise InvalidInput(
            f"expected {space.data_kind} for the space {space.name}, got {data.name!r} ({kind}); try {example!r}"
        )


def check_memory(solve: SolveSettings, *, data: DataSettings, space: str, dimension: int) -> None:
    """Whether solves of so many features fit `solve.memory_gib`; the data are read for their size.

    Raises: InvalidInput, saying what is needed; as `load_data`.
    """
    feature_maps = feature_map_space(space)
    _check_data_kind(feature_maps, data)
    loaded = load_data(data)
    if isinstance(loaded, TextDataset):
        check_ngram_memory(solve, len(loaded.train), loaded.num_classes, dimension)
    else:
        inputs = loaded.train.images[0].numel()
        check_fourier_memory(solve, len(loaded.train), inputs, loaded.num_classes, dimension)
