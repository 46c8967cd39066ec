"""Sections of archray's docstrings for the API reference: `Fields:` of settings, and entries with several names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from griffe import Extension, Object

SEVERAL = re.compile(r"^ {4}(\w+(?:, \w+)+): (.*)$")  # `lr, momentum: TEXT`, which is not Google's style


class FieldSections(Extension):
    """Renames `Fields:` to `Attributes:`, and splits an entry with several names."""

    def on_object(self, *, obj: Object, **options: Any) -> None:
        """Changes the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = "\n".join(google_lines(obj.docstring.value.splitlines()))


def google_lines(lines: list[str]) -> Iterator[str]:
    """The docstring's lines in Google's style."""
    rest = iter([*lines, ""])
    line = next(rest)
    for following in rest:
        entry = SEVERAL.match(line)
        if entry is None:
            yield "Attributes:" if line == "Fields:" else line
            line = following
            continue
        text = [entry[2]]
        while following.startswith("     "):
            text.append(following)
            following = next(rest)
        for name in entry[1].split(", "):
            yield f"    {name}: {text[0]}"
            yield from text[1:]
        line = following
