"""Joint training of weights and architecture parameters. DARTS, Liu et al. 2019; GAEA, Li et al. 2021, Algorithm 1."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.seeds import stream_seed
from archray.trainables.costs.networks import EdgeCosts
from archray.trainables.cuda_graphs import GraphedPasses
from archray.trainables.data.dataset import Augmentation, Dataset, Split
from archray.trainables.data.raw import stratified_split
from archray.trainables.devices import restored_randomness, tf32
from archray.trainables.supernets.evaluation import evaluate, score_architectures
from archray.trainables.supernets.mixing import Lesson, Mixing, Mixture, lesson_of, unrolled_gradient
from archray.trainables.supernets.networks.supernet import NONE, Group, Supernet
from archray.trainables.supernets.settings import SECOND_ORDER, CostPenaltySettings, SupernetTrainingSettings
from archray.trainables.training import NO_METRICS, Metrics, SGDTrainer, cosine

logger = logging.getLogger(__name__)

# Purposes of random streams
WEIGHT_ORDER, WEIGHT_AUGMENTATION, ARCHITECTURE_ORDER, ARCHITECTURE_AUGMENTATION = 0, 1, 2, 3
BLOCKS, MIXTURES, NETWORK, EVALUATION, HALVES, DERIVATION = 4, 5, 6, 7, 8, 9


class Block(NamedTuple):
    """One step of the architecture or of the weights, and its number, which determines rates and progress."""

    architecture: bool
    step: int


def both_blocks(order: str, steps: int, seed: int) -> list[Block]:
    """Returns twice as many blocks as steps. Half of them train the architecture, with `random` on average.

    Args:
        order: `SupernetTrainingSettings.blocks`.
        seed: Seed of the order `random`.
    """
    if order == "phases":
        return [Block(architecture, step) for architecture in (False, True) for step in range(steps)]
    if order == "alternating":
        return [Block(architecture, step) for step in range(steps) for architecture in (True, False)]
    drawn = torch.randint(2, (2 * steps,), generator=torch.Generator().manual_seed(seed)).bool().tolist()
    return [Block(architecture, number // 2) for number, architecture in enumerate(drawn)]


class Batch(NamedTuple):
    """Images (b, C, H, W) and labels (b,)."""

    images: Tensor
    labels: Tensor


class Batches:
    """Passes over images of a split, each in a new order, divided into batches of nearly equal size.

    Args:
        indices: Indices of the images, on the split's device; None uses all.
        batch_size: Maximum size of a batch.
        ordering, augmenting: Seeds.
    """

    def __init__(
        self,
        split: Split,
        indices: Tensor | None,
        batch_size: int,
        augmentation: Augmentation | None,
        *,
        ordering: int,
        augmenting: int,
    ) -> None:
        device = split.device
        self._split, self._augmentation = split, augmentation
        self._indices = torch.arange(len(split), device=device) if indices is None else indices
        self._per_pass = math.ceil(len(self._indices) / batch_size)
        self._ordering = torch.Generator(device).manual_seed(ordering)
        self._augmenting = torch.Generator(device).manual_seed(augmenting)
        self._stream = self._drawn()
        self._upcoming: Batch | None = None

    def images_in(self, batches: int) -> int:
        """Returns the number of images in the first `batches` batches."""
        passes, rest = divmod(batches, self._per_pass)
        size, larger = divmod(len(self._indices), self._per_pass)  # the first batches of a pass are larger by one
        return passes * len(self._indices) + rest * size + min(rest, larger)

    def upcoming(self) -> Batch:
        """Returns the batch that `take` returns next, augmented."""
        if self._upcoming is None:
            self._upcoming = next(self._stream)
        return self._upcoming

    def take(self) -> Batch:
        batch, self._upcoming = self.upcoming(), None
        return batch

    def _drawn(self) -> Iterator[Batch]:
        device = self._indices.device
        while True:
            order = self._indices[torch.randperm(len(self._indices), generator=self._ordering, device=device)]
            for indices in order.tensor_split(self._per_pass):
                images = self._split.batch(indices)
                if self._augmentation is not None:
                    images = self._augmentation(images, self._augmenting)
                yield Batch(images, self._split.labels[indices])


class UpdateCounter:
    """Counts, for each edge and operation, the steps of the weights whose path took it. Shu 2022, App. B.1; note E7.

    It does not count steps of a mixture, which update every operation, and draws of inputs.

    Attributes:
        steps: Number of steps of a single path.
        counts: group -> (edges, operations) int64, on the CPU; zero for `none`, which has no weights.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups = {group.name: group for group in groups}
        self.steps = 0
        self.counts: dict[str, Tensor] = {}

    def add(self, mixture: Mixture) -> None:
        """Counts one step of the weights under `mixture`."""
        taken = {name: weights.chosen for name, weights in mixture.items() if weights.chosen is not None}
        self.steps += bool(taken)
        for name, chosen in taken.items():
            group = self._groups[name]
            if group.inputs:
                continue
            has_weights = torch.tensor([column != NONE for column in group.operations])
            columns = torch.arange(len(group.operations))
            counted = ((chosen[:, None] == columns) & has_weights).long()
            self.counts[name] = self.counts[name] + counted if name in self.counts else counted

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "counts": dict(self.counts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steps = state["steps"]
        self.counts = {name: counts.cpu() for name, counts in state["counts"].items()}


def update_table(
    counter: UpdateCounter, groups: Sequence[Group], chances: Mapping[str, Tensor] | None
) -> dict[str, list[Any]]:
    """Returns columns of equal length: `group`, `edge` (row in the group), `operation`, `updates`, `steps`, `chance`.

    Updates are binomial, with `steps` trials of probability `chance` (note E7; None if unknown).

    Args:
        chances: group -> (edges, operations), the probability that a step takes an operation.
    """
    rows: list[tuple[Any, ...]] = []
    for group in groups:
        if group.name not in counter.counts:
            continue
        for edge, row in enumerate(counter.counts[group.name].tolist()):
            for column, (operation, count) in enumerate(zip(group.operations, row, strict=True)):
                if operation != NONE:
                    chance = None if chances is None else float(chances[group.name][edge, column])
                    rows.append((group.name, edge, operation, count, counter.steps, chance))
    names = ("group", "edge", "operation", "updates", "steps", "chance")
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


class CostPenalty:
    """Adds weight * E[cost] / E_uniform[cost] to the architecture's loss. With a target, the weight is adapted.

    After each step, with a target: weight <- max(0, weight + rate (E[cost] / target - 1)), dual ascent. ProxylessNAS
    (Cai et al. 2019, Eq. 2 and 3) adds the expected latency without dividing it by that of the uniform mixture. FBNet
    (Wu et al. 2019, Eq. 2 to 4) multiplies the loss by a power of the logarithm of the latency.

    Args:
        costs: Costs of the supernet's groups.
        shapes: group -> (edges, operations).
    """

    def __init__(self, settings: CostPenaltySettings, costs: EdgeCosts, shapes: Mapping[str, tuple[int, int]]) -> None:
        self.settings, self.costs, self.weight = settings, costs, settings.weight
        uniform = {name: torch.full(shape, 1.0 / shape[1], dtype=torch.float64) for name, shape in shapes.items()}
        self.unit = float(costs.expected(uniform)) or 1.0

    def with_penalty(self, lesson: Lesson) -> Lesson:
        """Returns the lesson with the penalty in its gradient and its loss."""

        def gradient(leaves: Mixture) -> tuple[Tensor, dict[str, Tensor]]:
            loss, gradients = lesson.gradient(leaves)
            dense = {name: weights.dense.detach() for name, weights in leaves.items()}
            expected = self.costs.expected(dense)
            scale = self.weight / self.unit
            for name, entries in self.costs.tensors(loss).items():
                gradients[name] = gradients[name] + scale * entries
            if self.settings.target is not None:
                excess = float(expected) / self.settings.target - 1.0
                self.weight = max(0.0, self.weight + self.settings.rate * excess)
            return loss + scale * expected, gradients

        return replace(lesson, gradient=gradient)

    def state_dict(self) -> dict[str, Any]:
        return {"weight": self.weight}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.weight = float(state["weight"])


class Diverged(ArithmeticError):
    """A loss or a gradient is infinite or NaN. The message contains its name and the epoch."""


class SupernetTrainer(SGDTrainer[SupernetTrainingSettings]):
    """Trains a supernet on a data set.

    In each step after the warm-up, if the mixing learns (`blocks` alternating):

    1. theta <- `mixing.learn` on a batch of the architecture's data (`erm`: of all training data). It uses
       grad_theta L(w, theta), at these weights or (second order) one step ahead; or a gradient per image; or a reward.
    2. w <- SGD by grad_w L_train(w, theta) on a batch of the weights' data, clipped, with a cosine learning rate.

    With `random` blocks, an epoch has twice as many steps, each 1. or 2. with equal probability; in `phases` all 2. of
    an epoch come before all 1. The result is the last iterate (note G1). The learning rate is annealed per step,
    whereas the program of DARTS anneals it per epoch. If the mixing does not learn, all training data train the
    weights.

    torch's global generators do not change.

    Args:
        supernet: Moved to the data's device.
        mixing: Source of each step's mixture, with tensors on that device.
        seed: Seed of all random choices except initial weights and architecture parameters, which the caller creates.
        penalty: Part of the architecture's loss that depends on the cost of the mixture.

    Raises: InvalidInput if the training data cannot be divided, or the mixing does not support these settings.
    """

    def __init__(
        self,
        supernet: Supernet,
        dataset: Dataset,
        mixing: Mixing,
        settings: SupernetTrainingSettings,
        *,
        seed: int,
        penalty: CostPenalty | None = None,
    ) -> None:
        self.penalty = penalty
        self.supernet, self.mixing = supernet.to(dataset.train.device), mixing
        super().__init__(self.supernet, dataset, settings, seed=seed)
        if settings.amp and self.device.type == "cpu":
            logger.warning("amp makes the training of a supernet slower on a CPU. Set amp to false.")
        self._graphs = None
        if settings.cuda_graphs:
            if settings.objective == SECOND_ORDER:
                raise InvalidInput(
                    f"expected cuda_graphs false with the objective {SECOND_ORDER}, whose passes keep their gradients, "
                    "got true. Set cuda_graphs to false"
                )
            self._graphs = GraphedPasses(self.supernet, amp=settings.amp)
        self.updates = UpdateCounter(supernet.groups)
        count = len(dataset.train)
        weights = other = np.arange(count)
        self._architecture_split = dataset.train
        if settings.architecture_data == "validation":
            self._architecture_split, other = dataset.validation, np.arange(len(dataset.validation))
        elif mixing.learns and settings.objective != "erm":
            weights, other = stratified_split(
                dataset.train.labels.cpu().numpy(), settings.architecture_fraction, stream_seed(seed, 0, HALVES)
            )
        self.weight_images = torch.from_numpy(weights).to(self.device)  # indices of training images
        self.architecture_images = torch.from_numpy(other).to(self.device)  # of `_architecture_split`
        # The number of images in all steps of the architecture
        architecture_batches = self._batches()[1]
        steps = [sum(block.architecture for block in self._blocks(epoch)) for epoch in range(settings.epochs)]
        mixing.prepare(settings, sum(map(architecture_batches.images_in, steps)))

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches in one pass over the weights' data."""
        return math.ceil(len(self.weight_images) / self.settings.batch_size)

    def epoch(self) -> Metrics:
        """Trains one epoch. Returns loss and accuracy on the weights' augmented batches, before each step.

        They are NaN in the rare epoch of random blocks that trains no weights.

        Raises: RuntimeError when training has finished; Diverged if a loss is infinite or NaN. The state is then
            useless.
        """
        self._check_unfinished()
        self.supernet.train()
        self.mixing.reseed(self._stream(MIXTURES))
        weight_batches, architecture_batches = self._batches()
        # Sums stay on the device: one synchronization per epoch.
        loss_sum, architecture_loss = torch.zeros(2, device=self.device)
        correct = torch.zeros((), dtype=torch.int64, device=self.device)
        count = 0
        with restored_randomness(self._stream(NETWORK), self.device), tf32(self.settings.tf32):
            for architecture, step in self._blocks(self.epochs_done):
                if architecture:
                    batch = architecture_batches.take()
                    architecture_loss += self._architecture_step(batch, weight_batches.upcoming, step)
                else:
                    batch = weight_batches.take()
                    loss, logits = self._weight_step(batch, step)
                    loss_sum += loss * len(batch.labels)
                    correct += (logits.argmax(1) == batch.labels).sum()
                    count += len(batch.labels)
        self.epochs_done += 1
        for block, loss in (("training", loss_sum), ("architecture", architecture_loss)):
            if not math.isfinite(loss.item()):
                raise Diverged(
                    f"expected a finite {block} loss, got {loss.item()} in epoch {self.epochs_done}. Lower lr"
                )
        if count == 0:
            return NO_METRICS
        return Metrics(loss_sum.item() / count, correct.item() / count)

    def _blocks(self, epoch: int) -> list[Block]:
        if not self.mixing.learns or epoch < self.settings.warmup_epochs:
            return [Block(False, step) for step in range(self.steps_per_epoch)]
        return both_blocks(self.settings.blocks, self.steps_per_epoch, stream_seed(self.seed, epoch, BLOCKS))

    def _architecture_step(self, batch: Batch, upcoming: Callable[[], Batch], step: int) -> Tensor:
        """Updates the architecture; returns the loss before it. upcoming: returns the weights' next batch."""
        lesson = lesson_of(partial(self._pass, batch.images), batch.labels)
        if self.settings.objective == SECOND_ORDER:
            lesson = replace(lesson, gradient=lambda leaves: self._gradient_ahead(batch, upcoming(), leaves, step))
        if self.penalty is not None:
            lesson = self.penalty.with_penalty(lesson)
        try:
            return self.mixing.learn(lesson, self._progress(step))
        except FloatingPointError as error:
            raise Diverged(f"{error}, in epoch {self.epochs_done + 1}") from error

    def _gradient_ahead(
        self, batch: Batch, ahead: Batch, leaves: Mixture, step: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Like `Lesson.gradient`, at weights after one step on the batch `ahead`."""
        momenta = {w: state.get("momentum_buffer") for w, state in self.optimizer.state.items()}
        return unrolled_gradient(
            lambda mixture: self._loss(batch, mixture)[0],
            lambda mixture: self._loss(ahead, mixture)[0],
            leaves,
            self._weights,
            lr=self._lr(step),
            buffers={w: momentum for w, momentum in momenta.items() if momentum is not None},
            momentum=self.settings.momentum,
            nesterov=self.settings.nesterov,
            weight_decay=self.settings.weight_decay,
        )

    def _weight_step(self, batch: Batch, step: int) -> tuple[Tensor, Tensor]:
        """Makes one update of the weights; returns the loss and the logits before it."""
        with torch.no_grad():
            drawn = self.mixing.draw(self._progress(step))
        # On the simplex, a draw returns the architecture parameters themselves.
        mixture = {name: replace(weights, dense=weights.dense.detach()) for name, weights in drawn.items()}
        loss, logits = self._loss(batch, mixture)
        self._descend(loss, self._lr(step))
        self.updates.add(mixture)
        return loss.detach(), logits.detach()

    def _loss(self, batch: Batch, mixture: Mixture) -> tuple[Tensor, Tensor]:
        logits = self._pass(batch.images, mixture)
        return F.cross_entropy(logits, batch.labels), logits

    def _pass(self, images: Tensor, mixture: Mixture) -> Tensor:
        """Computes (b, classes) float32."""
        if self._graphs is None or any(weights.chosen is not None for weights in mixture.values()):
            return self._logits(self.supernet, images, mixture)
        logits: Tensor = self._graphs(images, {name: weights.dense for name, weights in mixture.items()})
        return logits.float()

    def evaluate(self, split: Split) -> Metrics:
        """Computes loss and accuracy on a whole split, in evaluation mode, with the mixture of the current parameters.

        A mixing that draws does so for each batch, from (seed, epoch).
        """
        draw = self.mixing.evaluation(self._progress(0), self._stream(EVALUATION))
        [metrics] = evaluate(self.supernet, [draw], split, self.settings.evaluation_batch, self.settings.amp)
        return metrics

    def score(self, architectures: Sequence[str]) -> list[Metrics]:
        """Computes metrics of each architecture with the shared weights, on the validation data."""
        batch, amp = self.settings.evaluation_batch, self.settings.amp
        return score_architectures(self.supernet, architectures, self.dataset.validation, batch, amp=amp)

    def derive(self) -> str | None:
        """Returns the learned architecture, fixed by (seed, epoch); None if nothing is learned."""
        return self.mixing.derive(
            lambda architectures: [metrics.accuracy for metrics in self.score(architectures)], self._stream(DERIVATION)
        )

    def _parts(self) -> dict[str, Any]:
        parts = {"supernet": self.supernet, "optimizer": self.optimizer, "mixing": self.mixing, "updates": self.updates}
        return parts if self.penalty is None else parts | {"penalty": self.penalty}

    def _lr(self, step: int) -> float:
        steps = self.steps_per_epoch
        least = self.settings.lr_min
        return least + cosine(self.settings.lr - least, self.epochs_done * steps + step, self.settings.epochs * steps)

    def _progress(self, step: int) -> float:
        """Returns the completed share of the training before a step of the next epoch."""
        return (self.epochs_done + step / self.steps_per_epoch) / self.settings.epochs

    def _batches(self) -> tuple[Batches, Batches]:
        """Creates batches of the next epoch, for the weights and for the architecture."""

        def batches(split: Split, images: Tensor, order: int, augmentation: int) -> Batches:
            seeds = {"ordering": self._stream(order), "augmenting": self._stream(augmentation)}
            return Batches(split, images, self.settings.batch_size, self._augmentation, **seeds)

        return (
            batches(self.dataset.train, self.weight_images, WEIGHT_ORDER, WEIGHT_AUGMENTATION),
            batches(self._architecture_split, self.architecture_images, ARCHITECTURE_ORDER, ARCHITECTURE_AUGMENTATION),
        )
