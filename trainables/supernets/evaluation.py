"""Evaluation with shared weights, of a mixture or of many architectures in one pass over the data."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.costs.networks import EdgeCosts
from archray.trainables.data.dataset import Split
from archray.trainables.spaces import Architecture, Space
from archray.trainables.supernets.mixing import Mixture
from archray.trainables.supernets.networks.supernet import LEFT_OUT, NONE, Supernet
from archray.trainables.training import Metrics

ORDER = 0  # seed of the order of the images in evaluations
STEPS = 60  # maximum number of steps of the walk to an architecture that meets a constraint
NEIGHBORS = 40  # maximum number of mutations that a step of the walk compares


@torch.no_grad()
def score_architectures(
    supernet: Supernet,
    architectures: Sequence[Architecture | str],
    split: Split,
    batch: int = 512,
    *,
    amp: bool = False,
) -> list[Metrics]:
    """Computes loss and accuracy of each architecture with the supernet's weights, in evaluation mode, in order.

    Args:
        split: Split on the supernet's device; without images all metrics are NaN.

    Raises: InvalidArchitecture.
    """
    draws = [_path_of(supernet, architecture) for architecture in architectures]
    return evaluate(supernet, draws, split, batch, amp)


@torch.no_grad()
def predict_architecture(
    supernet: Supernet, architecture: Architecture | str, split: Split, batch: int = 512, *, amp: bool = False
) -> Tensor:
    """Computes class probabilities, (images, classes) float32, with the supernet's weights in evaluation mode.

    Batches, and therefore the loss, are those of `score_architectures`.

    Raises: InvalidArchitecture; InvalidInput if the split has no images.
    """
    if not len(split):
        raise InvalidInput("expected a split with images to predict on, got none")
    passes = list(_passes(supernet, [_path_of(supernet, architecture)], split, batch, amp))
    places = torch.cat([indices for indices, _, _ in passes])
    return torch.cat([logits for _, _, logits in passes]).softmax(1)[places.argsort()]


@torch.no_grad()
def evaluate(
    supernet: Supernet, draws: Sequence[Callable[[], Mixture]], split: Split, batch: int, amp: bool
) -> list[Metrics]:
    """Computes loss and accuracy, in evaluation mode, of each of `draws`, which is called for each batch."""
    device = split.device
    losses = torch.zeros(len(draws), device=device)  # sums stay on the device: one synchronization in total
    correct = torch.zeros(len(draws), dtype=torch.int64, device=device)
    for indices, number, logits in _passes(supernet, draws, split, batch, amp):
        labels = split.labels[indices]
        losses[number] += F.cross_entropy(logits, labels, reduction="sum")
        correct[number] += (logits.argmax(1) == labels).sum()
    count = len(split) or math.nan
    return [Metrics(loss / count, right / count) for loss, right in zip(losses.tolist(), correct.tolist(), strict=True)]


def _passes(
    supernet: Supernet, draws: Sequence[Callable[[], Mixture]], split: Split, batch: int, amp: bool
) -> Iterator[tuple[Tensor, int, Tensor]]:
    """Yields, for every batch and draw, the images' indices in the split, the draw's index and logits in float32."""
    device, count = split.device, len(split)
    # Supernets normalize by the statistics of the batch, and data may be sorted by class. Use a fixed random order.
    order = torch.randperm(count, generator=torch.Generator().manual_seed(ORDER)).to(device)
    was_training = supernet.training
    supernet.eval()
    try:
        for indices in order.tensor_split(math.ceil(count / batch)) if count else ():
            images = split.batch(indices)
            for number, draw in enumerate(draws):
                with torch.autocast(device.type, dtype=torch.bfloat16) if amp else nullcontext():
                    logits = supernet(images, draw())
                yield indices, number, logits.float()
    finally:
        supernet.train(was_training)


def _path_of(supernet: Supernet, architecture: Architecture | str) -> Callable[[], Mixture]:
    path = supernet.path(supernet.space.decode(architecture) if isinstance(architecture, str) else architecture)
    return lambda: path


def log_probability(supernet: Supernet, probabilities: Mapping[str, Tensor], architecture: Architecture) -> float:
    """Computes an architecture's log-probability in nats under the learned weights: the sum over its edges.

    Args:
        probabilities: group -> (edges, operations). An edge that the architecture leaves out counts as `none`, if that
            is an operation of the group.
    """
    total = 0.0
    for group in supernet.groups:
        rows = probabilities[group.name].detach().cpu().double().clamp_min(1e-12).log()
        weights = supernet.path(architecture)[group.name]
        chosen = weights.dense.argmax(-1) if weights.chosen is None else weights.chosen
        for edge, column in enumerate(chosen.tolist()):
            if column != LEFT_OUT:
                total += float(rows[edge, column])
            elif NONE in group.operations:
                total += float(rows[edge, group.operations.index(NONE)])
    return total


def path_cost(supernet: Supernet, costs: EdgeCosts, architecture: str) -> float:
    """Computes the cost of an architecture's operations from a table of edges."""
    weights = supernet.path(supernet.space.decode(architecture))
    return float(costs.expected({name: rows.dense.cpu().double() for name, rows in weights.items()}))


def feasible_architecture(
    supernet: Supernet,
    derived: str,
    probabilities: Mapping[str, Tensor] | None,
    violation: Callable[[str], float],
    seed: int,
) -> str:
    """Returns the string of the derived architecture if it meets a constraint, else of a nearby one that does.

    1. While no neighbor meets the constraint: the mutation that loses the least log-probability per reduction of the
       violation.
    2. When mutations meet it: the most probable of them, and then the most probable feasible neighbor.

    Without probabilities only the violation counts. If the walk reaches no feasible architecture, the result is the
    architecture with the smallest violation.

    Args:
        violation: Function from a string to the size of the violation; 0 if it meets the constraint.
        seed: Seed of the compared mutations, if there are more than 40.
    """
    space, rng = supernet.space, np.random.default_rng(seed)
    without_none = not any(NONE in group.operations for group in supernet.groups)

    @cache
    def judgment(architecture: Architecture) -> tuple[float, float]:
        """Returns violation and log-probability."""
        score = 0.0 if probabilities is None else log_probability(supernet, probabilities, architecture)
        return violation(space.encode(architecture)), score

    here = space.decode(derived)
    for _ in range(STEPS):
        excess, score = judgment(here)
        near = [child for child in _neighbors(space, here, rng) if not (without_none and NONE in child)]
        feasible = [child for child in near if judgment(child)[0] == 0.0]
        better = [child for child in near if judgment(child)[0] < excess]
        if excess == 0.0:
            best = max(feasible, key=lambda child: judgment(child)[1], default=here)
            if judgment(best)[1] <= score:
                break
            here = best
        elif feasible:
            here = max(feasible, key=lambda child: judgment(child)[1])
        elif better:
            here = max(better, key=lambda child: (judgment(child)[1] - score) / (excess - judgment(child)[0]))
        else:
            break
    return space.encode(here)


def _neighbors(space: Space, architecture: Architecture, rng: np.random.Generator) -> Iterator[Architecture]:
    listed = space.mutations(architecture)
    if listed is None:
        for _ in range(NEIGHBORS):
            yield space.mutate(architecture, rng)
        return
    near = list(listed)
    for place in rng.permutation(len(near))[:NEIGHBORS] if len(near) > NEIGHBORS else range(len(near)):
        yield near[place]
