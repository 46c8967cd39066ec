"""Configurations, presets and flags of the plain searches: one searcher, and a short training run per trial."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from archray.errors import InvalidInput
from archray.platform.config import SearchConfig, merge
from archray.platform.methods.config import (
    SCORED_WITHOUT_TRAINING,
    SCORINGS,
    TRAININGS,
    PooledConfig,
    TrainedSearchConfig,
    check_budget_grows,
)
from archray.platform.methods.method import Method, Values, serves_networks
from archray.platform.methods.plain.decisions import Decisions, checked_decisions, read_decisions
from archray.plurals import count
from archray.settings import REPEATED, Settings
from archray.trainables.costs.settings import texts_of
from archray.trainables.proxies import column_of
from archray.trainables.proxies.settings import MetricName
from archray.trainables.spaces import Space, TableSpace, get_space
from archray.trainables.spaces.table_space import PREFIX, absolute_name
from archray.trainables.training_settings import TrainingSettings

if TYPE_CHECKING:
    from archray.searchers.exterior_penalty import ExteriorPenalty
    from archray.trainables.tabular import Table


class PlainOptions(Settings):
    """Options of the searcher of a plain search.

    Fields:
        budget: number of training runs of the search.
    """

    budget: int = Field(100, ge=1)


class PlainConfig(TrainedSearchConfig):
    """The configuration of a plain search.

    Fields:
        search: options of the searcher.
        train: settings of the short training run that gives a trial its validation accuracy.
    """

    mutates: ClassVar[bool] = False  # whether the searcher needs mutations of the space
    distinct: ClassVar[bool] = False  # whether the searcher suggests each architecture at most once
    search: PlainOptions = PlainOptions()
    train: TrainingSettings = TrainingSettings(epochs=12)

    @model_validator(mode="before")
    @classmethod
    def _table_is_its_own_data(cls, values: Any) -> Any:
        """Makes the path of a table absolute, as a run may be resumed from another folder; a table needs no data."""
        space = values.get("space") if isinstance(values, Mapping) else None
        if not isinstance(space, str) or not space.startswith(PREFIX):
            return values
        space = absolute_name(space)
        return {**values, "space": space, "data": {"name": space}}

    @property
    def on_table(self) -> bool:
        """Whether lookups in a table of trained architectures replace the training runs."""
        return self.space.startswith(PREFIX)

    @property
    def needs_ray(self) -> bool:
        return not self.on_table

    @property
    def searcher_options(self) -> dict[str, Any]:
        """Options of the searcher without the budget."""
        return self.search.model_dump(exclude={"budget"}, exclude_none=True)

    def check(self) -> None:
        if self.mutates:
            self.check_mutable()
        if not self.on_table:
            super().check()
            return
        self.check_costs()
        from archray.trainables.tabular import Table  # which imports pandas

        space = get_space(self.space)
        assert isinstance(space, TableSpace)
        self.check_table(Table(space.file))

    def check_mutable(self) -> None:
        """Checks that the searcher has something to mutate. Raises: InvalidInput."""
        get_space(self.space).check_mutable()

    def check_table(self, table: Table) -> None:
        """Checks that the table supports this search. Raises: InvalidInput."""
        if self.repeats > 1:
            raise InvalidInput(
                f"expected repeats to be 1 for a search on a table, got {self.repeats}. Run 'archray bench "
                f"{self.method} --table {table.location} --seeds {self.repeats}' for the mean and spread of several "
                "searches"
            )

    def check_extends(self, before: SearchConfig) -> None:
        if isinstance(before, PlainConfig):
            check_budget_grows(self.search.budget, before.search.budget)


class JointConfig(PlainConfig):
    """The configuration of a plain search that may also decide hyperparameters of the training.

    Fields:
        decide: hyperparameters that the search decides together with the architecture: `train.lr=0.01,0.1` is a
            decision between two learning rates. Any key of `train` but `train.epochs`, with two or more values. The
            final training and the random architectures use decided values too, in place of those in `final`.
    """

    decide: Annotated[Decisions, REPEATED] = Field(default_factory=dict)

    @field_validator("decide", mode="before")
    @classmethod
    def _read_decisions(cls, option: Any, info: ValidationInfo) -> Any:
        trainings: dict[str, TrainingSettings] = {
            name: info.data[name] for name in ("train", "final") if name in info.data
        }
        decisions = read_decisions(option)
        return checked_decisions(decisions, trainings) if len(trainings) == 2 else decisions

    @property
    def training_decisions(self) -> Decisions:
        return self.decide

    def check(self) -> None:
        if self.decide and self.on_table:
            raise InvalidInput(
                f"expected a space whose networks are trained for decide, got {self.space}, a table of networks that "
                "were trained with one set of hyperparameters. Remove decide, or choose another space"
            )
        super().check()

    def check_mutable(self) -> None:
        if not self.decide:  # every decision has two or more values
            super().check_mutable()


class RandomConfig(JointConfig):
    """The configuration of random search: architectures drawn from the space without replacement."""

    distinct = True
    method: Literal["random"] = "random"


class EvolutionOptions(PlainOptions):
    """Options of `RegularizedEvolution`.

    Fields:
        population: size of the population (P), which starts with random architectures. Dong and Yang (2020) use 10 for
            about a hundred training runs; Real et al. (2019, section 3.3) use 100 for 20,000.
        sample_size: number of members of the population that are drawn to choose a parent from (S). Dong and Yang
            (2020) use 3, Real et al. (2019) use 25.
    """

    population: int = Field(10, ge=1)
    sample_size: int = Field(3, ge=1)


def check_population(population: int, budget: int) -> None:
    """Checks that the budget exceeds the initial population. Raises: InvalidInput."""
    if population >= budget:
        raise InvalidInput(
            f"expected search.population to be below the budget, {count(budget, 'training run')}, got {population}: "
            "the initial population is random, and only later architectures evolve. Lower search.population, or use "
            "the method random"
        )


class EvolutionConfig(JointConfig):
    """The configuration of aging evolution."""

    mutates = True
    method: Literal["evolution"] = "evolution"
    search: EvolutionOptions = EvolutionOptions()

    def check(self) -> None:
        super().check()
        check_population(self.search.population, self.search.budget)


class LocalSearchOptions(PlainOptions):
    """Options of `LocalSearch`.

    Fields:
        initial: number of random architectures before a climb, which starts from the best of them.
        whole_neighborhood: train all neighbors before each step if true; otherwise step to the first better neighbor.
    """

    initial: int = Field(10, ge=1)
    whole_neighborhood: bool = False


class LocalSearchConfig(JointConfig):
    """The configuration of local search."""

    mutates = distinct = True
    method: Literal["local-search"] = "local-search"
    search: LocalSearchOptions = LocalSearchOptions()


class ReinforceOptions(PlainOptions):
    """Options of `ReinforceSearch`.

    Fields:
        learning_rate: learning rate of Adam for the logits of the policy.
        momentum: momentum of the moving average of rewards, which is the baseline.
        entropy: weight of the policy's entropy; a larger weight means longer exploration.
    """

    learning_rate: float = Field(0.01, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    entropy: float = Field(0.0, ge=0)


class ReinforceConfig(JointConfig):
    """The configuration of REINFORCE."""

    method: Literal["reinforce"] = "reinforce"
    search: ReinforceOptions = ReinforceOptions()


class RungOptions(Settings):
    """The epochs at which a Ray Tune scheduler compares trials.

    Fields:
        grace_period: number of epochs of the lowest rung; no trial stops before.
        reduction_factor: factor eta by which the epochs grow from rung to rung; one in eta trials continues to the next
            rung.
    """

    grace_period: int = Field(1, ge=1)
    reduction_factor: int = Field(4, ge=2)

    def epochs(self, last: int) -> list[int]:
        """The epochs of all rungs, the lowest first; the last is a full training run."""
        rungs = itertools.takewhile(lambda epoch: epoch < last, map(self._epoch, itertools.count()))
        return [*rungs, last]

    def _epoch(self, rung: int) -> int:
        return self.grace_period * self.reduction_factor**rung


class AshaConfig(JointConfig):
    """The configuration of asynchronous successive halving over random architectures.

    Fields:
        rungs: the epochs at which trials are compared. The highest rung is `train.epochs`; for a table, its last epoch.
    """

    distinct = True
    method: Literal["asha"] = "asha"
    rungs: RungOptions = RungOptions()

    @property
    def whole(self) -> int:
        """The epochs of a training run that does not stop early."""
        if not self.on_table:
            return self.train.epochs
        from archray.trainables.tabular import open_table  # which imports pandas

        return max(open_table(self.space).epochs, default=1)

    def check(self) -> None:
        super().check()
        if self.rungs.grace_period >= self.whole:
            raise InvalidInput(
                f"expected rungs.grace_period to be below the {count(self.whole, 'epoch')} of a full training run "
                f"({'the last epoch of the table' if self.on_table else 'train.epochs'}), got "
                f"{self.rungs.grace_period}; otherwise no trial can stop early"
            )

    def check_table(self, table: Table) -> None:
        super().check_table(table)
        if len(table.epochs) < 2:
            raise InvalidInput(
                f"expected a table with results at several epochs for {self.method}, which stops trials early, got "
                f"{table.location}. Import it with the columns of these results (archray bench import --epochs "
                "12=COLUMN --epochs 200=COLUMN), or choose random or evolution"
            )


class BOHBOptions(PlainOptions):
    """Options of `BOHBSearch`.

    Fields:
        top_n_percent: percentage of the results at a rung that fit the density of good architectures; at least one
            result more than the space has decisions.
        num_samples: number of samples from that density. The sample with the best ratio to the density of the other
            results is trained.
        random_fraction: share of the trials with random architectures.
    """

    top_n_percent: int = Field(15, ge=1, le=99)
    num_samples: int = Field(64, ge=1)
    random_fraction: float = Field(1 / 3, ge=0, le=1)


class BOHBConfig(AshaConfig):
    """The configuration of BOHB: a model suggests architectures, and successive halving stops trials early."""

    distinct = False
    method: Literal["bohb"] = "bohb"  # type: ignore[assignment]  # the field's own value
    search: BOHBOptions = BOHBOptions()

    @property
    def searcher_options(self) -> dict[str, Any]:
        counted = None if self.on_table else self.rungs.epochs(self.train.epochs)  # a table contains only some epochs
        return {**super().searcher_options, "time_attr": "epoch", "budgets": counted}

    def check(self) -> None:
        from archray.searchers.bohb_search import check_hpbandster  # which imports Ray

        check_hpbandster()
        super().check()


class PoolOptions(PlainOptions):
    """Options of a search by one training-free metric.

    Fields:
        proxy: the metric: a name (`archray list proxies`), `path.py:function`, or a column of an existing pool.
        order: whether the `largest` or the `smallest` values come first. Default: the direction of the metric;
            `largest` for a column that is not a registered metric.
        mu: weight of the penalty on the excess of the metric over nu, 1 or more (Shu 2022, Eq. 6.8), for metrics whose
            large values are good. With 1, values above nu rank equal; with 2, a larger value above nu ranks lower.
            Default: no penalty.
        nu: largest value without a penalty, in the unit of the metric. Default: the mean over the pool (Eq. 6.14).
    """

    budget: int = Field(20, ge=1)
    proxy: MetricName = "synflow"
    order: Literal["largest", "smallest"] | None = None
    mu: float | None = None
    nu: float | None = None

    def with_metrics(self, names: Mapping[str, str]) -> Self:
        """Returns the options with other names or references of the metrics. names: by the present name."""
        return self.model_copy(update={"proxy": names[self.proxy]})


class ZeroCostConfig(PlainConfig, PooledConfig):
    """The configuration of a search that trains the best of a pool by one training-free metric."""

    distinct = True
    method: Literal["zero-cost"] = "zero-cost"
    search: PoolOptions = PoolOptions()

    @property
    def needed(self) -> tuple[str, ...]:
        return (self.search.proxy,)

    @property
    def proxy(self) -> str:
        """The column of the pool that ranks the architectures."""
        return column_of(self.search.proxy)

    @property
    def penalty(self) -> ExteriorPenalty | None:
        """The constraint on the metric. Raises: InvalidInput."""
        from archray.searchers.exterior_penalty import penalty_of  # which imports NumPy

        return penalty_of(self.proxy, self._order, self.search.mu, self.search.nu)

    def check(self) -> None:
        super().check()
        _ = self.penalty

    def check_table(self, table: Table) -> None:
        super().check_table(table)
        table.check_metric(self.proxy)

    @property
    def searcher_options(self) -> dict[str, Any]:
        return super().searcher_options | {"proxy": self.proxy, "order": self._order}

    @property
    def _order(self) -> str:
        if self.search.order is not None:
            return self.search.order
        return "smallest" if self.low_is_good(self.search.proxy) else "largest"


class WarmStartOptions(PoolOptions, EvolutionOptions):
    """Options of an evolution that starts with the best of a pool."""

    budget: int = Field(100, ge=1)


class WarmStartConfig(ZeroCostConfig):
    """The configuration of an evolution whose first population is the best of a pool by one training-free metric."""

    mutates = True
    distinct = False
    method: Literal["zero-cost-evolution"] = "zero-cost-evolution"  # type: ignore[assignment]  # the field's own value
    search: WarmStartOptions = WarmStartOptions()

    def check(self) -> None:
        super().check()
        check_population(self.search.population, self.search.budget)


METRICS = ("grad_norm", "snip", "synflow", "naswot", "jacov", "l2_norm", "parameters", "multiply_adds")


class SeveralMetricsOptions(PlainOptions):
    """Options of a search over several metrics.

    Fields:
        proxies: the metrics: names (`archray list proxies`), `path.py:function`, or columns of an existing pool, with a
            `-` before a column whose small values are good. For a table, the default is all of its metrics and costs.
    """

    budget: int = Field(20, ge=1)
    proxies: Annotated[tuple[MetricName, ...], BeforeValidator(texts_of)] = METRICS

    @field_validator("proxies")
    @classmethod
    def _distinct(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(proxies)) != len(proxies):
            raise InvalidInput(f"expected distinct metrics, got {', '.join(proxies)}")
        return proxies

    def with_metrics(self, names: Mapping[str, str]) -> Self:
        """Returns the options with other names or references of the metrics. names: by the present name."""
        signs = ("-" * name.startswith("-") for name in self.proxies)
        bare = (name.removeprefix("-") for name in self.proxies)
        return self.model_copy(update={"proxies": tuple(sign + names[n] for sign, n in zip(signs, bare, strict=True))})


class RankSurrogateConfig(PlainConfig, PooledConfig):
    """The configuration of a search by the ranks of several metrics and the encoding of the architectures.

    Fields:
        search: options of the searcher.
    """

    distinct = True
    method: Literal["rank-surrogate"] = "rank-surrogate"
    search: SeveralMetricsOptions = SeveralMetricsOptions()

    @property
    def needed(self) -> tuple[str, ...]:
        return tuple(name.removeprefix("-") for name in self.search.proxies)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the pool that the search uses, with `-` before a column whose small values are good."""
        return tuple(
            f"-{column_of(bare)}" if bare != name or self.low_is_good(bare) else column_of(bare)
            for name, bare in zip(self.search.proxies, self.needed, strict=True)
        )

    def check_table(self, table: Table) -> None:
        super().check_table(table)
        columns = {**table.metrics, **table.costs}
        missing = [name for name in self.needed if name not in columns]
        if not columns:
            raise InvalidInput(
                f"expected a table with metrics or costs, got {table.location}. Import it with --proxies or --costs"
            )
        if missing and not self._unnamed:
            names = ", ".join(map(repr, missing))
            raise InvalidInput(
                f"expected search.proxies to be columns of {table.location} ({', '.join(columns)}), got {names}"
            )

    @property
    def _unnamed(self) -> bool:
        return self.on_table and self.search.proxies == type(self.search).model_fields["proxies"].default

    @property
    def searcher_options(self) -> dict[str, Any]:
        """The options of the searcher; without `proxies`, a search on a table uses all of its metrics and costs."""
        return {} if self._unnamed else {"proxies": self.columns}


