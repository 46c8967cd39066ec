"""The configurations of the ensembles that NESBS is compared with. Shu 2022, sections 5.4.1 to 5.4.3; note E8."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from archray.errors import InvalidInput
from archray.platform.methods.ensembles.ensemble_config import EnsembleConfig
from archray.settings import Settings
from archray.trainables.spaces import get_space
from archray.trainables.spaces.named_architectures import is_name, spelt_out
from archray.trainables.training_settings import TrainingSettings

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
