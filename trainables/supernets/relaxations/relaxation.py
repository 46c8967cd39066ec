"""What every relaxation has: initial parameters, probabilities, and weights for a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor

from archray.errors import InvalidInput
from archray.trainables.supernets.networks import MixtureWeights
from archray.trainables.supernets.optimizers.optimizer_settings import Domain

LOGIT_SCALE = 1e-3  # DARTS and GDAS start from logits of this standard deviation: nearly uniform, no two alike


class Relaxation(ABC):
    """Architecture parameters -> mixture weights. A group of edges is a name; its parameters are (edges, operations).

    Args:
        generator: what random relaxations draw from; it belongs to this object, whose state includes its state. It
            may stay on the CPU while the parameters are on a GPU: the draws are then the same on both.
        domain: what parameters are: `logits`, unconstrained, or `simplex`, the probabilities themselves.

    Raises: InvalidInput if the domain is neither.
    """

    reads_parameters: ClassVar[bool] = True  # whether its weights depend on them

    def __init__(self, generator: torch.Generator, domain: Domain) -> None:
        if domain not in get_args(Domain):
            raise InvalidInput(f"expected parameters on one of {', '.join(get_args(Domain))}, got {domain!r}")
        self.generator = generator
        self.domain = domain

    def initial(
        self, edges: int, operations: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> Tensor:
        """(edges, operations) parameters to start from: small random logits, or the uniform point of the simplex.

        Raises: InvalidInput if there is no edge or no operation.
        """
        if edges < 1 or operations < 1:
            raise InvalidInput(f"expected at least one edge and one operation, got {edges} and {operations}")
        if self.domain == "simplex":
            return torch.full((edges, operations), 1.0 / operations, dtype=dtype, device=device)
        noise = torch.randn((edges, operations), generator=self.generator, device=self.generator.device, dtype=dtype)
        return (LOGIT_SCALE * noise).to(device)

    def probabilities(self, parameters: Tensor) -> Tensor:
        """(edges, operations): the distribution that the parameters stand for; what entropy and discretisation see."""
        return parameters if self.domain == "simplex" else parameters.softmax(-1)

    def weights(self, parameters: Mapping[str, Tensor], progress: float = 0.0) -> dict[str, MixtureWeights]:
        """The weights of one step, for every group, in the order of `parameters`.

        Args:
            parameters: group -> (edges, operations).
            progress: the share of the search that is over, in [0, 1]; schedules follow it.

        Raises: InvalidInput if progress lies outside.
        """
        if not 0.0 <= progress <= 1.0:
            raise InvalidInput(f"expected the progress of the search to be in [0, 1], got {progress}")
        return {group: self.group_weights(group, rows, progress) for group, rows in parameters.items()}

    @abstractmethod
    def group_weights(self, group: str, parameters: Tensor, progress: float) -> MixtureWeights:
        """The weights of one step for one group."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors only: the generator's state."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.generator.set_state(state["generator"].cpu())


def entropy(weights: Tensor) -> Tensor:
    """(..., operations) rows on the simplex -> (...) their entropies in nats, with 0 log 0 = 0.

    Between 0, one operation has all the weight, and log(operations), all have the same. GAEA, Li et al. 2021, Figure 1.
    """
    return torch.special.entr(weights).sum(-1)
