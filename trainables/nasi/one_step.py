"""From gradients at alpha_0 to alpha* in one step: penalty, constraint, running maximum. Shu 2022, Eq. 6.8-6.15.

alpha stays at alpha_0 while gradients are collected (note N1), so trace norms and their gradients do not depend on nu,
mu and xi. Other constants can be evaluated on the same gradients, without a network.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Constraint = Literal["fixed", "adaptive"]
Numbers = NDArray[np.float64]

LOOSE = 5.0  # nu_0 of the adaptive rule relative to Eq. 6.14's mean: 500 / 100, the two on DARTS in Shu 2022 (6.5.3)


def reward(traces: Numbers, nu: Numbers | float, mu: float) -> Numbers:
    """Computes R = trace - mu max(0, trace - nu), Eq. 6.8 and 6.9."""
    penalized: Numbers = traces - mu * np.maximum(0.0, traces - nu)
    return penalized


def constraints(traces: Numbers, nu_0: float, constraint: Constraint) -> Numbers:
    """Computes nu_1 to nu_T: nu_0, or by Eq. 6.15 its mean with the traces of the previous steps. traces: (T,)."""
    if constraint == "fixed":
        return np.full(len(traces), nu_0)
    before = nu_0 + np.concatenate(([0.0], np.cumsum(traces)))[: len(traces)]
    nus: Numbers = before / np.arange(1, len(traces) + 1)
    return nus


def one_step(gradients: Numbers, traces: Numbers, nus: Numbers, mu: float, xi: float = 1.0) -> Numbers:
    """Computes Delta*, Eq. 6.13: the mean of the rewards' gradients, each divided by the largest norm so far.

    A step adds nothing if all gradients so far were zero (every trace above nu, at mu = 1).

    Args:
        gradients: (T, B, C) of the trace norms by alpha.
        traces, nus: (T,).
    """
    of_rewards = gradients * (1.0 - mu * (traces > nus))[:, None, None]
    largest = np.maximum.accumulate(np.linalg.norm(of_rewards.reshape(len(traces), -1), axis=1))
    scales = np.divide(xi, largest, out=np.zeros_like(largest), where=largest > 0)
    step: Numbers = (of_rewards * scales[:, None, None]).mean(0)
    return step
