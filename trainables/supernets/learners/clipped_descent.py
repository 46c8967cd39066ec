"""XNAS: exponentiated gradient with clipping per data point and wipe-out. Nayman et al. 2019; GAEA, App. C.4.

App. C.4 of Li et al. (2021) names the two additions to exponentiated gradient without formulas. What holds here:

- A *round* is one data point, and there are T of them; the updates of the points of one batch are applied together.
  One point's gradient is of its own loss, at the weights that the whole batch has seen.
- Clipping is by entry, to [-L, L]: an entry is the negative of an operation's reward, and bounded rewards are what the
  regret bound asks for. The clipped gradients of a batch are added, not averaged: a round each.
- An operation is wiped out when it cannot come level with the best of its row even if all remaining rounds gave it the
  largest reward and the best one the smallest: if log v < max log v - 2 eta L (T - t). A wiped operation stays at 0.
- eta = sqrt(2 log(k) / T) / L, the rate of the regret bound for k operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from archray.errors import InvalidInput
from archray.trainables.supernets.learners.learner import Learner
from archray.trainables.supernets.learners.simplex_descent import log_entropic_step, normalised
from archray.trainables.supernets.learners.simplex_optimizer import SimplexOptimizer, check_gradients, check_simplex
from archray.trainables.supernets.mixings.mixing import Lesson, Mixture
from archray.trainables.supernets.supernet_training_settings import SupernetTrainingSettings

if TYPE_CHECKING:  # its settings, which make what is here
    from archray.trainables.supernets.optimizers.xnas import XNASSettings


def xnas_rate(operations: int, rounds: int, clip: float) -> float:
    """eta = sqrt(2 log(k) / T) / L."""
    return math.sqrt(2.0 * math.log(operations) / rounds) / clip


def xnas_step(log_weights: Tensor, clipped: Tensor, lr: float, clip: float, remaining: int) -> Tensor:
    """One update and wipe-out. (..., k) -> (..., k).

    Args:
        log_weights: rows of logarithms, -inf where wiped out.
        clipped: the sum of clipped gradients of the points.
        remaining: T - t, the rounds that are left after these points.
    """
    stepped = log_entropic_step(log_weights, clipped, lr)
    lost = stepped < stepped.amax(-1, keepdim=True) - 2.0 * lr * clip * remaining
    return stepped.masked_fill(lost, -torch.inf).log_softmax(-1)


def point_gradients(losses: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of every point's loss: (points,) -> for each parameter (points, *its shape).

    One backward pass per point through one graph, which is freed. Under batch normalisation in training mode a point's
    gradient includes its effect through the statistics that it shares, as its own loss sees it.
    """
    rows = [torch.autograd.grad(loss, params, retain_graph=i + 1 < len(losses)) for i, loss in enumerate(losses)]
    return [torch.stack(column) for column in zip(*rows, strict=True)]


