"""Adversarial attacks on one member of an ensemble, and their effect on the whole ensemble. Shu 2022, 5.3.6.

The attacks come from the Adversarial Robustness Toolbox (Nicolae et al. 2018), which is imported at first use.
"""
