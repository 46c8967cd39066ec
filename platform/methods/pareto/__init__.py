"""Searches with several objectives: NSGA-II, and search over a pool with known costs."""
