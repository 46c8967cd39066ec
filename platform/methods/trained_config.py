"""The configuration of a search whose result is trained, or solved, in the end."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from archray.errors import InvalidInput
from archray.platform.config import SearchConfig
from archray.plurals import count
from archray.references import is_reference
from archray.settings import REPEATED
from archray.trainables.costs import cost_column
from archray.trainables.costs.settings import CostSettings, texts_of
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.spaces import get_space
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
        constraints: bounds on what a network costs, all of which everything that is searched meets, the random
            architectures too: `latency_ms <= 5`, `parameters < 1.5M`.
        costs: which costs of networks are looked at, and how a latency is measured.
    """

    unconstrained: ClassVar[str | None] = None  # why the method takes no constraints

    network: NetworkSettings = NetworkSettings()
    final: TrainingSettings = TrainingSettings(epochs=200)
    baseline: int = Field(0, ge=0)
    constraints: Annotated[tuple[str, ...], REPEATED] = ()
    costs: CostSettings = CostSettings()

    @field_validator("constraints", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """`flops <= 5M, latency_ms <= 5` in one text too."""
        return texts_of(value)

    @field_validator("constraints")
    @classmethod
    def _read(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        from archray.trainables.spaces.constraint import parse_constraints  # which imports NumPy

        parse_constraints(texts)
        return texts

    @property
    def cost_names(self) -> tuple[str, ...]:
        """The costs that are looked at, those of the constraints among them."""
        if not self.constraints:
            return self.costs.names
        from archray.trainables.spaces.constraint import costs_named, parse_constraints

        return tuple(dict.fromkeys((*self.costs.names, *costs_named(parse_constraints(self.constraints)))))

    def references(self) -> dict[str, str]:
        return super().references() | {cost_role(name): name for name in self.cost_names if is_reference(name)}

    def check(self) -> None:
        super().check()
        get_space(self.space).check_packages()
        if self.constraints and self.unconstrained is not None:
            raise InvalidInput(f"{self.method} takes no constraints: {self.unconstrained}; leave constraints out")
        self.check_costs()

    def check_costs(self) -> None:
        """Raises: UnknownName, InvalidInput or InvalidTable if there is no such cost, before anything starts."""
        if self.cost_names:
            from archray.trainables.costs import check_costs

            check_costs(self.space, self.cost_names, self.costs)


def cost_role(name: str) -> str:
    """Of a cost's file in the run, where it is the user's own."""
    return f"cost-{cost_column(name)}"
