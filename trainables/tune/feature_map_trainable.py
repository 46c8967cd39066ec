"""The Tune trainable of feature-map selection: a shared solve over candidates, or solves of one map.

Khodak et al. 2020, Algorithm 1 and appendix B.
"""

from __future__ import annotations

import gc
import math
from typing import Any

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn

from archray.errors import InvalidInput
from archray.trainables.checkpoint import read_state
from archray.trainables.data import load_images, load_text
from archray.trainables.feature_maps.fourier_problem import FourierProblem
from archray.trainables.feature_maps.gram_matrix import SolveFailed
from archray.trainables.feature_maps.ngram_problem import NGramProblem
from archray.trainables.feature_maps.problem import FeatureMap, Problem, Solved
from archray.trainables.tune.feature_map_settings import (
    FeatureMapSettings,
    check_data_kind,
    feature_map_space,
)
from archray.trainables.tune.trial import TrialFailed, TrialTrainable
from archray.trainables.tune.trial_config import candidates_of, read_whole_number

SECONDS = ("seconds", "seconds_featurise", "seconds_solve", "seconds_score")
ACCURACIES_AND_LOSSES = ("validation_accuracy", "validation_loss", "test_accuracy", "test_loss")


class FeatureMapTrainable(TrialTrainable):
    """Solves one regularised problem per step, every point featurised by a feature map.

    Config: `settings` (a `FeatureMapSettings` as a dict, unknown keys refused), `seed` (optional), and either

    - `candidates` (strings of the space), `budget` (features; optional): one step, one solve with weights that the
      candidates share; of a single candidate it is that map's standalone solve. Or
    - `architecture` (a string of the space), `first_rung` (optional): step k is a standalone solve with
      `rungs[first_rung + k]` features.

    Other keys belong to the searcher; Tune records them with the trial and they change nothing (`warm_start` too:
    a linear problem is solved whole). Every result holds

    - `scores`: one per candidate in their order, least is best for score="loss", largest for "accuracy"; NaN for a
      candidate whose loss is not finite; of one without a validation point the worst of the others'.
    - `score`: the mean of those that are not NaN. `points`: validation points that each was scored on.
    - `weights`: None. `dimension`. `candidates_left`: how many there were. `resource`: dimension / first rung.
    - `seconds` and its parts `seconds_featurise` (training points), `seconds_solve`, `seconds_score` (validation
      points), without the test points, and `solver_calls`: all of this trial until now.
    - `validation_accuracy`, `validation_loss`, `test_accuracy`, `test_loss` of a standalone solve, else NaN.
    - `failure`, `done`.

    What a retry cannot cure (numbers that are not finite, memory that ran out) is a result too: done, metrics NaN,
    `failure` the reason. A trial restored after its last step reports its last result again. Reused actors
    (`reuse_actors=True`) give the same results as fresh ones.

    Raises: InvalidInput for settings or candidates that are wrong, and solves beyond `memory_gib`; DataNotFound.
    """

    settings_type = FeatureMapSettings
    failures = (TrialFailed, SolveFailed)
    _settings: FeatureMapSettings
    _problem: Problem | None = None  # kept for the next trial of a reused actor
    _problem_of: Any = None
    _solved: Solved | None  # by the last step
    _restored_classifier: dict[str, Any] | None  # its state, if the last step was before a restore

    def load_checkpoint(self, checkpoint: Any) -> None:  # the folder that `save_checkpoint` was given
        state = read_state(checkpoint)
        self._steps, self._result, self._solved = state["steps"], state["result"], None
        self._restored_classifier = state["classifier"]

    def _state(self) -> dict[str, Any]:
        classifier = self._solved.classifier if self._solved else None
        return {
            "architecture": self._names[0] if len(self._names) == 1 else None,
            "classifier": classifier.state() if classifier is not None else self._restored_classifier,
            "steps": self._steps,
        }

    def _read(self, config: dict[str, Any]) -> None:
        space = feature_map_space(self._settings.space)
        check_data_kind(space, self._settings.data)
        self._kind = space.data_kind
        self._names, self._dimensions = _solves_of(config, self._settings)
        self._maps: list[FeatureMap] = [space.configuration(name) for name in self._names]
        self._steps = 0
        self._restored_classifier = None

    def _build(self) -> None:
        settings = self._settings
        problem_of = (settings.data, settings.solve, self._kind, self._device)
        if self._problem_of != problem_of:
            self._problem = self._problem_of = None
            gc.collect()
            self._problem = self._make_problem()
            self._problem_of = problem_of
        assert self._problem is not None  # as `_problem_of` says
        self._problem.check(self._maps, self._dimensions[-1])

    def _make_problem(self) -> Problem:
        settings = self._settings
        if self._kind == "text":
            return NGramProblem(load_text(settings.data), settings.solve)
        return FourierProblem(load_images(settings.data, device=str(self._device)), settings.solve)

    def _step(self) -> dict[str, Any]:
        assert self._problem is not None  # else the trial had failed
        self._solved = self._restored_classifier = None
        solved = self._problem.solve(self._maps, self._dimensions[self._steps], self._seed)
        scores = solved.scores(self._settings.solve)
        if all(map(math.isnan, scores)):
            raise TrialFailed("no candidate has a finite validation loss")
        self._solved = solved
        values = dict.fromkeys(ACCURACIES_AND_LOSSES, math.nan)
        if solved.classifier is not None:  # of a single map
            values |= {"validation_accuracy": solved.accuracies[0], "validation_loss": solved.losses[0]}
            if self._settings.evaluate_test:
                values["test_loss"], values["test_accuracy"] = self._problem.test(solved.classifier)
        before = self._result or dict.fromkeys(SECONDS, 0.0)
        seconds = {name: before[name] + getattr(solved, name) for name in SECONDS}
        return self._results(scores, solved.points, seconds | values)

    def _results(
        self, scores: list[float], points: list[int], values: dict[str, float], failure: str | None = None
    ) -> dict[str, Any]:
        """values: of SECONDS and of ACCURACIES_AND_LOSSES, in this order."""
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

    def _failed(self, reason: str) -> dict[str, Any]:
        count = len(self._maps)
        values = dict.fromkeys((*SECONDS, *ACCURACIES_AND_LOSSES), math.nan)
        return self._results([math.nan] * count, [0] * count, values, failure=reason)

    def _set_threads(self, threads: int) -> None:
        """torch's count and, in SciPy and NumPy, that of BLAS."""
        super()._set_threads(threads)
        threadpool_limits(threads, user_api="blas")

    def _release(self) -> None:
        self._solved = None
        super()._release()


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
