"""Searches for an ensemble of networks: configuration, stages and figures. NESBS (Shu 2022, ch. 5)."""
