"""Short names of a run's architectures, `A1`, `A2`, ...: defined once on a page, by figures, tables and captions used.

What was found comes first, of the best repeat and then of the others; then what the family says, in its order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from archray.platform.quantities import MISSING
from archray.platform.report.section import Column, Named, Section, folded, paragraphs, table
from archray.platform.run.run import Run
from archray.plurals import count

ANCHOR = "names"  # of the section that defines them
_FOLDED = 24  # more names than this are folded


class ShortNames:
    """The names of architectures in the order they are given; what is no string has none."""

    def __init__(self, architectures: Iterable[object], letter: str = "A") -> None:
        strings = dict.fromkeys(name for name in architectures if isinstance(name, str))
        self.by_string = {string: Named(f"{letter}{number}", string) for number, string in enumerate(strings, 1)}

    def of(self, architecture: object) -> Named | str:
        """Its name; a string that has none as it is, and a dash for what is no string."""
        if not isinstance(architecture, str):
            return MISSING
        return self.by_string.get(architecture, architecture)

    def all_of(self, architectures: Iterable[object]) -> tuple[Named | str, ...]:
        """Their names, of an ensemble's members for example."""
        return tuple(map(self.of, architectures))


NamesOf = Callable[[Run[Any]], ShortNames]


def found_strings(run: Run[Any]) -> list[str]:
    """What the best repeat found, an ensemble's members one by one, then what the others did."""
    found = [repeat.found or {} for repeat in (run.best, *run.repeats)]
    return [name for each in found for name in each.get("members", [each.get("architecture")]) if name]


def short_names(run: Run[Any], others: Iterable[object] = (), letter: str = "A") -> ShortNames:
    """The names of what a run found, and of the others behind it."""
    return ShortNames((*found_strings(run), *others), letter)


def names_section(names_of: NamesOf, things: str, order: str) -> Callable[[Run[Any]], Section | None]:
    """The section that defines the names of a family. things: what they are of. order: of those not found, in words."""

    def make(run: Run[Any]) -> Section | None:
        names = list(names_of(run).by_string.values())
        if not names:
            return None
        found = len(set(found_strings(run)))
        text = "The short names that this page uses; pointed at, each shows its string."
        if 0 < found < len(names):
            of_found = names[0].short + (
                "" if found == 1 else f" {'and' if found == 2 else 'to'} {names[found - 1].short}"
            )
            text += f" {of_found} {'was' if found == 1 else 'were'} found; the others follow {order}."
        columns = (Column("Name", "anchor"), Column("String", "code"))
        defined = table(columns, [(name.short, name.string) for name in names], label=f"The names of {things}")
        if len(names) > _FOLDED:
            defined = folded(f"All {count(len(names), 'name')}", defined)
        return Section(ANCHOR, f"The {things} by name", paragraphs([text]) + defined)

    return make