class RoBoTOptions(SeveralMetricsOptions):
    """Options of RoBoT, with the metrics of He et al. (2024)."""

    proxies: Annotated[tuple[MetricName, ...], BeforeValidator(texts_of)] = (
        "grad_norm",
        "snip",
        "grasp",
        "fisher",
        "synflow",
        "jacov",
    )


class RoBoTConfig(RankSurrogateConfig):
    """The configuration of RoBoT, which learns weights of several metrics."""

    method: Literal["robot"] = "robot"  # type: ignore[assignment]  # the field's own value
    search: RoBoTOptions = RoBoTOptions()


# A `Method` for each plain search, with its presets and flags. A new search also needs a recipe in `stages`.

_PRESETS: Mapping[str, Values] = {
    "smoke": {
        "search": {"budget": 3},
        "train": {"epochs": 1, "batch_size": 64},
        "final": {"epochs": 2, "batch_size": 64},
        "baseline": 1,
    },
    "demo": {"search": {"budget": 16}, "baseline": 16},  # as many as training runs of the search
    "paper": {"search": {"budget": 100}},
}
_POOL_SIZES: Mapping[str, int] = {"smoke": 6, "demo": 100, "paper": 1000}
_FLAGS: Mapping[str, str] = {
    "budget": "search.budget",
    "epochs": "train.epochs",
    "final_epochs": "final.epochs",
    "final_seeds": "final_seeds",
    "random": "baseline",
}
POOL_FLAGS: Mapping[str, str] = {"pool": "pool.table", "pool_size": "pool.size"}
EXTENDABLE = ("budget", "final_epochs", "final_seeds", "random")


