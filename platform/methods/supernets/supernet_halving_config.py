"""The configuration of halving over a supernet. Khodak et al. 2020, Algorithm 1."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from archray.platform.methods.supernets.supernet_config import SupernetSearchConfig
from archray.platform.methods.supernets.supernet_method import RANDOM_PATHS, supernet_method


class SupernetHalvingConfig(SupernetSearchConfig):
    """The configuration of halving over a supernet; see `WeightSharingHalving`.

    A round trains for `supernet.training.epochs`, the last one and the one candidate that it leaves for so many, too.

    Fields:
        search_seeds: there is one search. Its replicas are what runs at the same time.
        candidates: how many architectures the search chooses from, drawn by the seed.
        replicas: supernets that a round trains, each from weights of its own; their scores are averaged.
        keep: the share of the candidates that a round keeps.
        growth: how many times more epochs each round has than the one before; 1 is Algorithm 1.
        score: what candidates are ranked by, on the validation data.
    """

    method: Literal["supernet-halving"] = "supernet-halving"
    search_seeds: Literal[1] = 1
    candidates: int = Field(256, ge=2)
    replicas: int = Field(1, ge=1)
    keep: float = Field(0.5, gt=0, lt=1)
    growth: float = Field(1.0, ge=1)
    score: Literal["loss", "accuracy"] = "loss"

    @property
    def mode(self) -> str:
        return "min" if self.score == "loss" else "max"

    def check(self) -> None:
        super().check()
        from archray.platform.methods.supernets.shared_scoring import draw_architectures  # which imports torch

        draw_architectures(self.space, self.supernet, self.candidates, self.seed)


SUPERNET_HALVING = supernet_method(
    "supernet-halving",
    "archray.platform.methods.supernets.supernet_halving:RECIPE",
    RANDOM_PATHS,
    {"search_seeds": 1},
    config=SupernetHalvingConfig,
    presets={
        "smoke": {"candidates": 4, "search_seeds": 1},
        "demo": {"candidates": 32, "search_seeds": 1},
        "paper": {"search_seeds": 1},
    },
    flags={"candidates": "candidates", "replicas": "replicas"},
)
