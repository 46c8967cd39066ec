"""Configurations that the families of methods share: final training, pools, and defaults of spaces and presets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from archray.errors import InvalidInput, InvalidPool
from archray.platform.config import SearchConfig, merge
from archray.platform.engine.settings import PoolSettings, candidates
from archray.platform.methods.method import Values
from archray.plurals import count
from archray.references import is_reference
from archray.settings import REPEATED
from archray.trainables.costs import cost_column
from archray.trainables.costs.settings import CostSettings, texts_of
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.proxies import PROXIES, ProxySettings, check_proxies, column_of, get_proxy, low_is_good
from archray.trainables.proxies.settings import MetricName
from archray.trainables.spaces import get_space
from archray.trainables.spaces.table_space import PREFIX
from archray.trainables.training_settings import TrainingSettings

if TYPE_CHECKING:
    from archray.platform.run.run import Run
    from archray.searchers.pool_file import PoolFile


Texts = Annotated[
    tuple[str, ...], REPEATED, BeforeValidator(texts_of)
]  # one string may hold several: `flops <= 5M, latency_ms <= 5`


def check_budget_grows(budget: int, before: int) -> None:
    """Checks that an extended search has at least as many training runs as before. Raises: InvalidInput."""
    if budget < before:
        raise InvalidInput(
            f"expected a budget of at least the {count(before, 'training run')} that the run already has, got {budget}"
        )


class FinalConfig(SearchConfig):
    """A search that trains (or solves for) its result at the end.

    Fields:
        final_seeds: number of final training runs of the result, each with its own random seed.
    """

    final_seeds: int = Field(1, ge=1)


class TrainedSearchConfig(FinalConfig):
    """A search that ends with the standalone training of the best architecture.

    Fields:
        network: the network that contains the architecture: channels, cells, and other settings of the skeleton.
        final: settings of the final training of the best architecture.
        baseline: number of random architectures that are trained for comparison, in the same way, besides the largest;
            0 for none of them.
        costs: the costs of networks that are reported, and how latency is measured.
        constraints: upper or lower bounds on the costs of a network, such as `latency_ms <= 5` or `parameters < 1.5M`.
            Every architecture of the search meets all of them, and so do the random architectures.
    """

    unconstrained: ClassVar[str | None] = None  # the reason, if the method does not support constraints

    network: NetworkSettings = NetworkSettings()
    final: TrainingSettings = TrainingSettings(epochs=200)
    baseline: int = Field(0, ge=0)
    costs: CostSettings = CostSettings()
    constraints: Texts = ()

    @model_validator(mode="before")
    @classmethod
    def _inherited_weights(cls, values: Any) -> Any:
        """Makes the path of `network.weights` absolute, and lets the supernet inherit the same weights."""
        network = values.get("network") if isinstance(values, Mapping) else None
        if not isinstance(network, Mapping) or network.get("weights") is None:
            return values
        path = str(network["weights"])
        shared = {"network": {"weights": path if "://" in path else str(Path(path).absolute())}}
        supernets = ("supernet", "nasi")  # unlike `proxies`, which scores initial weights
        parts = [part for part in supernets if "network" in _fields_of(cls.model_fields.get(part))]
        return merge(dict.fromkeys(parts, shared), values, shared)

    @field_validator("constraints")
    @classmethod
    def _read(cls, texts: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        from archray.trainables.spaces.constrained_space import parse_constraints  # which imports NumPy

        constraints = parse_constraints(texts)
        names = (constraint.cost for constraint in constraints)
        return tuple(with_reference(text, name, info) for text, name in zip(texts, names, strict=True))

    @property
    def cost_names(self) -> tuple[str, ...]:
        """The costs that the run reports, including the costs in the constraints."""
        if not self.constraints:
            return self.costs.names
        from archray.trainables.spaces.constrained_space import costs_named, parse_constraints

        return tuple(dict.fromkeys((*self.costs.names, *costs_named(parse_constraints(self.constraints)))))

    def references(self) -> dict[str, str]:
        return super().references() | {cost_role(name): name for name in self.cost_names if is_reference(name)}

    def check(self) -> None:
        super().check()
        get_space(self.space).check_packages()
        self.network.check_weights()
        if self.constraints and self.unconstrained is not None:
            raise InvalidInput(f"{self.method} does not support constraints: {self.unconstrained}. Remove constraints")
        self.check_costs()

    def check_costs(self) -> None:
        """Checks that the costs exist, before the run starts. Raises: UnknownName, InvalidInput, InvalidTable."""
        if self.cost_names:
            from archray.trainables.costs import check_costs

            check_costs(self.space, self.cost_names, self.costs)


def with_reference(text: str, name: str, info: ValidationInfo) -> str:
    """Replaces the name of a custom cost at the start of an option's text by its reference in `costs.names`.

    Args:
        info: the fields before the option, with `costs`.
    """
    costs = info.data["costs"].names if "costs" in info.data else ()
    references = {cost_column(cost): cost for cost in costs if is_reference(cost)}
    return text.replace(name, references.get(name, name), 1)


def _fields_of(field: Any) -> Mapping[str, Any]:
    """Returns the fields of the model that is the type of a field; none for another type."""
    return getattr(getattr(field, "annotation", None), "model_fields", {})


def cost_role(name: str) -> str:
    """The role of the file of a custom cost in the run."""
    return f"cost-{cost_column(name)}"


SCORED_WITHOUT_TRAINING = (
    "it selects from a pool that is scored without training, and these scores do not depend on hyperparameters of the "
    "training"
)  # the reason why searches over a pool reject the option `decide`


class PoolProxySettings(ProxySettings):
    """Options of the training-free metrics of a pool.

    Attributes:
        metrics: Metrics to score in addition to those that the search needs: names, or references to custom metrics.
    """

    metrics: tuple[MetricName, ...] = ()


class PooledConfig(TrainedSearchConfig):
    """The configuration of a search that selects architectures from a pool.

    Fields:
        proxies: how the pool is scored. The metrics that the search needs are added to the metrics listed here.
        pool: the architectures that are scored.
    """

    proxies: PoolProxySettings = PoolProxySettings()
    pool: PoolSettings = PoolSettings()

    @property
    def needed(self) -> tuple[str, ...]:
        """The metrics that the search uses, by name or reference."""
        raise NotImplementedError

    def low_is_good(self, metric: str) -> bool:
        """Whether a smaller value of a metric is better. False for unknown columns of a user's table."""
        of_user = metric not in PROXIES and self.pool.table is None and not self.space.startswith(PREFIX)
        return get_proxy(metric).direction == "min" if of_user else low_is_good(metric)

    @property
    def scored(self) -> ProxySettings:
        """The metrics that the pool is scored with."""
        return self.proxies.model_copy(update={"metrics": tuple(dict.fromkeys((*self.proxies.metrics, *self.needed)))})

    def check(self) -> None:
        super().check()
        if self.pool.table is None:
            check_proxies(self.scored)
            if self.data.limit is not None and self.data.limit < self.proxies.batch_size:
                raise InvalidInput(
                    f"expected data.limit to be at least proxies.batch_size ({self.proxies.batch_size}), the number of "
                    f"images that score an architecture, got {self.data.limit}; raise data.limit or lower "
                    "proxies.batch_size"
                )
            candidates(self.space, self.pool.size, self.seed)
            return
        if not Path(self.pool.table).is_file():
            raise InvalidPool(
                f"expected the file of a pool, got {self.pool.table}, which does not exist. Pass a table that "
                "'archray proxies' wrote"
            )
        from archray.searchers.pool_file import PoolFile

        space = get_space(self.space)
        for architecture in self.architectures_of(PoolFile.of(self.pool.table)):
            space.decode(architecture)

    def check_size(self, images: int) -> None:
        if self.pool.table is None and images < self.proxies.batch_size:
            raise InvalidInput(
                f"expected at least proxies.batch_size ({self.proxies.batch_size}) training images, which score an "
                f"architecture, got {images} in {self.data.name}. Lower proxies.batch_size"
            )

    def architectures_of(self, file: PoolFile) -> Sequence[str]:
        """The architectures of an existing pool. Raises: InvalidPool if the search cannot use the pool."""
        from archray.searchers.pool_file import check_names

        names = file.read(["architecture", *map(column_of, self.needed)])["architecture"]
        check_names(names, file.location)
        return names.tolist()

    def metrics_of(self, run: Run[Any]) -> dict[str, str]:
        """Returns the scored metrics by name, with references to the copies of custom metrics in a run."""
        return {name: run.resolved(file_role(name), name) for name in self.scored.metrics}

    def references(self) -> dict[str, str]:
        metrics = self.scored.metrics if self.pool.table is None else ()
        return super().references() | {file_role(name): name for name in metrics}


