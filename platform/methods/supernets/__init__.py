"""Searches that train a supernet: configurations, stages, presets and figures."""
