"""Two-layer networks v^T sigma(W x), many at a time, and their bilevel training. Roberts et al. 2022, section 3.

The paper writes W in R^(k x d) with x in R^k and applies the transpose; here W is (k, d), x in R^d. The paper does not
fix v. As in its source, v has k entries +-1/sqrt(k), half of them positive, and is not trained: only W is shared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor
from torch.nn import functional

from archray.registry import Registry
from archray.trainables.supernets.optimizers import log_entropic_step

Activation = Callable[[Tensor], Tensor]  # elementwise, differentiable almost everywhere; any shape, any float

ACTIVATIONS: Registry[Activation] = Registry("activation")
for _name, _function in {
    "relu": torch.relu,
    "leaky-relu": functional.leaky_relu,  # with slope 0.01 below zero
    "elu": functional.elu,
    "softplus": functional.softplus,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "quadratic": torch.square,
    "identity": torch.clone,
}.items():
    ACTIVATIONS.register(_name, _function)


def get_activations(names: Sequence[str]) -> list[Activation]:
    """Returns the functions with these names, in order. Raises: UnknownName, with the nearest name."""
    return [ACTIVATIONS.get(name) for name in names]


def output_weights(width: int) -> Tensor:
    """Returns v: (k,) float64, +1/sqrt(k) in its first half and -1/sqrt(k) in the other."""
    signs = torch.ones(width, dtype=torch.float64)
    signs[(width + 1) // 2 :] = -1.0
    return signs / width**0.5


def draw_weights(width: int, dimension: int, generator: torch.Generator) -> Tensor:
    """Draws W: (k, d) float64, normal with variance 1/d, so that W x has the variance of x in each unit."""
    return torch.randn(width, dimension, generator=generator, dtype=torch.float64) / dimension**0.5


def component_outputs(inputs: Tensor, weights: Tensor, output: Tensor, functions: Sequence[Activation]) -> Tensor:
    """Computes the outputs of every discrete network with the same weights: v^T sigma_i(W x).

    Args:
        inputs: (S, n, d), of S instances.
        weights: (S, k, d).
        output: v, (k,).
        functions: The h activations.

    Returns: (S, n, h). The output of the network of sigma_alpha is its product with alpha, because v^T is linear.
    """
    hidden = torch.bmm(inputs, weights.transpose(1, 2))  # (S, n, k)
    return torch.stack([function(hidden) @ output for function in functions], dim=-1)


def mixture_outputs(components: Tensor, alpha: Tensor) -> Tensor:
    """Computes f_{sigma_alpha}: components (S, n, h) and alpha (S, h) -> (S, n)."""
    return torch.einsum("snh,sh->sn", components, alpha)


def squared_risks(outputs: Tensor, labels: Tensor) -> Tensor:
    """Computes 1/2 E (y - f)^2 over the sample: outputs (S, n) or (S, n, h), labels (S, n) -> (S,) or (S, h)."""
    if outputs.ndim == labels.ndim + 1:
        labels = labels.unsqueeze(-1)
    return (outputs - labels).square().mean(1) / 2


# Bilevel training of many networks at once: alpha by mirror descent, W by gradient descent. Section 3; GAEA, Li et al.
# 2021, Eq. 8. Instances are stacked: a step is one computation for all of them.


@dataclass(frozen=True)
class Sample:
    """Inputs (S, n, d) and labels (S, n) of S instances."""

    inputs: Tensor
    labels: Tensor


HALVINGS = 40  # of a rate, in a block of steps: from any usual rate to a negligible one


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
    """Returns the initial state of training: these weights, and alpha = 1/h."""
    uniform = weights.new_full((len(weights), activations), 1.0 / activations)
    return SharedState(weights, uniform.log(), rates)


@dataclass(frozen=True)
class Problem:
    """The data and options of training.

    Attributes:
        training: Points for W.
        validation: Points for alpha; None keeps alpha.
        output: v, (k,).
        functions: The h activations.
        alpha_rate: Learning rate of mirror descent.
    """

    training: Sample
    validation: Sample | None
    output: Tensor
    functions: Sequence[Activation]
    alpha_rate: float

    def losses(self, state: SharedState, weights: Tensor | None = None) -> Tensor:
        """Computes 1/2 E (y - f)^2 over the training sample, (S,)."""
        weights = state.weights if weights is None else weights
        components = component_outputs(self.training.inputs, weights, self.output, self.functions)
        return squared_risks(mixture_outputs(components, state.alpha), self.training.labels)


def train(state: SharedState, steps: int, problem: Problem) -> SharedState:
    """Makes a block of `steps` steps, each with all points of a sample:

    1. alpha <- alpha exp(-alpha_rate g) / its sum, g the gradient of 1/2 E (y - f)^2 on the validation sample by alpha.
    2. W <- W - rate times the gradient of the same loss on the training sample by W.

    If an instance diverges in the block (its loss exceeds that of f = 0 and twice its previous loss), it repeats the
    block at half the rate. The largest rate of a quadratic activation is far below that of a bounded one.

    Raises: FloatingPointError if no rate helps, because inputs or labels are infinite or NaN.
    """
    with torch.no_grad():
        nothing = problem.training.labels.square().mean(1) / 2
        allowed = torch.maximum(nothing, 2 * problem.losses(state))
    for _ in range(HALVINGS):
        after = state
        for _ in range(steps):
            after = _step(after, problem)
        with torch.no_grad():
            calm = problem.losses(after) <= allowed  # False for NaN
        if bool(calm.all()):
            return after
        state = replace(state, rates=state.rates.where(calm, state.rates / 2))
    raise FloatingPointError("expected finite inputs and labels, got others: training diverges at every rate")


def _step(state: SharedState, problem: Problem) -> SharedState:
    validation = problem.validation
    if validation is not None:
        with torch.no_grad():
            components = component_outputs(validation.inputs, state.weights, problem.output, problem.functions)
            errors = mixture_outputs(components, state.alpha) - validation.labels
            gradient = torch.einsum("sn,snh->sh", errors, components) / errors.shape[1]
            # A gradient that is infinite or NaN does not matter, because its block is repeated.
            log_alpha = log_entropic_step(state.log_alpha, gradient.nan_to_num(), problem.alpha_rate)
            state = replace(state, log_alpha=log_alpha)
    weights = state.weights.detach().requires_grad_()
    # The instances are independent, so the gradient of the sum contains the gradient of each.
    (gradient,) = torch.autograd.grad(problem.losses(state, weights).sum(), weights)
    return replace(state, weights=weights.detach() - state.rates[:, None, None] * gradient)


# The best alpha for given weights: a small quadratic problem on the simplex, solved exactly. Note U5.


def best_alpha(components: Tensor, labels: Tensor) -> Tensor:
    """Computes argmin over the simplex of 1/2 E (y - G alpha)^2: components (S, n, h), labels (S, n) -> (S, h).

    On the simplex y - G alpha = (y 1^T - G) alpha = B alpha. For u >= 0 with any sum, ||B u||^2 + (1^T u - 1)^2 has its
    minimum along the ray of alpha at ||B alpha||^2 / (1 + ||B alpha||^2), which increases with ||B alpha||. The
    minimizer is therefore the non-negative least squares solution (by an active-set method), divided by its sum.
    """
    best = [_minimizer(one.cpu().numpy(), other.cpu().numpy()) for one, other in zip(components, labels, strict=True)]
    return torch.as_tensor(np.stack(best), dtype=components.dtype, device=components.device)


def _minimizer(components: np.ndarray, labels: np.ndarray) -> np.ndarray:
    residuals = (labels[:, None] - components) / np.sqrt(len(labels))  # B, (n, h)
    triangle = np.asarray(np.linalg.qr(residuals, mode="r"))  # as many rows as columns, with the same norms
    scale = max(np.linalg.norm(triangle, 2), np.finfo(float).tiny)
    system = np.vstack([triangle / scale, np.ones(components.shape[1])])
    solution, _ = nnls(system, np.append(np.zeros(len(triangle)), 1.0))
    alpha: np.ndarray = solution / solution.sum()
    return alpha
