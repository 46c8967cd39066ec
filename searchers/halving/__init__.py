"""Successive halving with weight sharing. Khodak et al. 2020."""

from archray.searchers.halving.weight_sharing import WeightSharingHalving

__all__ = ["WeightSharingHalving"]
