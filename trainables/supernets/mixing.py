"""Sources of the mixture of each step, and how they learn from a batch: from gradients, rewards, losses of images."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from archray.trainables.devices import tf32
from archray.trainables.supernets.networks.supernet import MixtureWeights
from archray.trainables.supernets.settings import SupernetTrainingSettings

Mixture = Mapping[str, MixtureWeights]  # group -> weights


class Outcome(NamedTuple):
    """Result of one batch under a mixture: each image's cross-entropy, (b,), and whether it is correct, (b,) bool."""

    losses: Tensor
    correct: Tensor


@dataclass(frozen=True)
class Lesson:
    """One batch of the architecture's data, and functions to learn from it, which compute only when they are called.

    Attributes:
        gradient: Function from a mixture to the objective's loss, detached, and its gradient for each group's dense
            weights, which are leaves (`as_leaves`). First order, or at weights one step ahead.
        outcome: Function from a mixture to loss and success of each image at the current weights, differentiable for
            the mixture.
    """

    gradient: Callable[[Mixture], tuple[Tensor, dict[str, Tensor]]]
    outcome: Callable[[Mixture], Outcome]


class Mixing(ABC):
    """Base class of sources of mixtures. If it has parameters, it learns from batches of the architecture's data."""

    learns: bool = False

    def prepare(self, training: SupernetTrainingSettings, points: int) -> None:  # noqa: B027, few need it
        """Called once before training. points: number of images in all calls of `learn` together.

        Raises: InvalidInput if this mixing does not support these settings.
        """

    @abstractmethod
    def reseed(self, seed: int) -> None:
        """Seeds the following draws; called before each epoch."""

    @abstractmethod
    def draw(self, progress: float) -> Mixture:
        """Returns the mixture of one step. progress: the completed share of the training, in [0, 1]."""

    @abstractmethod
    def evaluation(self, progress: float, seed: int) -> Callable[[], Mixture]:
        """Returns a source of mixtures for evaluation, without gradients, with a separate random stream."""

    def learn(self, lesson: Lesson, progress: float) -> Tensor:
        """Makes one update and returns the loss before it, detached. progress: as in `draw`.

        Raises: FloatingPointError if a gradient is NaN and the optimizer rejects it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no parameters to learn")

    def derive(self, accuracies: Callable[[Sequence[str]], list[float]], seed: int) -> str | None:
        """Returns the learned architecture; None without one. Uses a separate random stream.

        Args:
            accuracies: Function that scores architectures with shared weights on the validation data.
        """
        return None

    def entropies(self) -> dict[str, list[float]]:
        """Returns the name of a group of decisions -> the entropy of each decision, in nats."""
        return {}

    def results(self) -> dict[str, Any]:
        """Returns further entries of a trial's result, which can be written as JSON."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Returns tensors and plain data only."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores `state`. Raises: ValueError for the state of another kind of mixing."""
        if state:
            raise ValueError(f"expected no state for {type(self).__name__}, got {', '.join(state)}")


RADIUS = 0.01  # distance of the weights for the finite difference; from DARTS' footnote to Eq. 8

Loss = Callable[[Mixture], Tensor]


def as_leaves(mixture: Mixture) -> dict[str, MixtureWeights]:
    """Returns the same weights as leaves, so that a random relaxation is drawn once for all losses of a step."""
    return {
        name: MixtureWeights(weights.dense.detach().requires_grad_(), weights.chosen)
        for name, weights in mixture.items()
    }


def mixture_gradient(loss: Tensor, leaves: Mixture) -> dict[str, Tensor]:
    """Returns the gradient of a loss for each group's dense weights; zeros for independent weights."""
    gradients = torch.autograd.grad(loss, [weights.dense for weights in leaves.values()], allow_unused=True)
    return {
        name: torch.zeros_like(weights.dense) if gradient is None else gradient
        for (name, weights), gradient in zip(leaves.items(), gradients, strict=True)
    }


def lesson_of(logits: Callable[[Mixture], Tensor], labels: Tensor) -> Lesson:
    """Creates the lesson of a batch at the current weights. logits: mixture -> (b, classes) float32. labels: (b,)."""

    def gradient(leaves: Mixture) -> tuple[Tensor, dict[str, Tensor]]:
        loss = F.cross_entropy(logits(leaves), labels)
        return loss.detach(), mixture_gradient(loss, leaves)

    def outcome(mixture: Mixture) -> Outcome:
        outputs = logits(mixture)
        return Outcome(F.cross_entropy(outputs, labels, reduction="none"), outputs.argmax(1) == labels)

    return Lesson(gradient, outcome)


@tf32(False)  # TF32 loses most digits of the difference of two gradients
def unrolled_gradient(
    validation: Loss,
    training: Loss,
    leaves: Mixture,
    weights: Sequence[Tensor],
    *,
    lr: float,
    buffers: Mapping[Tensor, Tensor],
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    radius: float = RADIUS,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes the gradient of L_val(w'(m), m) for the mixture m, w' after one step of SGD on L_train. DARTS, Eq. 6-8.

    1. w' = w - xi (grad_w L_train(w, m) + decay w, with momentum).
    2. g = grad_m L_val(w', m) and v = grad_w' L_val(w', m).
    3. The product of the mixed second derivative of L_train with v, by a central difference: with e = radius / |v|,
       (grad_m L_train(w + e v, m) - grad_m L_train(w - e v, m)) / (2 e).
    4. g - xi times that product.

    Args:
        leaves: m, from `as_leaves`.
        weights: w; they are moved and restored bit by bit. Weights on which L_train does not depend do not move.
        lr: xi.
        buffers: Momentum buffers of the weights; read only.

    Returns: L_val(w', m), detached, and the gradient of each group's dense weights.
    """
    steps = torch.autograd.grad(training(leaves), weights, allow_unused=True)
    moved = [(w, step, w.detach().clone()) for w, step in zip(weights, steps, strict=True) if step is not None]
    try:
        with torch.no_grad():
            for w, step, _ in moved:
                direction = step + weight_decay * w
                average = direction + momentum * buffers[w] if w in buffers else direction
                w -= lr * (direction + momentum * average if nesterov else average)
        loss = validation(leaves)
        dense = [weights.dense for weights in leaves.values()]
        gradients = torch.autograd.grad(loss, [*dense, *(w for w, _, _ in moved)], allow_unused=True)
        by_mixture = [torch.zeros_like(m) if g is None else g for m, g in zip(dense, gradients, strict=False)]
        by_weights = gradients[len(dense) :]
        norm = torch.sqrt(sum((v.square().sum() for v in by_weights if v is not None), torch.zeros_like(loss.detach())))
        if float(norm) == 0.0:  # the direction is zero, and so is the product
            return loss.detach(), dict(zip(leaves, by_mixture, strict=True))
        e = radius / norm
        sides = []
        for sign in (1.0, -1.0):
            with torch.no_grad():
                for (w, _, old), v in zip(moved, by_weights, strict=True):
                    w.copy_(old if v is None else old + sign * e * v)
            sides.append(mixture_gradient(training(leaves), leaves))
    finally:
        with torch.no_grad():
            for w, _, old in moved:
                w.copy_(old)
    xi = lr * (1.0 + momentum) if nesterov else lr  # change of w' per change of L_train's gradient
    return loss.detach(), {
        name: g - xi * (sides[0][name] - sides[1][name]) / (2.0 * e) for name, g in zip(leaves, by_mixture, strict=True)
    }
