"""Configurations and presets of NESBS and of the baseline ensembles. Shu 2022, ch. 5; notes E3, E5, E8."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator, model_validator

from archray.errors import InvalidInput
from archray.platform.config import merge
from archray.platform.methods.config import TrainedSearchConfig
from archray.platform.methods.method import Method, Values
from archray.platform.methods.supernets.config import PLAIN, check_network, check_supernet, defaults_of, serves
from archray.searchers.nesbs.samplers import DELTA_RANGE, SVGDRD, EnsembleSampler
from archray.settings import Settings
from archray.trainables.spaces import Space, get_space
from archray.trainables.spaces.genotypes import GenotypeSpace, is_name, spelled_out
from archray.trainables.supernets.settings import NoOptimizerSettings, PathSettings
from archray.trainables.training_settings import TrainingSettings
from archray.trainables.tune.settings import PosteriorOptions, SupernetOptions


class EnsembleConfig(TrainedSearchConfig):
    """A search whose result is an ensemble of networks, each trained once from scratch.

    Fields:
        ensemble_size: number of members of the ensemble (n); 3 in the paper.
    """

    ensemble_size: int = Field(3, ge=1)
    final_seeds: Literal[1] = 1

    @property
    def member_count(self) -> int:
        """Number of architectures in an ensemble, also in the sampled ones."""
        return self.ensemble_size

    def check(self) -> None:
        """Builds the standalone network without memory, so that errors occur before Ray starts."""
        super().check()
        space = get_space(self.space)
        if self.ensemble_size > space.size:
            raise InvalidInput(
                f"expected ensemble_size to be at most {space.size}, the number of architectures of {space.name}, got "
                f"{self.ensemble_size}"
            )
        check_network(self.space, self.network)


class SamplingOptions(Settings):
    """Options of `NESBSSearch`, without the posterior and the size of ensembles.

    Fields:
        sampler: how ensembles are drawn from the posterior; `uniform` draws from all architectures of the supernet.
        temperature: temperature of the posterior: below 1 sharpens it, above 1 flattens it.
        delta: weight of the diversity between particles of `svgd-rd`: a number, or `grid` or `bo` to search it.
        delta_range: bounds (low, high) of delta for `grid` and `bo`.
        library: library that fits the Gaussian process of `bo`.
        budget: number of ensembles that are evaluated with the shared weights (T).
        average: outputs of the members that are averaged: `probabilities` or `logits`.
    """

    sampler: SerializeAsAny[EnsembleSampler] = SVGDRD()
    temperature: float = Field(1.0, gt=0)
    delta: float | Literal["grid", "bo"] | None = None
    delta_range: tuple[float, float] = DELTA_RANGE
    library: Literal["scikit-optimize", "scikit-learn"] = "scikit-optimize"
    budget: int = Field(5, ge=1)
    average: Literal["probabilities", "logits"] = "probabilities"

    @model_validator(mode="after")
    def _go_together(self) -> "SamplingOptions":
        if not self.sampler.has_delta and self.delta is not None:
            raise ValueError(
                f"expected the sampler svgd-rd with delta, got {self.sampler.name}, which has no delta. Remove delta "
                "or choose svgd-rd"
            )
        low, high = self.delta_range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"expected delta_range as (low, high) with low < high, got {self.delta_range}")
        return self


class NESBSConfig(EnsembleConfig):
    """The configuration of NESBS.

    Fields:
        supernet: the supernet, whose weights are trained on one random path in each step.
        posterior: how the posterior over architectures is learned, with the weights of the supernet fixed.
        best_response: learn the posterior, without its KL term, while the supernet trains, and sample the paths from it
            (section 5.2.2). For comparison with the posterior that is learned after the training.
        search: how ensembles are sampled and evaluated.
    """

    only_sampler: ClassVar[str | None] = None  # the sampler, if the method supports only one

    method: str = "nesbs"
    space: str = "darts"
    supernet: SupernetOptions = SupernetOptions(relaxation=PathSettings(), optimizer=NoOptimizerSettings())
    posterior: PosteriorOptions = PosteriorOptions()
    best_response: bool = False
    search: SamplingOptions = SamplingOptions()

    @model_validator(mode="after")
    def _supernet_goes_together(self) -> "NESBSConfig":
        if not isinstance(self.supernet.relaxation, PathSettings):
            raise ValueError(
                f"expected supernet.relaxation to be path, got {self.supernet.relaxation.name}. Remove it, or set "
                "best_response to true to sample paths from the posterior"
            )
        _ = self.trained_supernet  # raises
        return self

    @property
    def trained_supernet(self) -> SupernetOptions:
        """The supernet as it is trained: with `best_response`, the posterior replaces uniform paths."""
        if not self.best_response:
            return self.supernet
        training = self.supernet.training.model_copy(update={"architecture_data": "validation"})
        return SupernetOptions(
            **{
                **dict(self.supernet),
                "relaxation": self.posterior.posterior.model_copy(update={"kl": False}),
                "optimizer": self.posterior.optimizer,
                "training": training,
            }
        )

    @property
    def sampled(self) -> int:
        """Number of suggestions that are evaluated."""
        return self.search.budget

    def check(self) -> None:
        super().check()
        sampler = self.search.sampler
        if self.best_response and not sampler.of_the_posterior:
            raise InvalidInput(
                f"expected a sampler that uses the posterior with best_response, got {sampler.name}. Set best_response "
                "to false, or choose another sampler"
            )
        if self.only_sampler is not None and sampler.name != self.only_sampler:
            raise InvalidInput(
                f"expected search.sampler to be {self.only_sampler} for {self.method}, got {sampler.name}. Remove "
                "search.sampler, or run the method nesbs"
            )
        check_supernet(self.space, self.supernet)


class UniformConfig(NESBSConfig):
    """The configuration of uniformly sampled ensembles, without a posterior."""

    only_sampler: ClassVar[str | None] = "uniform"

    method: Literal["urs"] = "urs"


class SingleBestConfig(NESBSConfig):
    """The configuration of a search for one architecture with T n evaluations, as many as T ensembles of n members."""

    only_sampler: ClassVar[str | None] = "mc"

    method: Literal["single-best"] = "single-best"

    @property
    def member_count(self) -> int:
        return 1

    @property
    def sampled(self) -> int:
        return self.search.budget * self.ensemble_size


DROPPED = 0.01  # share of dropped paths: Shu 2022, Table 5.2


class PooledConfig(EnsembleConfig):
    """A search that first trains a pool of architectures, each from scratch.

    Fields:
        pool: number of architectures in the pool; 50 in Shu (2022).
        train: settings of the training of each architecture; 50 epochs in Shu (2022).
    """

    pool: int = Field(50, ge=1)
    train: TrainingSettings = TrainingSettings(epochs=50)


class OneArchitectureConfig(PooledConfig):
    """An ensemble whose members have the same architecture.

    Fields:
        architecture: the architecture, as a string of the space or by name (`archray list architectures`). Default: the
            best of a pool of random architectures on validation data. With an architecture, no pool is trained.
    """

    method: str = "deep-ensemble"
    architecture: str | None = None

    @field_validator("architecture")
    @classmethod
    def _by_name(cls, text: str | None, info: ValidationInfo) -> str | None:
        """Replaces a name by its string, so that the run records the architecture. `check` reports errors."""
        if info.context:
            return text  # the configuration of a run has strings, and code of its space must not run yet
        if text is None or not is_name(text) or "space" not in info.data:
            return text
        space = get_space(info.data["space"])
        return spelled_out(space, text) if text in space.named else text

    def check(self) -> None:
        super().check()
        if self.architecture is not None:
            spelled_out(get_space(self.space), self.architecture)


class SnapshotConfig(OneArchitectureConfig):
    """An ensemble of the snapshots of one training run."""

    method: Literal["snapshot"] = "snapshot"

    @property
    def snapshot_training(self) -> TrainingSettings:
        """The final training, with a cycle for each member."""
        return self.final.model_copy(update={"cycles": self.ensemble_size})

    def check(self) -> None:
        super().check()
        if self.ensemble_size > self.final.epochs:
            raise InvalidInput(
                f"expected final.epochs to be at least {self.ensemble_size}, one for each snapshot, got "
                f"{self.final.epochs}; raise it, or lower ensemble_size"
            )
        if self.final.cycles > 1:
            raise InvalidInput(
                f"expected final.cycles to be 1, got {self.final.cycles}. Set ensemble_size, which is the number of "
                "cycles"
            )


class DropPathConfig(OneArchitectureConfig):
    """An ensemble of one network with different randomly dropped paths.

    Fields:
        drop_path: probability of dropping a path at prediction; `final.drop_path` is the probability in training.
    """

    method: Literal["mc-droppath"] = "mc-droppath"
    drop_path: float = Field(DROPPED, gt=0, lt=1)


class NESConfig(PooledConfig):
    """The configuration of neural ensemble search (Zaidi et al. 2021) from a pool drawn at random."""

    method: str = "nes-rs"

    def check(self) -> None:
        super().check()
        if self.ensemble_size > self.pool:
            raise InvalidInput(
                f"expected pool to be at least ensemble_size, {self.ensemble_size}, got {self.pool}; raise pool, or "
                "lower ensemble_size"
            )


class EvolutionOptions(Settings):
    """Options of the evolution of the pool of `nes-re`; see `RegularizedEvolution`.

    Fields:
        population: size of the population (P). Zaidi et al. (2021) use 50 for a pool of 400.
        parents: number of members of the population that form an ensemble, from which a parent is drawn (m). Zaidi et
            al. (2021) use 10.
    """

    population: int = Field(10, ge=1)
    parents: int = Field(5, ge=1)


class EvolvedNESConfig(NESConfig):
    """The configuration of neural ensemble search from a pool that grows by evolution.

    Fields:
        evolution: options of the evolution.
    """

    method: Literal["nes-re"] = "nes-re"
    evolution: EvolutionOptions = EvolutionOptions()

    def check(self) -> None:
        super().check()
        if self.evolution.population >= self.pool:
            raise InvalidInput(
                f"expected evolution.population to be below pool, {self.pool}, got {self.evolution.population}: the "
                "initial population is random, and only the rest of the pool evolves. Lower evolution.population"
            )


_RECIPES = "archray.platform.methods.ensembles.stages"

# Training of the supernet as in section 5.4.1, on 70 % of the training data; the rest are validation data.
_SUPERNET: Values = {
    "data": {"validation_fraction": 0.3},
    "supernet": {
        "partial_channels": 2,
        "relaxation": {"name": "path", "draws": "architectures"},
        "optimizer": {"name": "none"},
        "training": {"epochs": 50, "batch_size": 128, "lr": 0.1, "lr_min": 0.0},
    },
}
PRESETS: Mapping[str, Values] = {
    "smoke": merge(
        PLAIN,
        {
            "supernet": {"network": {"channels": 4, "cells": 1}, "training": {"epochs": 2}},
            "posterior": {"epochs": 2},
            "ensemble_size": 2,
            "search": {"budget": 3},
            "network": {"channels": 4, "cells": 1},
            "final": {"epochs": 2, "batch_size": 64},
        },
    ),
    "demo": merge(
        PLAIN,
        {
            "supernet": {"network": {"channels": 8, "cells": 1}, "training": {"epochs": 30, "batch_size": 64}},
            # With a few hundred images the prior dominates at the paper's scale of 1, and the paper's batch size and
            # epochs give 80 steps. The score function has no bias, and takes half the time.
            "posterior": {
                "posterior": {"scale": "data", "estimator": "score-function", "samples": 2},
                "epochs": 40,
                "batch_size": 32,
            },
            "network": {"channels": 8, "cells": 1},
            "final": {"epochs": 20, "batch_size": 64},
        },
    ),
    "paper": {"data": {"name": "cifar10"}},
}


def _sampled_defaults(space: str, *method: Values) -> dict[str, Any]:
    """The paper's options of supernet and final training in a space, with the options of a method on top."""
    return defaults_of(space, _SUPERNET, get_space(space).defaults.get("ensembles", {}), *method)


