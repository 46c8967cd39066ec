"""Searches with several objectives, for the set of all non-dominated architectures."""
