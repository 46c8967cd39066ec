"""The head of the report of a search for an ensemble: what was found, and how well it does."""

from __future__ import annotations

import math

from archray.platform.methods.ensembles.ensemble_result import points, trained
from archray.platform.methods.feature_maps.found_map import Card
from archray.platform.report.quantity import Quantity
from archray.platform.report.section import breakable
from archray.platform.report.view import RunView

_TEST = Quantity.of("test_error")


def lead(view: RunView) -> str:
    """What was found, in a sentence or two; plain text. `view.members` is not empty."""
    size = _what(view)
    error, members, baselines = _errors(view)
    if not math.isfinite(error):
        return f"The search chose the {size} below. There is no test error: it was not trained in full."
    text = f"The search chose the {size} below; trained in full, it has a test error of {_TEST.show(error)}"
    if len(members) > 1:
        text += f", {points(error - min(members))} its best member"
    text += "."
    if baselines:
        name, best = min(baselines.items(), key=lambda pair: pair[1])
        text += f" The best baseline, {name}, has {_TEST.show(best)}."
    return text


def cards(view: RunView) -> list[Card]:
    """The test errors of the ensemble, of its members and of the best baseline, as far as they are known."""
    error, members, baselines = _errors(view)
    shown: list[Card] = []
    if math.isfinite(error):
        shown.append(("found", _TEST.show(error), "ensemble, test error" if len(view.members) > 1 else "test error"))
    if len(members) > 1:
        shown.append(("trial", _TEST.show(min(members)), "its best member"))
        shown.append(("trial", _TEST.show(sum(members) / len(members)), "mean of its members"))
    if baselines:
        name, best = min(baselines.items(), key=lambda pair: pair[1])
        shown.append(("random", _TEST.show(best), f"best baseline, {name}"))
    return shown


def _what(view: RunView) -> str:
    """`ensemble of 3 architectures`; that of a search for the best one is an architecture."""
    return f"ensemble of {len(view.members)} architectures" if len(view.members) > 1 else "architecture"


def member_list(view: RunView) -> str:
    """The members' strings, HTML."""
    return "".join(f"<code>{breakable(member)}</code>" for member in view.members)


def _errors(view: RunView) -> tuple[float, list[float], dict[str, float]]:
    """Test errors, finite ones: of the ensemble (NaN if there is none), its members, and the baselines by name."""
    frame = trained(view)
    if frame.empty:
        return math.nan, [], {}
    told = frame[frame["test_error"].notna()]
    own = told.loc[told["kind"] == "ensemble", "test_error"]
    baselines = told[told["kind"] == "baseline"]
    return (
        float(own.iloc[0]) if len(own) else math.nan,
        told.loc[told["kind"] == "member", "test_error"].tolist(),
        dict(zip(baselines["name"], baselines["test_error"], strict=True)),
    )