class XNAS(SimplexOptimizer):
    """Exponentiated gradient of single points, which wipes out what cannot win.

    1. `add_points`: the gradients of single points, as often as wanted. Each is clipped and added.
    2. `step`: one update by what was added, then wipe-out. `Tensor.grad` is not looked at.

    The logarithms are kept beside the parameters: an operation that could still win is never lost to underflow. The
    guarantee of wipe-out holds while the rate stays as it is.

    Args:
        params: tensors or groups of them, float32 or float64, rows on the simplex.
        rounds: T, the data points that all steps together will see: epochs times points per epoch.
        clip: L.
        lr: eta; None takes `xnas_rate` for each parameter's number of operations.

    Raises: InvalidInput if a parameter is wrong, a step has no points, or more than T points come.
    """

    def __init__(self, params: ParamsT, rounds: int, clip: float = 1.0, lr: float | None = None) -> None:
        super().__init__(params, {"rounds": rounds, "clip": clip, "lr": lr})

    def _check(self, group: dict[str, Any]) -> None:
        for parameter in group["params"]:
            check_simplex(parameter)

    @torch.no_grad()
    def add_points(self, gradients: Sequence[Tensor]) -> None:
        """Clips the gradients of some points and keeps their sum for the next step.

        gradients: for each parameter, in the order of the groups, (points, *its shape); see `point_gradients`.

        Raises: InvalidInput if there are more points than rounds; FloatingPointError if a gradient is NaN. Nothing has
            changed then.
        """
        params = [(parameter, group) for group in self.param_groups for parameter in group["params"]]
        for (parameter, group), gradient in zip(params, gradients, strict=True):
            state = self._state(parameter)
            seen = state["round"] + state["added"] + len(gradient)
            if seen > group["rounds"]:
                raise InvalidInput(
                    f"expected at most {group['rounds']} data points, got {seen}; set rounds to the number that all "
                    "steps together will see"
                )
        check_gradients(list(gradients))
        for (parameter, group), gradient in zip(params, gradients, strict=True):
            state = self._state(parameter)
            state["sum"] = state["sum"] + gradient.clamp(-group["clip"], group["clip"]).sum(0)
            state["added"] += len(gradient)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self._state(parameter)
                if state["added"] == 0:
                    raise InvalidInput("expected gradients of single points before a step; give them to add_points")
                lr = group["lr"]
                if lr is None:
                    lr = xnas_rate(parameter.shape[-1], group["rounds"], group["clip"])
                state["round"] += state["added"]
                remaining = group["rounds"] - state["round"]
                state["log_weights"] = xnas_step(state["log_weights"], state["sum"], lr, group["clip"], remaining)
                state["sum"], state["added"] = torch.zeros_like(parameter), 0
                parameter.copy_(normalised(state["log_weights"].exp()))

    def _state(self, parameter: Tensor) -> dict[str, Any]:
        state = self.state[parameter]
        if not state:
            state.update(log_weights=parameter.log(), sum=torch.zeros_like(parameter), added=0, round=0)
        return state


class PointLearner(Learner):
    """Learns the weights of a mixture by `XNAS` from the gradient of each image's own loss.

    Wipe-out leaves an edge with one operation of weight 1, which may be `none`: no edge is then stronger than another,
    and no second operation is known. Operations are therefore compared by the weights without wipe-out, by the sums of
    all clipped gradients. Their strongest operation is the same, as only what cannot win is wiped out.

    A batch costs one forward pass and a backward pass for every image in it: with b images some b times the backward
    pass of `GradientLearner`. A smaller `batch_size`, or a smaller `architecture_fraction`, is what helps.
    """

    def __init__(self, parameters: Mapping[str, Tensor], settings: XNASSettings) -> None:
        self._parameters, self._settings, self._rounds = dict(parameters), settings, 1
        self._sums = {name: torch.zeros_like(rows, dtype=torch.float64) for name, rows in parameters.items()}
        self.optimizer: XNAS | None = None  # until `prepare`

    def prepare(self, training: SupernetTrainingSettings, points: int) -> None:
        """Raises: InvalidInput if the architecture sees no image."""
        if points == 0:
            raise InvalidInput(
                f"xnas needs epochs after the warm-up of {training.warmup_epochs}, got {training.epochs} in all"
            )
        self._rounds = points
        self.optimizer = XNAS(list(self._parameters.values()), points, self._settings.clip, self._settings.lr)

    def learn(self, draw: Callable[[], Mixture], lesson: Lesson) -> Tensor:
        """Raises: FloatingPointError if a gradient is NaN; RuntimeError before `prepare`."""
        if self.optimizer is None:
            raise RuntimeError("xnas must be told by `prepare` how many images it will see before it can learn")
        losses = lesson.outcome(draw()).losses  # (b,)
        gradients = point_gradients(losses, list(self._parameters.values()))  # (b, edges, operations) of each group
        self.optimizer.add_points(gradients)
        self.optimizer.step()
        clip = self._settings.clip
        for total, gradient in zip(self._sums.values(), gradients, strict=True):
            total += gradient.clamp(-clip, clip).sum(0)
        return losses.detach().mean()

    def compared(self, probabilities: dict[str, Tensor]) -> dict[str, Tensor]:
        """The weights without wipe-out: exponentiated gradient from the uniform point."""
        lr, clip, unwiped = self._settings.lr, self._settings.clip, {}
        for name, total in self._sums.items():
            rate = xnas_rate(total.shape[1], self._rounds, clip) if lr is None else lr
            unwiped[name] = (-rate * total).softmax(-1)
        return unwiped

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": None if self.optimizer is None else self.optimizer.state_dict(), "sums": self._sums}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.optimizer is not None:
            self.optimizer.load_state_dict(state["optimizer"])
        for name, total in self._sums.items():
            total.copy_(state["sums"][name])
