"""NESBS: ensembles sampled from a posterior over architectures. Shu 2022, ch. 5."""
