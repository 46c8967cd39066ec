"""Searches that train a supernet: their configuration and stages. GAEA's three (Li et al. 2021, App. C.1)."""
