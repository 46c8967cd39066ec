"""The head of the report: what was found, how well it does, and what the run was."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pandas as pd

from archray.platform.report.columns import numbers
from archray.platform.report.quantity import duration, significant
from archray.platform.report.section import breakable, escape
from archray.platform.run.run import Run

_SIZES = {"parameters": "parameters", "multiply_adds": "multiply-adds"}  # of a network, columns and words


@dataclass(frozen=True)
class Card:
    """A number that matters, in large type. look: `found`, `random` or `trial`, its colour."""

    look: str
    value: str
    label: str


@dataclass(frozen=True)
class Headline:
    """What a method says of a run at the head of its report; plain text.

    Attributes:
        thing: what the run finds: `architecture`, `ensemble`, `feature map`.
        lead: what was found and how good it is, in a sentence or two.
        names: the strings of what was found.
        facts: what else is known of the run, by its label; None is left out.
    """

    thing: str
    lead: str
    names: Sequence[str] = ()
    cards: Sequence[Card] = ()
    facts: Mapping[str, object] = field(default_factory=dict)


def title(run: Run[Any]) -> str:
    """What the page is about, in a few words."""
    text = f"{display_method(run.config.method)} on {run.config.data.name}"
    return text[:1].upper() + text[1:]


def display_method(method: str) -> str:
    """A method's name as it is written in a sentence: an abbreviation in capitals, one with a hyphen too."""
    short = all(part.isalpha() and len(part) <= 5 for part in method.split("-"))
    return method.upper() if short else method


def header(run: Run[Any], headline: Headline) -> str:
    """The title, the figures that matter, the strings of what was found and the facts of the run; HTML."""
    return (
        f'<p class="kicker">archray · run report</p><h1>{escape(title(run))}</h1>'
        f'<p class="lead">{escape(headline.lead)}</p>{_cards(headline.cards)}{_names(headline)}'
        f"{_facts(run, headline.facts)}"
    )


def _cards(cards: Sequence[Card]) -> str:
    shown = "".join(
        f'<div class="card {card.look}"><strong>{escape(card.value)}</strong><span>{escape(card.label)}</span></div>'
        for card in cards
    )
    return f'<div class="cards">{shown}</div>' if shown else ""


def _names(headline: Headline) -> str:
    shown = "".join(f"<code>{breakable(name)}</code>" for name in headline.names)
    return f'<div class="architecture"><span>{escape(headline.thing)}</span>{shown}</div>' if shown else ""


def _facts(run: Run[Any], facts: Mapping[str, object]) -> str:
    shown = {
        "Method": display_method(run.config.method),
        "Space": run.config.space,
        "Data": run.config.data.name,
        **facts,
        "Seed": run.best.config.seed,
        "Started": f"{datetime.fromisoformat(run.manifest['created']):%Y-%m-%d %H:%M} UTC",
        "Duration": duration(run.best.seconds) if run.best.seconds else None,
        "Code": _code(run.manifest),
    }
    rows = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in shown.items()
        if value is not None
    )
    return f'<dl class="facts">{rows}</dl>'


def _code(manifest: Mapping[str, Any]) -> str:
    commit = manifest.get("git_commit")
    return " · ".join([f"archray {manifest['versions']['archray']}", *([str(commit)[:10]] if commit else [])])


def network_size(trained: pd.DataFrame) -> str | None:
    """`3.3 M parameters, 545.2 M multiply-adds`, the mean over the rows; None if no row has either."""
    means = {words: float(numbers(trained, name).mean()) for name, words in _SIZES.items()}
    return ", ".join(f"{millions(mean)} {words}" for words, mean in means.items() if math.isfinite(mean)) or None


def millions(number: float) -> str:
    """A large number: `545.2 M`; below a tenth of a million with two digits, `0.073 M`."""
    if number < 1e5:
        return f"{significant(number / 1e6, 2)} M"
    return f"{number / 1e6:,.1f} M".replace(",", "\N{NARROW NO-BREAK SPACE}")
