"""Counts in words, and that no message makes one of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import numpy as np
import pytest
from archray_test_imports import ROOMS, files_of

from archray.plurals import count

NOUNS = (
    "CPU", "GPU", "architecture", "candidate", "cell", "ensemble", "epoch", "feature map", "member", "network", "proxy",
    "repeat", "replica", "row", "run", "seed", "solve", "solver call", "training", "trial",
)  # fmt: skip

PLURAL = re.compile(rf" ((different|distinct|further|other|random) )?({'|'.join(NOUNS)})s\b")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ((1, "random architecture"), "1 random architecture"),
        ((0, "trial"), "0 trials"),
        ((2, "search", "searches"), "2 searches"),
        ((1.0, "CPU"), "1 CPU"),
        ((0.5, "GPU"), "0.5 GPUs"),
        ((np.int64(10**6), "row"), "1\N{NARROW NO-BREAK SPACE}000\N{NARROW NO-BREAK SPACE}000 rows"),
        ((15625, "architecture"), "15\N{NARROW NO-BREAK SPACE}625 architectures"),
    ],
)
def test_one_is_singular(told: tuple[int, str], words: str) -> None:
    assert count(*told) == words


def plurals(tree: ast.Module) -> Iterator[str]:
    """Texts in which a value is followed by a plural that holds whatever the value is: `f"{len(x)} trials"`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for value, text in zip(node.values, node.values[1:], strict=False):
                if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant) and not is_known(value):
                    if PLURAL.match(str(text.value)):
                        yield f"{ast.unparse(value)}{text.value}"


def is_known(value: ast.FormattedValue) -> bool:
    """Whether it is a constant, or a number so large that it is rounded."""
    rounded = value.format_spec is not None and ast.unparse(value.format_spec) != "f'g'"
    return (isinstance(value.value, ast.Name) and value.value.id.isupper()) or rounded


def test_messages_count_by_the_one_function() -> None:
    found = {
        text
        for room in ("archray", *ROOMS)
        for file in files_of(room)
        for text in plurals(ast.parse(file.read_text(encoding="utf-8")))
    }
    assert sorted(found) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("f'{n} trials'", 1),
        ("f'none of the {len(x)} random networks was'", 1),
        ("f'{count(n, \"trial\")} of {name}'", 0),
        ("f'{_FEWEST} members and {size:.3g} architectures'", 0),
        ("f'{cpus:g} CPUs'", 1),
        ("f'{n} is', f'{name} trial'", 0),
    ],
)
def test_plurals_are_seen(text: str, found: int) -> None:
    assert len(list(plurals(ast.parse(text)))) == found
