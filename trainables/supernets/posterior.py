"""The variational posterior over architectures and its trainer. Shu 2022, 5.2.2, 5.3.3."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from archray.trainables.data.dataset import Dataset
from archray.trainables.spaces import Architecture
from archray.trainables.supernets.controllers import DrawnPaths
from archray.trainables.supernets.mixing import Lesson, as_leaves, lesson_of
from archray.trainables.supernets.networks.supernet import MixtureWeights, Supernet, possible_choices
from archray.trainables.supernets.relaxations import gumbel_noise, gumbel_weights
from archray.trainables.supernets.settings import DECISIONS, OptimizerSettings, VariationalSettings
from archray.trainables.supernets.trainer import Batches, Diverged
from archray.trainables.training import EpochTrainer

ORDER, DRAWS = 0, 1  # purposes of random streams

Choices = Mapping[str, Sequence[str]]  # name of a decision -> some of its choices


class RelaxedDecisions:
    """The decisions of a posterior over a supernet's space, B of them with up to C choices, as rows of numbers; E6.

    One-hot rows encode an architecture, and `mixture` returns the weights under which the supernet computes its
    function. Each weight is a product of entries of at most two rows, so gradients reach every choice by which a
    change of one decision could change the function. Exception: with partial channels, an edge that has drawn `none`
    passes no gradient to single operations.

    Attributes:
        decisions: The space's `posterior_decisions`.
        allowed: (B, C) bool: False for padding, and for `none` if the supernet has no such operation.
    """

    def __init__(self, supernet: Supernet, device: torch.device | str = "cpu") -> None:
        self.supernet, space = supernet, supernet.space
        self.decisions = space.posterior_decisions
        self._index = {decision.name: number for number, decision in enumerate(self.decisions)}
        self._shape = len(self.decisions), max(len(decision.choices) for decision in self.decisions)
        possible = {decision.name: possible_choices(decision, supernet.groups) for decision in self.decisions}
        self.allowed = self._marked(possible).bool().to(device)
        self._groups = {}
        for group in supernet.groups:
            # An entry of the group's weights is the sum of some choices of a decision, if the decision matters.
            entries: list[Choices] = []
            for row in range(group.edges):
                for column, operation in enumerate(group.operations):
                    decision = self.decisions[self._index[group.decision(row, column)]]
                    choices = [choice for choice in decision.choices if group.stands_for(operation, choice)]
                    entries.append({decision.name: choices})
            places = torch.tensor([self._index[name] for entry in entries for name in entry], device=device)
            self._groups[group.name] = (group, self._matrix(entries).to(device), places)
        conditions = [space.condition(decision.name) for decision in self.decisions]
        self._conditions = self._matrix([dict([condition] if condition else []) for condition in conditions]).to(device)
        self._always = torch.tensor([float(condition is None) for condition in conditions], device=device)

    def reach(self, rows: Tensor) -> Tensor:
        """(B, C) probabilities -> (B,): the probability that a decision matters; 0 or 1 for one-hot rows."""
        return self._always + rows.flatten() @ self._conditions

    def follow(self, values: Tensor) -> Tensor:
        """(B,) values of the decisions -> (B, C): the sum over the decisions that matter because of a choice."""
        return (self._conditions @ values).view(self.allowed.shape)

    def mixture(self, rows: Tensor) -> dict[str, MixtureWeights]:
        """(B, C) rows -> the weights of every group; all operations are evaluated."""
        # With partial channels, the supernet itself multiplies the weights of inputs and operations.
        partial = self.supernet.partial_channels > 1
        return {
            name: MixtureWeights(self._weights(name, rows, whole=group.nested or (partial and not group.inputs)))
            for name, (group, *_) in self._groups.items()
        }

    def chances(self, rows: Tensor) -> dict[str, Tensor]:
        """(B, C) probabilities -> group -> (edges, operations): the probability of an operation in an architecture.

        Loose ends of NAS-Bench-1Shot1 count.
        """
        operations = [name for name, (group, *_) in self._groups.items() if not group.inputs]
        return {name: self._weights(name, rows) for name in operations}

    def architecture(self, chosen: Tensor) -> Architecture:
        """(B,) indices of choices -> the architecture."""
        numbers = zip(self.decisions, chosen.tolist(), strict=True)
        named = {decision.name: decision.choices[number] for decision, number in numbers}
        return self.supernet.space.architecture_of_decisions(named)

    def _weights(self, name: str, rows: Tensor, whole: bool = False) -> Tensor:
        """Returns (edges, columns) of a group. whole: treat all its decisions as if they mattered."""
        group, matrix, places = self._groups[name]
        sums = rows.flatten() @ matrix
        return (sums if whole else sums * self.reach(rows)[places]).view(group.shape)

    def _matrix(self, columns: Sequence[Choices]) -> Tensor:
        """Returns (B C, columns) with values 0 and 1."""
        return torch.stack([self._marked(choices).flatten() for choices in columns], dim=1)

    def _marked(self, choices: Choices) -> Tensor:
        """Returns (B, C): 1 at the choices, 0 elsewhere."""
        marked = torch.zeros(self._shape)
        for name, selection in choices.items():
            row = self._index[name]
            for choice in selection:
                marked[row, self.decisions[row].choices.index(choice)] = 1.0
        return marked


class VariationalPosterior(DrawnPaths):
    """p_alpha(A), the product of softmax(alpha / tau) over the decisions of note E6 (Eq. 5.6-5.7), learned by the ELBO.

    Each step of `learn`, on a batch (Eq. 5.4):

    1. A ~ p_alpha, by the Gumbel-max trick.
    2. g <- an estimate of grad_alpha E[cross-entropy]: through the softmax of the perturbed logits where the forward
       pass has the one-hot choices (straight-through), or (loss - mean of the other losses) grad log p_alpha(A).
    3. alpha <- Adam by s g + grad_alpha KL[p_alpha || p]; p is uniform over the space.

    The KL is exact. In DARTS, A contains only the operations on the two edges of a node. log p(A) is a sum over these,
    and the KL of an edge's operations counts with the probability of the edge.

    With fixed trained weights this is the post-training posterior. If it is learned together with the weights, in a
    `SupernetTrainer` whose steps train paths drawn from it, it is the best-response posterior.

    Args:
        scale: s.
        device: Device of the supernet and of alpha, which starts from zeros, the prior. Draws are made on the CPU.
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

    def sample(self, generator: torch.Generator) -> Architecture:
        return self.relaxed.architecture(self._choices(self.log_probabilities(), generator))

    def learn(self, lesson: Lesson, progress: float) -> Tensor:
        """Makes one update. Returns the mean loss of the drawn architectures, detached."""
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
        """Computes (B, C), differentiable; -inf where `allowed` is False."""
        logits = (self.alpha / self.settings.temperature).masked_fill(~self.relaxed.allowed, -torch.inf)
        return logits.log_softmax(-1)

    @torch.no_grad()
    def kl(self) -> float:
        """Computes KL[p_alpha || uniform over the space], in nats."""
        return float(self._kl(self.log_probabilities()))

    @torch.no_grad()
    def log_probs(self) -> dict[str, list[float | None]]:
        """Returns decision -> log-probabilities, None for an impossible choice; JSON, the input of `Posterior`."""
        rows = self.log_probabilities().double().tolist()
        return {
            decision.name: [value if value > -torch.inf else None for value in row[: len(decision.choices)]]
            for decision, row in zip(self.relaxed.decisions, rows, strict=True)
        }

    def results(self) -> dict[str, Any]:
        return {"posterior": json.dumps(self.log_probs())}

    @torch.no_grad()
    def mode(self) -> str:
        """Returns the most probable architecture; the first one wins a tie."""
        log_p = self.log_probabilities()
        # The probability of a pair of inputs includes the best operations on its edges.
        chosen = (log_p + self.relaxed.follow(log_p.amax(-1))).argmax(-1)
        return self._supernet.space.encode(self.relaxed.architecture(chosen))

    def derive(self, accuracies: Callable[[Sequence[str]], list[float]], seed: int) -> str:
        return self.mode()

    @torch.no_grad()
    def entropies(self) -> dict[str, list[float]]:
        """Returns one group, with all decisions in order."""
        return {DECISIONS: _entropies(self.log_probabilities(), self.relaxed.allowed).tolist()}

    def state_dict(self) -> dict[str, Any]:
        return {"alpha": self.alpha.detach(), "optimizer": self.optimizer.state_dict()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.alpha.copy_(state["alpha"])
        self.optimizer.load_state_dict(state["optimizer"])

    def _straight_through(self, lesson: Lesson, log_p: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor | None]]:
        """Estimates the gradient of s E[cross-entropy]: losses (n,), tensors, and the gradients to propagate."""
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
        """Like `_straight_through`."""
        samples = self.settings.samples
        losses: list[Tensor] = []
        log_probabilities: list[Tensor] = []
        for _ in range(samples):
            with torch.no_grad():
                chosen = self._choices(log_p, self._generator)
                path = self._supernet.path(self.relaxed.architecture(chosen))
                losses.append(lesson.outcome(path).losses.mean())
            one_hot = torch.zeros_like(log_p).scatter_(1, chosen[:, None], 1.0)
            terms = log_p.gather(1, chosen[:, None])[:, 0]  # (B,)
            log_probabilities.append((self.relaxed.reach(one_hot) * terms).sum())
        drawn = torch.stack(losses)
        advantage = (drawn - drawn.mean()) * samples / (samples - 1)  # over the mean of the other samples
        return drawn, [(self.scale * advantage * torch.stack(log_probabilities)).mean()], [None]

    def _choices(self, log_p: Tensor, generator: torch.Generator) -> Tensor:
        """Draws (B,) indices of choices with their probabilities."""
        return (log_p + gumbel_noise(log_p, generator)).argmax(-1)

    def _kl(self, log_p: Tensor) -> Tensor:
        terms = -self._log_prior - _entropies(log_p, self.relaxed.allowed)  # (B,)
        return (self.relaxed.reach(log_p.exp()) * terms).sum()


