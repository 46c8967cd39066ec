"""Searches that end in an ensemble of networks: their configuration and stages. NESBS (Shu 2022, ch. 5)."""
