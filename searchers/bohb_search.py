"""BOHB: suggestions from the densities of good and bad configs, at the largest budget. Falkner et al. 2018."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, Unpack

from archray.errors import InvalidInput
from archray.searchers.arguments import SearcherOptions, check_whole_number, is_finite_number
from archray.searchers.base import Proposal
from archray.searchers.bohb_model import ModelOptions, Observation, check_hpbandster, model_draws
from archray.searchers.config_space import SpaceSource
from archray.searchers.ledger import Record, read_metric
from archray.searchers.space_search import NOT_READ, DecisionSearch
from archray.seeds import named_seed

DRAWS = 50  # of the model, a third of them random, in search of a config that is new


class BOHBSearch(DecisionSearch):
    """BOHB: suggestions from a model that learns from the values at each budget.

    Suggests: `architecture`, `seed`; or the keys of the dict, `seed`.
    Needs: the metric, and what `time_attr` names.
    Takes: a space, a list of candidates, a dict of `tune.choice` and `tune.randint`, or an object of yours with
    `decisions`.

    It is for a scheduler that ends trials early (`ASHAScheduler`); without one it learns from whole trials. Each config
    comes at most once, until 50 draws find no new one.

    Suggestion k knows the results of 1 to k - q at every budget they reached. In this order:
    1. With `random_fraction` it is random; so it is while no budget has 2 (D + 1) results, of D decisions.
    2. The model is that of the largest budget with as many: a density l of the best `top_n_percent` (D + 1 at least),
       and g of the others.
    3. Of `num_samples` draws from l the one with the largest l / g is suggested.

    Where this is not the paper: trials are ended by whatever scheduler stands beside it, Hyperband with its brackets or
    ASHA without; for decisions hpbandster's densities are mended, see `bohb_model`; and numbers are decisions among
    values, too.

    Args:
        space, budget, points_to_evaluate: see `DecisionSearch`.
        time_attr: what a result calls the budget that it took, as for the scheduler.
        budgets: the values of it that count, the scheduler's rungs; None: all that are reported.
        top_n_percent, num_samples, random_fraction: see `ModelOptions`.
        seed, metric, mode, max_concurrent, asynchronous: see `ArchraySearcher`.

    A trial that failed counts as the worst at the lowest budget. What was handed over counts at the largest.

    Raises: see `DecisionSearch`; MissingExtra without hpbandster.
    """

    def __init__(
        self,
        space: SpaceSource | Sequence[str],
        budget: int,
        time_attr: str = "training_iteration",
        budgets: Sequence[float] | None = None,
        top_n_percent: int = 15,
        num_samples: int = 64,
        random_fraction: float = 1 / 3,
        **options: Unpack[SearcherOptions],
    ) -> None:
        for name, number in (("top_n_percent", top_n_percent), ("num_samples", num_samples)):
            check_whole_number(name, number)
        if top_n_percent > 99:
            raise InvalidInput(f"top_n_percent: expected a whole number from 1 to 99, got {top_n_percent!r}")
        if not is_finite_number(random_fraction) or not 0 <= random_fraction <= 1:
            raise InvalidInput(f"random_fraction: expected a number from 0 to 1, got {random_fraction!r}")
        if budgets is not None and (not len(budgets) or not all(map(is_finite_number, budgets))):
            raise InvalidInput(f"budgets: expected numbers, or None, got {budgets!r}")
        check_hpbandster()
        self.time_attr = time_attr
        self.budgets = None if budgets is None else tuple(sorted({float(value) for value in budgets}))
        self.model = ModelOptions(int(top_n_percent), int(num_samples), float(random_fraction))
        self._curves: dict[int, dict[float, float]] = {}  # by number: the value at each budget before the last
        self.result_keys = (time_attr,)  # type: ignore[misc]  # of this searcher alone
        super().__init__(space, budget, **options)

    def propose(self, number: int) -> Proposal:
        keys = self.suggested_keys()
        seed = named_seed(self.seed, "bohb", "model", number, bits=32)
        for places, _ in itertools.islice(model_draws(self.sizes, self.observations(number), seed, self.model), DRAWS):
            config = self.config_of(places)
            if config is not None and self._space.key(config) not in keys:
                self._places[number] = places.tolist()
                return config
        return self.new_config(self.rng("bohb", "draws", number))

    # What it learns from -------------------------------------------------------------------------------------------

    def observations(self, number: int) -> dict[float, list[Observation]]:
        """What suggestion `number` may learn from: by budget, each config as (D,) places and its loss, in order."""
        sign = 1.0 if self._mode == "min" else -1.0
        curves = {k: self._curve(record) for k, record in self.usable_records(number).items()}
        reached = [budget for curve in curves.values() for budget in curve] + list(self.budgets or ())
        observations: dict[float, list[Observation]] = {}
        for k, record in self.usable_records(number).items():
            places = self.places(k, record.config)
            if NOT_READ in places:
                continue
            losses = {budget: sign * value for budget, value in curves[k].items()}
            if record.number < 0 and record.value is not None:
                losses = {max(reached, default=1.0): sign * record.value}
            elif record.value is None:
                losses = {min(reached, default=1.0): math.inf}
            for budget, loss in losses.items():
                observations.setdefault(budget, []).append((places, loss))
        return observations

    def _curve(self, record: Record) -> dict[float, float]:
        """The values of a trial by the budgets it has reached; none of one that failed or was handed over."""
        if record.number < 0 or record.value is None:
            return {}
        last = record.result.get(self.time_attr, 1)
        return {**self._curves.get(record.number, {}), **({float(last): record.value} if self._counts(last) else {})}

    def _counts(self, time: Any) -> bool:
        return is_finite_number(time) and (self.budgets is None or float(time) in self.budgets)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Keeps the value at each budget; a retry reports the same ones again."""
        super().on_trial_result(trial_id, result)
        record = self.ledger.of_trial(trial_id)
        if record is None or (record.ended and not record.errored) or not self._metric:
            return
        value, time = read_metric(result, self._metric)[0], result.get(self.time_attr)
        if value is not None and self._counts(time):
            self._curves.setdefault(record.number, {})[float(time)] = value  # type: ignore[arg-type]  # a number

    # State ---------------------------------------------------------------------------------------------------------

    def search_identity(self) -> dict[str, Any]:
        model = [self.model.top_n_percent, self.model.num_samples, self.model.random_fraction]
        return super().search_identity() | {"time_attr": self.time_attr, "budgets": self.budgets, "model": model}

    def search_state(self) -> dict[str, Any]:
        return super().search_state() | {"curves": [[k, list(curve.items())] for k, curve in self._curves.items()]}

    def set_search_state(self, state: dict[str, Any]) -> None:
        super().set_search_state(state)
        self._curves = {number: dict(curve) for number, curve in state.get("curves", ())}
