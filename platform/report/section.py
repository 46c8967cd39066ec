"""Sections of the page, and functions for their HTML elements, which escape all text."""

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
_SHORT = 16  # maximum characters of a text in place of a name that needs no extra width
_NAME = 30  # maximum characters of code in a table that count as one name, such as an option
_LONG = 160  # minimum characters of code in a table that get more width on a narrow screen


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Attributes:
        anchor: id, unique on the page.
        title: plain text.
        body: HTML.
    """

    anchor: str
    title: str
    body: str


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        heading: heading of the column.
        kind: content: `text`, `code`, right-aligned `number`, `share` (which tints its cells), short `name`, or
            `anchor`, the target of name links.
        order: `ascending` or `descending`, for the column by which the rows are sorted.
    """

    heading: str
    kind: str = "text"
    order: str | None = None


@dataclass(frozen=True)
class Named:
    """A long string with a short name. In a table, the name is a link to the definition."""

    short: str
    string: str

    def __str__(self) -> str:
        return self.short


def escape(value: object) -> str:
    """Escapes `value` as text for HTML, also in attributes."""
    return html.escape(str(value), quote=True)


def breakable(text: object) -> str:
    """Escapes a long string without spaces, such as an architecture, and allows line breaks after `|`, `+`, `,`."""
    return re.sub(r"([|+]|,(?!\d))(?=.)", r"\1<wbr>", escape(text))


def breakable_words(text: object) -> str:
    """Escapes the name of an operation, a decision or an option, and allows line breaks between its words."""
    return re.sub(r"([_.])(?=[A-Za-z])", r"\1<wbr>", escape(text))


def flowing(text: object) -> str:
    """Escapes the text of a paragraph, and prevents line breaks between a number and its unit or deviation."""
    return re.sub(r"(?<=\d) (?=[%±×])|(?<=[±×]) (?=\d)", "\N{NO-BREAK SPACE}", escape(text))


def paragraphs(sentences: Iterable[str]) -> str:
    """Wraps each plain text in `<p>`."""
    return "".join(f"<p>{flowing(text)}</p>" for text in sentences)


def captioned(content: str, caption: str) -> str:
    """Creates a numbered figure of `content` (HTML) and `caption` (plain text)."""
    return f"<figure>{content}<figcaption>{flowing(caption)}</figcaption></figure>"


def folded(summary: str, content: str) -> str:
    """Folds `content` (HTML) under `summary` (plain text), which opens it by a click."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def numeric(*headings: str) -> list[Column]:
    """Creates columns of numbers."""
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
    """Creates a table of plain values and `Named`s, which scrolls horizontally on a narrow screen.

    Args:
        label: description of the table for screen readers.
        marked: row to highlight.
        faint: rows to deemphasize, such as repeats.
        sortable: whether a click on a heading sorts the rows.
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
    """Formats one or several short names as links to their definitions, and other values as text. Returns HTML."""
    if isinstance(value, tuple):
        return ", ".join(map(linked, value))
    if isinstance(value, Named):
        return f'<a href="#{escape(value.short)}" title="{escape(value.string)}">{escape(value.short)}</a>'
    return escape(value)


# Columns of a run's tables


def finite_values(values: Iterable[float]) -> np.ndarray:
    """Returns the finite numbers among `values`, in order."""
    return np.array([number for number in map(as_float, values) if not math.isnan(number)], dtype=float)


def numbers(frame: pd.DataFrame, column: str) -> pd.Series:
    """Returns `column` as floats, one per row of `frame`; NaN for missing, infinite or non-numeric values."""
    values = pd.to_numeric(frame.get(column, pd.Series(math.nan, index=frame.index)), errors="coerce").astype(float)
    return values.where(np.isfinite(values))


def flags(frame: pd.DataFrame, column: str) -> pd.Series:
    """Returns `column` as booleans, one per row of `frame`; false for missing values."""
    return frame.get(column, pd.Series(False, index=frame.index)).eq(True)


def failures(frame: pd.DataFrame) -> pd.Series:
    """Returns the reason of each row's failure; None, or an empty string, without a failure.

    `failure` is the reason in a result; `error` is the reason of a trial that Tune stopped retrying.
    """
    rows = frame.reindex(columns=["failure", "error"]).itertuples(index=False)
    reasons = [next((str(text) for text in row if pd.notna(text) and str(text).strip()), None) for row in rows]
    return pd.Series(reasons, index=frame.index, dtype=object)


# Short names of a run's architectures, `A1`, `A2`, ...; one section defines them, and the others use them.

ANCHOR = "names"  # anchor of the section that defines them
_FOLDED = 24  # maximum number of names in an unfolded table


class ShortNames:
    """Short names of architectures in the given order; values that are not strings have no name."""

    def __init__(self, architectures: Iterable[object], letter: str = "A") -> None:
        strings = dict.fromkeys(name for name in architectures if isinstance(name, str))
        self.by_string = {string: Named(f"{letter}{number}", string) for number, string in enumerate(strings, 1)}

    def of(self, architecture: object) -> Named | str:
        """Returns the name of an architecture; an unnamed string unchanged, and a dash for other values."""
        if not isinstance(architecture, str):
            return MISSING
        return self.by_string.get(architecture, architecture)

    def all_of(self, architectures: Iterable[object]) -> tuple[Named | str, ...]:
        """Returns the names of several architectures, such as the members of an ensemble."""
        return tuple(map(self.of, architectures))


NamesOf = Callable[[Run[Any]], ShortNames]


def result_strings(run: Run[Any]) -> list[str]:
    """Returns the architectures (or ensemble members) of the best repeat, then of the other repeats.

    If the result of a repeat is not the architecture that its search found, the found architecture follows.
    """
    results = [repeat.result or {} for repeat in (run.best, *run.repeats)]
    names = [result.get("members", [result.get("architecture"), result.get("found")]) for result in results]
    return [name for of_result in names for name in of_result if name]


def short_names(run: Run[Any], others: Iterable[object] = (), letter: str = "A") -> ShortNames:
    """Returns the names of the architectures that a run found or chose, followed by the others."""
    return ShortNames((*result_strings(run), *others), letter)


def names_section(names_of: NamesOf, things: str, order: str) -> Callable[[Run[Any]], Section | None]:
    """Returns a function that creates the section with the definitions of names.

    Args:
        names_of: returns the names of a run.
        things: word for the named objects.
        order: description of the order of the other objects.
    """

    def make(run: Run[Any]) -> Section | None:
        names = list(names_of(run).by_string.values())
        if not names:
            return None
        found = len(set(result_strings(run)))
        chosen = any("found" in (repeat.result or {}) for repeat in run.repeats or [run])
        text = "Short names on this page. Point at a name to see its string."
        if 0 < found < len(names):
            of_found = names[0].short + (
                "" if found == 1 else f" {'and' if found == 2 else 'to'} {names[found - 1].short}"
            )
            verb = "were found or chosen" if chosen else "was found" if found == 1 else "were found"
            text += f" {of_found} {verb}; the others follow {order}."
        columns = (Column("Name", "anchor"), Column("String", "code"))
        defined = table(columns, [(name.short, name.string) for name in names], label=f"The names of {things}")
        if len(names) > _FOLDED:
            defined = folded(f"All {count(len(names), 'name')}", defined)
        return Section(ANCHOR, f"The {things} by name", paragraphs([text]) + defined)

    return make
