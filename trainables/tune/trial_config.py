"""What a trial's Tune config says: settings, numbers, an architecture; each checked as it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from archray.errors import InvalidInput

SettingsT = TypeVar("SettingsT", bound=BaseModel)


def read_settings(model: type[SettingsT], values: Mapping[str, Any] | SettingsT) -> SettingsT:
    """The settings in `values`. Raises: InvalidInput, naming each key that is unknown or wrong."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'settings'}: {e['msg']}" for e in error.errors())
        raise InvalidInput(f"the settings of the trainable cannot be used: {wrong}") from error


def read_whole_number(config: Mapping[str, Any], key: str, default: int, *, least: int) -> int:
    """The entry `key` of a Tune config. Raises: InvalidInput if it is not an integer of `least` or more."""
    value = config.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInput(f"expected the config's `{key}` to be an integer of {least} or more, got {value!r}")
    return value


def candidates_of(config: Mapping[str, Any], kind: str = "architecture") -> tuple[str, ...] | None:
    """The entry `candidates` of a Tune config; None if there is none. kind: what a candidate describes.

    Raises: InvalidInput if it is no list of strings, or empty.
    """
    candidates = config.get("candidates")
    if candidates is None:
        return None
    if not isinstance(candidates, (list, tuple)) or not all(isinstance(candidate, str) for candidate in candidates):
        raise InvalidInput(f"expected the config's `candidates` to be strings of the space, got {candidates!r}")
    if not candidates:
        raise InvalidInput(f"expected the config's `candidates` to hold at least one {kind}, got none")
    return tuple(candidates)


def architecture_of(config: Mapping[str, Any]) -> str:
    """The entry `architecture` of a Tune config. Raises: InvalidInput if it is not a string."""
    architecture = config.get("architecture")
    if not isinstance(architecture, str):
        raise InvalidInput(f"expected the config's `architecture` to be its space's string, got {architecture!r}")
    return architecture
