"""Configurations and presets of NESBS and of the ensembles it is compared with. Shu 2022, ch. 5; notes E3, E5, E8."""

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
from archray.trainables.spaces.genotypes import GenotypeSpace, is_name, spelt_out
from archray.trainables.supernets.settings import NoOptimizerSettings, PathSettings
from archray.trainables.training_settings import TrainingSettings
from archray.trainables.tune.settings import PosteriorOptions, SupernetOptions


class EnsembleConfig(TrainedSearchConfig):
    """A search that ends with an ensemble of networks, each trained once from scratch.

    Fields:
        ensemble_size: n, members of the ensemble; 3 in the paper.
    """

    ensemble_size: int = Field(3, ge=1)
    final_seeds: Literal[1] = 1

    @property
    def member_count(self) -> int:
        """How many architectures an ensemble has, of those that are sampled too."""
        return self.ensemble_size

    def check(self) -> None:
        """Builds the standalone network without memory: what does not go together is refused before Ray starts."""
        super().check()
        space = get_space(self.space)
        if self.ensemble_size > space.size:
            raise InvalidInput(
                f"ensemble_size: expected {space.size} at most, the architectures of {space.name}, got "
                f"{self.ensemble_size}; lower it"
            )
        check_network(self.space, self.network)


class SamplingOptions(Settings):
    """What `NESBSSearch` is told, but for the posterior and the size of ensembles; see there.

    Fields:
        sampler: how an ensemble is drawn from the posterior; `uniform`: from all that the supernet can find.
        temperature: of the posterior: below 1 sharpens, above 1 flattens it.
        delta: diversity of svgd-rd's particles: a number, grid, or bo (it is searched).
        delta_range: (low, high), where `grid` and `bo` look for delta.
        budget: T, the number of ensembles that are evaluated with the shared weights (note E3).
        average: what the members' outputs are averaged as, probabilities (note E8) or logits.
    """

    sampler: SerializeAsAny[EnsembleSampler] = SVGDRD()
    temperature: float = Field(1.0, gt=0)
    delta: float | Literal["grid", "bo"] | None = None
    delta_range: tuple[float, float] = DELTA_RANGE
    budget: int = Field(5, ge=1)
    average: Literal["probabilities", "logits"] = "probabilities"

    @model_validator(mode="after")
    def _go_together(self) -> "SamplingOptions":
        if not self.sampler.has_delta and self.delta is not None:
            raise ValueError(f"{self.sampler.name} has no delta; leave delta out, or choose the sampler svgd-rd")
        low, high = self.delta_range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"expected delta_range as (low, high) with low < high, got {self.delta_range}")
        return self


class NESBSConfig(EnsembleConfig):
    """The configuration of NESBS.

    Fields:
        supernet: what the supernet is, and how its weights are trained, on one random path in each step.
        posterior: how the posterior over architectures is learnt, given those weights.
        best_response: the posterior is learnt while the supernet is trained, and draws its paths, without the KL
            (section 5.2.2): for comparison with the one learnt afterwards.
        search: how ensembles are sampled, and how many.
    """

    only_sampler: ClassVar[str | None] = None  # of a method that is about one

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
                f"expected supernet.relaxation path, got {self.supernet.relaxation.name}; leave it out, or set "
                "best_response to true for draws of the posterior"
            )
        _ = self.trained_supernet  # raises
        return self

    @property
    def trained_supernet(self) -> SupernetOptions:
        """The supernet as it is trained: with the best-response posterior in place of uniform paths, if asked for."""
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
        """How many suggestions are evaluated."""
        return self.search.budget

    def check(self) -> None:
        super().check()
        sampler = self.search.sampler
        if self.best_response and not sampler.of_the_posterior:
            raise InvalidInput(
                f"{sampler.name} draws need no posterior; set best_response to false, or choose another sampler"
            )
        if self.only_sampler is not None and sampler.name != self.only_sampler:
            raise InvalidInput(
                f"{self.method} samples by {self.only_sampler}, got {sampler.name}; leave search.sampler out, or "
                "choose the method nesbs"
            )
        check_supernet(self.space, self.supernet)


class UniformConfig(NESBSConfig):
    """The configuration of ensembles drawn uniformly: no posterior is learnt."""

    only_sampler: ClassVar[str | None] = "uniform"

    method: Literal["urs"] = "urs"


class SingleBestConfig(NESBSConfig):
    """The configuration of a search for one architecture, which sees as many as T ensembles of n have members."""

    only_sampler: ClassVar[str | None] = "mc"

    method: Literal["single-best"] = "single-best"

    @property
    def member_count(self) -> int:
        return 1

    @property
    def sampled(self) -> int:
        return self.search.budget * self.ensemble_size


DROPPED = 0.01  # of the paths: Shu 2022, Table 5.2