_sampled = partial(
    Method,
    presets=PRESETS,
    flags={
        "ensemble_size": "ensemble_size",
        "sampler": "search.sampler",
        "temperature": "search.temperature",
        "delta": "search.delta",
        "budget": "search.budget",
        "epochs": "supernet.training.epochs",
        "posterior_epochs": "posterior.epochs",
        "search_channels": "supernet.network.channels",
        "search_cells": "supernet.network.cells",
        "final_epochs": "final.epochs",
        "random": "baseline",
    },
    extendable=("budget", "final_epochs", "random"),
    serves=serves,
)
_SVGD = {"search": {"sampler": {"name": "svgd-rd", "iterations": 100}}}

# The options that NESBS shares with the methods without shared weights, so that only the ensembles differ.
_SHARED = ("data", "network", "final", "ensemble_size")
_POOLS: Mapping[str, Values] = {
    "smoke": {"pool": 4, "train": {"epochs": 1}},
    "demo": {"pool": 12, "train": {"epochs": 10}},
    "paper": {},
}
_FLAGS = {
    "ensemble_size": "ensemble_size",
    "budget": "pool",
    "epochs": "train.epochs",
    "final_epochs": "final.epochs",
    "random": "baseline",
}


def _shared(values: Values) -> dict[str, Any]:
    """The options of NESBS that these methods share; the pool is trained like the final networks."""
    taken = {name: value for name, value in values.items() if name in _SHARED}
    return merge(taken, {"train": taken["final"]}) if "final" in taken else taken


