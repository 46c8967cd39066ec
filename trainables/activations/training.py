"""Bilevel training of many two-layer networks at once: alpha by mirror descent, W by gradient descent.

Roberts et al. 2022, section 3; GAEA, Li et al. 2021, Eq. 8. Instances are stacked: a step is one computation for all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from archray.trainables.activations.two_layer import Activation, component_outputs, mixture_outputs, squared_risks
from archray.trainables.supernets.optimizers import log_entropic_step


@dataclass(frozen=True)
class Sample:
    """Inputs (S, n, d) and labels (S, n) of S instances."""

    inputs: Tensor
    labels: Tensor


HALVINGS = 40  # of a rate, in a block of steps: from any rate that a person might try to one that moves nothing


@dataclass(frozen=True)
class SharedState:
    """W (S, k, d), the logarithms of alpha (S, h), and the rates of W (S,).

    No entry of alpha becomes zero: Assumption 2.
    """

    weights: Tensor
    log_alpha: Tensor
    rates: Tensor

    @property
    def alpha(self) -> Tensor:
        return self.log_alpha.exp()


def uniform_alpha(weights: Tensor, activations: int, rates: Tensor) -> SharedState:
    """Where a training begins: these weights, and alpha = 1/h."""
    uniform = weights.new_full((len(weights), activations), 1.0 / activations)
    return SharedState(weights, uniform.log(), rates)


@dataclass(frozen=True)
class Problem:
    """What instances are trained on.

    Attributes:
        training: points for W. validation: points for alpha; None leaves it as it is.
        output: v, (k,). functions: the h activations. alpha_rate: of mirror descent.
    """

    training: Sample
    validation: Sample | None
    output: Tensor
    functions: Sequence[Activation]
    alpha_rate: float

    def losses(self, state: SharedState, weights: Tensor | None = None) -> Tensor:
        """1/2 E (y - f)^2 over the training sample, (S,)."""
        weights = state.weights if weights is None else weights
        components = component_outputs(self.training.inputs, weights, self.output, self.functions)
        return squared_risks(mixture_outputs(components, state.alpha), self.training.labels)


def train(state: SharedState, steps: int, problem: Problem) -> SharedState:
    """A block of so many steps, each with all points of a sample:

    1. alpha <- alpha exp(-alpha_rate g) / its sum, g the gradient of 1/2 E (y - f)^2 on the validation sample by alpha.
    2. W <- W - rate times the gradient of that on the training sample by W.

    An instance whose loss has blown up in the block, beyond that of f = 0 and twice what it was, goes through it again
    at half the rate: the largest rate of a quadratic activation is far below that of a bounded one.

    Raises: FloatingPointError if no rate helps: inputs or labels are not finite.
    """
    with torch.no_grad():
        nothing = problem.training.labels.square().mean(1) / 2
        allowed = torch.maximum(nothing, 2 * problem.losses(state))
    for _ in range(HALVINGS):
        after = state
        for _ in range(steps):
            after = _step(after, problem)
        with torch.no_grad():
            calm = problem.losses(after) <= allowed  # False of a NaN
        if bool(calm.all()):
            return after
        state = replace(state, rates=state.rates.where(calm, state.rates / 2))
    raise FloatingPointError("the training diverges at every rate: inputs or labels are not finite numbers")


def _step(state: SharedState, problem: Problem) -> SharedState:
    validation = problem.validation
    if validation is not None:
        with torch.no_grad():
            components = component_outputs(validation.inputs, state.weights, problem.output, problem.functions)
            errors = mixture_outputs(components, state.alpha) - validation.labels
            gradient = torch.einsum("sn,snh->sh", errors, components) / errors.shape[1]
            # What has blown up and is not finite leads nowhere; the block is gone through again.
            log_alpha = log_entropic_step(state.log_alpha, gradient.nan_to_num(), problem.alpha_rate)
            state = replace(state, log_alpha=log_alpha)
    weights = state.weights.detach().requires_grad_()
    # The instances share nothing, so the gradient of the sum is each one's own.
    (gradient,) = torch.autograd.grad(problem.losses(state, weights).sum(), weights)
    return replace(state, weights=weights.detach() - state.rates[:, None, None] * gradient)


# The best alpha for given weights: a small quadratic problem on the simplex, solved exactly. Note U5.


def best_alpha(components: Tensor, labels: Tensor) -> Tensor:
    """argmin over the simplex of 1/2 E (y - G alpha)^2: components (S, n, h) and labels (S, n) give (S, h).

    On the simplex y - G alpha = (y 1^T - G) alpha = B alpha. For u >= 0 of any sum, ||B u||^2 + (1^T u - 1)^2 has its
    minimum along the ray of alpha at ||B alpha||^2 / (1 + ||B alpha||^2), which grows with ||B alpha||: so the
    non-negative least squares solution, an active-set method's, divided by its sum, is the minimiser.
    """
    best = [_minimiser(one.cpu().numpy(), other.cpu().numpy()) for one, other in zip(components, labels, strict=True)]
    return torch.as_tensor(np.stack(best), dtype=components.dtype, device=components.device)


def _minimiser(components: np.ndarray, labels: np.ndarray) -> np.ndarray:
    residuals = (labels[:, None] - components) / np.sqrt(len(labels))  # B, (n, h)
    triangle = np.asarray(np.linalg.qr(residuals, mode="r"))  # as many rows as columns, and the same norms
    scale = max(np.linalg.norm(triangle, 2), np.finfo(float).tiny)
    system = np.vstack([triangle / scale, np.ones(components.shape[1])])
    solution, _ = nnls(system, np.append(np.zeros(len(triangle)), 1.0))
    alpha: np.ndarray = solution / solution.sum()
    return alpha
