"""Forward selection of an ensemble from a pool of trained networks. Zaidi et al. 2021 (NES), section 4; note E8."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from archray.errors import InvalidInput
from archray.trainables.ensembles.measures import FLOOR, check_labels


@dataclass(frozen=True)
class Selection:
    """What was selected.

    Attributes:
        members: positions in the pool, in the order of choice.
        losses: of the ensemble after each choice: the negative log-likelihood of the averaged probabilities.
    """

    members: list[int]
    losses: list[float]


def forward_selection(probabilities: npt.ArrayLike, labels: npt.ArrayLike, size: int) -> Selection:
    """Chooses `size` members greedily, without repetition.

    1. Begin with no member.
    2. Add the one of the pool with which the ensemble's validation loss is least; the first one wins a draw.
    3. Repeat until there are `size`.

    The loss of an average needs each member's probability of the true class only: (pool, images).

    Args:
        probabilities: of the pool on the validation images, (pool, images, classes).
        labels: (images,).
        size: of the ensemble.

    Raises: InvalidInput for other shapes, values that are not finite, or more members than the pool has.
    """
    p = np.asarray(probabilities)
    if p.ndim != 3 or 0 in p.shape:
        raise InvalidInput(f"expected probabilities of shape (pool, images, classes), got {p.shape}")
    if not 1 <= size <= len(p):
        raise InvalidInput(f"expected a size of 1 to {len(p)}, as the pool has no more members, got {size}")
    y = check_labels(labels, *p.shape[1:])
    of_label = p[:, np.arange(len(y)), y].astype(np.float64)  # (pool, images)
    if not np.isfinite(of_label).all():
        raise InvalidInput("expected finite probabilities, got others; leave members that failed out of the pool")
    members: list[int] = []
    losses: list[float] = []
    total = np.zeros(len(y))
    left = np.ones(len(p), dtype=bool)
    while len(members) < size:
        averaged = np.maximum((total + of_label[left]) / (len(members) + 1), FLOOR)  # (left, images)
        found = -np.log(averaged).mean(axis=1)
        best = int(np.flatnonzero(left)[found.argmin()])
        members.append(best)
        losses.append(float(found.min()))
        total += of_label[best]
        left[best] = False
    return Selection(members, losses)
