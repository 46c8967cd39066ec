"""Conditions 3 and 6 on an instance, and what Theorems 1, 4 and 7 conclude. Roberts et al. 2022, section 4; note U4.

With G the outputs of the h discrete networks on a sample (n, h), all risks between members of the class are quadratic
forms of E[G^T G]: L(f_a, f_b) = 1/2 (a - b)^T E[G^T G] (a - b). A sample of any size is a distribution, so on
realizable labels the theorems hold on it exactly, without an error of estimation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from archray.trainables.activations.two_layer import mixture_outputs, squared_risks

TIE = 1e-12  # of the larger of two numbers: closer than this, float64 does not tell them apart


def without(alpha: Tensor) -> Tensor:
    """Lemma 5 (Lemma 2 for h = 3): gamma of every i, (..., h) -> (..., h, h), row i with entry i zero and of sum 1.

    alpha_k = (1 - alpha_i) gamma_k for k != i. An alpha_i of 1 leaves nothing to factor: its row is NaN.
    """
    h = alpha.shape[-1]
    others = alpha.unsqueeze(-2).expand(*alpha.shape, h) * (1 - torch.eye(h, dtype=alpha.dtype, device=alpha.device))
    return others / others.sum(-1, keepdim=True)


@dataclass(frozen=True)
class SharedRisks:
    """Population risks of S instances with the weights that a search returned, on a sample.

    Attributes:
        alpha: (S, h), on the simplex.
        discrete: L(f_{sigma_i}(W)), (S, h). mixture: L(f_{sigma_alpha}(W)), (S,).
        distances: D_i = L(f_{sigma_i}, f_{sum_k gamma_k sigma_k}), (S, h), gamma by Lemma 5 without i.
    """

    alpha: Tensor
    discrete: Tensor
    mixture: Tensor
    distances: Tensor

    @classmethod
    def of(cls, components: Tensor, labels: Tensor, alpha: Tensor) -> SharedRisks:
        """components: G, (S, n, h). labels: (S, n). alpha: (S, h)."""
        moments = torch.einsum("sni,snj->sij", components, components) / components.shape[1]  # E[G^T G], (S, h, h)
        steps = torch.eye(alpha.shape[-1], dtype=alpha.dtype, device=alpha.device) - without(alpha)  # (S, h, h)
        distances = torch.einsum("sik,skl,sil->si", steps, moments, steps) / 2
        mixture = squared_risks(mixture_outputs(components, alpha), labels)
        return cls(alpha, squared_risks(components, labels), mixture, distances)


def larger(one: Tensor, other: Tensor) -> Tensor:
    """one > other by more than rounding."""
    return one - other > TIE * torch.maximum(one.abs(), other.abs())


@dataclass(frozen=True)
class Pairs:
    """What holds of every ordered pair (i, j) of activations, each (S, h, h) bool.

    Attributes:
        ordered: L(f_i) < L(f_j), the premise of the theorems (Assumption 1 for the pair).
        condition: Condition 6, which is Condition 3 for h = 3: D_i >= D_j. With h = 2 it always holds. An alpha
            of 1 leaves no D, and no condition.
        conclusion: alpha_j < alpha_i.
        margin: sqrt L_j - sqrt L_i > 2 sqrt L(f_alpha): with `ordered` and `condition` enough without realizability.
    """

    ordered: Tensor
    condition: Tensor
    conclusion: Tensor
    margin: Tensor

    @classmethod
    def of(cls, risks: SharedRisks) -> Pairs:
        rows, columns = risks.discrete.unsqueeze(-1), risks.discrete.unsqueeze(-2)
        apart = columns.sqrt() - rows.sqrt()
        known = risks.distances.isfinite().unsqueeze(-1) & risks.distances.isfinite().unsqueeze(-2)
        return cls(
            ordered=larger(columns, rows),
            condition=known & ~larger(risks.distances.unsqueeze(-2), risks.distances.unsqueeze(-1)),
            conclusion=larger(risks.alpha.unsqueeze(-1), risks.alpha.unsqueeze(-2)),
            margin=larger(apart, 2 * risks.mixture.sqrt()[:, None, None]),
        )

    @property
    def violations(self) -> Tensor:
        """Where premise and condition hold and the conclusion does not: (S, h, h) bool."""
        return self.ordered & self.condition & ~self.conclusion
