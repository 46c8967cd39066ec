"""A search over a pool with several metrics: a Gaussian process on their ranks and on the architectures themselves."""
