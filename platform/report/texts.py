"""Texts of reports longer than a sentence: macros in the Jinja2 template `texts.jinja` of a package."""

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from archray.platform.quantities import significant, whole_number
from archray.plurals import count

_BREAK = re.compile(r"[ \n]+")  # not the no-break and narrow spaces of numbers


def texts_of(package: str) -> Callable[..., str]:
    """Returns a function `text(macro, **values)` that renders a macro of the package's `texts.jinja` as one line.

    The text is plain; the caller escapes it for a page. A macro formats numbers with `count`, `significant` and
    `whole_number`. An undefined name raises an error.
    """

    def text(macro: str, **values: Any) -> str:
        return _BREAK.sub(" ", str(getattr(_template(package).module, macro)(**values))).strip()

    return text


@cache
def _template(package: str) -> Template:
    environment = Environment(undefined=StrictUndefined)  # plain text: nothing to escape
    environment.globals |= {"count": count, "significant": significant, "whole_number": whole_number}
    return environment.from_string((files(package) / "texts.jinja").read_text(encoding="utf-8"))
