"""Feature maps and the linear models solved on them, alone or with shared weights. Khodak et al. 2020, Algorithm 1."""
