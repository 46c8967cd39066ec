"""By how much the costs of architectures violate constraints, here and in a trial."""

from __future__ import annotations

from collections.abc import Sequence

from archray.settings import Settings
from archray.trainables.costs.cost_registry import CostFailed
from archray.trainables.costs.cost_settings import CostSettings
from archray.trainables.costs.network_costs import NetworkCosts, cost_table
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.spaces import Space
from archray.trainables.spaces.constraint import Constraint, costs_named, parse_constraints, violation


class Violation:
    """architecture -> by how much its costs miss the constraints; infinite of one without costs.

    Args:
        constraints: whose violations are summed. costs: architecture, names of costs -> costs by column.
    """

    def __init__(self, constraints: Sequence[Constraint], costs: NetworkCosts) -> None:
        self.constraints, self.costs = tuple(constraints), costs

    def __call__(self, architecture: str) -> float:
        try:
            return violation(self.constraints, self.costs(architecture, costs_named(self.constraints)))
        except CostFailed:
            return float("inf")

    @property
    def one_sided(self) -> bool:
        """Whether all costs are bounded from above, or all from below."""
        return len({each.relation[0] for each in self.constraints}) == 1

    def describe(self, architecture: str) -> str:
        """`latency_ms 5.3, flops 1.2e+07`, of those that are bounded."""
        try:
            costs = self.costs(architecture, costs_named(self.constraints))
        except CostFailed as error:
            return str(error)
        return ", ".join(f"{c} {costs[c]:.5g}" for c in dict.fromkeys(each.column for each in self.constraints))


class BoundSettings(Settings):
    """Constraints on the standalone networks of what a trial finds.

    Attributes:
        constraints: texts, `flops <= 20M`.
        network: the skeleton whose costs are bounded.
        costs: where costs are taken from.
    """

    constraints: tuple[str, ...]
    network: NetworkSettings = NetworkSettings()
    costs: CostSettings = CostSettings()

    def violation(self, space: Space | str, *, in_channels: int, image_size: int, num_classes: int) -> Violation:
        """architecture -> by how much it violates them. Raises: as `NetworkCosts`."""
        constraints = parse_constraints(self.constraints)
        costs = NetworkCosts(
            space,
            costs_named(constraints),
            network=self.network,
            in_channels=in_channels,
            image_size=image_size,
            num_classes=num_classes,
            table=cost_table(self.costs),
        )
        return Violation(constraints, costs)
