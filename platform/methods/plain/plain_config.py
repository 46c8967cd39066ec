"""The configurations of the plain searches over networks: one searcher, and a short training of each trial."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from archray.errors import InvalidInput
from archray.platform.config import SearchConfig
from archray.platform.methods.trained_config import TrainedSearchConfig, check_budget_grows
from archray.plurals import count
from archray.settings import Settings
from archray.trainables.spaces import get_space
from archray.trainables.spaces.named_tables import absolute_name
from archray.trainables.spaces.table_space import PREFIX, TableSpace
from archray.trainables.training_settings import TrainingSettings

if TYPE_CHECKING:
    from archray.trainables.tabular import Table


class PlainOptions(Settings):
    """What the searcher of a plain search is told; see there.

    Fields:
        budget: trainings of the search.
    """

    budget: int = Field(100, ge=1)


class PlainConfig(TrainedSearchConfig):
    """The configuration of a plain search.

    Fields:
        search: what the searcher is told.
        train: the short training that gives a trial its value.
    """

    mutates: ClassVar[bool] = False  # whether the searcher asks the space for mutations
    search: PlainOptions = PlainOptions()
    train: TrainingSettings = TrainingSettings(epochs=12)

    @model_validator(mode="before")
    @classmethod
    def _table_is_its_own_data(cls, values: Any) -> Any:
        """A table by its absolute place, as a run may be resumed from another folder; it has no data beside."""
        space = values.get("space") if isinstance(values, Mapping) else None
        if not isinstance(space, str) or not space.startswith(PREFIX):
            return values
        space = absolute_name(space)
        return {**values, "space": space, "data": {"name": space}}

    @property
    def on_table(self) -> bool:
        """Whether a table of trained architectures answers in the place of trainings."""
        return self.space.startswith(PREFIX)

    @property
    def searcher_options(self) -> dict[str, Any]:
        """What the searcher is told beside the budget."""
        return self.search.model_dump(exclude={"budget"}, exclude_none=True)

    def check(self) -> None:
        if self.mutates:
            get_space(self.space).check_mutable()
        if not self.on_table:
            super().check()
            return
        self.check_costs()
        from archray.trainables.tabular import Table  # which imports what reads tables

        space = get_space(self.space)
        assert isinstance(space, TableSpace)
        self.check_table(Table(space.file))

    def check_table(self, table: Table) -> None:
        """Raises: InvalidInput if a table cannot serve."""
        if self.repeats > 1:
            raise InvalidInput(
                f"expected 1 repeat of a search on a table, got {self.repeats}; 'archray bench {self.method} --table "
                f"{table.location} --seeds {self.repeats}' makes as many searches, and their mean and spread"
            )
        if self.search.budget > len(table.rows):
            raise InvalidInput(
                f"expected a budget of no more than the {count(len(table.rows), 'network')} in {table.location}, got "
                f"{self.search.budget}"
            )

    def check_extends(self, before: SearchConfig) -> None:
        if isinstance(before, PlainConfig):
            check_budget_grows(self.search.budget, before.search.budget)


class RandomConfig(PlainConfig):
    """The configuration of random search: architectures drawn from the space, none of them twice."""

    method: Literal["random"] = "random"


# Those that learn from results


class EvolutionOptions(PlainOptions):
    """What `RegularizedEvolution` is told; see there.

    Fields:
        population: how many are alive, P: the first of them are drawn at random. 10 in Dong and Yang's program (2020),
            for searches of some hundred trainings; 100 of 20,000 in Real et al. 2019, section 3.3.
        sample_size: of the population, how many are drawn to choose a parent from, S: 3, or 25 there.
    """

    population: int = Field(10, ge=1)
    sample_size: int = Field(3, ge=1)


def check_population(population: int, budget: int) -> None:
    """Raises: InvalidInput if nothing would be left to evolve."""
    if population >= budget:
        raise InvalidInput(
            f"expected search.population to be below the budget, {count(budget, 'training')}, got {population}: "
            "those come first, and only what comes after them evolves; lower it, or use the method random"
        )


class EvolutionConfig(PlainConfig):
    """The configuration of ageing evolution."""

    mutates = True
    method: Literal["evolution"] = "evolution"
    search: EvolutionOptions = EvolutionOptions()

    def check(self) -> None:
        super().check()
        check_population(self.search.population, self.search.budget)


class LocalSearchOptions(PlainOptions):
    """What `LocalSearch` is told; see there.

    Fields:
        initial: how many are drawn at random before a climb begins, from the best of them.
        whole_neighbourhood: whether all neighbours are trained before a step; if not, it goes to the first better one.
    """

    initial: int = Field(10, ge=1)
    whole_neighbourhood: bool = False


class LocalSearchConfig(PlainConfig):
    """The configuration of local search."""

    mutates = True
    method: Literal["local-search"] = "local-search"
    search: LocalSearchOptions = LocalSearchOptions()


class ReinforceOptions(PlainOptions):
    """What `ReinforceSearch` is told; see there.

    Fields:
        learning_rate: of Adam, for the logits of the policy.
        momentum: of the moving average of rewards that is the baseline.
        entropy: the weight of the policy's entropy: above zero it explores for longer.
    """

    learning_rate: float = Field(0.01, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    entropy: float = Field(0.0, ge=0)


class ReinforceConfig(PlainConfig):
    """The configuration of REINFORCE."""

    method: Literal["reinforce"] = "reinforce"
    search: ReinforceOptions = ReinforceOptions()


# Those that end trainings early


class RungOptions(Settings):
    """At which epochs a scheduler of Ray Tune's compares trials.

    Fields:
        grace_period: epochs of the lowest rung: no training ends before.
        reduction_factor: eta: of the trials that reach a rung one in eta goes on, to the next, of eta times the epochs.
    """

    grace_period: int = Field(1, ge=1)
    reduction_factor: int = Field(4, ge=2)

    def epochs(self, last: int) -> list[int]:
        """The epochs of all rungs, the lowest first; the last is that of a whole training."""
        rungs = itertools.takewhile(lambda epoch: epoch < last, map(self._epoch, itertools.count()))
        return [*rungs, last]

    def _epoch(self, rung: int) -> int:
        return self.grace_period * self.reduction_factor**rung


class AshaConfig(PlainConfig):
    """The configuration of asynchronous successive halving over random architectures.

    Fields:
        rungs: when trainings are compared; `train.epochs` is the highest rung, on a table its last epoch.
    """

    method: Literal["asha"] = "asha"
    rungs: RungOptions = RungOptions()

    @property
    def whole(self) -> int:
        """The epochs of a training that is not ended early."""
        if not self.on_table:
            return self.train.epochs
        from archray.trainables.tabular import open_table  # which imports what reads tables

        return max(open_table(self.space).epochs, default=1)

    def check(self) -> None:
        super().check()
        if self.rungs.grace_period >= self.whole:
            raise InvalidInput(
                f"expected rungs.grace_period to be below the {count(self.whole, 'epoch')} of a whole training "
                f"({'the last of the table' if self.on_table else 'train.epochs'}), got {self.rungs.grace_period}: no "
                "training could end early"
            )

    def check_table(self, table: Table) -> None:
        super().check_table(table)
        if len(table.epochs) < 2:
            raise InvalidInput(
                f"{self.method} ends trainings early, and {table.location} has no values after several numbers of "
                "epochs; name their columns when it is imported (archray bench import --epochs 12=COLUMN --epochs "
                "200=COLUMN), or choose random or evolution"
            )


class BOHBOptions(PlainOptions):
    """What `BOHBSearch` is told; see there.

    Fields:
        top_n_percent: of the results at a rung, how many make the density of the good ones; at least one more than the
            space has decisions.
        num_samples: draws from that density, of which the one with the best ratio to the density of the others is
            trained.
        random_fraction: how many trainings are of random architectures all the same.
    """

    top_n_percent: int = Field(15, ge=1, le=99)
    num_samples: int = Field(64, ge=1)
    random_fraction: float = Field(1 / 3, ge=0, le=1)


class BOHBConfig(AshaConfig):
    """The configuration of BOHB: architectures that a model suggests, whose trainings successive halving ends early."""

    method: Literal["bohb"] = "bohb"  # type: ignore[assignment]  # the field's own value
    search: BOHBOptions = BOHBOptions()

    @property
    def searcher_options(self) -> dict[str, Any]:
        counted = None if self.on_table else self.rungs.epochs(self.train.epochs)  # a table has but some epochs
        return {**super().searcher_options, "time_attr": "epoch", "budgets": counted}

    def check(self) -> None:
        from archray.searchers.bohb_model import check_hpbandster  # which imports NumPy

        check_hpbandster()
        super().check()
