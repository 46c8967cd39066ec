"""The configuration of a search whose result is trained, or solved, in the end."""

from __future__ import annotations

from pydantic import Field

from archray.errors import InvalidInput
from archray.platform.config import SearchConfig
from archray.plurals import count
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.training_settings import TrainingSettings


def check_budget_grows(budget: int, before: int) -> None:
    """Raises: InvalidInput for an extended search of fewer trainings than the run has."""
    if budget < before:
        raise InvalidInput(
            f"expected a budget of more than the {count(before, 'training')} that the run has, got {budget}"
        )


class FinalConfig(SearchConfig):
    """A search whose result is trained, or solved, in the end.

    Fields:
        final_seeds: trainings of what was found, each from its own random numbers.
    """

    final_seeds: int = Field(1, ge=1)


class TrainedSearchConfig(FinalConfig):
    """A search that ends with the standalone training of what it found.

    Fields:
        network: the skeleton that architectures are put in.
        final: how the found architecture is trained.
        baseline: how many random architectures are trained the same way, to compare with; 0 for none.
    """

    network: NetworkSettings = NetworkSettings()
    final: TrainingSettings = TrainingSettings(epochs=200)
    baseline: int = Field(0, ge=0)
