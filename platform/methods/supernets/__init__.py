"""Searches that train a supernet: their configurations, stages, presets and figures."""