def serves(space: Space) -> str | None:
    """None for a space of networks or a table of results; otherwise the reason why it cannot be searched."""
    return None if isinstance(space, TableSpace) else serves_networks(space)


def plain_method(
    name: str,
    config: type[PlainConfig],
    *,
    family: str = "plain.stages",
    searcher: str | None = None,
    presets: Mapping[str, Values] | None = None,
    flags: Mapping[str, str] | None = None,
    extendable: tuple[str, ...] = EXTENDABLE,
    **fields: Any,
) -> Method:
    """The `Method` of a plain search.

    Args:
        name: name of the method.
        config: class of its configuration.
        family: module with its `plain_recipe`, an attribute with the name of the method: `RANDOM`.
        searcher: name of its function in `methods.searchers`; None if `archray bench` cannot run it.
        presets, flags: values that override or extend those of all plain searches and of searches over a pool.
        extendable: the flags that `resume` may change on a finished run.
        fields: additional fields of `Method`.
    """
    if issubclass(config, JointConfig):
        flags = {**(flags or {}), "decide": "decide"}
    layers, pooled = {}, "pool" in config.model_fields
    for preset, values in TRAININGS.items():
        layers[preset] = merge(values, _PRESETS[preset])
        if pooled:
            layers[preset] = merge(layers[preset], SCORINGS[preset], {"pool": {"size": _POOL_SIZES[preset]}})
    return Method(
        name=name,
        config=config,
        recipe_at=f"archray.platform.methods.{family}:{name.upper().replace('-', '_')}",
        presets={preset: merge(values, (presets or {}).get(preset, {})) for preset, values in layers.items()},
        flags={**_FLAGS, **(flags or {})},
        extendable=extendable,
        serves=serves,
        searcher_at=None if searcher is None else f"archray.platform.methods.searchers:{searcher}",
        streams=True,
        **{"rejects": {"decide": SCORED_WITHOUT_TRAINING} if pooled else {}, **fields},
    )