def _pooled_defaults(space: str, *method: Values) -> dict[str, Any]:
    return merge(_shared(_sampled_defaults(space)), {"train": {"epochs": 50}}, *method)


def _presets(**options: Values) -> dict[str, Values]:
    return {name: merge(_shared(values), _POOLS[name], options.get(name, {})) for name, values in PRESETS.items()}


def _has_paths(space: Space) -> str | None:
    """None for a space whose networks have paths to drop; otherwise the reason why it cannot be searched."""
    if isinstance(space, GenotypeSpace):
        return None
    return "its networks have no paths to drop. Choose darts, darts-none or nasnet"


_pooled = partial(
    Method,
    defaults=_pooled_defaults,
    presets=_presets(),
    flags=_FLAGS,
    extendable=("final_epochs", "random"),
)
_of_one = partial(
    _pooled,
    config=OneArchitectureConfig,
    defaults=lambda space: _pooled_defaults(space, {"pool": 10}),  # random architectures, without `architecture`
    flags=_FLAGS | {"architecture": "architecture"},
)
# With few epochs, only few paths can be dropped; but prediction with dropped paths needs training with dropped paths.
_DROPPED = {"final": {"drop_path": DROPPED}}

NESBS = _sampled(
    name="nesbs",
    config=NESBSConfig,
    recipe_at=f"{_RECIPES}:NESBS",
    defaults=_sampled_defaults,
    presets={**PRESETS, "smoke": merge(PRESETS["smoke"], _SVGD)},
)
URS = _sampled(
    name="urs",
    config=UniformConfig,
    recipe_at=f"{_RECIPES}:URS",
    defaults=lambda space: _sampled_defaults(space, {"search": {"sampler": "uniform"}}),
)
SINGLE_BEST = _sampled(
    name="single-best",
    config=SingleBestConfig,
    recipe_at=f"{_RECIPES}:NESBS",
    defaults=lambda space: _sampled_defaults(space, {"search": {"sampler": "mc"}}),
)
DEEP_ENSEMBLE = _of_one(name="deep-ensemble", recipe_at=f"{_RECIPES}:DEEP_ENSEMBLE")
SNAPSHOT = _of_one(name="snapshot", config=SnapshotConfig, recipe_at=f"{_RECIPES}:SNAPSHOT")
MC_DROPPATH = _of_one(
    name="mc-droppath",
    config=DropPathConfig,
    recipe_at=f"{_RECIPES}:MC_DROPPATH",
    presets=_presets(smoke=_DROPPED, demo=_DROPPED),
    serves=_has_paths,
)
NES_RS = _pooled(name="nes-rs", config=NESConfig, recipe_at=f"{_RECIPES}:NES_RS")
NES_RE = _pooled(
    name="nes-re",
    config=EvolvedNESConfig,
    recipe_at=f"{_RECIPES}:NES_RE",
    presets=_presets(
        smoke={"evolution": {"population": 2, "parents": 2}}, demo={"evolution": {"population": 4, "parents": 3}}
    ),
)
