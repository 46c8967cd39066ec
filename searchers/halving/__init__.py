"""Successive halving with weight sharing. Khodak et al. 2020."""
