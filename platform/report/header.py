"""The head of the report: what was found, how well it does, and what the run was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from archray.platform.report.network_size import network_size
from archray.platform.report.quantity import MISSING, Quantity, count, duration, finite_values
from archray.platform.report.section import breakable, escape
from archray.platform.report.view import RunView, failures, is_repeat, numbers

_TEST = Quantity.of("test_accuracy")
Card = tuple[str, str, str]


def _parts() -> Any:
    from archray.platform.methods.ensembles import found_ensemble
    from archray.platform.methods.feature_maps import found_map

    return found_ensemble, found_map


def header(view: RunView) -> str:
    """The title, the figures that matter, the architecture's string and the facts of the run."""
    return (
        f'<p class="kicker">archray · run report</p><h1>{escape(title(view))}</h1>'
        f"{_lead(view)}{_figures(view)}{_architecture(view)}{_facts(view)}"
    )


def title(view: RunView) -> str:
    """What the page is about, in a few words."""
    text = f"{display_method(view.method)} on {view.data}"
    return text[:1].upper() + text[1:]


def display_method(method: str) -> str:
    """A method's name as it is written in a sentence: an abbreviation in capitals, one with a hyphen too."""
    short = all(part.isalpha() and len(part) <= 5 for part in method.split("-"))
    return method.upper() if short and method != "urs" else method


def _lead(view: RunView) -> str:
    final = finite_values(numbers(view.final, "test_accuracy"))
    random = finite_values(numbers(view.baseline, "test_accuracy"))
    if view.members:
        return f'<p class="lead">{escape(_parts()[0].lead(view))}</p>'
    if view.architecture is None:
        return f'<p class="lead">The run found no {escape(_thing(view))}; the failures below say why.</p>'
    if len(view.progress):
        return f'<p class="lead">{escape(_parts()[1].lead(view))}</p>'
    if final.size == 0:
        return (
            '<p class="lead">The search chose an architecture. There is no test accuracy: no final training ended.</p>'
        )
    text = (
        f"The search chose the architecture below; trained in full, it reaches {_TEST.show(final.mean())} test accuracy"
    )
    if final.size > 1:
        text += f" on average over {final.size} seeds"
    if random.size == 0:
        return f'<p class="lead">{escape(text)}. No random architectures were trained for comparison.</p>'
    gap = 100 * (final.mean() - random.mean())
    side = "above" if gap >= 0 else "below"
    text += (
        f", {abs(gap):.2f} percentage points {side} the mean of "
        f"{count(random.size, 'random architecture')} trained with the same budget."
    )
    return f'<p class="lead">{escape(text)}</p>'


def _thing(view: RunView) -> str:
    """What a run finds, in words."""
    if len(view.members) > 1 or (len(view.ensembles) and not view.members):
        return "ensemble"
    return "feature map" if len(view.progress) else "architecture"


def _figures(view: RunView) -> str:
    if view.members:
        cards = _parts()[0].cards(view)
    else:
        cards = _parts()[1].cards(view) if len(view.progress) else _accuracies(view)
    if not cards:
        return ""
    return (
        '<div class="cards">'
        + "".join(
            f'<div class="card {look}"><strong>{escape(value)}</strong><span>{escape(label)}</span></div>'
            for look, value, label in cards
        )
        + "</div>"
    )


def _accuracies(view: RunView) -> list[Card]:
    final = finite_values(numbers(view.final, "test_accuracy"))
    random = finite_values(numbers(view.baseline, "test_accuracy"))
    best = view.best_trial()
    metric = Quantity.of(view.metric)
    cards = []
    if final.size:
        cards.append(("found", _TEST.spread(final), f"found, test accuracy, {count(final.size, 'seed')}"))
    if random.size:
        cards.append(("random", _TEST.spread(random), f"random, test accuracy, {count(random.size, 'architecture')}"))
    if best is not None:
        value = numbers(view.evaluated, "value")[best]
        cards.append(("trial", metric.show(value), f"best search trial, {metric.label}"))
    return cards


def _architecture(view: RunView) -> str:
    if view.members:
        shown = _parts()[0].member_list(view)
    elif view.architecture is not None:
        shown = f"<code>{breakable(view.architecture)}</code>"
    else:
        return ""
    return f'<div class="architecture"><span>{escape(_thing(view))}</span>{shown}</div>'


def _facts(view: RunView) -> str:
    facts = {
        "Method": display_method(view.method),
        "Space": view.space,
        "Data": view.data,
        "Training-free metric": view.proxy,
        "Scored architectures": count(len(view.pool), "in the pool", "in the pool") if len(view.pool) else None,
        "Search": _search(view),
        "Network": network_size(view.final),
        **(_parts()[1].facts(view) if len(view.progress) else {}),
        "Failures": _failed(view),
        "Seed": view.seed,
        "Started": view.started,
        "Duration": duration(view.seconds) if duration(view.seconds) != MISSING else None,
        "Code": _code(view.manifest),
    }
    rows = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in facts.items()
        if value is not None
    )
    return f'<dl class="facts">{rows}</dl>'


def _search(view: RunView) -> str | None:
    if len(view.ensembles):
        return count(len(view.ensembles), "ensemble")
    if len(view.found):
        return count(len(view.found), "supernet")
    trials = int((~is_repeat(view.evaluated)).sum())
    return count(trials, "training") if trials else None


def _failed(view: RunView) -> str | None:
    failed = {
        "scoring": int(failures(view.pool).notna().sum()),
        "search": int(failures(view.evaluated).notna().sum() + failures(view.found).notna().sum()),
        "ensembles": int(failures(view.ensembles).notna().sum()),
        "shared scores": int(failures(view.scores).notna().sum()),
        "selection": int(failures(view.selection).notna().sum()),
        "final": int(failures(view.final).notna().sum()),
        "random": int(failures(view.baseline).notna().sum()),
        "rounds": int(failures(view.rounds).notna().sum()),
    }
    return ", ".join(f"{number} in {where}" for where, number in failed.items() if number) or None


def _code(manifest: Mapping[str, Any]) -> str | None:
    versions = manifest.get("versions")
    version = versions.get("archray") if isinstance(versions, Mapping) else manifest.get("archray")
    commit = manifest.get("git_commit") or manifest.get("commit")
    if isinstance(commit, Mapping):
        commit = commit.get("commit")
    parts = [f"archray {version}" if version else None, str(commit)[:10] if commit else None]
    return " · ".join(part for part in parts if part) or None
