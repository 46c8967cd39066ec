"""NESBS: sample ensembles from a posterior over architectures. Shu 2022, ch. 5."""
