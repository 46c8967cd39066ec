"""The variational posterior over architectures, learned by the ELBO. Shu 2022 (thesis), 5.2.2, 5.3.3, Eq. 5.4-5.7."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from archray.trainables.spaces import Architecture
from archray.trainables.supernets.mixings.drawn_paths import DECISIONS, DrawnPaths
from archray.trainables.supernets.mixings.gumbel_noise import gumbel_noise, gumbel_weights
from archray.trainables.supernets.mixings.mixing import Lesson, as_leaves
from archray.trainables.supernets.mixings.relaxed_decisions import RelaxedDecisions
from archray.trainables.supernets.networks import MixtureWeights, Supernet
from archray.trainables.supernets.optimizer_settings import OptimizerSettings

if TYPE_CHECKING:  # its settings, which make what is here
    from archray.trainables.supernets.relaxations.posterior import VariationalSettings


class VariationalPosterior(DrawnPaths):
    """p_alpha(A), the product of softmax(alpha / tau) over the decisions of note E6 (Eq. 5.6-5.7), learned by the ELBO.

    Each step of `learn`, on a batch (Eq. 5.4):

    1. A ~ p_alpha, by the Gumbel-max trick.
    2. g <- an estimate of grad_alpha E[cross-entropy]: through the softmax of the perturbed logits where the forward
       pass has the one-hot choices (straight-through), or (loss - the others' mean) grad log p_alpha(A).
    3. alpha <- Adam by s g + grad_alpha KL[p_alpha || p]; p is uniform over the space.

    The KL is computed, not estimated. In DARTS only the operations on the two edges that a node takes are of A, so that
    log p(A) is a sum over these, and the KL of an edge's operations counts with the probability that it is taken.

    With trained weights that stay as they are this is the post-training posterior. Learned side by side with the
    weights (in a `SupernetTrainer`, whose steps then train paths drawn from it) it is the best-response posterior.

    Args:
        supernet: `none` is impossible if its groups do not have it.
        scale: s.
        device: of alpha, that of the supernet. alpha starts from zeros, the prior. Draws are made on the CPU.
    """

    learns = True

    def __init__(
        self,
        supernet: Supernet,
        settings: VariationalSettings,
        optimizer: OptimizerSettings,
        *,
        scale: float,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(supernet)
        self.settings, self.scale = settings, scale
        self.relaxed = RelaxedDecisions(supernet, device)
        self.alpha = torch.zeros(self.relaxed.allowed.shape, device=device, requires_grad=True)  # (B, C), padded
        self.optimizer = optimizer.make([self.alpha])
        self._log_prior = -self.relaxed.allowed.sum(-1).to(self.alpha.dtype).log()  # (B,)

    def drawn(self, generator: torch.Generator) -> Architecture:
        """From p_alpha."""
        return self.relaxed.architecture(self._choices(self.log_probabilities(), generator))

    def learn(self, lesson: Lesson, progress: float) -> Tensor:
        """One update; the mean loss of the drawn architectures, detached."""
        log_p = self.log_probabilities()
        straight = self.settings.estimator == "straight-through"
        losses, tensors, gradients = (self._straight_through if straight else self._score_function)(lesson, log_p)
        if self.settings.kl:
            tensors, gradients = [*tensors, self._kl(log_p)], [*gradients, None]
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(tensors, gradients)
        self.optimizer.step()
        return losses.mean()

    def log_probabilities(self) -> Tensor:
        """(B, C), differentiable; -inf for what is no choice."""
        logits = (self.alpha / self.settings.temperature).masked_fill(~self.relaxed.allowed, -torch.inf)
        return logits.log_softmax(-1)

    @torch.no_grad()
    def kl(self) -> float:
        """KL[p_alpha || uniform over the space], in nats."""
        return float(self._kl(self.log_probabilities()))

    @torch.no_grad()
    def log_probs(self) -> dict[str, list[float | None]]:
        """decision -> log-probabilities, None for an impossible choice; JSON, and what `Posterior` takes."""
        rows = self.log_probabilities().double().tolist()
        return {
            decision.name: [value if value > -torch.inf else None for value in row[: len(decision.choices)]]
            for decision, row in zip(self.relaxed.decisions, rows, strict=True)
        }

    def results(self) -> dict[str, Any]:
        return {"posterior": json.dumps(self.log_probs())}

    @torch.no_grad()
    def mode(self) -> str:
        """The most probable architecture; the first one wins a draw."""
        log_p = self.log_probabilities()
        # A pair of inputs is as probable as the best operations on its edges make it.
        chosen = (log_p + self.relaxed.follow(log_p.amax(-1))).argmax(-1)
        return self._supernet.space.encode(self.relaxed.architecture(chosen))

    def derive(self, accuracies: Callable[[Sequence[str]], list[float]], seed: int) -> str:
        return self.mode()

    @torch.no_grad()
    def entropies(self) -> dict[str, list[float]]:
        """One group, of all decisions in order."""
        return {DECISIONS: _entropies(self.log_probabilities(), self.relaxed.allowed).tolist()}

    def state_dict(self) -> dict[str, Any]:
        return {"alpha": self.alpha.detach(), "optimizer": self.optimizer.state_dict()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.alpha.copy_(state["alpha"])
        self.optimizer.load_state_dict(state["optimizer"])

    # The gradient of s E[cross-entropy]: losses (n,), and tensors with the gradients to send back from each ----------

    def _straight_through(self, lesson: Lesson, log_p: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor | None]]:
        samples = self.settings.samples
        losses: list[Tensor] = []
        tensors: list[Tensor] = []
        gradients: list[Tensor | None] = []
        for _ in range(samples):
            noise = gumbel_noise(log_p, self._generator)
            rows = gumbel_weights(log_p, noise, self.settings.gumbel_temperature, hard=True).dense  # (B, C)
            mixture: dict[str, MixtureWeights] = self.relaxed.mixture(rows)
            loss, by_group = lesson.gradient(as_leaves(mixture))
            losses.append(loss)
            tensors += [mixture[name].dense for name in by_group]
            gradients += [self.scale / samples * gradient for gradient in by_group.values()]
        return torch.stack(losses), tensors, gradients

    def _score_function(self, lesson: Lesson, log_p: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor | None]]:
        samples = self.settings.samples
        losses: list[Tensor] = []
        log_probabilities: list[Tensor] = []
        for _ in range(samples):
            with torch.no_grad():
                chosen = self._choices(log_p, self._generator)
                path = self._supernet.path(self.relaxed.architecture(chosen))
                losses.append(lesson.outcome(path).losses.mean())
            one_hot = torch.zeros_like(log_p).scatter_(1, chosen[:, None], 1.0)
            of_decisions = log_p.gather(1, chosen[:, None])[:, 0]  # (B,)
            log_probabilities.append((self.relaxed.reach(one_hot) * of_decisions).sum())
        drawn = torch.stack(losses)
        above = (drawn - drawn.mean()) * samples / (samples - 1)  # over the mean of the other samples
        return drawn, [(self.scale * above * torch.stack(log_probabilities)).mean()], [None]

    def _choices(self, log_p: Tensor, generator: torch.Generator) -> Tensor:
        """(B,) numbers of choices, drawn with their probabilities."""
        return (log_p + gumbel_noise(log_p, generator)).argmax(-1)

    def _kl(self, log_p: Tensor) -> Tensor:
        of_decisions = -self._log_prior - _entropies(log_p, self.relaxed.allowed)  # (B,)
        return (self.relaxed.reach(log_p.exp()) * of_decisions).sum()


def _entropies(log_p: Tensor, allowed: Tensor) -> Tensor:
    """(B, C) -> (B,), in nats, with a gradient also where a choice is impossible."""
    return (log_p.exp() * -log_p.masked_fill(~allowed, 0.0)).sum(-1)