_EVOLVES: Mapping[str, Values] = {
    "smoke": {"search": {"budget": 4, "population": 2, "sample_size": 2}},
    "demo": {"search": {"population": 6}},
}
_SIZES: Mapping[str, str] = {"population": "search.population", "sample_size": "search.sample_size"}

RANDOM = plain_method("random", RandomConfig, searcher="random_search")
EVOLUTION = plain_method("evolution", EvolutionConfig, searcher="evolution", presets=_EVOLVES, flags=_SIZES)
LOCAL_SEARCH = plain_method(
    "local-search",
    LocalSearchConfig,
    searcher="local_search",
    presets={"smoke": {"search": {"initial": 2}}, "demo": {"search": {"initial": 4}}},
    flags={"initial": "search.initial"},
)
REINFORCE = plain_method(
    "reinforce",
    ReinforceConfig,
    searcher="reinforce",
    # with the paper's rate of 0.01, the policy is still almost uniform after the few training runs of the demo
    presets={"demo": {"search": {"learning_rate": 0.1}}},
    flags={"learning_rate": "search.learning_rate", "entropy": "search.entropy"},
)
_HALVES: Mapping[str, Values] = {
    "smoke": {"search": {"budget": 4}, "train": {"epochs": 2}, "rungs": {"reduction_factor": 2}},
    "demo": {"search": {"budget": 32}, "train": {"epochs": 8}, "rungs": {"reduction_factor": 2}},
    # eta is 4, as in Li et al. 2020
    "paper": {"search": {"budget": 256}, "train": {"epochs": 64}},
}
_RUNGS: Mapping[str, str] = {"grace_period": "rungs.grace_period", "reduction_factor": "rungs.reduction_factor"}
_ENDED = ("final_epochs", "final_seeds", "random")  # no budget: Tune's scheduler cannot continue a search

