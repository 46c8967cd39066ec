"""Objectives by name: `validation_accuracy` is to be large, `-latency_ms` small."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from archray.errors import InvalidInput
from archray.searchers.arguments import FloatArray, is_finite_number

LESS = "-"  # before the name of an objective of which less is better


@dataclass(frozen=True)
class Objective:
    """A number of a trial or of a row of a pool. less: whether less is better."""

    name: str
    less: bool

    @property
    def mode(self) -> str:
        return "min" if self.less else "max"

    def loss(self, value: float) -> float:
        """The value as something to minimise; a loss as a value."""
        return value if self.less else -value

    def __str__(self) -> str:
        return f"{LESS if self.less else ''}{self.name}"


def read_objectives(text: str | Iterable[str]) -> tuple[Objective, ...]:
    """The objectives of `"validation_accuracy, -latency_ms"`, or of a list of such names.

    Raises: InvalidInput for none, for an empty name, and for one that is named twice.
    """
    parts = text.split(",") if isinstance(text, str) else list(text)
    if not parts or not all(isinstance(part, str) for part in parts):
        raise InvalidInput(f'objectives: expected names, as "validation_accuracy, -latency_ms", got {text!r}')
    objectives = tuple(_objective(part.strip(), text) for part in parts)
    names = [objective.name for objective in objectives]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInput(f"objectives: expected each once, got {', '.join(twice)} twice in {text!r}")
    return objectives


def _objective(word: str, text: Any) -> Objective:
    name = word.removeprefix(LESS).strip()
    if not name or any(character.isspace() for character in name) or name.startswith(LESS):
        raise InvalidInput(
            f"objectives: expected names with commas between them and a minus before one of which less is better, as "
            f'"validation_accuracy, -latency_ms", got {word!r} in {text!r}'
        )
    return Objective(name, word.startswith(LESS))


def check_reference(reference: Mapping[str, float] | None, names: Sequence[str]) -> dict[str, float]:
    """The worst values of interest, by objective. Raises: InvalidInput for another name, or what is no number."""
    values = dict(reference or {})
    for name, value in values.items():
        if name not in names:
            raise InvalidInput(f"reference: expected values of {', '.join(names)}, got {name!r}")
        if not is_finite_number(value):
            raise InvalidInput(f"reference: expected a finite number for {name}, got {value!r}")
    return values


def losses_of(columns: Mapping[str, Any], objectives: Sequence[Objective]) -> FloatArray:
    """(n, k) the columns of a table as losses, less is better; NaN where there is no number."""
    rows = [np.asarray(columns[o.name], dtype=np.float64) * (1.0 if o.less else -1.0) for o in objectives]
    return np.stack(rows, axis=1)
