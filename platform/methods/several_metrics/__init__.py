"""Searches over a pool with several metrics: rank-surrogate and RoBoT."""
