"""What a relaxation hands to a supernet: one row of mixture weights per edge, and the choice if the row is one-hot."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from archray.errors import InvalidInput


def one_hot(chosen: Tensor, operations: int, dtype: torch.dtype) -> Tensor:
    """(edges,) -> (edges, operations): 1 at the chosen operation. Waits for no device, unlike torch's own."""
    dense = torch.zeros((len(chosen), operations), dtype=dtype, device=chosen.device)
    return dense.scatter_(-1, chosen[:, None], 1.0)


@dataclass(frozen=True)
class MixtureWeights:
    """The weights of the operations of one group of edges, for one step.

    Attributes:
        dense: (edges, operations), rows that sum to one. Gradients for the architecture parameters flow through it.
        chosen: (edges,) int64, the operation of each edge when all rows are one-hot, else None. With it a supernet
            evaluates one operation per edge; the gradient of the others' weights is then not known to it.

    Raises: InvalidInput if the shapes do not fit.
    """

    dense: Tensor
    chosen: Tensor | None = None

    def __post_init__(self) -> None:
        if self.dense.ndim != 2:
            raise InvalidInput(f"expected weights of shape (edges, operations), got {tuple(self.dense.shape)}")
        chosen = self.chosen
        if chosen is not None and (chosen.shape != self.dense.shape[:1] or chosen.dtype != torch.int64):
            raise InvalidInput(
                f"expected one int64 operation for each of {self.dense.shape[0]} edges, got {chosen.dtype} of shape "
                f"{tuple(chosen.shape)}"
            )

    @classmethod
    def of_path(cls, chosen: Tensor, operations: int, dtype: torch.dtype = torch.float32) -> MixtureWeights:
        """The one-hot weights of a given path.

        Args:
            chosen: (edges,) int64, an operation for each edge.
            operations: how many each edge has.

        Raises: InvalidInput if an operation does not exist.
        """
        if bool(((chosen < 0) | (chosen >= operations)).any()):
            raise InvalidInput(f"expected operations from 0 to {operations - 1}, got {chosen.tolist()}")
        return cls(one_hot(chosen, operations, dtype), chosen)
