"""Architecture optimizers on the simplex, mirror descent (GAEA, Li et al. 2021) and XNAS, and their learners.

XNAS is exponentiated gradient with clipping per data point and wipe-out (Nayman et al. 2019). App. C.4 of Li et al.
mentions the two additions without formulas. In archray:

- A *round* is one data point. There are T rounds. The updates of the points of one batch are applied together.
  The gradient of a point is that of its loss, at the same weights for all points of the batch.
- Clipping is by entry, to [-L, L]: an entry is the negative of an operation's reward, and the regret bound needs
  bounded rewards. The clipped gradients of a batch are summed, not averaged, because each point is a round.
- An operation is wiped out if it cannot reach the best of its row even with the largest reward in all remaining rounds
  and the smallest for the best one: if log v < max log v - 2 eta L (T - t). A wiped operation stays at 0.
- eta = sqrt(2 log(k) / T) / L, the rate of the regret bound for k operations.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from archray.errors import InvalidInput
from archray.plurals import count
from archray.trainables.supernets.mixing import Lesson, Mixture, as_leaves
from archray.trainables.supernets.settings import SupernetTrainingSettings, XNASSettings

TOLERANCE = 1e-5  # ten times the error of the sum of a float32 row of thousands of entries


def check_simplex(rows: Tensor) -> None:
    """Raises: InvalidInput unless all rows (last dimension) are float32 or float64, non-negative and sum to one."""
    if rows.dtype not in (torch.float32, torch.float64):
        raise InvalidInput(f"expected architecture parameters in float32 or float64, got {rows.dtype}; convert them")
    if rows.ndim == 0 or rows.numel() == 0:
        raise InvalidInput(f"expected rows with at least one operation, got a tensor of shape {tuple(rows.shape)}")
    flat = rows.detach().reshape(-1, rows.shape[-1])
    sums, least = flat.sum(-1), flat.amin(-1)
    wrong = ~((sums - 1.0).abs() <= TOLERANCE) | ~(least >= 0.0)  # true for NaN too
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise InvalidInput(
            f"expected every row of the parameters on the simplex, got row {row} with sum "
            f"{sums[row].item():.6g} and smallest entry {least[row].item():.6g}. Start from the uniform row, or "
            "divide non-negative rows by their sums"
        )


def check_gradients(gradients: list[Tensor]) -> None:
    """Raises: FloatingPointError if one of them contains NaN. Synchronizes with the device once."""
    failures = [gradient.isnan().any().to(gradients[0].device) for gradient in gradients]
    if failures and bool(torch.stack(failures).any()):
        raise FloatingPointError("a gradient of the architecture parameters is NaN: the search diverged")


def project_to_simplex(rows: Tensor) -> Tensor:
    """Projects each row on the simplex: argmin over u of ||u - row||_2; (..., k) -> (..., k).

    The projection subtracts a threshold theta from a row and clips at zero. With the entries sorted in decreasing
    order, s_1 >= s_2 >= .., the support is the largest j with j s_j > s_1 + .. + s_j - 1. theta is that sum less one,
    divided by j (Held et al. 1974; Duchi et al. 2008, Figure 1). Rows are finite.
    """
    # Adding a constant to a row changes nothing. With the maximum at 0, rounding never absorbs the 1 subtracted below.
    rows = rows - rows.amax(-1, keepdim=True)
    ordered = rows.sort(-1, descending=True).values
    excess = ordered.cumsum(-1) - 1.0  # (..., k): the sum of the j largest, less one
    j = torch.arange(1, rows.shape[-1] + 1, device=rows.device, dtype=rows.dtype)
    support = (j * ordered > excess).sum(-1, keepdim=True)  # (..., 1), at least 1
    theta = excess.gather(-1, support - 1) / support
    projected = (rows - theta).clamp(min=0.0)
    return projected / projected.sum(-1, keepdim=True)  # the sum is one up to rounding


class SimplexOptimizer(Optimizer):
    """Keeps every row (last dimension) of its parameters on the simplex; float32 or float64."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Raises: InvalidInput for an invalid parameter or floor; the group is not added then."""
        super().add_param_group(param_group)
        try:
            for parameter in self.param_groups[-1]["params"]:
                check_simplex(parameter)
                operations, floor = parameter.shape[-1], self.param_groups[-1].get("floor", 0.0)
                if not 0.0 <= floor < 1.0 / operations:
                    raise InvalidInput(
                        f"expected a floor from 0 to below 1/{operations} for rows with "
                        f"{count(operations, 'operation')}, got {floor}"
                    )
        except InvalidInput:
            del self.param_groups[-1]
            raise


