"""Searches that learn an architecture with a supernet: a relaxation, an optimizer and an objective each.

Hyperparameters are the papers': DARTS (Liu et al. 2019), PC-DARTS (Xu et al. 2020), GDAS (Dong and Yang 2019), SNAS
(Xie et al. 2019), GAEA (Li et al. 2021, App. C), XNAS (Nayman et al. 2019), ENAS (Pham et al. 2018).
"""

from __future__ import annotations

from typing import Any

from archray.platform.methods.supernets.supernet_method import Values, register_supernet_method
from archray.platform.methods.supernets.supernet_search import SEARCH_STAGE

SOFTMAX, SIMPLEX = {"name": "softmax"}, {"name": "simplex"}
GUMBEL = {"name": "gumbel", "start": 10.0, "end": 0.1, "form": "linear", "hard": True}  # GDAS
CONCRETE = {"name": "gumbel", "start": 1.0, "end": 0.03, "form": "exponential", "hard": False}  # SNAS
ADAM = {"name": "adam", "lr": 3e-4, "betas": [0.5, 0.999], "weight_decay": 1e-3}  # DARTS, App. A.1
EXPONENTIATED = {"name": "mirror-descent", "lr": 0.1}  # GAEA, App. C.1.1; note G1
XNAS = {"name": "xnas"}  # at the rate of its regret bound
CONTROLLER, REINFORCE = {"name": "controller"}, {"name": "reinforce"}  # ENAS
PARTIAL = {"batch_size": 256, "lr": 0.1, "lr_min": 0.0}  # weights under partial channels: PC-DARTS; GAEA, C.1.1


def _register(
    name: str, summary: str, relaxation: Values, optimizer: Values, *, partial_channels: int = 1, **training: Any
) -> None:
    supernet = {
        "relaxation": relaxation,
        "optimizer": optimizer,
        "partial_channels": partial_channels,
        "training": training,
    }
    register_supernet_method(name, summary, SEARCH_STAGE, {"supernet": supernet})


_register("darts", "DARTS, first order (Liu 2019)", SOFTMAX, ADAM)
_register("darts-2nd", "DARTS, second order (Liu 2019, Eq. 6-8)", SOFTMAX, ADAM, objective="bilevel-second-order")
_register(
    "pc-darts",
    "PC-DARTS: DARTS on a quarter of the channels, with edge normalisation (Xu 2020)",
    SOFTMAX,
    {**ADAM, "lr": 6e-4},
    partial_channels=4,
    warmup_epochs=15,
    **PARTIAL,
)
_register("gdas", "GDAS: one drawn operation an edge, straight-through (Dong 2019)", GUMBEL, ADAM, epochs=250)
_register(
    "snas",
    "SNAS: mixtures drawn from a concrete distribution, single level (Xie 2019)",
    CONCRETE,
    ADAM,
    epochs=150,
    objective="erm",
)
_register("gaea-darts", "GAEA DARTS: exponentiated gradient on the simplex (Li 2021)", SIMPLEX, EXPONENTIATED)
_register(
    "gaea-pc-darts",
    "GAEA PC-DARTS: exponentiated gradient with partial channels (Li 2021)",
    SIMPLEX,
    EXPONENTIATED,
    partial_channels=4,
    warmup_epochs=10,
    **PARTIAL,
)
_register(
    "gaea-gdas",
    "GAEA GDAS: exponentiated gradient of drawn operations (Li 2021)",
    GUMBEL,
    EXPONENTIATED,
    epochs=150,
)
_register("xnas", "XNAS: exponentiated gradient, clipped per image, with wipe-out (Nayman 2019)", SIMPLEX, XNAS)
_register(
    "enas",
    "ENAS: a controller that learns by reward from the supernet's accuracy (Pham 2018)",
    CONTROLLER,
    REINFORCE,
    epochs=150,
)
