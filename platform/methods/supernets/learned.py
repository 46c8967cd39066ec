"""Searches that learn an architecture with a supernet: a relaxation, an optimizer and an objective each.

Hyperparameters are the papers': DARTS (Liu et al. 2019), PC-DARTS (Xu et al. 2020), GDAS (Dong and Yang 2019), SNAS
(Xie et al. 2019), GAEA (Li et al. 2021, App. C), XNAS (Nayman et al. 2019), ENAS (Pham et al. 2018).
"""

from __future__ import annotations

from typing import Any

from archray.platform.methods.method import Method, Values
from archray.platform.methods.supernets.supernet_method import supernet_method

SOFTMAX, SIMPLEX = {"name": "softmax"}, {"name": "simplex"}
GUMBEL = {"name": "gumbel", "start": 10.0, "end": 0.1, "form": "linear", "hard": True}  # GDAS
CONCRETE = {"name": "gumbel", "start": 1.0, "end": 0.03, "form": "exponential", "hard": False}  # SNAS
ADAM = {"name": "adam", "lr": 3e-4, "betas": [0.5, 0.999], "weight_decay": 1e-3}  # DARTS, App. A.1
EXPONENTIATED = {"name": "mirror-descent", "lr": 0.1}  # GAEA, App. C.1.1; note G1
CLIPPED = {"name": "xnas"}  # at the rate of its regret bound
CONTROLLER, REINFORCE = {"name": "controller"}, {"name": "reinforce"}  # ENAS
PARTIAL = {"batch_size": 256, "lr": 0.1, "lr_min": 0.0}  # weights under partial channels: PC-DARTS; GAEA, C.1.1


def learned(name: str, relaxation: Values, optimizer: Values, *, partial_channels: int = 1, **training: Any) -> Method:
    """A method of known parts. training: options of the supernet's training, its objective among them."""
    supernet = {
        "relaxation": relaxation,
        "optimizer": optimizer,
        "partial_channels": partial_channels,
        "training": training,
    }
    return supernet_method(name, "archray.platform.methods.supernets.supernet_recipe:LEARNED", {"supernet": supernet})


DARTS = learned("darts", SOFTMAX, ADAM)
DARTS_2ND = learned("darts-2nd", SOFTMAX, ADAM, objective="bilevel-second-order")
PC_DARTS = learned("pc-darts", SOFTMAX, {**ADAM, "lr": 6e-4}, partial_channels=4, warmup_epochs=15, **PARTIAL)
GDAS = learned("gdas", GUMBEL, ADAM, epochs=250)
SNAS = learned("snas", CONCRETE, ADAM, epochs=150, objective="erm")
GAEA_DARTS = learned("gaea-darts", SIMPLEX, EXPONENTIATED)
GAEA_PC_DARTS = learned("gaea-pc-darts", SIMPLEX, EXPONENTIATED, partial_channels=4, warmup_epochs=10, **PARTIAL)
GAEA_GDAS = learned("gaea-gdas", GUMBEL, EXPONENTIATED, epochs=150)
XNAS = learned("xnas", SIMPLEX, CLIPPED)
ENAS = learned("enas", CONTROLLER, REINFORCE, epochs=150)