def relative_step(gradient: Tensor, lr: float, supported: Tensor | None = None) -> Tensor:
    """Computes lr * gradient minus the row's minimum; finite, and at least 0 on the support.

    Subtracting the minimum changes neither update. An infinite gradient counts as a quarter of the largest float, so
    that an operation with -inf takes all the weight.

    Args:
        supported: (..., k) bool, the entries over which the minimum is taken (default: all).
    """
    limit = torch.finfo(gradient.dtype).max / 4
    step = (gradient.clamp(-limit, limit) * lr).clamp(-limit, limit)
    eligible = step if supported is None else step.where(supported, torch.inf)
    return step - eligible.amin(-1, keepdim=True)


def log_entropic_step(log_weights: Tensor, gradient: Tensor, lr: float) -> Tensor:
    """Applies Eq. 8 to logarithms of weights: log theta - lr * gradient, normalized. (..., k) -> (..., k).

    -inf stays -inf; every row needs an entry above it.
    """
    # The best entry of the support moves by 0 and the others down, so that no row underflows as a whole.
    return (log_weights - relative_step(gradient, lr, log_weights > -torch.inf)).log_softmax(-1)


def entropic_step(weights: Tensor, gradient: Tensor, lr: float, floor: float = 0.0) -> Tensor:
    """Exponentiated gradient, Eq. 8: theta * exp(-lr * gradient), divided by its sum. (..., k) -> (..., k).

    It is the minimizer of lr <gradient, u> + sum_o u_o log(u_o / theta_o) over the simplex (Eq. 5).

    Args:
        weights: Rows on the simplex.
        floor: Lower bound of the weights. Smaller weights are set to it, and the row is divided by its sum again. The
            authors do this before the first division. Here, as in Eq. 5, adding a constant to a row of the gradient
            does not change the result.
    """
    return normalized(log_entropic_step(weights.log(), gradient, lr).exp(), floor)


def normalized(weights: Tensor, floor: float = 0.0) -> Tensor:
    """Divides rows by their sums, after entries below the floor are set to it."""
    if floor > 0.0:
        weights = weights.clamp(min=floor)
    return weights / weights.sum(-1, keepdim=True)


def projected_step(weights: Tensor, gradient: Tensor, lr: float) -> Tensor:
    """Projected gradient: Eq. 6 with phi(u) = ||u||_2^2 / 2 over the simplex. (..., k) -> (..., k)."""
    return project_to_simplex(weights - relative_step(gradient, lr))


