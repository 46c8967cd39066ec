"""Training hyperparameters that a plain search decides together with the architecture: the option `decide`."""

from __future__ import annotations

import difflib
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from pydantic import ValidationError

from archray.errors import InvalidInput, problem_words
from archray.platform.config import flat, value_at
from archray.trainables.training_settings import TrainingSettings, with_values

GROUP = "train"  # the settings of the training runs of a search
EPOCHS = "epochs"
EXAMPLE = f"{GROUP}.lr=0.01,0.1"
DECIDABLE = tuple(path for path in flat(TrainingSettings().model_dump()) if path != EPOCHS)

Decisions = dict[str, tuple[Any, ...]]


def read_decisions(option: Any) -> dict[str, list[Any]]:
    """Reads texts such as `train.lr=0.01,0.1`, or a mapping from keys to values, which may be nested.

    Raises: InvalidInput for a text without values, or a key that occurs twice.
    """
    if isinstance(option, Mapping):
        return {key: _values(values) for key, values in flat(option).items()}
    decisions: dict[str, list[Any]] = {}
    for text in [option] if isinstance(option, str) else option if isinstance(option, Sequence) else [option]:
        key, _, values = text.partition("=") if isinstance(text, str) else ("", "", "")
        if not key.strip() or not values.strip():
            raise InvalidInput(f"expected KEY=VALUE,VALUE such as {EXAMPLE}, got {text!r}")
        if key.strip() in decisions:
            raise InvalidInput(
                f"expected each key once, got {key.strip()} twice. List all of its values in one --decide"
            )
        decisions[key.strip()] = _values(values)
    return decisions


def _values(values: Any) -> list[Any]:
    if isinstance(values, str):
        try:
            return [yaml.safe_load(value) for value in values.split(",")]
        except (ValueError, RecursionError, yaml.YAMLError):  # as for `parse_assignment`
            raise InvalidInput(f"expected values separated by commas such as {EXAMPLE}, got {values!r}") from None
    return list(values) if isinstance(values, list | tuple) else [values]


def checked_decisions(decisions: Mapping[str, Sequence[Any]], trainings: Mapping[str, TrainingSettings]) -> Decisions:
    """Returns the decisions by key in alphabetical order, with values of the types of their fields.

    Args:
        decisions: values by key, such as `train.lr`.
        trainings: the settings that the values override, by their key in the configuration.

    Raises: InvalidInput for another key, invalid or repeated values, or fewer than two of them.
    """
    checked: Decisions = {}
    for key, values in sorted(decisions.items()):
        path = _path(key)
        for name, training in trainings.items():
            settings = [_with(training, {key: value}, name) for value in values]
            checked[key] = tuple(value_at(one.model_dump(), path) for one in settings)
        if len(values) < 2 or len(set(map(json.dumps, checked[key]))) < len(values):
            texts = ", ".join(map(json.dumps, checked[key]))
            raise InvalidInput(
                f"expected two or more distinct values for {key}, got {texts}. Set a single value by --set {key}=VALUE"
            )
    for pair in itertools.combinations(checked, 2):  # fields that exclude each other, such as nesterov and momentum 0
        for chosen in itertools.product(*(checked[key] for key in pair)):
            for name, training in trainings.items():
                _with(training, dict(zip(pair, chosen, strict=True)), name)
    return checked


def _path(key: str) -> str:
    """Returns the path of a decision in the training settings. Raises: InvalidInput for another key."""
    group, _, path = key.partition(".")
    if key == f"{GROUP}.{EPOCHS}":
        raise InvalidInput(
            f"expected a key other than {key}, because only training runs with equally many epochs are compared, got "
            f"{key}. Use asha or bohb, which vary the epochs"
        )
    if group != GROUP or path not in DECIDABLE:
        keys = [f"{GROUP}.{path}" for path in DECIDABLE]
        close = difflib.get_close_matches(key, keys, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Choose one of {', '.join(keys)}"
        raise InvalidInput(f"expected a hyperparameter of {GROUP}, got {key!r}. {hint}")
    return path


def _with(training: TrainingSettings, values: Mapping[str, Any], name: str) -> TrainingSettings:
    """Returns the settings with values by key. Raises: InvalidInput.

    Args:
        name: key of the settings in the configuration.
    """
    try:
        return with_values(training, {_path(key): value for key, value in values.items()})
    except ValidationError as error:
        texts = " and ".join(f"{key}={json.dumps(value, default=str)}" for key, value in values.items())
        problem = problem_words(error.errors()[0]["msg"])
        raise InvalidInput(
            f"expected values that {name} accepts, got {texts} ({problem}). Remove it from decide"
        ) from None