def _entropies(log_p: Tensor, allowed: Tensor) -> Tensor:
    """(B, C) -> (B,), in nats, with a gradient also where a choice is impossible."""
    return (log_p.exp() * -log_p.masked_fill(~allowed, 0.0)).sum(-1)


class PosteriorEpoch(NamedTuple):
    """Means over the steps of an epoch, for the parameters before each step, in nats."""

    elbo: float  # -s expected_loss - kl, even if the KL is not part of the objective
    kl: float  # of the posterior from the uniform prior, exact
    expected_loss: float  # an estimate: the cross-entropy of drawn architectures


class PosteriorTrainer(EpochTrainer):
    """Maximizes the ELBO on the validation data.

    Shu (2022) trains the weights on 70 % of the training images, and learns the posterior from the other 30 %
    (section 5.3.2). The supernet is in evaluation mode, and images are not augmented. The weights do not change, and
    are not part of the state.

    Args:
        supernet: Supernet with trained weights; moved to the data's device and frozen.
        posterior: Posterior of this supernet, on that device.
        epochs, batch_size: Passes over the validation data, and images per step.
    """

    def __init__(
        self,
        supernet: Supernet,
        dataset: Dataset,
        posterior: VariationalPosterior,
        *,
        epochs: int,
        batch_size: int,
        seed: int,
        amp: bool = False,
    ) -> None:
        super().__init__(dataset, epochs=epochs, seed=seed, amp=amp)
        self.posterior, self._batch_size = posterior, batch_size
        self.supernet = supernet.to(self.device).eval().requires_grad_(False)

    @property
    def lr(self) -> float:
        return float(self.posterior.optimizer.param_groups[0]["lr"])

    def epoch(self) -> PosteriorEpoch:
        """Makes one pass over the validation data. Raises: Diverged; RuntimeError after the last epoch."""
        self._check_unfinished()
        validation = self.dataset.validation
        order_seed = self._stream(ORDER)
        batches = Batches(validation, None, self._batch_size, None, ordering=order_seed, augmenting=order_seed)
        self.posterior.reseed(self._stream(DRAWS))
        steps = math.ceil(len(validation) / self._batch_size)
        losses, kl = [], 0.0
        for step in range(steps):
            kl += self.posterior.kl() / steps
            progress = (self.epochs_done + step / steps) / self._epochs
            batch = batches.take()
            lesson = lesson_of(partial(self._logits, self.supernet, batch.images), batch.labels)
            losses.append(self.posterior.learn(lesson, progress))
        self.epochs_done += 1
        loss = float(torch.stack(losses).mean())
        if not math.isfinite(loss):
            raise Diverged(
                f"expected a finite loss of drawn architectures, got {loss} in epoch {self.epochs_done}. Lower lr"
            )
        return PosteriorEpoch(-self.posterior.scale * loss - kl, kl, loss)

    def _parts(self) -> dict[str, Any]:
        return {"posterior": self.posterior}
