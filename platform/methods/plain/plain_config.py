"""The configurations of the plain searches over networks: one searcher, and a short training of each trial."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from archray.errors import InvalidInput
from archray.platform.config import SearchConfig
from archray.platform.methods.pooled_config import PooledConfig
from archray.platform.methods.trained_config import TrainedSearchConfig
from archray.plurals import count
from archray.settings import Settings
from archray.trainables.proxies import PROXIES, column_of, get_proxy
from archray.trainables.training_settings import TrainingSettings


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

    search: PlainOptions = PlainOptions()
    train: TrainingSettings = TrainingSettings(epochs=12)

    @property
    def searcher_options(self) -> dict[str, Any]:
        """What the searcher is told beside the budget."""
        return self.search.model_dump(exclude={"budget"}, exclude_none=True)

    def check_extends(self, before: SearchConfig) -> None:
        if isinstance(before, PlainConfig) and self.search.budget < before.search.budget:
            raise InvalidInput(
                f"expected a budget of more than the {count(before.search.budget, 'training')} that the run has, "
                f"got {self.search.budget}"
            )


class RandomConfig(PlainConfig):
    """The configuration of random search: architectures drawn from the space, none of them twice."""

    method: Literal["random"] = "random"


# Those that learn from results


class EvolutionOptions(PlainOptions):
    """What `RegularizedEvolution` is told; see there. Real et al. 2019, section 3.3, has 100 and 25.

    Fields:
        population: how many are alive, P: the first of them are drawn at random. None: a quarter of the budget, but no
            more than the paper's 100.
        sample_size: of the population, how many are drawn to choose a parent from, S. None: a quarter of the
            population, which is the paper's share.
    """

    population: int | None = Field(None, ge=1)
    sample_size: int | None = Field(None, ge=1)


def check_population(population: int | None, budget: int) -> None:
    """Raises: InvalidInput if nothing would be left to evolve."""
    if budget < 2 or (population is not None and population >= budget):
        raise InvalidInput(
            f"expected search.population to be below the budget, {count(budget, 'training')}, got {population or 1}: "
            "those come first, and only what comes after them evolves; lower it, or use the method random"
        )


class EvolutionConfig(PlainConfig):
    """The configuration of ageing evolution."""

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


class AshaConfig(PlainConfig):
    """The configuration of asynchronous successive halving over random architectures.

    Fields:
        rungs: when trainings are compared; `train.epochs` is the highest rung.
    """

    method: Literal["asha"] = "asha"
    rungs: RungOptions = RungOptions()

    def check(self) -> None:
        super().check()
        if self.rungs.grace_period >= self.train.epochs:
            raise InvalidInput(
                f"expected rungs.grace_period to be below the {count(self.train.epochs, 'epoch')} of a whole training "
                f"(train.epochs), got {self.rungs.grace_period}: no training could end early"
            )


# Those that look at a pool first


class PoolOptions(PlainOptions):
    """What a search by one training-free metric is told.

    Fields:
        proxy: the metric, a name (`archray list proxies`) or path.py:function; of a pool that was scored elsewhere any
            of its columns.
        order: which of its values come first. None: those that promise more by the metric's own direction, and the
            largest of a column that is none of archray's metrics.
    """

    budget: int = Field(20, ge=1)
    proxy: str = "synflow"
    order: Literal["largest", "smallest"] | None = None


class ZeroCostConfig(PlainConfig, PooledConfig):
    """The configuration of a search that trains the best of a pool by one training-free metric."""

    method: Literal["zero-cost"] = "zero-cost"
    search: PoolOptions = PoolOptions()

    @property
    def needed(self) -> tuple[str, ...]:
        return (self.search.proxy,)

    @property
    def metric(self) -> str:
        """The column of the pool that the search goes by."""
        return column_of(self.search.proxy)

    @property
    def searcher_options(self) -> dict[str, Any]:
        options = super().searcher_options | {"metric": self.metric, "order": self._order}
        return {key: value for key, value in options.items() if key != "proxy"}

    @property
    def _order(self) -> str:
        if self.search.order is not None:
            return self.search.order
        known = self.pool.table is None or self.search.proxy in PROXIES
        return "smallest" if known and get_proxy(self.search.proxy).direction == "min" else "largest"


class WarmStartOptions(PoolOptions, EvolutionOptions):
    """What an evolution is told that begins with the best of a pool."""

    budget: int = Field(100, ge=1)


class WarmStartConfig(ZeroCostConfig):
    """The configuration of an evolution whose first population is the best of a pool by one training-free metric."""

    method: Literal["zero-cost-evolution"] = "zero-cost-evolution"  # type: ignore[assignment]  # the field's own value
    search: WarmStartOptions = WarmStartOptions()

    def check(self) -> None:
        super().check()
        check_population(self.search.population, self.search.budget)
