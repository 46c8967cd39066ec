"""Adversarial attacks on one member of an ensemble, and what the whole ensemble makes of them. Shu 2022, 5.3.6.

The attacks are those of the Adversarial Robustness Toolbox (Nicolae et al. 2018), imported where one is made.
"""
