"""Search a pool with several metrics: a Gaussian process on the ranks of metrics and on the architectures' codes."""
