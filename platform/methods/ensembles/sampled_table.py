"""The sampled ensembles of a run: their rows as every section counts them, which was chosen, each sampler's look."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np
import pandas as pd

from archray.platform.methods.supernets.search_seeds import with_repeat
from archray.platform.report.plot import FOUND, GREEN, INDIGO, PINK, RANDOM, TRIAL
from archray.platform.report.view import RunView, failures, numbers

METRICS = ("validation_loss", "validation_error")  # the first that a run has ranks its ensembles

Dashes = Literal["-", "--", ":", "-."]
Look = tuple[str, Dashes]  # colour, dashes
_LOOKS: dict[str, Look] = {
    "svgd-rd": (FOUND, "-"),
    "nesbs": (FOUND, "-"),
    "mc": (GREEN, "--"),
    "urs": (RANDOM, "-."),
    "uniform": (RANDOM, "-."),
    "single-best": (PINK, ":"),
    "nes-rs": (INDIGO, "--"),
    "nes-re": (INDIGO, ":"),
    "deep-ensemble": (TRIAL, "-"),
}
_ALL: tuple[Dashes, ...] = ("--", ":", "-.", "-")
_FURTHER: tuple[Look, ...] = tuple((colour, dashes) for dashes in _ALL for colour in (TRIAL, PINK, GREEN, RANDOM))


def sampled_ensembles(view: RunView) -> pd.DataFrame:
    """The rows of `view.ensembles`, in order; empty where none has a finite loss or error.

    Columns: `repeat`, `sampler`, `evaluations` (of this sampler in this repeat until then, from 1), `delta`,
    `temperature`, `members` (a tuple), `validation_loss`, `validation_error` (NaN of a failure), `failure`.
    """
    frame, reasons = view.ensembles, failures(view.ensembles)
    told = pd.DataFrame(
        {
            "repeat": with_repeat(frame)["repeat"],
            "sampler": frame["sampler"].astype(str) if "sampler" in frame else view.method,
            "members": [strings(members) for members in frame["members"]] if "members" in frame else "",
            "failure": reasons,
            **{name: numbers(frame, name) for name in ("delta", "temperature")},
            **{name: numbers(frame, name).where(reasons.isna()) for name in METRICS},
        },
        index=frame.index,
    )
    if not told[list(METRICS)].notna().any(axis=None):
        return pd.DataFrame()
    return told.assign(evaluations=told.groupby(["repeat", "sampler"], sort=False).cumcount() + 1)


def ranked_by(sampled: pd.DataFrame) -> str:
    """The metric that ranks the ensembles: the validation loss, or the error where no loss is known."""
    return next(name for name in METRICS if sampled[name].notna().any())


def chosen_ensemble(view: RunView, sampled: pd.DataFrame) -> int | None:
    """The row of the ensemble that the run chose, the best and the first of equals; None if it was not sampled."""
    if not view.members or sampled.empty:
        return None
    wanted = sorted(view.members)
    own = sampled[[sorted(members) == wanted for members in sampled["members"]]]
    values = own[ranked_by(sampled)].dropna()
    return int(values.index[int(values.to_numpy().argmin())]) if len(values) else None


def chosen_delta(view: RunView) -> float | None:
    """The diversity coefficient at which the chosen ensemble was sampled; None if it has none."""
    sampled = sampled_ensembles(view)
    chosen = chosen_ensemble(view, sampled)
    delta = float("nan") if chosen is None else float(sampled["delta"][chosen])
    return delta if np.isfinite(delta) else None


def looks(samplers: Iterable[str]) -> dict[str, Look]:
    """Colour and dashes of each sampler or method, the same in every section; unknown ones get what is free."""
    free = iter(_FURTHER)
    told: dict[str, Look] = {}
    for name in samplers:
        own = _LOOKS.get(name)
        told[name] = own if own is not None and own not in told.values() else next(free, (TRIAL, "-"))
    return told


def strings(members: object) -> tuple[str, ...]:
    """The members of a row: any sequence of strings; none where the cell is empty."""
    return tuple(map(str, members)) if isinstance(members, list | tuple | np.ndarray) else ()
