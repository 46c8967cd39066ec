"""The configurations of the ensembles that NESBS is compared with. Shu 2022, sections 5.4.1 to 5.4.3; note E8."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from archray.errors import InvalidInput
from archray.platform.methods.ensembles.ensemble_config import EnsembleConfig
from archray.platform.run.run import Run
from archray.trainables.ensembles.dropped_paths import PROBABILITY
from archray.trainables.spaces import get_space
from archray.trainables.training import TrainingSettings


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
        architecture: which, as the space's string: one that another run found, say. None: of a pool of random ones
            the best on validation; with one, no pool is trained.
        drop_path: the probability with which `mc-droppath` drops paths to predict; that of training is
            `final.drop_path`. The members of the other methods drop none.
    """

    method: Literal["deep-ensemble", "snapshot", "mc-droppath"] = "deep-ensemble"
    architecture: str | None = None
    drop_path: float = Field(PROBABILITY, gt=0, lt=1)

    def check(self) -> None:
        super().check()
        if self.architecture is not None:
            get_space(self.space).decode(self.architecture)
        if self.method == "snapshot" and self.ensemble_size > self.final.epochs:
            raise InvalidInput(
                f"expected final.epochs of {self.ensemble_size} or more, one for each snapshot, got "
                f"{self.final.epochs}; raise it, or lower ensemble_size"
            )
        if self.method == "snapshot" and self.final.cycles > 1:
            raise InvalidInput(
                f"expected final.cycles to be left out, as snapshot has a cycle for each member, got "
                f"{self.final.cycles}; set ensemble_size"
            )


class EvolutionOptions(BaseModel):
    """How `nes-re` grows its pool; see `RegularizedEvolution`.

    Fields:
        population: P. The authors have 50 with a pool of 400; of the thesis' pool of 50 this is a fifth.
        parents: m, members of the ensemble that is selected from the population to draw a parent from; 10 there.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    population: int = Field(10, ge=1)
    parents: int = Field(5, ge=1)


class NESConfig(PooledConfig):
    """The configuration of neural ensemble search (Zaidi et al. 2021).

    Fields:
        evolution: of `nes-re`; `nes-rs` draws its pool at random.
    """

    method: Literal["nes-rs", "nes-re"] = "nes-rs"
    evolution: EvolutionOptions = EvolutionOptions()

    def check(self) -> None:
        super().check()
        if self.ensemble_size > self.pool:
            raise InvalidInput(
                f"expected a pool of {self.ensemble_size} or more, the members of the ensemble, got {self.pool}; raise "
                "pool, or lower ensemble_size"
            )
        if self.method == "nes-re" and self.evolution.population >= self.pool:
            raise InvalidInput(
                f"expected evolution.population below pool, {self.pool}, got {self.evolution.population}; the "
                "population is drawn at random, and what comes after it evolves"
            )


def pooled_config(run: Run) -> PooledConfig:
    """The configuration of a run that trains a pool."""
    assert isinstance(run.config, PooledConfig)  # methods with these stages have such a configuration
    return run.config


def one_architecture_config(run: Run) -> OneArchitectureConfig:
    """The configuration of a run whose members have one architecture."""
    assert isinstance(run.config, OneArchitectureConfig)  # methods with these stages have such a configuration
    return run.config
