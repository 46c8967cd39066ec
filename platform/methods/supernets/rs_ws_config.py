"""The configuration of random search with weight sharing. Li and Talwalkar 2019, section 3.2."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from archray.errors import InvalidInput
from archray.platform.methods.supernets.supernet_config import SupernetSearchConfig
from archray.platform.methods.supernets.supernet_method import RANDOM_PATHS, supernet_method
from archray.trainables.supernets.settings import PathSettings


class RandomSearchWSConfig(SupernetSearchConfig):
    """The configuration of random search with weight sharing.

    Fields:
        samples: random architectures that are scored with the weights of each supernet; 1,000 in the authors' program,
            in each of its rounds.
    """

    method: Literal["rs-ws"] = "rs-ws"
    samples: int = Field(1000, ge=1)

    def check(self) -> None:
        if not isinstance(self.supernet.relaxation, PathSettings):
            raise InvalidInput(
                f"rs-ws trains a random path in each step; expected the relaxation path, got "
                f"{self.supernet.relaxation.name}. Leave supernet.relaxation out, or choose another method"
            )
        super().check()
        from archray.platform.methods.supernets.shared_scoring import draw_architectures  # which imports torch

        draw_architectures(self.space, self.supernet, self.samples, self.seed)


RS_WS = supernet_method(
    "rs-ws",
    "archray.platform.methods.supernets.rs_ws:RECIPE",
    RANDOM_PATHS,
    config=RandomSearchWSConfig,
    presets={"smoke": {"samples": 16}, "demo": {"samples": 200}},
    flags={"samples": "samples"},
)