def file_role(metric: str) -> str:
    """The role of the file of a custom metric in the run."""
    return f"proxy-{column_of(metric)}"


# Presets of searches that train the architectures they suggest: networks, training, scoring of pools.

TINY: Values = {"channels": 4, "cells": 1}
TRAININGS: Mapping[str, Values] = {
    "smoke": {"network": TINY},
    "demo": {
        "network": {"channels": 8, "cells": 1},
        # after about 20 epochs nearly every cell classifies the digits well, and accuracies no longer differ
        "train": {"epochs": 4, "batch_size": 64},
        "final": {"epochs": 10, "batch_size": 64},
        "final_seeds": 3,
        "baseline": 8,
    },
    # the networks and training of NAS-Bench-201, 12 epochs in the search (Dong and Yang 2020)
    "paper": {
        "data": {"name": "cifar10"},
        "network": {"channels": 16, "cells": 5},
        "train": {"epochs": 12},
        "final": {"epochs": 200},
        "final_seeds": 3,
    },
}
# Presets of searches that score a pool first. Abdelfattah et al. (2021) score the trained network, on one batch.
SCORINGS: Mapping[str, Values] = {
    "smoke": {"proxies": {"network": TINY, "batch_size": 16}},
    "demo": {"proxies": {"network": {"channels": 4, "cells": 3}, "batch_size": 64}},
    "paper": {"proxies": {"network": {"channels": 16, "cells": 5}, "batch_size": 64}},
}


def space_defaults(config: type[SearchConfig], space: str) -> dict[str, Any]:
    """The options that the networks of a space need, merged into the defaults of the configuration's fields.

    Args:
        config: the class of the configuration.
        space: a registered name or a reference.
    """
    options, fields = get_space(space).defaults, config.model_fields
    values: dict[str, Any] = {}
    if "training" in options:
        for name, field in fields.items():
            if field.annotation is TrainingSettings:
                values[name] = field.default.model_dump(exclude_unset=True) | options["training"]
    search = fields.get("search")
    if "proxy" in options and search is not None and "proxy" in getattr(search.annotation, "model_fields", {}):
        values["search"] = {"proxy": options["proxy"]}
    return values
