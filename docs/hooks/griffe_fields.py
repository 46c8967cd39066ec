"""Docstrings as archray writes them, for the API reference: `Fields:` of settings, and several names in one entry."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from griffe import Extension, Object

SEVERAL = re.compile(r"^ {4}(\w+(?:, \w+)+): (.*)$")  # `lr, momentum: what they are`, which Google's style has not


class FieldSections(Extension):
    """Makes `Fields:` a section `Attributes:`, and an entry of several names one for each."""

    def on_object(self, *, obj: Object, **options: Any) -> None:
        """Called for every module, class, function and attribute that was read."""
        if obj.docstring is not None:
            obj.docstring.value = "\n".join(google_lines(obj.docstring.value.splitlines()))


def google_lines(lines: list[str]) -> Iterator[str]:
    """The docstring's lines, as Google's style would have them."""
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
