"""HNAS: Bayesian optimisation of (mu, nu). Shu 2022, ch. 7, Alg. 7.1, Eq. 7.7."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
import pandas as pd

from archray.errors import InvalidInput
from archray.searchers.arguments import BoolArray, SearcherOptions
from archray.searchers.base import ArchraySearcher, Proposal
from archray.searchers.bayesian_optimization import losses_of_answers, next_point, random_point
from archray.searchers.hnas.objective import (
    FIRST_POINTS,
    PRESETS,
    Coordinates,
    Penalty,
    Points,
    Pool,
    Selection,
    check_options,
    load_pool,
)
from archray.searchers.hnas.surrogate import SelectionSurrogate
from archray.searchers.ledger import Record
from archray.searchers.pool_file import PoolFile
from archray.seeds import named_seed

# Questions


def check_question(point: Mapping[str, Any]) -> dict[str, Any]:
    """A user's point, whole: `architecture`, `mu`, `nu`; what is not given is None. Raises: InvalidInput."""
    name, mu, nu = point.get("architecture"), point.get("mu"), point.get("nu")
    if name is None and ("mu" not in point or "nu" not in point):
        raise InvalidInput(f"expected a point with architecture, or with mu and nu, got {point!r}")
    if name is not None and not isinstance(name, str):
        raise InvalidInput(f"expected architecture to be a string, got {name!r}")
    if (mu is None) != (nu is None) or (mu is not None and nu is not None and not (mu > 0 and nu >= 0)):
        raise InvalidInput(f"expected mu > 0 and nu >= 0, or neither, got mu={mu!r}, nu={nu!r}")
    return {"architecture": name, "mu": mu, "nu": nu}


def question_table(
    observations: Sequence[Mapping[str, Any]], records: Sequence[Record], row: Callable[[Record], dict[str, Any]]
) -> pd.DataFrame:
    """A row per question, in order: what was answered from memory, beside the trainings.

    Columns: number (from 0; -1 for an evaluation handed over), trial (the number of the trial whose value it is),
    architecture, mu, nu, value (NaN if it failed), failure, repeat (answered without a training), given.

    Args:
        observations: what the optimiser was told: `mu`, `nu`, `number` of the trial whose value it is, and the number
            of the suggestion that was sought, `for`.
        records: the trials, and what was handed over, in order.
        row: a record as a row of the history.
    """
    by_number = {record.number: record for record in records}
    columns = ["number", "trial", "architecture", "mu", "nu", "value", "failure", "repeat", "given"]
    table, number = [], 0
    for record in records:
        repeats = [o for o in observations if o["for"] == record.number != o["number"]]
        answers = [(by_number[o["number"]], o["mu"], o["nu"], True) for o in repeats]
        for answer, mu, nu, repeat in [*answers, (record, record.config["mu"], record.config["nu"], False)]:
            entry = row(answer) | {"trial": answer.number, "mu": mu, "nu": nu, "repeat": repeat}
            entry |= {"number": -1 if entry["given"] and not repeat else number}
            number += entry["number"] >= 0
            table.append(entry)
    return pd.DataFrame(table, columns=columns).astype({"mu": float, "nu": float, "value": float})


MAX_REPEATS = 5  # told for free in search of one new architecture; then the objective's next best is taken


