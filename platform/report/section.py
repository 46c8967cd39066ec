"""A section of the page, and the pieces of HTML that sections are built of. All text is escaped here."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_LONG = 160  # characters of code in a table that get more of a narrow screen's width


@dataclass(frozen=True)
class Section:
    """One part of the page: `anchor` its id, unique on the page; `title` plain text; `body` HTML."""

    anchor: str
    title: str
    body: str


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and whether it holds `text`, `code` or right-aligned `number`s."""

    heading: str
    kind: str = "text"


def escape(value: object) -> str:
    """`value` as text that is safe in HTML, in an attribute too."""
    return html.escape(str(value), quote=True)


def breakable(text: object) -> str:
    """A long string without blanks, an architecture's above all, escaped, with leave to break after `|`, `+`, `,`."""
    return re.sub(r"([|+,])(?=.)", r"\1<wbr>", escape(text))


def paragraphs(sentences: Iterable[str]) -> str:
    """A `<p>` for each plain text."""
    return "".join(f"<p>{escape(text)}</p>" for text in sentences)


def captioned(content: str, caption: str) -> str:
    """A numbered figure: `content` HTML, `caption` plain text."""
    return f"<figure>{content}<figcaption>{escape(caption)}</figcaption></figure>"


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
) -> str:
    """A table of plain values, in a box of its own that scrolls sideways where the screen is narrow.

    Args:
        label: what the table holds, for a reader who hears the page.
        marked: the row that is set off from the others.
        faint: rows that count less, a repeat for example.
    """
    head = "".join(f'<th scope="col" class="{c.kind}">{escape(c.heading)}</th>' for c in columns)
    body = []
    for index, row in enumerate(rows):
        look = "marked" if index == marked else "faint" if index in faint else ""
        cells = "".join(
            f'<td class="{c.kind}{" long" if len(str(value)) > _LONG else ""}">{breakable(value)}</td>'
            if c.kind == "code"
            else f'<td class="{c.kind}">{escape(value)}</td>'
            for c, value in zip(columns, row, strict=True)
        )
        body.append(f'<tr class="{look}">{cells}</tr>' if look else f"<tr>{cells}</tr>")
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )
