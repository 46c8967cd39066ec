"""What networks cost: parameters, floating-point operations, memory, latency. Importing this loads no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archray.registry import lazy_attributes
from archray.trainables.costs.registry import COSTS, Cost, CostFailed, cost, cost_column, get_cost
from archray.trainables.costs.settings import CostSettings, LatencySettings

if TYPE_CHECKING:
    from archray.trainables.costs.networks import BoundSettings, NetworkCosts, Violation, check_costs, costs_of

__all__ = [
    "COSTS",
    "BoundSettings",
    "Cost",
    "CostFailed",
    "CostSettings",
    "LatencySettings",
    "NetworkCosts",
    "Violation",
    "check_costs",
    "cost",
    "cost_column",
    "costs_of",
    "get_cost",
]

__getattr__ = lazy_attributes(  # what needs pandas
    __name__,
    networks=("BoundSettings", "Violation", "NetworkCosts", "check_costs", "costs_of"),
)
