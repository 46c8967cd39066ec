"""What became of the found ensemble: its test error beside those of its members and of the baselines (note E8)."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from archray.platform.report.plot import FOUND, RANDOM, SURFACE, TRIAL, Size, plot
from archray.platform.report.quantity import MISSING, Quantity, count
from archray.platform.report.section import Column, Section, figure, table
from archray.platform.report.view import RunView, failures, numbers

_QUANTITIES = {
    "test_error": Quantity.of("test_error"),
    "nll": Quantity("NLL", "", 1.0, 4),
    "ece": Quantity("ECE", "%", 100.0, 2),
    "ate": Quantity("ATE", "%", 100.0, 2),
    "ppd": Quantity("PPD", "%", 100.0, 2),
}
_LOOKS = {"ensemble": (FOUND, "o"), "member": (TRIAL, "o"), "baseline": (RANDOM, "D")}  # in this order on the page
_MOST = 24  # rows that are drawn; the table has all
_LONG = 18  # characters of a name in the drawing


def ensemble_result_section(view: RunView) -> Section | None:
    """A row per model, the ensemble first, and the table. Nothing without a finite test error."""
    frame = trained(view)
    drawn = frame[frame["test_error"].notna()].head(_MOST) if len(frame) else frame
    if drawn.empty:
        return None

    def draw(canvas: Figure, narrow: bool) -> None:
        _draw(canvas.subplots(), drawn)

    shown = _QUANTITIES["test_error"]
    drawing = plot(
        "ensemble-result",
        draw,
        description="Test error: "
        + ", ".join(f"{row['name']} {shown.show(row['test_error'])}" for row in drawn.to_dict("records"))
        + ".",
        wide=Size(760, 80 + 26 * len(drawn)),
        narrow=Size(350, 80 + 26 * len(drawn)),
    )
    return Section("ensemble", "The ensemble and its members", figure(drawing, _caption(frame, drawn)) + _table(frame))


def trained(view: RunView) -> pd.DataFrame:
    """The rows of `ensemble`: the ensemble first, its members, the baselines; measures as floats, NaN of a failure."""
    frame = view.ensemble
    if frame.empty or "kind" not in frame:
        return pd.DataFrame()
    reasons = failures(frame)
    frame = frame.assign(
        name=frame["name"].astype(str) if "name" in frame else frame["kind"],
        reason=reasons,
        **{name: numbers(frame, name).where(reasons.isna()) for name in _QUANTITIES},
    )
    order = frame["kind"].map({kind: place for place, kind in enumerate(_LOOKS)})
    return frame[order.notna()].loc[order.dropna().sort_values(kind="stable").index].reset_index(drop=True)


def _draw(axes: Axes, rows: pd.DataFrame) -> None:
    shown = _QUANTITIES["test_error"]
    for place, row in enumerate(rows.to_dict("records")):
        colour, marker = _LOOKS[row["kind"]]
        value = row["test_error"] * shown.factor
        axes.scatter(
            value, place, s=80 if row["kind"] == "ensemble" else 50, color=colour, marker=marker, edgecolor=SURFACE,
            linewidth=0.8, zorder=3,
        )  # fmt: skip
        if row["kind"] == "ensemble":
            axes.axvline(value, color=colour, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    names = [name if len(name) <= _LONG else name[: _LONG - 1] + "…" for name in rows["name"]]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.margins(x=0.08)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel(shown.axis)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _caption(frame: pd.DataFrame, drawn: pd.DataFrame) -> str:
    text = "Test error of the ensemble, which averages its members' probabilities (blue), and of each member alone"
    text += " (grey)"
    baselines = int((frame["kind"] == "baseline").sum())
    text += f", and of {count(baselines, 'baseline')} (diamonds)." if baselines else "."
    told = [f"{gain}" for gain in (_gain(frame),) if gain]
    lost = int((frame["reason"].notna()).sum())
    if lost:
        told.append(f"{count(lost, 'training')} failed.")
    if len(drawn) < int(frame["test_error"].notna().sum()):
        told.append(f"The first {len(drawn)} are drawn.")
    told.append(
        "ATE is the average test error of the members, PPD the share of test points on which two of them disagree, "
        "NLL the mean negative log-likelihood in nats, ECE the expected calibration error."
    )
    return " ".join([text, *told])


def _gain(frame: pd.DataFrame) -> str | None:
    """How far below its best and its average member the ensemble is; None if either is not known."""
    own = frame.loc[frame["kind"] == "ensemble", "test_error"].dropna()
    members = frame.loc[frame["kind"] == "member", "test_error"].dropna()
    if own.empty or members.empty:
        return None
    return (
        f"The ensemble is {points(own.iloc[0] - members.min())} its best member, and "
        f"{points(own.iloc[0] - members.mean())} the average one."
    )


def points(gap: float) -> str:
    """A difference of two errors, fractions, as words: `0.42 percentage points below`."""
    if not math.isfinite(gap) or abs(gap) < 5e-5:
        return "level with"
    return f"{abs(100 * gap):.2f} percentage points {'below' if gap < 0 else 'above'}"


def _table(frame: pd.DataFrame) -> str:
    shown = {name: quantity for name, quantity in _QUANTITIES.items() if frame[name].notna().any()}
    failed, named = bool(frame["reason"].notna().any()), "architecture" in frame and frame["architecture"].notna().any()
    columns = [Column("Model"), *(Column(quantity.heading, "number") for quantity in shown.values())]
    columns += [Column("Failure")] if failed else []
    columns += [Column("Architecture", "code")] if named else []
    rows = [
        (
            row["name"],
            *(quantity.bare(row[name]) for name, quantity in shown.items()),
            *([row["reason"] or ""] if failed else []),
            *([row["architecture"] if isinstance(row["architecture"], str) else MISSING] if named else []),
        )
        for row in frame.to_dict("records")
    ]
    kinds = list(frame["kind"])
    return table(
        columns,
        rows,
        label="The ensemble, its members and the baselines",
        marked=kinds.index("ensemble") if "ensemble" in kinds else None,
    )
