"""What a training-free metric is, and the ones archray knows. Shu 2022, sec. 7.2.2 and appendix D."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from archray.registry import Registry

Direction = Literal["max", "min"]  # "max": a larger value promises a better architecture

# What a metric is computed from; metrics that need the same thing share it (note P3).
# labels: backward pass of the sum of label logits, split by sample into the Gram matrix.
# cross_entropy: backward pass of the mean cross-entropy. hessian: a Hessian-vector product on top of it.
# relu: states of the ReLU units in the forward pass. own: a pass of its own on a copy of the network.
Need = Literal["labels", "cross_entropy", "hessian", "relu", "own"]


@dataclass(frozen=True)
class Proxy:
    """A training-free metric.

    Attributes:
        name: as in settings and in the columns of a pool.
        direction: whether a larger or a smaller value promises a better architecture.
        equation: its number in the thesis, or its source.
        needs: what it is computed from.
        description: one line.
    """

    name: str
    direction: Direction
    equation: str
    needs: frozenset[Need]
    description: str


@dataclass(frozen=True)
class Score:
    """The value of one metric on one network. A failed metric has the value NaN and says why."""

    value: float
    direction: Direction
    failure: str | None = None

    @classmethod
    def of(cls, proxy: Proxy, value: float, failure: str | None = None) -> Score:
        """A score whose value is NaN, with a reason, when `failure` is set or `value` is not finite."""
        if failure is None and not math.isfinite(value):
            failure = f"the value is {value}"
        return cls(math.nan if failure else value, proxy.direction, failure)


PROXIES: Registry[Proxy] = Registry("proxy")


def _register(name: str, direction: Direction, equation: str, needs: set[Need], description: str) -> None:
    PROXIES.register(name, Proxy(name, direction, equation, frozenset(needs), description))


_register("grad_norm", "max", "Eq. 7.2", {"cross_entropy"}, "norm of the loss gradient")
_register("snip", "max", "Eq. 7.3", {"cross_entropy"}, "loss gradient times weight (connection sensitivity)")
_register("grasp", "max", "Eq. 7.3", {"cross_entropy", "hessian"}, "weight times Hessian times gradient, negated")
_register("fisher", "max", "Theis et al. 2018", {"cross_entropy"}, "activation times its gradient, squared")
_register("ntk_trace", "max", "Eq. 7.4", {"labels"}, "root of the mean diagonal of the neural tangent kernel")
_register("kappa", "min", "Thm. 7.2", {"labels"}, "condition number of the neural tangent kernel")
_register("knas", "max", "Eq. D.11", {"labels"}, "root of the mean entry of the neural tangent kernel")
_register("synflow", "max", "Tanaka et al. 2020", {"own"}, "synaptic flow of the network of absolute weights")
_register("naswot", "max", "Mellor et al. 2021", {"relu"}, "log determinant of the kernel of ReLU states")
