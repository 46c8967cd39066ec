"""NESBS (Shu 2022, ch. 5, Algorithm 5.1), and what samples otherwise at as many evaluations.

`urs` draws ensembles uniformly, with no posterior. `single-best` draws as many architectures from the posterior as all
ensembles of NESBS have members, and the one with the lowest validation loss is trained once: an ensemble of one.
"""

from __future__ import annotations

from archray.platform.methods.ensembles.nesbs_method import nesbs_method

NESBS = nesbs_method("nesbs", "NESBS: ensembles sampled from a posterior by mc or svgd-rd (Shu 2022, ch. 5)")
UNIFORM = nesbs_method(
    "urs",
    "Ensembles drawn uniformly, and scored with shared weights as those of NESBS",
    {"search": {"sampler": "uniform"}},
    posterior=False,
)
SINGLE_BEST = nesbs_method(
    "single-best",
    "The single architecture that is best with shared weights, at as many evaluations as NESBS",
    {"search": {"sampler": "mc"}},
)
NESBS_METHODS = (NESBS, UNIFORM, SINGLE_BEST)
