"""The configuration of a search for an ensemble, and of NESBS' four stages. Shu 2022, ch. 5; notes E3, E5, E8."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field, SerializeAsAny, model_validator

from archray.errors import InvalidInput
from archray.platform.methods.supernets.supernet_config import check_network, check_supernet
from archray.platform.methods.trained_config import TrainedSearchConfig
from archray.searchers.nesbs.samplers import SVGDRD, EnsembleSampler
from archray.searchers.nesbs.svgd_rd import DELTA_RANGE
from archray.settings import Settings
from archray.trainables.spaces import get_space
from archray.trainables.supernets.settings import NoOptimizerSettings, PathSettings
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
    def _go_together(self) -> SamplingOptions:
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
    def _supernet_goes_together(self) -> NESBSConfig:
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
