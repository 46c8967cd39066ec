"""The posterior over architectures: a categorical distribution per decision. Shu 2022, Eq. 5.6-5.7, note E6.

The relaxed posterior is a density over real vectors (Eq. 5.8-5.9). A decision with |O| choices is a block of |O|
coordinates. Its density is a mixture of Gaussians around the one-hot vectors h_o with covariance |O| I. Since
||x - h_o||^2 = ||x||^2 - 2 x_o + 1, the mixture of a block is

    log p(x) = logsumexp_o(log p_o + x_o / |O|) - (||x||^2 + 1) / (2 |O|) - (|O| / 2) log(2 pi |O|),
    grad log p(x) = (softmax_o(log p_o + x_o / |O|) - x) / |O|.

Blocks are padded to the largest size, C: padded log-probabilities are -inf, and padded coordinates are 0 and stay 0.
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

REDRAWS = 1000  # maximum number of new draws for a member that violates the space's constraint


class Posterior:
    """The posterior p_alpha(A) over architectures, an immutable product of one categorical distribution per decision.

    Args:
        log_probs: a dictionary from decision to log-probabilities or logits, (choices,), which are normalized. -inf or
            None marks an impossible choice.
        space: a space, its name or reference. The decisions must be its `posterior_decisions`, and draws become strings
            of the space. None: the decisions are the keys of `log_probs`.
        encode: without a space, a function from a draw, `{decision: number of the choice}`, to its string; draws with
            equal strings are one architecture. None: JSON.

    Raises: InvalidInput for an invalid argument.

    Example:
        ```python
        posterior = Posterior({"width": [0.0, 1.0], "depth": [0.0, None, 0.5]})
        choices = posterior.draw((5,), np.random.default_rng(0))  # (5, 2)
        print(posterior.architecture(choices[0]))
        ```
    """

    def __init__(
        self,
        log_probs: Mapping[str, ArrayLike],
        space: str | Space | None = None,
        encode: Callable[[dict[str, int]], str] | None = None,
    ) -> None:
        if not isinstance(log_probs, Mapping) or not log_probs:
            raise InvalidInput(f"posterior: expected a dict from decision to log-probabilities, got {log_probs!r}")
        if space is not None and encode is not None:
            raise InvalidInput("posterior: expected a space or encode, got both. Leave encode out.")
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
        """The space that encodes the draws; None without one."""
        return None if self._held is None else self._held.space

    @property
    def choices(self) -> dict[str, tuple[str, ...]]:
        """A dictionary from decision to the names of its choices; without a space, to their numbers."""
        if self._of_space:
            return {decision.name: decision.choices for decision in self._of_space}
        sizes = zip(self.decisions, self.sizes.tolist(), strict=True)
        return {name: tuple(map(str, range(size))) for name, size in sizes}

    def to_dict(self) -> dict[str, list[float | None]]:
        """Returns a JSON-able dictionary from decision to log-probabilities, None for an impossible choice.

        `Posterior` of this dictionary is equal to this posterior.
        """
        return {name: [value if math.isfinite(value) else None for value in row.tolist()] for name, row in self._rows()}

    @property
    def checksum(self) -> str:
        """The SHA-256 of `to_dict`, hexadecimal."""
        return hashlib.sha256(json.dumps(self.to_dict()).encode()).hexdigest()

    def tempered(self, temperature: float) -> "Posterior":
        """Returns the posterior of Eq. 5.6 at tau = `temperature`: log p / tau, normalized."""
        return self._with_rows({name: row / temperature for name, row in self._rows()})

    def uniform(self) -> "Posterior":
        """Returns a posterior with equally probable choices of each decision; impossible choices stay impossible."""
        return self._with_rows({name: np.where(np.isfinite(row), 0.0, -np.inf) for name, row in self._rows()})

    def _with_rows(self, rows: Mapping[str, FloatArray]) -> "Posterior":
        return Posterior(rows, None if self._held is None else self._held.source, self.encode)

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> IntArray:
        """Returns independent draws from p_alpha as numbers of choices, (*shape, B)."""
        below = np.cumsum(np.exp(self.log_probs), -1)  # (B, C)
        below /= below[:, -1:]  # the last is exactly 1, above every uniform number
        return (rng.random((*shape, len(self.sizes), 1)) >= below).sum(-1)

    def feasible(self, choices: IntArray, rng: np.random.Generator) -> IntArray:
        """Replaces draws that violate the space's constraint by new draws, (n, B) -> (n, B).

        Raises: InvalidInput if none of a thousand new draws meets the constraint.
        """
        if not isinstance(self.space, ConstrainedSpace):
            return choices
        met = choices.copy()
        for place, row in enumerate(choices):
            draws = itertools.chain([row], (self.draw((), rng) for _ in range(REDRAWS)))
            feasible = next((draw for draw in draws if self._meets(draw)), None)
            if feasible is None:
                raise InvalidInput(
                    f"Expected a draw from the posterior that meets {self.space.description}, got none in {REDRAWS}. "
                    "Loosen the constraint, or raise temperature."
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
        """Returns the number of possible draws."""
        return math.prod(np.isfinite(self.log_probs).sum(-1).tolist())

    def architecture(self, choices: Sequence[int] | IntArray) -> str:
        """Returns the string of a draw (B,), as drawn and not in its canonical form."""
        numbered = {name: int(number) for name, number in zip(self.decisions, choices, strict=True)}
        if self.space is not None:
            choices_by_name = {decision.name: decision.choices[numbered[decision.name]] for decision in self._of_space}
            return self.space.encode(self.space.architecture_of_decisions(choices_by_name))
        return json.dumps(numbered) if self.encode is None else self.encode(numbered)

    def form(self, architecture: str) -> str:
        """Returns the string of the canonical form; without a space, the same string. Raises: InvalidArchitecture."""
        return architecture if self._held is None else self._held.canonicalise(architecture)

    def _rows(self) -> Iterator[tuple[str, FloatArray]]:
        """Yields each decision with the log-probabilities of its choices, without padding."""
        for name, row, size in zip(self.decisions, self.log_probs, self.sizes, strict=True):
            yield name, row[:size]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.sizes.flags.writeable = self.log_probs.flags.writeable = False  # NumPy does not pickle the flag


def _normalized(name: str, values: Any) -> FloatArray:
    """Returns normalized log-probabilities, (choices,). Raises: InvalidInput for invalid values."""
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
            f"posterior: expected finite log-probabilities of {name!r}, -inf for an impossible choice, and at least "
            f"one finite value, got {row.tolist()}"
        )
    shifted = row - row.max()
    return shifted - np.log(np.exp(shifted).sum())


def _in_order(rows: Mapping[str, FloatArray], space: str, decisions: tuple[Decision, ...]) -> dict[str, FloatArray]:
    """Returns the rows in the order of the space's decisions. Raises: InvalidInput if the decisions differ."""
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
    """Returns the gradient of log p, Eq. 5.8, at x, (..., B, C) -> (..., B, C).

    Args:
        x: (..., B, C) particles, padded with 0.
        log_probs: (B, C) log-probabilities of B decisions, -inf for impossible choices and for padding.
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
    """Draws from Eq. 5.8 (note E3): one-hot vectors of drawn choices plus N(0, |O| I), (..., B) -> (..., B, width)."""
    real = np.arange(width) < sizes[:, None]  # (B, C), False in the padding
    noise = rng.standard_normal((*choices.shape, width)) * np.sqrt(sizes)[:, None]
    return np.where(real, noise + (np.arange(width) == choices[..., None]), 0.0)


def nearest_choices(x: FloatArray, log_probs: FloatArray) -> IntArray:
    """Returns for each decision the choice with the nearest one-hot vector, Eq. 5.9, (..., B, C) -> (..., B).

    This is the choice with the largest coordinate, the first of equal ones. Deviation from the paper: impossible
    choices are excluded.
    """
    return np.where(np.isneginf(log_probs), -np.inf, x).argmax(-1)