class PooledConfig(EnsembleConfig):
    """A search that first trains a pool of architectures, each on its own.

    Fields:
        pool: how many; 50 in the thesis.
        train: how each is trained; 50 epochs in the thesis.
    """

    pool: int = Field(50, ge=1)
    train: TrainingSettings = TrainingSettings(epochs=50)


class OneArchitectureConfig(PooledConfig):
    """An ensemble whose members have one architecture.

    Fields:
        architecture: which, as the space's string (one that another run found, say) or by name (`archray list
            architectures`). None: of a pool of random ones the best on validation; with one, no pool is trained.
    """

    method: str = "deep-ensemble"
    architecture: str | None = None

    @field_validator("architecture")
    @classmethod
    def _by_name(cls, text: str | None, info: ValidationInfo) -> str | None:
        """A name's string, in the configuration too: a run says what it trained. What is wrong, `check` says."""
        if info.context:
            return text  # a run's has been spelled out, and its space may be code that must not run yet
        if text is None or not is_name(text) or "space" not in info.data:
            return text
        space = get_space(info.data["space"])
        return spelt_out(space, text) if text in space.named else text

    def check(self) -> None:
        super().check()
        if self.architecture is not None:
            spelt_out(get_space(self.space), self.architecture)


class SnapshotConfig(OneArchitectureConfig):
    """An ensemble of the snapshots of one training."""

    method: Literal["snapshot"] = "snapshot"

    @property
    def snapshot_training(self) -> TrainingSettings:
        """The final training, with a cycle for each member."""
        return self.final.model_copy(update={"cycles": self.ensemble_size})

    def check(self) -> None:
        super().check()
        if self.ensemble_size > self.final.epochs:
            raise InvalidInput(
                f"expected final.epochs of {self.ensemble_size} or more, one for each snapshot, got "
                f"{self.final.epochs}; raise it, or lower ensemble_size"
            )
        if self.final.cycles > 1:
            raise InvalidInput(
                f"expected final.cycles to be left out, as snapshot has a cycle for each member, got "
                f"{self.final.cycles}; set ensemble_size"
            )


class DropPathConfig(OneArchitectureConfig):
    """An ensemble of one network's draws of dropped paths.

    Fields:
        drop_path: the probability with which paths are dropped to predict; that of training is `final.drop_path`.
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
                f"expected a pool of {self.ensemble_size} or more, the members of the ensemble, got {self.pool}; raise "
                "pool, or lower ensemble_size"
            )


class EvolutionOptions(Settings):
    """How `nes-re` grows its pool; see `RegularizedEvolution`.

    Fields:
        population: P. The authors have 50 with a pool of 400; of the thesis' pool of 50 this is a fifth.
        parents: m, members of the ensemble that is selected from the population to draw a parent from; 10 there.
    """

    population: int = Field(10, ge=1)
    parents: int = Field(5, ge=1)


class EvolvedNESConfig(NESConfig):
    """The configuration of neural ensemble search from a pool that evolves.

    Fields:
        evolution: of the pool.
    """

    method: Literal["nes-re"] = "nes-re"
    evolution: EvolutionOptions = EvolutionOptions()

    def check(self) -> None:
        super().check()
        if self.evolution.population >= self.pool:
            raise InvalidInput(
                f"expected evolution.population below pool, {self.pool}, got {self.evolution.population}; the "
                "population is drawn at random, and what comes after it evolves"
            )


_RECIPES = "archray.platform.methods.ensembles.stages"

# The supernet is trained as section 5.4.1 says, on 70 % of the training data; validation is of the rest.
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
            # Of some hundred images nothing is heard beside the prior at the paper's scale of 1, and its batch and
            # epochs are 80 steps. The score function has no bias, and takes half the time.
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
    """The paper's options of an ensemble's supernet and final training in a space, and those of a method over them."""
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

# Of NESBS' options those that the methods without shared weights have too, so that only the ensembles differ.
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
    """Those of NESBS' options that are these methods' too; a pool is trained as its final networks are."""
    taken = {name: value for name, value in values.items() if name in _SHARED}
    return merge(taken, {"train": taken["final"]}) if "final" in taken else taken


def _pooled_defaults(space: str, *method: Values) -> dict[str, Any]:
    return merge(_shared(_sampled_defaults(space)), {"train": {"epochs": 50}}, *method)


def _presets(**options: Values) -> dict[str, Values]:
    return {name: merge(_shared(values), _POOLS[name], options.get(name, {})) for name, values in PRESETS.items()}


def _has_paths(space: Space) -> str | None:
    """None for a space whose networks have paths to drop; else why it cannot be searched."""
    if isinstance(space, GenotypeSpace):
        return None
    return "its networks have no paths to drop; choose darts, darts-none or nasnet"


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
    defaults=lambda space: _pooled_defaults(space, {"pool": 10}),  # random architectures, where none is given
    flags=_FLAGS | {"architecture": "architecture"},
)
# Few epochs leave no time for many dropped paths; but a network that is to do without some has to have learnt it.
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
