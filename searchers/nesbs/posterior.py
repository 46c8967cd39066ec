"""The posterior over architectures: a categorical distribution per decision. Shu 2022, Eq. 5.6-5.7, note E6.

The relaxed posterior is a density over real vectors (Eq. 5.8-5.9): each decision with |O| choices is a block of |O|
coordinates, its density a mixture of Gaussians around the one-hot vectors h_o with covariance |O| I. As
||x - h_o||^2 = ||x||^2 - 2 x_o + 1, the mixture of a block is

    log p(x) = logsumexp_o(log p_o + x_o / |O|) - (||x||^2 + 1) / (2 |O|) - (|O| / 2) log(2 pi |O|),
    grad log p(x) = (softmax_o(log p_o + x_o / |O|) - x) / |O|.

Blocks of different sizes are padded to the largest, C: padded log-probabilities are -inf, padded coordinates 0, and
they stay 0.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from archray.errors import InvalidArchitecture, InvalidInput
from archray.searchers.arguments import FloatArray, HeldSpace, IntArray
from archray.trainables.spaces import ConstrainedSpace, Decision, Space

REDRAWS = 1000  # of a member that does not meet the space's constraint


class Posterior:
    """p_alpha(A), the product of one categorical distribution per decision, and the string of each draw. Immutable.

    Args:
        log_probs: decision -> (choices,) log-probabilities or any logits; they are normalized. -inf, or None, is an
            impossible choice.
        space: a space, its name or reference: the decisions are those of `posterior_decisions`, in their order, and
            a draw's string is the space's. None: the decisions are whatever `log_probs` has.
        encode: without a space, a function from a draw, `{decision: number of the choice}`, to its string; draws with
            equal strings are one architecture. None: JSON.

    Raises: InvalidInput for a wrong argument.
    """

    def __init__(
        self,
        log_probs: Mapping[str, ArrayLike],
        space: str | Space | None = None,
        encode: Callable[[dict[str, int]], str] | None = None,
    ) -> None:
        if not isinstance(log_probs, Mapping) or not log_probs:
            raise InvalidInput(
                f"posterior: expected a dict of decisions and their log-probabilities, got {log_probs!r}"
            )
        if space is not None and encode is not None:
            raise InvalidInput("posterior: expected a space, whose strings are used, or encode; got both")
        self._held = None if space is None else HeldSpace(space)
        self.encode = encode
        self._of_space = () if self.space is None else self.space.posterior_decisions
        rows = {str(name): _normalized(str(name), values) for name, values in log_probs.items()}
        if self.space is not None:
            rows = _in_order(rows, self.space.name, self._of_space)
        self.decisions = tuple(rows)
        self.sizes: IntArray = np.array([len(row) for row in rows.values()])
        self.log_probs: FloatArray = np.full((len(rows), int(self.sizes.max())), -np.inf)  # (B, C), padded
        for number, row in enumerate(rows.values()):
            self.log_probs[number, : len(row)] = row
        self.sizes.flags.writeable = self.log_probs.flags.writeable = False

    @property
    def space(self) -> Space | None:
        """Whose strings the draws have."""
        return None if self._held is None else self._held.space

    @property
    def choices(self) -> dict[str, tuple[str, ...]]:
        """decision -> the names of its choices; their numbers without a space."""
        if self._of_space:
            return {decision.name: decision.choices for decision in self._of_space}
        sizes = zip(self.decisions, self.sizes.tolist(), strict=True)
        return {name: tuple(map(str, range(size))) for name, size in sizes}

    def to_dict(self) -> dict[str, list[float | None]]:
        """decision -> log-probabilities, None for an impossible choice: JSON, the argument of an equal posterior."""
        return {name: [value if math.isfinite(value) else None for value in row.tolist()] for name, row in self._rows()}

    @property
    def checksum(self) -> str:
        """SHA-256 of `to_dict`, hexadecimal."""
        return hashlib.sha256(json.dumps(self.to_dict()).encode()).hexdigest()

    def tempered(self, temperature: float) -> "Posterior":
        """Eq. 5.6 at tau: log p / tau, normalized. Above 1 it is flatter, below 1 sharper."""
        return self._with_rows({name: row / temperature for name, row in self._rows()})

    def uniform(self) -> "Posterior":
        """Every possible choice of a decision equally probable."""
        return self._with_rows({name: np.where(np.isfinite(row), 0.0, -np.inf) for name, row in self._rows()})

    def _with_rows(self, rows: Mapping[str, FloatArray]) -> "Posterior":
        return Posterior(rows, None if self._held is None else self._held.source, self.encode)

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> IntArray:
        """Independent draws from p_alpha: numbers of choices. -> (*shape, B)."""
        below = np.cumsum(np.exp(self.log_probs), -1)  # (B, C)
        below /= below[:, -1:]  # at the end exactly 1, above every uniform number
        return (rng.random((*shape, len(self.sizes), 1)) >= below).sum(-1)

    def feasible(self, choices: IntArray, rng: np.random.Generator) -> IntArray:
        """Draws that meet the space's constraint, if it has one; others are drawn again. (n, B) -> (n, B).

        Raises: InvalidInput if none of a thousand draws does.
        """
        if not isinstance(self.space, ConstrainedSpace):
            return choices
        met = choices.copy()
        for place, row in enumerate(choices):
            draws = itertools.chain([row], (self.draw((), rng) for _ in range(REDRAWS)))
            feasible = next((draw for draw in draws if self._meets(draw)), None)
            if feasible is None:
                raise InvalidInput(
                    f"none of {REDRAWS} draws from the posterior meets {self.space.description}; loosen the "
                    "constraint, or raise temperature"
                )
            met[place] = feasible
        return met

    def _meets(self, choices: IntArray) -> bool:
        try:
            self.architecture(choices)
        except InvalidArchitecture:
            return False
        return True

    def count(self) -> int:
        """How many draws are possible."""
        return math.prod(np.isfinite(self.log_probs).sum(-1).tolist())

    def architecture(self, choices: Sequence[int] | IntArray) -> str:
        """The string of a draw. (B,) -> str, the space's own where there is a space: as drawn, not canonical."""
        numbered = {name: int(number) for name, number in zip(self.decisions, choices, strict=True)}
        if self.space is not None:
            choices_by_name = {decision.name: decision.choices[numbered[decision.name]] for decision in self._of_space}
            return self.space.encode(self.space.architecture_of_decisions(choices_by_name))
        return json.dumps(numbered) if self.encode is None else self.encode(numbered)

    def form(self, architecture: str) -> str:
        """The string of the canonical form; without a space the string itself. Raises: InvalidArchitecture."""
        return architecture if self._held is None else self._held.canonicalise(architecture)

    def _rows(self) -> Iterator[tuple[str, FloatArray]]:
        """Each decision with the log-probabilities of its own choices."""
        for name, row, size in zip(self.decisions, self.log_probs, self.sizes, strict=True):
            yield name, row[:size]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.sizes.flags.writeable = self.log_probs.flags.writeable = False  # NumPy forgets


