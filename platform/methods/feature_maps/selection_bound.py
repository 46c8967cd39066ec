"""Bounds on what selection by validation points costs: Theorem 3.1 of Khodak et al. 2020, and its corollaries' rates.

Of a loss between 0 and B, |V| validation points, and the logarithm of how many hypotheses could have been selected:
where every feature map has one solution, the version entropy is log |C| (section 3.1).
"""

from __future__ import annotations

import math

DELTA = 0.05  # each statement holds with probability 1 - DELTA over the validation points; Theorem 3.1 has 1 - 3 DELTA


def gap_bound(bound: float, points: float, entropy: float, delta: float = DELTA) -> float:
    """B sqrt(2/|V| (entropy + log 1/delta)): how far the risk of what was selected can lie above its validation loss.

    Step 1 in the proof of Theorem A.2. It holds for every hypothesis at once, and so whichever rule selects.

    Args:
        bound: B. points: |V|. entropy: log |C|; 0 where nothing was selected.
    """
    return bound * math.sqrt(2 / points * (entropy + math.log(1 / delta))) if points > 0 else math.inf


def hoeffding_bound(bound: float, points: float, entropy: float, delta: float = DELTA) -> float:
    """B sqrt((entropy + log 1/delta) / (2 |V|)): Hoeffding's inequality for each of |C| fixed hypotheses.

    Half of `gap_bound`, whose constant comes from a covering argument that a finite set does without.
    """
    return gap_bound(bound, points, entropy, delta) / 2


def selection_bound(bound: float, points: float, entropy: float, delta: float = DELTA) -> float:
    """(3B/2) sqrt(2/|V| (entropy + log 1/delta)): what the selected one's risk can be above the best candidate's.

    The last term of Theorem 3.1: `gap_bound`, and half of it once more for the best candidate's own validation loss
    (step 3 of the proof). Step 2 needs that the least validation loss was selected, of weights solved for exactly.
    """
    return 1.5 * gap_bound(bound, points, entropy, delta)


def rounds_entropy(candidates: int, left: int) -> float:
    """log of (|C| choose |C_t|) |C_t|: the hypotheses that a round of halving on the points of the rounds before it
    could have selected. Which |C_t| of the |C| candidates share its weights was decided by these very points.
    """
    return math.lgamma(candidates + 1) - math.lgamma(left + 1) - math.lgamma(candidates - left + 1) + math.log(left)


def weights_rate(weight_norm: float, train_points: float, delta: float = DELTA) -> float:
    """sqrt((||w||^2 + 1)/|T| log 1/delta): the first term of Corollary 3.1 as Corollary A.1 proves it, no constant."""
    return math.sqrt((weight_norm**2 + 1) / train_points * math.log(1 / delta))


def kernel_rate(train_points: float, delta: float = DELTA) -> float:
    """log^2(1/delta) / sqrt(|T|): the first term of Corollary 3.2, without its constant."""
    return math.log(1 / delta) ** 2 / math.sqrt(train_points)


def validation_rate(points: float, candidates: int, delta: float = DELTA) -> float:
    """sqrt(1/|V| log((|C| + 1)/delta)): the second term of both, as Corollaries A.2 and A.3 have it, no constant."""
    return math.sqrt(math.log((candidates + 1) / delta) / points)
