"""NESBS: search for ensembles of architectures drawn from a posterior. Shu 2022, ch. 5, Algorithms 5.1-5.3."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from archray.errors import InvalidInput
from archray.plurals import count
from archray.searchers.arguments import SearcherOptions, check_whole_number, is_finite_number
from archray.searchers.base import ArchraySearcher, Proposal
from archray.searchers.bayesian_optimization import Library, check_library, losses_of_answers, next_point
from archray.searchers.ledger import Record
from archray.searchers.nesbs.posterior import Posterior
from archray.searchers.nesbs.samplers import DELTA_RANGE, SAMPLERS, EnsembleSampler, TooSharp
from archray.seeds import named_seed
from archray.trainables.spaces import Space

logger = logging.getLogger(__name__)

MAX_PASSED_OVER = 10  # consecutive values of delta without an ensemble until Bayesian optimization gives up


class NESBSSearch(ArchraySearcher):
    """NESBS: searches for the ensemble of architectures with the lowest validation loss (Algorithm 5.1, lines 4 to 7).

    For iterations t = 1, ..., T:
    1. Sample n architectures from the posterior, by independent draws (`mc`, Algorithm 5.2), or as the choices nearest
       to n particles of SVGD with regularized diversity in the relaxed posterior (`svgd-rd`, Algorithm 5.3, Eq.
       5.8-5.9) at one delta.
    2. Suggest them as a trial, which reports the ensemble's validation loss.
    `best()` returns the ensemble with the lowest loss.

    Suggests: `members` (a list of n different strings), `delta` (at which they were sampled, or None), `seed`.
    Needs: the metric: the ensemble's validation loss.
    Takes: log-probabilities: a dictionary from decision to a list.

    Members keep the spelling that was drawn, since the shared weights of a supernet depend on it. Two spellings of one
    canonical form count as one member.

    If an ensemble has a repeated member, another one is sampled. Near and below delta = -1 nothing repels the
    particles, so members may repeat every time. The search then skips this delta: the log and `questions()` list it, a
    grid has one trial less, and Bayesian optimization receives the worst loss so far.

    The paper does not specify how sets of particles start (note E3). Here each set is a new run from new particles,
    drawn from the relaxed posterior.

    Args:
        posterior: a dictionary from decision to log-probabilities of its choices, or a `Posterior`.
        ensemble_size: n, the number of members.
        sampler: a name, `mc`, `svgd-rd` or `uniform`, or a sampler with settings, such as `SVGDRD(iterations=100)`.
        temperature: tau of Eq. 5.6, applied to the log-probabilities. A value below 1 sharpens the posterior, a value
            above 1 flattens it (section 5.5.3: 0.1 to 10).
        delta: the diversity coefficient of `svgd-rd`: a number; `grid`, T equally spaced values of delta_range; or
            `bo`, T values that Bayesian optimization chooses. None: `grid`.
        budget: T, the number of ensembles.
        delta_range: (low, high).
        library: fits the Gaussian process of `bo`, `scikit-optimize` or `scikit-learn`.
        space: a space, its name or reference; members are then its strings. For members without a space, see
            `Posterior`.
        points_to_evaluate: `{"members"}` or `{"delta"}` or both, to suggest first; they count in the budget.
        options: see `ArchraySearcher`. `metric` defaults to `validation_loss` and `mode` to `min`; None takes the value
            of `TuneConfig`.

    Raises: InvalidInput for an invalid argument. `suggest` raises TooSharp, which ends the run, if the posterior gives
    no n different members at any delta.

    Example:
        ```python
        posterior = {"width": [log(0.2), log(0.8)], "depth": [log(0.5), log(0.3), log(0.2)]}
        search = NESBSSearch(posterior, ensemble_size=2, budget=3, metric="loss", mode="min")
        drive(search, lambda config: -len("".join(config["members"])))
        print(search.best()["members"])
        ```
    """

    identity_fields: ClassVar[tuple[str, ...]] = ("ensemble_size", "delta", "delta_range", "library")
    state_fields: ClassVar[tuple[str, ...]] = ("_deltas",)

    def __init__(
        self,
        posterior: Posterior | Mapping[str, ArrayLike],
        ensemble_size: int = 3,
        sampler: str | EnsembleSampler = "svgd-rd",
        temperature: float = 1.0,
        delta: float | Literal["grid", "bo"] | None = None,
        budget: int = 5,
        delta_range: tuple[float, float] = DELTA_RANGE,
        library: Library = "scikit-optimize",
        space: str | Space | None = None,
        **options: Unpack[SearcherOptions],
    ) -> None:
        check_whole_number("ensemble_size", ensemble_size)
        self.sampler = SAMPLERS.get(sampler).model_validate(sampler) if isinstance(sampler, str) else sampler
        if not is_finite_number(temperature) or temperature <= 0:
            raise InvalidInput(f"temperature: expected a positive number, got {temperature!r}")
        if not self.sampler.has_delta and delta is not None:
            raise InvalidInput(
                f"delta: expected None for the sampler {self.sampler.name}, got {delta!r}. Use svgd-rd to set delta."
            )
        if delta not in (None, "grid", "bo") and not is_finite_number(delta):
            raise InvalidInput(f"delta: expected a number, grid or bo, got {delta!r}")
        low, high = delta_range
        if not (is_finite_number(low) and is_finite_number(high) and low < high):
            raise InvalidInput(f"delta_range: expected (low, high) with low < high, got {delta_range!r}")
        if isinstance(posterior, Posterior) and space is not None:
            raise InvalidInput("space: expected None with a Posterior, got both. Pass the space to the Posterior.")
        untempered = posterior if isinstance(posterior, Posterior) else Posterior(posterior, space)
        possible = untempered.count()
        if possible < ensemble_size:
            raise InvalidInput(
                f"ensemble_size: expected {possible} at most, the number of architectures with a nonzero probability, "
                f"got {ensemble_size}. Lower it, or allow more choices."
            )
        self.posterior = untempered.tempered(float(temperature))
        self.ensemble_size = int(ensemble_size)
        self.temperature = float(temperature)
        self.delta: float | str | None = delta
        if self.sampler.has_delta:
            self.delta = "grid" if delta is None else delta if isinstance(delta, str) else float(delta)
        self.delta_range = (float(low), float(high))
        check_library(library)
        self.library: Library = library
        self.depends_on_results = self.delta == "bo"  # type: ignore[misc]  # set for this searcher alone
        self._deltas: list[dict[str, Any]] = []  # all chosen deltas, in order
        defaults = SearcherOptions(metric="validation_loss", mode="min")
        super().__init__(budget=budget, **(defaults | options))

    def propose(self, number: int) -> Proposal:
        if self.delta is None or isinstance(self.delta, float):
            return {"members": self._sample(number, self.delta), "delta": self.delta}
        deltas = list(self._deltas)
        problems: list[TooSharp] = []
        while self.delta == "grid" or len(problems) < MAX_PASSED_OVER:
            delta = self._grid(deltas) if self.delta == "grid" else self._next_delta(deltas, number)
            if delta is None:
                break
            try:
                members = self._sample(number, delta, len(problems))
            except TooSharp as problem:
                problems.append(problem)
                deltas.append({"delta": delta, "number": None, "for": number})
                logger.warning("Skipping delta %g, which gives no ensemble: %s", delta, problem)
                continue
            self._deltas = [*deltas, {"delta": delta, "number": number, "for": number}]
            return {"members": members, "delta": delta}
        if problems and (self.delta == "bo" or all(entry["number"] is None for entry in deltas)):
            raise problems[-1]
        self._deltas = deltas  # the end of the grid
        return None

    def _sample(self, number: int, delta: float | None, attempt: int = 0) -> list[str]:
        """Samples the members of suggestion `number`. Raises: TooSharp if there are no n different members."""
        rng = self.rng("nesbs", "ensembles", number, attempt)
        return self.sampler.sample(self.posterior, self.ensemble_size, delta, rng)

    def _grid(self, deltas: Sequence[Mapping[str, Any]]) -> float | None:
        """Returns the next of T equally spaced values (the middle for T = 1); None after the last."""
        assert self.budget is not None
        count = self.budget - len(self.points_to_evaluate)
        position = sum(not entry.get("given", False) for entry in deltas)
        if position >= count:
            return None
        low, high = self.delta_range
        return float(np.linspace(low, high, count)[position]) if count > 1 else (low + high) / 2

    def _next_delta(self, deltas: Sequence[Mapping[str, Any]], number: int) -> float:
        """Returns the delta with the largest expected improvement; a random delta before the first loss."""
        losses = losses_of_answers([entry["number"] for entry in deltas], self.usable_losses(number))
        seed = named_seed(self.seed, "nesbs", "deltas", len(deltas), bits=31)
        return next_point([[entry["delta"]] for entry in deltas], losses, [self.delta_range], seed, self.library)[0]

    def check_point(self, point: dict[str, Any]) -> dict[str, Any]:
        members, delta = point.get("members"), point.get("delta")
        if delta is not None and (not self.sampler.has_delta or not is_finite_number(delta)):
            raise InvalidInput(
                f"Expected a point's delta to be a number, or None for a sampler without delta, got {delta!r}"
            )
        if members is None and delta is None:
            raise InvalidInput(f"Expected a point with members, or with delta, got {point!r}")
        if members is not None:
            n = self.ensemble_size
            strings = isinstance(members, list | tuple) and all(isinstance(member, str) for member in members)
            if not strings or len(members) != n:
                raise InvalidInput(f"Expected a point's members to be {count(n, 'string')}, got {members!r}")
            if len({self.posterior.form(member) for member in members}) < n:
                raise InvalidInput(f"Expected {count(n, 'different member')}, got a repeated one: {members!r}")
            members = list(members)
        return {"members": members, "delta": None if delta is None else float(delta)}

    def propose_point(self, number: int, point: dict[str, Any]) -> dict[str, Any] | None:
        members = point["members"]
        config = {**point, "members": self._sample(number, point["delta"]) if members is None else list(members)}
        self._add_delta(config, number)
        return config

    def on_evaluated_point(self, record: Record) -> None:
        if record.config["members"] is None:
            raise InvalidInput("Expected an evaluation of members, got only delta")
        self._add_delta(record.config, record.number)

    def _add_delta(self, config: Mapping[str, Any], number: int) -> None:
        if config["delta"] is not None:
            self._deltas.append({"delta": config["delta"], "number": number, "for": number, "given": True})

    def questions(self) -> pd.DataFrame:
        """Returns a table with one row per chosen delta, in order; empty without a delta, or with a fixed one.

        Columns: delta, number (of its trial), value (NaN if it failed), passed_over (True if it gave no ensemble),
        given (True for a user's point or an external evaluation).
        """
        values = {record.number: record.value for record in self.records()}
        rows = [
            (entry["delta"], entry["for"], values.get(entry["number"]), entry["number"] is None, "given" in entry)
            for entry in self._deltas
        ]
        columns = ["delta", "number", "value", "passed_over", "given"]
        return pd.DataFrame(rows, columns=columns).astype({"delta": float, "value": float})

    def search_identity(self) -> dict[str, Any]:
        return super().search_identity() | {
            "posterior": self.posterior.checksum,
            "space": None if self.posterior.space is None else self.posterior.space.name,
            "sampler": self.sampler.model_dump(),
            "budget": self.budget if self.delta == "grid" else None,  # determines the values of a grid
        }
