"""Loss and accuracy of many ensembles of few distinct members, from predictions that are computed once; selection.

An ensemble of n members with N images and C classes costs n additions of a float32 array (C, N), one maximum over the
other classes, and one logarithm of N numbers. Nothing is gathered or copied for an ensemble: predictions are arranged
once for each member, an image's true class first, so that the loss needs one row and the accuracy no argmax.

Forward selection of an ensemble from a pool of trained networks: Zaidi et al. 2021 (NES), section 4; note E8.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from archray.errors import InvalidInput
from archray.trainables.ensembles.measures import FLOOR, Averaged, Floats, Integers, check_averaged, check_labels

Arranged = npt.NDArray[np.float32]  # (classes, images): row 0 is each image's true class, then the others in order


def arrange(probabilities: npt.ArrayLike, labels: npt.ArrayLike, how: Averaged = "probabilities") -> Arranged:
    """Arranges one member's predictions for `score_ensembles`: (images, classes) -> (classes, images).

    how: averaged outputs; for `logits` the result contains log-probabilities. Raises: InvalidInput.
    """
    p = np.asarray(probabilities, dtype=np.float32)
    if p.ndim != 2 or 0 in p.shape or not np.isfinite(p).all():
        raise InvalidInput(f"expected finite probabilities of shape (images, classes), got {p.shape}")
    first = np.take_along_axis(p.T, _order(check_labels(labels, *p.shape), p.shape[1]), axis=0)
    if check_averaged(how) == "logits":
        first = np.log(np.maximum(first, np.float32(FLOOR)))
    return np.ascontiguousarray(first)


def score_ensembles(
    arranged: Sequence[Arranged],
    labels: npt.ArrayLike,
    ensembles: Sequence[Sequence[int]] | npt.NDArray[np.integer],
    how: Averaged = "probabilities",
) -> tuple[Floats, Floats]:
    """Computes losses and accuracies, (T,) each, of T ensembles: `ensemble_loss` and `ensemble_accuracy` in float32.

    The order of members in an ensemble changes nothing, not even the rounding.

    Args:
        arranged: Predictions of each distinct member, all with the same labels and `how`.
        ensembles: (T, n) indices in `arranged`, or T lists of different lengths.

    Raises: InvalidInput.
    """
    if len({member.shape for member in arranged}) != 1:
        raise InvalidInput(f"expected members with one shape, got {sorted({member.shape for member in arranged})}")
    classes, images = arranged[0].shape
    y = check_labels(labels, images, classes)
    logits = check_averaged(how) == "logits"
    losses, accuracies = np.empty(len(ensembles)), np.empty(len(ensembles))
    total, rival = np.empty((classes, images), np.float32), np.empty(images, np.float32)
    for t, ensemble in enumerate(ensembles):
        members = sorted(int(position) for position in ensemble)
        if not members or members[0] < 0 or members[-1] >= len(arranged):
            raise InvalidInput(f"expected one or more indices 0..{len(arranged) - 1}, got {members}")
        np.copyto(total, arranged[members[0]])
        for member in members[1:]:
            total += arranged[member]
        accuracies[t] = (images - _wrong(total, rival, y)) / images
        losses[t] = _loss_of_logits(total, len(members)) if logits else _loss(total[0], len(members), rival)
    return losses, accuracies


@dataclass(frozen=True)
class Selection:
    """An ensemble from a pool."""

    members: list[int]  # indices in the pool, in the order of choice
    losses: list[float]  # of the ensemble after each choice: the negative log-likelihood of the averaged probabilities


def forward_selection(probabilities: npt.ArrayLike, labels: npt.ArrayLike, size: int) -> Selection:
    """Chooses `size` members greedily, without repetition.

    1. Start without members.
    2. Add the member of the pool that gives the ensemble the smallest validation loss; the first one wins a tie.
    3. Repeat until there are `size`.

    The loss of an average needs only each member's probability of the true class: (pool, images).

    Args:
        probabilities: Probabilities of the pool on the validation images, (pool, images, classes).
        labels: (images,).
        size: Size of the ensemble.

    Raises: InvalidInput for other shapes, infinite or NaN values, or more members than the pool has.
    """
    p = np.asarray(probabilities)
    if p.ndim != 3 or 0 in p.shape:
        raise InvalidInput(f"expected probabilities of shape (pool, images, classes), got {p.shape}")
    if not 1 <= size <= len(p):
        raise InvalidInput(f"expected a size of 1 to {len(p)}, the members of the pool, got {size}")
    y = check_labels(labels, *p.shape[1:])
    of_label = p[:, np.arange(len(y)), y].astype(np.float64)  # (pool, images)
    if not np.isfinite(of_label).all():
        raise InvalidInput(
            "expected finite probabilities, got infinity or NaN. Remove members that failed from the pool"
        )
    members: list[int] = []
    losses: list[float] = []
    total = np.zeros(len(y))
    left = np.ones(len(p), dtype=bool)
    while len(members) < size:
        averaged = np.maximum((total + of_label[left]) / (len(members) + 1), FLOOR)  # (left, images)
        candidate_losses = -np.log(averaged).mean(axis=1)
        best = int(np.flatnonzero(left)[candidate_losses.argmin()])
        members.append(best)
        losses.append(float(candidate_losses.min()))
        total += of_label[best]
        left[best] = False
    return Selection(members, losses)


def _order(labels: Integers, classes: int) -> Integers:
    """Returns (classes, images): the class of each row, the true one, then the others in order."""
    others = np.arange(classes - 1)[:, None]
    return np.concatenate([labels[None], others + (others >= labels)])


def _wrong(total: Arranged, rival: Arranged, labels: Integers) -> int:
    """Counts the images whose argmax is not their label; the first class wins a tie, as in argmax."""
    if len(total) == 1:
        return 0
    np.max(total[1:], axis=0, out=rival)
    wrong = int(np.count_nonzero(rival > total[0]))
    drawn = np.flatnonzero(rival == total[0])  # ties, which occur if saturated members disagree
    if len(drawn):
        wrong += int(np.count_nonzero(total[1:, drawn].argmax(axis=0) < labels[drawn]))
    return wrong


def _loss(of_label: Arranged, members: int, scratch: Arranged) -> float:
    """Computes -mean log(sum / n). of_label: (images,) sums over members."""
    np.maximum(of_label, np.float32(members * FLOOR), out=scratch)
    np.log(scratch, out=scratch)
    return float(np.log(members) - scratch.mean(dtype=np.float64))


def _loss_of_logits(total: Arranged, members: int) -> float:
    """Computes -mean log softmax of the mean logits. total: (classes, images) sums over members; it is overwritten."""
    total /= members
    of_label = total[0].mean(dtype=np.float64)
    highest = total.max(axis=0)
    total -= highest
    np.exp(total, out=total)
    normalizer = highest + np.log(total.sum(axis=0))
    return float(normalizer.mean(dtype=np.float64) - of_label)
