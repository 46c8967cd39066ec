"""Networks: from an architecture of a space to a torch module."""

from archray.trainables.nets.build import NETWORKS, build
from archray.trainables.nets.cost import count_flops, count_parameters
from archray.trainables.nets.initialisation import initialise
from archray.trainables.nets.settings import NetworkSettings

__all__ = ["NETWORKS", "NetworkSettings", "build", "count_flops", "count_parameters", "initialise"]
