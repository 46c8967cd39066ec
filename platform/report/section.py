"""A section of the page, and the pieces of HTML that sections are built of. All text is escaped here."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
        kind: whether it holds `text`, `code`, right-aligned `number`s, short `name`s, or the `anchor`s these link to.
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
    head = "".join(_heading(column) for column in columns)
    body = []
    for index, row in enumerate(rows):
        look = "marked" if index == marked else "faint" if index in faint else ""
        cells = "".join(_cell(column, value) for column, value in zip(columns, row, strict=True))
        body.append(f'<tr class="{look}">{cells}</tr>' if look else f"<tr>{cells}</tr>")
    look = ' class="sortable"' if sortable and len(rows) > 1 else ""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">'
        f"<table{look}><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _heading(column: Column) -> str:
    order = f' aria-sort="{column.order}"' if column.order else ""
    return f'<th scope="col" class="{column.kind}"{order}>{breakable_words(column.heading)}</th>'


def _cell(column: Column, value: object) -> str:
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