ASHA = plain_method("asha", AshaConfig, presets=_HALVES, flags=_RUNGS, extendable=_ENDED)
BOHB = plain_method(
    "bohb",
    BOHBConfig,
    presets={  # eta is 3, as in Falkner et al. 2018
        **_HALVES,
        "paper": {"search": {"budget": 256}, "train": {"epochs": 81}, "rungs": {"reduction_factor": 3}},
    },
    flags={**_RUNGS, "random_fraction": "search.random_fraction"},
    extendable=_ENDED,
)
_ONE_METRIC = {"proxy": "search.proxy", "mu": "search.mu", "nu": "search.nu", **POOL_FLAGS}
ZERO_COST = plain_method("zero-cost", ZeroCostConfig, searcher="zero_cost", by_proxy=True, flags=_ONE_METRIC)
ZERO_COST_EVOLUTION = plain_method(
    "zero-cost-evolution",
    WarmStartConfig,
    searcher="zero_cost_evolution",
    by_proxy=True,
    presets=_EVOLVES,
    flags={**_ONE_METRIC, **_SIZES},
)
PROXIES_FLAGS: Mapping[str, str] = {"proxies": "search.proxies", **POOL_FLAGS}
RANK_SURROGATE = plain_method("rank-surrogate", RankSurrogateConfig, searcher="rank_surrogate", flags=PROXIES_FLAGS)
ROBOT = plain_method("robot", RoBoTConfig, searcher="robot", flags=PROXIES_FLAGS)
