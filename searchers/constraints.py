"""Constraints on what an architecture costs, for searchers; they are defined beside the spaces, for trials too."""

from archray.trainables.spaces.constraint import Constraint, costs_named, parse_constraints, violation

__all__ = ["Constraint", "costs_named", "parse_constraints", "violation"]
