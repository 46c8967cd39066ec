"""The manifest of the run, whole: configuration, versions, hardware, seeds, commit, checksums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from archray.platform.report.section import Section, escape
from archray.platform.run.run import Run


def manifest_section(run: Run[Any]) -> Section:
    """A folded table per part of the manifest."""
    single = {key: value for key, value in run.manifest.items() if not _nests(value)}
    nested = {key: value for key, value in run.manifest.items() if _nests(value)}
    parts = ([("run", single)] if single else []) + list(nested.items())
    tables = "".join(f"<h3>{escape(name)}</h3>{_pairs(part)}" for name, part in parts)
    body = (
        "<p>All that is needed to start the same run again.</p>"
        f'<details class="manifest"><summary>Manifest</summary>{tables}</details>'
    )
    return Section("manifest", "Manifest", body)


def _nests(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value)


def _pairs(part: Any) -> str:
    rows = "".join(f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in flat(part))
    return f'<dl class="pairs">{rows}</dl>'


def flat(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Pairs of dotted key and printed value; lists of plain values stay on one line."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from flat(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, (list, tuple)) and any(isinstance(inner, (Mapping, list, tuple)) for inner in value):
        for index, inner in enumerate(value):
            yield from flat(inner, f"{key}[{index}]")
    elif isinstance(value, (list, tuple)):
        yield key, ", ".join(str(inner) for inner in value) or "[]"
    else:
        yield key, "null" if value is None else str(value)
