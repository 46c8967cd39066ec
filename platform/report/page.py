"""The page: a header, the sections a method chooses, and the style, in one file that asks for nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from string import Template
from typing import Any

from archray.platform.report.figures import NothingToDraw
from archray.platform.report.header import Headline, header, title
from archray.platform.report.section import Section, escape
from archray.platform.run.run import Run

MakeSection = Callable[[Run[Any]], Section | None]


def render(run: Run[Any], headline: Headline, sections: Sequence[MakeSection]) -> str:
    """The report of a run as one self-contained HTML page: no script, no request, light and dark.

    Args:
        sections: what the page holds, in order; each reads the run's tables and makes a section of them. It returns
            None, or its figure has NothingToDraw, where the run has no data for it, and then it is left out.

    Raises: ValueError if two sections have one anchor.
    """
    shown = [section for make in sections if (section := _made(make, run)) is not None]
    return write_page(f"archray: {title(run)}", header(run, headline), shown)


def _made(make: MakeSection, run: Run[Any]) -> Section | None:
    try:
        return make(run)
    except NothingToDraw:
        return None


def write_page(title: str, header: str, sections: Sequence[Section]) -> str:
    """A page of its header, HTML, the list of its sections and these. Raises: ValueError if two have one anchor."""
    anchors = [section.anchor for section in sections]
    if len(set(anchors)) != len(anchors):
        raise ValueError(f"expected sections with distinct anchors, got {', '.join(anchors)}")
    here = files("archray.platform.report")
    return Template((here / "page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        style=(here / "page.css").read_text(encoding="utf-8"),
        header=header,
        contents="".join(f'<a href="#{escape(s.anchor)}">{escape(s.title)}</a>' for s in sections),
        sections="".join(
            f'<section id="{escape(s.anchor)}"><h2>{escape(s.title)}</h2>{s.body}</section>' for s in sections
        ),
    )
