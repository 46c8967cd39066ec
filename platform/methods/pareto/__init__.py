"""Searches with several objectives: NSGA-II, and the search over a pool whose costs are known."""
