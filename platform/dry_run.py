"""`archray search METHOD --dry-run`: what a search would do, without doing it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from archray.platform.api import new_place
from archray.platform.config import SearchConfig
from archray.platform.config_text import comment, config_text
from archray.platform.methods import get_method
from archray.platform.methods.configure import check_config, make_config
from archray.plurals import count


def dry_run(
    method: str,
    options: Mapping[str, Any],
    *,
    preset: str | None = None,
    config: str | Path | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    or_resume: bool = False,
) -> str:
    """What `archray search` with these arguments would do, as comments, and its configuration: YAML for `--config`.

    All that a search refuses before Ray starts is refused. Nothing is written.

    Raises: ArchrayError, as `archray.search` before Ray starts.
    """
    chosen = make_config(method, preset, config, options)
    place = new_place(chosen.method, out, or_resume=or_resume)
    check_config(chosen)
    return "\n".join([*_plan(chosen, place), "", config_text(chosen)])


def _plan(config: SearchConfig, place: str) -> list[str]:
    from archray.platform.methods.recipe import all_stages

    stages = all_stages(get_method(config.method).recipe)
    width = max(len(stage.name) for stage in stages)
    times = f"{count(config.repeats, 'time')}, in repeat-00, ...:" if config.repeats > 1 else "these stages:"
    lines = comment("Nothing was written, and Ray was not started. Without --dry-run this would") + comment(
        f"make the run {place}, and do {times}"
    )
    for number, stage in enumerate(stages, start=1):
        amount = stage.amount(config)
        line = f"#   {number}. {stage.name:<{width}}  {stage.title}{f': {amount}' if amount else ''}"
        lines.append(line)
    return lines