class MirrorDescent(SimplexOptimizer):
    """Mirror descent. GAEA, Li et al. 2021, section 3, Eq. 4-8. No weight decay and no momentum (note G1).

    Each step replaces each parameter with a gradient:

    - `dgf="entropy"`: by `entropic_step`; with `log_space` the logarithms are part of the state and updated by
      `log_entropic_step`, so that a weight that has underflowed to zero can return.
    - `dgf="euclidean"`: by `projected_step`.

    All options may differ between parameter groups. With `log_space` the logarithms are taken from the parameters at
    the first step. To overwrite parameters later, create a new optimizer.

    Args:
        params: Tensors or groups of tensors, float32 or float64, with rows on the simplex.
        lr, dgf: eta and the distance-generating function phi.
        floor: For the entropy, see `entropic_step`; below 1/k for rows of length k.
        log_space: For the entropy, without floor.

    Raises: InvalidInput if the floor or a parameter is invalid; in `step`, FloatingPointError if a gradient is NaN
        (before any change).
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        dgf: Literal["entropy", "euclidean"] = "entropy",
        floor: float = 0.0,
        log_space: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "dgf": dgf, "floor": floor, "log_space": log_space})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        check_gradients([p.grad for group in self.param_groups for p in group["params"] if p.grad is not None])
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.copy_(self._updated(parameter, parameter.grad, group))

    def _updated(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        if group["dgf"] == "euclidean":
            return projected_step(parameter, gradient, group["lr"])
        if not group["log_space"]:
            return entropic_step(parameter, gradient, group["lr"], group["floor"])
        state = self.state[parameter]
        if "log_weights" not in state:
            state["log_weights"] = parameter.log()
        state["log_weights"] = log_entropic_step(state["log_weights"], gradient, group["lr"])
        return normalized(state["log_weights"].exp())


class Learner(ABC):
    """Base class of learners of a relaxation's parameters, batch by batch."""

    def prepare(self, training: SupernetTrainingSettings, points: int) -> None:  # noqa: B027, few need it
        """Like `Mixing.prepare`."""

    @abstractmethod
    def learn(self, draw: Callable[[], Mixture], lesson: Lesson) -> Tensor:
        """Makes one update and returns the loss before it, detached.

        Args:
            draw: Function that returns a mixture of the parameters, differentiable.

        Raises: FloatingPointError if a gradient is NaN and the optimizer rejects it.
        """

    def strengths(self, probabilities: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns group -> (edges, operations): the values that compare operations to derive an architecture."""
        return probabilities

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Returns tensors and plain data only."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class GradientLearner(Learner):
    """Learns from the gradient of the objective, propagated from the mixture to the parameters."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    def learn(self, draw: Callable[[], Mixture], lesson: Lesson) -> Tensor:
        drawn = draw()
        loss, gradients = lesson.gradient(as_leaves(drawn))
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward([drawn[name].dense for name in gradients], list(gradients.values()))
        self.optimizer.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.optimizer.load_state_dict(dict(state))


def xnas_rate(operations: int, rounds: int, clip: float) -> float:
    """Computes eta = sqrt(2 log(k) / T) / L."""
    return math.sqrt(2.0 * math.log(operations) / rounds) / clip


def xnas_step(log_weights: Tensor, clipped: Tensor, lr: float, clip: float, remaining: int) -> Tensor:
    """One update and wipe-out. (..., k) -> (..., k).

    Args:
        log_weights: Rows of logarithms, -inf for wiped operations.
        clipped: Sum of the clipped gradients of the points.
        remaining: T - t, the number of rounds after these points.
    """
    stepped = log_entropic_step(log_weights, clipped, lr)
    lost = stepped < stepped.amax(-1, keepdim=True) - 2.0 * lr * clip * remaining
    return stepped.masked_fill(lost, -torch.inf).log_softmax(-1)


def point_gradients(losses: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """Computes the gradient of every point's loss: (points,) -> for each parameter (points, *its shape).

    It takes one backward pass per point through one graph, which is freed. Under batch normalization in training mode,
    a point's gradient includes its effect through the shared statistics.
    """
    rows = [torch.autograd.grad(loss, params, retain_graph=i + 1 < len(losses)) for i, loss in enumerate(losses)]
    return [torch.stack(column) for column in zip(*rows, strict=True)]


class XNAS(SimplexOptimizer):
    """Exponentiated gradient of single points with wipe-out.

    1. `add_points`: clips the gradients of single points and sums them. Call it any number of times.
    2. `step`: one update with the sum, then wipe-out. It does not read `Tensor.grad`.

    The logarithms are part of the state, so that an operation that can still win never underflows. The guarantee of
    wipe-out holds while the rate does not change.

    Args:
        params: Tensors or groups of tensors, float32 or float64, with rows on the simplex.
        rounds: T, the number of data points in all steps: epochs times points per epoch.
        clip: L.
        lr: eta (default: `xnas_rate` for each parameter's number of operations).

    Raises: InvalidInput for an invalid parameter, a step without points, or more than T points.
    """

    def __init__(self, params: ParamsT, rounds: int, clip: float = 1.0, lr: float | None = None) -> None:
        super().__init__(params, {"rounds": rounds, "clip": clip, "lr": lr})

    @torch.no_grad()
    def add_points(self, gradients: Sequence[Tensor]) -> None:
        """Adds clipped gradients of points to the sum for the next step.

        Args:
            gradients: For each parameter, in the order of the groups, (points, *its shape); see `point_gradients`.

        Raises, before any change: InvalidInput if there are more points than rounds; FloatingPointError for NaN.
        """
        params = [(parameter, group) for group in self.param_groups for parameter in group["params"]]
        for (parameter, group), gradient in zip(params, gradients, strict=True):
            state = self._state(parameter)
            seen = state["round"] + state["added"] + len(gradient)
            if seen > group["rounds"]:
                raise InvalidInput(
                    f"expected at most {group['rounds']} data points, got {seen}. Set rounds to the number of points "
                    "in all steps"
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
                    raise InvalidInput("expected gradients of single points before a step, got none. Call add_points")
                lr = group["lr"]
                if lr is None:
                    lr = xnas_rate(parameter.shape[-1], group["rounds"], group["clip"])
                state["round"] += state["added"]
                remaining = group["rounds"] - state["round"]
                state["log_weights"] = xnas_step(state["log_weights"], state["sum"], lr, group["clip"], remaining)
                state["sum"], state["added"] = torch.zeros_like(parameter), 0
                parameter.copy_(normalized(state["log_weights"].exp()))

    def _state(self, parameter: Tensor) -> dict[str, Any]:
        state = self.state[parameter]
        if not state:
            state.update(log_weights=parameter.log(), sum=torch.zeros_like(parameter), added=0, round=0)
        return state


class PointLearner(Learner):
    """Learns the weights of a mixture by `XNAS` from the gradient of each image's loss.

    After wipe-out, an edge has one operation with weight 1, which may be `none`, so that edges and second operations
    cannot be compared. `strengths` are therefore the weights without wipe-out, from the sums of all clipped gradients.
    Their strongest operation is the same, because only operations that cannot win are wiped out.

    A batch costs one forward pass, and one backward pass per image. A smaller `batch_size` or `architecture_fraction`
    reduces the cost.
    """

    def __init__(self, parameters: Mapping[str, Tensor], settings: XNASSettings) -> None:
        self._parameters, self._settings, self._rounds = dict(parameters), settings, 1
        self._sums = {name: torch.zeros_like(rows, dtype=torch.float64) for name, rows in parameters.items()}
        self.optimizer: XNAS | None = None  # until `prepare`

    def prepare(self, training: SupernetTrainingSettings, points: int) -> None:
        """Raises: InvalidInput if there are no images for the architecture."""
        if points == 0:
            raise InvalidInput(
                f"expected epochs after the warm-up of {training.warmup_epochs} for the optimizer xnas, got "
                f"{training.epochs} in total; raise epochs"
            )
        self._rounds = points
        self.optimizer = XNAS(list(self._parameters.values()), points, self._settings.clip, self._settings.lr)

    def learn(self, draw: Callable[[], Mixture], lesson: Lesson) -> Tensor:
        """Makes one update. Raises: FloatingPointError if a gradient is NaN; RuntimeError before `prepare`."""
        if self.optimizer is None:
            raise RuntimeError("expected `prepare`, which sets the number of images, before `learn`. Call it first")
        losses = lesson.outcome(draw()).losses  # (b,)
        gradients = point_gradients(losses, list(self._parameters.values()))  # (b, edges, operations) of each group
        self.optimizer.add_points(gradients)
        self.optimizer.step()
        clip = self._settings.clip
        for total, gradient in zip(self._sums.values(), gradients, strict=True):
            total += gradient.clamp(-clip, clip).sum(0)
        return losses.detach().mean()

    def strengths(self, probabilities: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the weights without wipe-out: exponentiated gradient from the uniform point."""
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
