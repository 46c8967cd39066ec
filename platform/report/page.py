"""The page of a report: header, sections, style and script in one self-contained file."""

import base64
import hashlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from archray.objects import shown
from archray.platform.quantities import data_words, duration, quantity_of
from archray.platform.report.figures import NothingToDraw
from archray.platform.report.section import Section, ShortNames, breakable, escape, flowing, numbers
from archray.platform.run.run import Run
from archray.trainables.data.settings import PATH_PREFIXES
from archray.trainables.spaces.table_space import PREFIX as TABLE

_FOLDER = re.compile(r"(?:^|(?<=[:=]))~?/(?!/)[^:]*/")  # the folder of an absolute path, also after `folder:`
MakeSection = Callable[[Run[Any]], Section | None]


@dataclass(frozen=True)
class Card:
    """A key number of a report, in large type.

    Attributes:
        look: `found`, `random` or `trial`, which sets the color.
        value: formatted number.
        label: name of the number.
        note: further text, such as the time that the number took; may be empty.
    """

    look: str
    value: str
    label: str
    note: str = ""


@dataclass(frozen=True)
class Headline:
    """The summary of a run at the top of its report, as plain text."""

    thing: str  # kind of the result: `architecture`, `ensemble`, `feature map`
    lead: str  # the result and its quality, in a sentence or two
    names: Sequence[str] = ()  # strings of the result, the first `ShortNames` of the page
    cards: Sequence[Card] = ()
    facts: Mapping[str, object] = field(default_factory=dict)  # further facts by label; None is omitted
    letter: str = "A"  # first letter of short names
    roles: Mapping[str, str] = field(default_factory=dict)  # by string, if the strings have different roles


def render(run: Run[Any], headline: Headline, sections: Sequence[MakeSection]) -> str:
    """Renders the report of a run as one self-contained HTML page, in light and dark colors, usable without its script.

    Args:
        sections: functions that create the sections from the run's tables, in order. A function returns None, or
            raises NothingToDraw, if the run has no data for the section.

    Raises: ValueError if two sections have the same anchor.
    """
    shown = []
    for make in sections:
        try:
            shown.append(make(run))
        except NothingToDraw:
            continue
    page = write_page(f"archray: {title(run)}", header(run, headline), [section for section in shown if section])
    return _without_folders(page, run)


def write_page(title: str, header: str, sections: Sequence[Section]) -> str:
    """Renders a page of an HTML header and sections. Raises: ValueError if two sections have the same anchor."""
    anchors = [section.anchor for section in sections]
    if len(set(anchors)) != len(anchors):
        raise ValueError(f"expected sections with distinct anchors, got {', '.join(anchors)}")
    style, script = (
        (files("archray.platform.report") / name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return str(_template().page(title, header, sections, style, script, digest))


@cache
def _template() -> Any:
    """Loads the macros of `page.html`."""
    environment = Environment(
        autoescape=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if hasattr(value, "__html__") else Markup(escape(value)),  # like all other HTML
    )
    environment.filters |= {"flowing": flowing, "breakable": breakable}
    text = (files("archray.platform.report") / "page.html").read_text(encoding="utf-8")
    return environment.from_string(text).module


def title(run: Run[Any]) -> str:
    """Returns the title of a report."""
    text = f"{_shown_name(run)} on {_data(run)}"
    return text[:1].upper() + text[1:]


def _data(run: Run[Any]) -> str:
    return data_words(without_folder(run.config.data.name), run.config.data.limit)


def without_folder(name: str) -> str:
    """Shortens the name of a data set or a space: `images` for `folder:/home/me/images`, `mine.py:load` for a file."""
    name = shown(name)
    kind, _, place = name.partition(":")
    if place and f"{kind}:" in (*PATH_PREFIXES, TABLE):
        return place.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^:]*/", "", name)


def _without_folders(page: str, run: Run[Any]) -> str:
    """Removes the folders of the user's files from the page, since the report may be shared."""
    texts = [str(run.folder), *shlex.split(run.manifest.get("command") or ""), *_strings(run.manifest["config"])]
    folders = {match[0] for text in texts if (match := _FOLDER.search(text.rstrip("/")))}
    for folder in sorted(folders, key=len, reverse=True):
        page = re.sub(rf"(?<![\w./-]){re.escape(escape(folder))}", "", page)
    return page


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _strings(inner)


def _shown_name(run: Run[Any]) -> str:
    """Returns the display name of a method, or the plain name of a study."""
    return display_method(run.config.method) if run.config.kind == "method" else run.config.method


def display_method(method: str) -> str:
    """Returns a method's name as written in a sentence: abbreviations in capitals, also with a hyphen."""
    short = all(part.isalpha() and len(part) <= 5 for part in method.split("-"))
    return method.upper() if short else method


def header(run: Run[Any], headline: Headline) -> str:
    """Renders the title, the key numbers, the strings of the result and the facts of the run as HTML."""
    names = ShortNames(headline.names, headline.letter).by_string.values()
    named = [(name, headline.roles.get(name.string)) for name in names]
    return str(_template().header(title(run), headline, named, _facts(run, headline.facts)))


def _facts(run: Run[Any], facts: Mapping[str, object]) -> dict[str, object]:
    commit, weights = run.manifest.get("git_commit"), getattr(getattr(run.config, "network", None), "weights", None)
    data = run.config.data
    kind, colon, _ = data.name.partition(":") if data.name.startswith(tuple(PATH_PREFIXES)) else ("", "", "")
    return {
        run.config.kind.capitalize(): _shown_name(run),
        "Space": without_folder(run.config.space),
        "Data": data_words(f"{kind}{colon}{without_folder(data.name)}", data.limit),
        "Weights": None if weights is None else f"{without_folder(weights)}, from which all networks start",
        **facts,
        "Seed": run.best.config.seed,
        "Started": f"{datetime.fromisoformat(run.manifest['created']):%Y-%m-%d %H:%M} UTC",
        "Duration": duration(run.seconds) if run.seconds else None,
        "Code": f"archray {run.manifest['versions']['archray']}" + (f" · {commit[:10]}" if commit else ""),
    }


def network_size(trained: pd.DataFrame) -> str | None:
    """Formats `3.349 M parameters, 545.20 M multiply-adds`, means over the rows; None if no row has either."""
    means = {key: numbers(trained, key).mean() for key in ("parameters", "multiply_adds")}
    sizes = [f"{quantity_of(key).show(mean)} {quantity_of(key).label}" for key, mean in means.items() if mean == mean]
    return ", ".join(sizes) or None