def _normalized(name: str, values: Any) -> FloatArray:
    """(choices,) log-probabilities. Raises: InvalidInput."""
    listed = [-math.inf if value is None else value for value in values] if isinstance(values, list | tuple) else values
    try:
        row = np.array(listed, dtype=np.float64)
    except (TypeError, ValueError) as error:
        message = f"posterior: expected numbers for the decision {name!r}, got {values!r} ({error})"
        raise InvalidInput(message) from error
    if row.ndim != 1 or not row.size:
        raise InvalidInput(
            f"posterior: expected one log-probability per choice of {name!r}, a list of one dimension, "
            f"got the shape {row.shape}"
        )
    if np.isnan(row).any() or np.isposinf(row).any() or np.isneginf(row).all():
        raise InvalidInput(
            f"posterior: expected log-probabilities of {name!r} that are finite, or -inf for an impossible choice, "
            f"and one finite at least; got {row.tolist()}"
        )
    shifted = row - row.max()
    return shifted - np.log(np.exp(shifted).sum())


def _in_order(rows: Mapping[str, FloatArray], space: str, decisions: tuple[Decision, ...]) -> dict[str, FloatArray]:
    """The rows in the order of the space's decisions. Raises: InvalidInput if they are of other decisions."""
    names = [decision.name for decision in decisions]
    if set(rows) != set(names):
        missing, unknown = [n for n in names if n not in rows], [n for n in rows if n not in names]
        raise InvalidInput(
            f"posterior: expected the decisions of {space} ({', '.join(names)}); "
            f"missing: {', '.join(missing) or 'none'}, unknown: {', '.join(unknown) or 'none'}"
        )
    for decision in decisions:
        if len(rows[decision.name]) != len(decision.choices):
            raise InvalidInput(
                f"posterior: expected {len(decision.choices)} log-probabilities for {decision.name} "
                f"({', '.join(decision.choices)}), got {len(rows[decision.name])}"
            )
    return {name: rows[name] for name in names}


# The relaxed posterior


def relaxed_log_density_gradient(x: FloatArray, log_probs: FloatArray, sizes: IntArray) -> FloatArray:
    """The gradient of log p, Eq. 5.8, in x. (..., B, C) -> (..., B, C).

    Args:
        x: (..., B, C) particles, padded with 0.
        log_probs: (B, C) of B decisions, -inf where a choice is impossible, and where it is padding.
        sizes: (B,) |O| of each decision.
    """
    rates = 1.0 / sizes[:, None]
    weights = x * rates
    weights += log_probs
    weights -= weights.max(-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(-1, keepdims=True)
    weights -= x
    weights *= rates
    return weights


def first_particles(choices: IntArray, sizes: IntArray, width: int, rng: np.random.Generator) -> FloatArray:
    """One-hot vectors of drawn choices plus N(0, |O| I), a draw from Eq. 5.8 (note E3). (..., B) -> (..., B, width)."""
    real = np.arange(width) < sizes[:, None]  # (B, C), False in the padding
    noise = rng.standard_normal((*choices.shape, width)) * np.sqrt(sizes)[:, None]
    return np.where(real, noise + (np.arange(width) == choices[..., None]), 0.0)


def nearest_choices(x: FloatArray, log_probs: FloatArray) -> IntArray:
    """Eq. 5.9: per decision the choice whose one-hot vector is nearest, the first of equals. (..., B, C) -> (..., B).

    That is the largest coordinate. Unlike the paper's, an impossible choice is never taken, however near.
    """
    return np.where(np.isneginf(log_probs), -np.inf, x).argmax(-1)
