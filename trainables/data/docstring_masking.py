"""What tells a docstring's library by name, taken out of the text: names, aliases, import paths, versions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

NAMES = ("numpy", "scipy", "scikit", "sklearn", "pandas", "torch")  # also inside other words: from_numpy, PyTorch
ALIASES = ("np", "npt", "nx", "pd", "sp", "sk", "nn", "aten", "c10", "c10d")  # whole words and parts of snake_case

_RUN = r"[\w.\-/\\~]"  # what a dotted path, a path of files or a host is made of
_VERSIONED = r"versionadded|versionchanged|deprecated|version"


def masker(modules: Iterable[str]) -> Callable[[str], str]:
    """A function from a docstring to its masked text.

    Args:
        modules: what stands behind a library's name in import paths (`linalg`, `nn`): a dotted path that begins with
            one of them goes too.

    Each of these becomes one blank: a placeholder of a template (`{input}`, `%(klass)s`); a URL; a line from `import`
    or `from ... import` on; a word or path that holds one of NAMES, in any case; an identifier that is one of ALIASES
    or holds one between underscores, with the dotted path behind it; a dotted path that begins with one of `modules`; a
    version number.
    """
    firsts = "|".join(sorted((re.escape(module) for module in modules), key=lambda name: (-len(name), name)))
    patterns = [
        re.compile(r"\{\w+\}|%\(\w+\)s"),
        re.compile(r"\w+://\S+|\bwww\.\S+"),
        re.compile(r"\b(?:from\s+[\w.]+\s+)?import\b.*"),
        re.compile(rf"(?<!{_RUN}){_RUN}*?(?:{'|'.join(NAMES)}){_RUN}*", re.IGNORECASE),
        re.compile(rf"\b(?:[^\W_]*_)*(?:{'|'.join(ALIASES)})(?![^\W_])\w*(?:\.\w+)*\.?"),
        re.compile(rf"\b(?:{firsts})(?:\.\w+)+"),
        re.compile(rf"(?<=::) *v?\d+(?:\.\d+)+\w*|\b(?:{_VERSIONED})\s+v?\d+(?:\.\d+)+\w*|\bv?\d+\.\d+\.\d+\w*"),
    ]

    def mask(text: str) -> str:
        for pattern in patterns:  # in this order no blank gives an earlier pattern something new to find
            text = pattern.sub(" ", text)
        return text

    return mask