class HNASSearch(ArchraySearcher):
    """Searches the pool's architecture with the best validation performance (Algorithm 7.1).

    For steps k = 1, ..., K:
    1. choose mu_k, nu_k in a square of T = sqrt(nu) and log10 mu, in `coordinates`, as `points` says;
    2. obtain A_k, the pool's minimiser of kappa/M + mu F(M^2 - nu) (`objective`);
    3. suggest A_k as a trial, which reports its validation performance;
    4. tell it to the Gaussian process, in the order of suggestion.
    `best()` is the architecture with the best validation performance.

    Suggests: `architecture`, `mu`, `nu` (in units of scaled M^2), `seed`.
    Needs: the metric.
    Takes: a table with the columns `architecture`, `kappa` and a training-free metric.

    Where this deviates from the paper: M is |M| over the pool's maximum; the ranges of (mu, nu), which it does not
    give, are measured by the pool (`PoolCoordinates`); the Gaussian process is over what is selected; and of several
    (mu, nu) that lead to one architecture, on which the paper is silent, only the first trains it (`on_repeat`).

    Args:
        pool: path or URI of a table with the columns `architecture`, `kappa` and `proxy`, one row per canonical form.
        proxy: the column that is M.
        budget: K, the number of trainings.
        penalty: F(x) = x^2 (`square`, Eq. 7.7 at t = 1) or |x| (`absolute`); `square` if None.
        points: how (mu, nu) are chosen: `selections`, after five first points, by a Gaussian process over the rows
            selected (`SelectionSurrogate`) and at random in turn; `bayesian`, by one over (mu, nu), as in the paper;
            `uniform`, at random, without results. None: `selections`; `bayesian` for `paper-code` and for `tell`.
        preset: `paper-code` does as the authors' program: absolute penalty, kappa/(M + 1e-6), `PaperCodeCoordinates`,
            and candidates that grow by 2,000 random rows of the pool with each step.
        on_repeat: `next-best` (the default, and the authors' program) takes the objective's best architecture not
            suggested yet; `tell` tells the Bayesian optimiser the known value, for free, and asks again, at most
            5 times per training, then it takes the next best too.
        points_to_evaluate: `{"architecture"}` or `{"mu", "nu"}` or all three, suggested first; they count in budget.
        log10_mu: range of log10 mu in the units of the coordinates; None: (-2, 2), and (-4, 0) for `paper-code`.
        metric, mode, seed, max_concurrent, asynchronous: see `ArchraySearcher`.

    Raises: InvalidPool for a table that cannot serve, InvalidInput for any other argument.
    """

    opened: ClassVar[tuple[str, ...]] = ("pool", "coordinates", "selection", "surrogate", "_rows")

    def __init__(
        self,
        pool: str | Path,
        proxy: str = "ntk_trace",
        budget: int = 20,
        points: Points | None = None,
        penalty: Penalty | None = None,
        preset: Literal["paper-code"] | None = None,
        on_repeat: Literal["tell", "next-best"] | None = None,
        log10_mu: tuple[float, float] | None = None,
        **options: Unpack[SearcherOptions],
    ) -> None:
        check_options(points=points, penalty=penalty, preset=preset, on_repeat=on_repeat)
        self._preset = PRESETS[preset]
        low, high = log10_mu if log10_mu is not None else self._preset.coordinates.default_log10_mu
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise InvalidInput(f"log10_mu: expected (low, high) with low < high, got {log10_mu!r}")
        self.points: Points = points or ("bayesian" if on_repeat == "tell" else self._preset.points)
        self.depends_on_results = self.points != "uniform"  # type: ignore[misc]  # set for this searcher alone
        self.penalty: Penalty = penalty or self._preset.penalty
        self.on_repeat = on_repeat or "next-best"
        self.proxy = proxy
        self.preset = preset
        self._log10_mu = (float(low), float(high))
        self._observations: list[dict[str, Any]] = []  # what the Bayesian optimiser was told, in order
        super().__init__(budget=budget, **options)
        self._file = PoolFile.of(pool)
        self.prepare()

    @cached_property
    def pool(self) -> Pool:
        """The pool, read again after unpickling. Raises: InvalidPool if its file has changed."""
        return load_pool(self._file, self.proxy)

    @cached_property
    def coordinates(self) -> Coordinates:
        return self._preset.coordinates(self.pool, self.penalty, self._log10_mu)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.pool.architectures)}

    @property
    def log10_mu(self) -> tuple[float, float]:
        """The range of log10 mu that is searched, in the units of the scaled objective."""
        low, high = self.coordinates.mu_bounds()
        return math.log10(low), math.log10(high)

    @property
    def epsilon(self) -> float:
        """What is added to the scaled M in the quotient."""
        return self._preset.epsilon / self.pool.factor

    @cached_property
    def selection(self) -> Selection:
        return Selection(self.pool, self.penalty, self.epsilon)

    @cached_property
    def surrogate(self) -> SelectionSurrogate:
        return SelectionSurrogate(self.coordinates, self.selection)

    def candidates(self, number: int) -> BoolArray:
        """(n,) True for the rows of the pool that suggestion `number` may take, if they were not suggested before."""
        return self._preset.candidates(len(self.pool), number, self.rng("hnas", "candidates"))

    # Algorithm 7.1 -------------------------------------------------------------------------------------------------

    def propose(self, number: int) -> Proposal:
        numbers = self._numbers()
        excluded = ~self.candidates(number)
        suggested = self._suggested_rows(numbers)
        if (suggested | excluded).all():
            return None
        observations = list(self._observations)
        repeats: list[dict[str, Any]] = []
        while True:
            point = self._ask(observations, number, suggested | excluded)
            mu, nu = self.coordinates.mu_nu(point)
            question = {"point": point, "mu": mu, "nu": nu, "for": number}
            if self.on_repeat == "tell" and len(repeats) < MAX_REPEATS:
                row = self.selection.lowest(mu, nu, excluded)
                assert row is not None
                first = numbers.get(self.pool.architectures[row])
                if first is not None:
                    repeats.append({**question, "number": first})
                    observations.append(repeats[-1])
                    continue
            row = self.selection.lowest(mu, nu, suggested | excluded)
            assert row is not None  # or nothing was left to suggest
            self._observations += [*repeats, {**question, "number": number}]
            return {"architecture": self.pool.architectures[row], "mu": mu, "nu": nu}

    def _ask(self, observations: list[dict[str, Any]], number: int, mask: BoolArray) -> list[float]:
        """The next point of the square. left_out: (n,) the rows that suggestion `number` cannot take."""
        seed, bounds = named_seed(self.seed, "hnas", "points", len(observations), bits=31), self.coordinates.bounds
        position = sum(not observation.get("given", False) for observation in observations)
        if self.points == "uniform":
            return random_point(bounds, seed)
        if position < FIRST_POINTS:
            return self.coordinates.first_point(position)
        if self.points == "selections":
            if position % 2 == 0:  # what M and kappa tell of the values may mislead: never far behind random points
                return random_point(bounds, seed)
            return self.surrogate.next_point(self._losses_of_rows(number), mask, seed)
        losses = losses_of_answers([observation["number"] for observation in observations], self.usable_losses(number))
        return next_point([observation["point"] for observation in observations], losses, bounds, seed)

    def _losses_of_rows(self, number: int) -> dict[int, float]:
        """The loss of each row of the pool that suggestion `number` may know of; what failed has the worst."""
        records = self.usable_records(number)
        losses = zip(records.values(), losses_of_answers(list(records), self.usable_losses(number)), strict=True)
        named = {self._rows.get(record.config["architecture"], -1): loss for record, loss in losses if loss is not None}
        return {row: loss for row, loss in named.items() if row >= 0}

    def _numbers(self) -> dict[str, int]:
        """The number of the first record of every architecture suggested or handed over, in flight or not."""
        return {record.config["architecture"]: record.number for record in reversed(self.records())}

    def _suggested_rows(self, numbers: Mapping[str, int]) -> BoolArray:
        """(n,) True for the rows of the architectures in `numbers`."""
        suggested = np.zeros(len(self.pool), dtype=bool)
        suggested[[self._rows[name] for name in numbers if name in self._rows]] = True
        return suggested

    # Points of the user's ------------------------------------------------------------------------------------------

    def check_point(self, point: dict[str, Any]) -> dict[str, Any]:
        return check_question(point)

    def propose_point(self, number: int, point: dict[str, Any]) -> dict[str, Any] | None:
        numbers = self._numbers()
        config = dict(point)
        if config["architecture"] is None:
            mask = self._suggested_rows({} if self.on_repeat == "tell" else numbers)
            row = self.selection.lowest(config["mu"], config["nu"], mask)
            if row is None:
                return None
            config["architecture"] = self.pool.architectures[row]
        first = numbers.get(config["architecture"])
        self._add_observation(config, number if first is None else first, number)
        return config if first is None else None

    def on_evaluated_point(self, record: Record) -> None:
        if record.config["architecture"] is None:
            raise InvalidInput("expected an evaluation of an architecture, got only mu and nu")
        self._add_observation(record.config, record.number, record.number)

    def _add_observation(self, config: Mapping[str, Any], number: int, suggestion: int) -> None:
        mu, nu = config["mu"], config["nu"]
        if mu is not None:
            observation = {"point": self.coordinates.point(mu, nu), "mu": mu, "nu": nu, "number": number}
            self._observations.append({**observation, "for": suggestion, "given": True})

    def questions(self) -> pd.DataFrame:
        """A row per question, in order, what was answered from memory among them; its columns: see `question_table`."""
        return question_table(self._observations, self.records(), self.row)

    # State and history ---------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        _ = self.pool

    def search_identity(self) -> dict[str, Any]:
        return {
            "pool": self._file.checksum,
            "proxy": self.proxy,
            "points": self.points,
            "penalty": self.penalty,
            "preset": self.preset,
            "on_repeat": self.on_repeat,
            "log10_mu": self._log10_mu,
        }

    def search_state(self) -> dict[str, Any]:
        return {"observations": self._observations}

    def set_search_state(self, state: dict[str, Any]) -> None:
        self._observations = list(state.get("observations", ()))
