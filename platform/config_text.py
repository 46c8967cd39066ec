"""The whole configuration of a search: with the meaning of each key, as YAML that `--config` takes; before a run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from archray.platform.field_help import meaning_of
from archray.platform.methods.configure import make_config

WIDTH = 110  # of a comment's line


def config(
    method: str = "hnas",
    *,
    preset: str | None = None,
    config: str | Path | Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The whole configuration that a search with these arguments would have, as `config` of `archray.search` takes it.

    Args:
        method, preset, config, options: as of `archray.search`; `space` and `data` are options.

    Raises: InvalidInput, UnknownName.
    """
    return make_config(method, preset, config, options).model_dump(mode="json")


def config_text(settings: BaseModel) -> str:
    """A configuration as YAML: every key, with what it means and what it may be above it."""
    return "\n".join(_lines(settings, "")).lstrip("\n") + "\n"


def _lines(settings: BaseModel, indent: str) -> Iterator[str]:
    values, was_nested = settings.model_dump(mode="json"), False
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        nested = isinstance(value, BaseModel)
        if not indent and (nested or was_nested):
            yield ""
        was_nested = nested
        yield from comment(meaning_of(type(settings), name), indent)
        if isinstance(value, BaseModel):
            yield f"{indent}{name}:"
            yield from _lines(value, f"{indent}  ")
        else:
            yield f"{indent}{name}: {_scalar(values[name])}"


def comment(text: str, indent: str = "") -> list[str]:
    """A text as comments of at most WIDTH characters a line; nothing of an empty one."""
    start = f"{indent}# "
    return textwrap.wrap(
        text, WIDTH, initial_indent=start, subsequent_indent=start, break_long_words=False, break_on_hyphens=False
    )


def _scalar(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=float("inf"), allow_unicode=True)
    return text.removesuffix("...\n").strip()
