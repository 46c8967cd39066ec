"""Costs of networks: parameters, floating-point operations, memory, latency. Imports no torch."""

from archray.trainables.costs.networks import BoundSettings, NetworkCosts, Violation, check_costs, costs_of
from archray.trainables.costs.registry import COSTS, Cost, CostFailed, cost, cost_column, get_cost
from archray.trainables.costs.settings import CostSettings, LatencySettings

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
