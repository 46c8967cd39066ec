"""A section of the page, and the pieces of HTML that sections are built of. All text is escaped here."""

import html
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from archray.platform.quantities import MISSING, Quantity, as_float
from archray.platform.run.run import Run
from archray.plurals import count

PERCENT = Quantity("share", "%", 100.0, 1)
_SHORT = 16  # characters of what stands in the place of a name, and needs no more width
_NAME = 30  # characters of code in a table that are one name, of an option say
_LONG = 160  # characters of code in a table that get more of a narrow screen's width


@dataclass(frozen=True)
class Section:
    """One part of the page: `anchor` its id, unique on the page; `title` plain text; `body` HTML."""

    anchor: str
    title: str
    body: str


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        kind: whether it holds `text`, `code`, right-aligned `number`s, `share`s, which tint their cells, short `name`s,
            or the `anchor`s these link to.
        order: `ascending` or `descending`, of the column that the rows are sorted by.
    """

    heading: str
    kind: str = "text"
    order: str | None = None


@dataclass(frozen=True)
class Named:
    """A long string by its short name: where a table holds it, a link to where it is defined."""

    short: str
    string: str

    def __str__(self) -> str:
        return self.short


def escape(value: object) -> str:
    """`value` as text that is safe in HTML, in an attribute too."""
    return html.escape(str(value), quote=True)


def breakable(text: object) -> str:
    """A long string without blanks, an architecture's above all, escaped, with leave to break after `|`, `+`, `,`."""
    return re.sub(r"([|+]|,(?!\d))(?=.)", r"\1<wbr>", escape(text))


def breakable_words(text: object) -> str:
    """The name of an operation, a decision or an option, escaped, with leave to break between its words."""
    return re.sub(r"([_.])(?=[A-Za-z])", r"\1<wbr>", escape(text))


def flowing(text: object) -> str:
    """Text of a paragraph, escaped; no line ends between a number and its unit or its deviation."""
    return re.sub(r"(?<=\d) (?=[%±×])|(?<=[±×]) (?=\d)", "\N{NO-BREAK SPACE}", escape(text))


def paragraphs(sentences: Iterable[str]) -> str:
    """A `<p>` for each plain text."""
    return "".join(f"<p>{flowing(text)}</p>" for text in sentences)


def captioned(content: str, caption: str) -> str:
    """A numbered figure: `content` HTML, `caption` plain text."""
    return f"<figure>{content}<figcaption>{flowing(caption)}</figcaption></figure>"


def folded(summary: str, content: str) -> str:
    """`content`, HTML, that opens by a click on `summary`, plain text."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def numeric(*headings: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(heading, "number") for heading in headings]


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[object]],
    *,
    label: str,
    marked: int | None = None,
    faint: frozenset[int] = frozenset(),
    sortable: bool = True,
) -> str:
    """A table of plain values and `Named`s, in a box of its own that scrolls sideways where the screen is narrow.

    Args:
        label: what the table holds, for a reader who hears the page.
        marked: the row that is set off from the others.
        faint: rows that count less, a repeat for example.
        sortable: whether a reader may sort the rows by a click on a heading.
    """
    rows = list(rows)
    head, body = "", []
    for column in columns:
        look, order = "number" if column.kind == "share" else column.kind, column.order
        order = f' aria-sort="{order}"' if order else ""
        head += f'<th scope="col" class="{look}"{order}>{breakable_words(column.heading)}</th>'
    for index, row in enumerate(rows):
        look = "marked" if index == marked else "faint" if index in faint else ""
        cells = "".join(_cell(column, value) for column, value in zip(columns, row, strict=True))
        body.append(f'<tr class="{look}">{cells}</tr>' if look else f"<tr>{cells}</tr>")
    look = ' class="sortable"' if sortable and len(rows) > 1 else ""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">'
        f"<table{look}><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _cell(column: Column, value: object) -> str:
    if column.kind == "share":
        share = as_float(value)
        tint = f' style="--share:{min(share, 1.0):.3f}"' if share > 0 else ""
        return f'<td class="number share"{tint}>{PERCENT.bare(share) if share > 0 else MISSING}</td>'
    if column.kind == "anchor":
        return f'<td class="anchor" id="{escape(value)}">{escape(value)}</td>'
    if column.kind == "name" and (isinstance(value, (Named, tuple)) or len(str(value)) <= _SHORT):
        return f'<td class="name">{linked(value)}</td>'
    if column.kind in ("code", "name"):
        broken = breakable_words if len(str(value)) <= _NAME else breakable
        return f'<td class="code{" long" if len(str(value)) > _LONG else ""}">{broken(value)}</td>'
    return f'<td class="{column.kind}">{escape(value)}</td>'


def linked(value: object) -> str:
    """A short name, or several, as links to their definitions; anything else as text. HTML."""
    if isinstance(value, tuple):
        return ", ".join(map(linked, value))
    if isinstance(value, Named):
        return f'<a href="#{escape(value.short)}" title="{escape(value.string)}">{escape(value.short)}</a>'
    return escape(value)


# Columns of a run's tables.


def finite_values(values: Iterable[float]) -> np.ndarray:
    """The finite numbers among `values`, in order."""
    return np.array([number for number in map(as_float, values) if not math.isnan(number)], dtype=float)


def numbers(frame: pd.DataFrame, column: str) -> pd.Series:
    """`column` as floats, one per row of `frame`; NaN where it is missing, infinite, or no number."""
    values = pd.to_numeric(frame.get(column, pd.Series(math.nan, index=frame.index)), errors="coerce").astype(float)
    return values.where(np.isfinite(values))


def flags(frame: pd.DataFrame, column: str) -> pd.Series:
    """`column` as booleans, one per row of `frame`; false where it is missing."""
    return frame.get(column, pd.Series(False, index=frame.index)).eq(True)


def failures(frame: pd.DataFrame) -> pd.Series:
    """The reason of each row's failure, None where there is none; an empty string is none.

    `failure` is a result's own reason, `error` that of a trial that Tune gave up.
    """
    rows = frame.reindex(columns=["failure", "error"]).itertuples(index=False)
    reasons = [next((str(text) for text in row if pd.notna(text) and str(text).strip()), None) for row in rows]
    return pd.Series(reasons, index=frame.index, dtype=object)


# Short names of a run's architectures, `A1`, `A2`, ...: one section defines them, the others use them.

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
    return [name for result in found for name in result.get("members", [result.get("architecture")]) if name]


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
