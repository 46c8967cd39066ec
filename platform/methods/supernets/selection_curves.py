"""The selection among what the seeds found, trained on the final schedule. GAEA, Li et al. 2021, App. C.1."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from archray.platform.methods.supernets.search_seeds import SELECTED, names_of
from archray.platform.quantities import quantity_of, whole_number
from archray.platform.report.figures import FOUND, INDIGO, MUTED, TRIAL, NothingToDraw, drawing, few_ticks, figure
from archray.platform.report.pointed_at import tell_line
from archray.platform.report.section import Column, Section, captioned, paragraphs, table
from archray.platform.report.short_names import ShortNames
from archray.platform.report.table_columns import failures, flags, numbers
from archray.platform.run.layout import CURVES
from archray.platform.run.run import Run
from archray.plurals import count

_ACCURACY = quantity_of("selection_accuracy")
_LOOKS = {
    "chosen": (FOUND, 2.4, 0.95),
    "kept": (INDIGO, 1.8, 0.9),
    "dropped": (TRIAL, 1.2, 0.8),
}  # colour, width, alpha

Fated = tuple[str, pd.DataFrame]  # a key of _LOOKS, and the curve of a training


def selection_section(run: Run[Any]) -> Section | None:
    """The curves of the selection, and the table of what became of each. Nothing without a selection."""
    names, run = names_of(run), run.best
    selected = run.table("selection", SELECTED)
    if selected.empty:
        return None
    cut, lines = cut_epoch(selected), fated_curves(run)
    body = paragraphs([_sentence(selected, cut)])
    if lines:
        shown = drawing(
            "selection",
            selection_curves(run),
            description=f"Validation accuracy by epoch of {count(len(lines), 'architecture')} in the selection.",
        )
        text = f"Validation accuracy by epoch of {count(len(lines), 'architecture')}, each trained on its own."
        text += " Dashed: the epoch after which the worst were dropped." if cut is not None else ""
        body += captioned(shown, text)
    return Section("selection", "Selection", body + _table(selected, run.architecture, cut, names))


@figure(height=310)
def selection_curves(run: Run[Any], canvas: Figure) -> None:
    """Validation accuracy by epoch of what the search seeds found, as far as each was trained. Li et al. 2021, C.1."""
    lines, names = fated_curves(run), names_of(run)
    if not lines:
        raise NothingToDraw("the run has no curves of a selection; its search seeds found fewer than two architectures")
    axes = canvas.subplots()
    for name, curve in lines:
        colour, width, alpha = _LOOKS[name]
        axes.plot(
            curve["epoch"],
            curve["shown"] * _ACCURACY.factor,
            color=colour,
            linewidth=width,
            alpha=alpha,
            marker="o" if curve["shown"].notna().sum() == 1 else None,
            markersize=4,
        )
        shown = curve["shown"] * _ACCURACY.factor
        last = shown.last_valid_index()
        told = f"{names.of(curve['architecture'][last])}, {name}\n{_ACCURACY.show(curve['shown'][last])}"
        tell_line(axes, curve["epoch"].tolist(), shown.tolist(), f"{told} in epoch {curve['epoch'][last]:.0f}")
    cut = cut_epoch(run.best.table("selection", SELECTED))
    if cut is not None:
        axes.axvline(cut, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        axes.annotate(
            f"epoch {cut}",
            (cut, 0),
            xycoords=("data", "axes fraction"),
            xytext=(4, 4),
            textcoords="offset points",
            fontsize=11,
            color=MUTED,
        )
    few_ticks(axes, 6, integer=True)
    axes.set_xlabel("epoch")
    axes.set_ylabel(_ACCURACY.axis)
    handles = [
        Line2D([], [], color=colour, linewidth=width, alpha=alpha, label=name)
        for name, (colour, width, alpha) in _LOOKS.items()
        if any(name == of for of, _ in lines)
    ]
    canvas.legend(handles=handles, loc="outside upper left", ncols=len(handles))


def cut_epoch(selection: pd.DataFrame) -> int | None:
    """The epoch after which the worst were dropped; None if none was."""
    dropped = ~flags(selection, "kept") & failures(selection).isna()
    epochs = numbers(selection, "epochs")[dropped].dropna()
    return int(epochs.max()) if len(epochs) else None


def fate(row: pd.Series, chosen: str | None) -> str:
    """`chosen`, `kept` or `dropped`, of a row of the selection."""
    if chosen is not None and row["architecture"] == chosen:
        return "chosen"
    return "kept" if row["kept"] else "dropped"


def fated_curves(run: Run[Any]) -> list[Fated]:
    """Fate and curve of each training that has a finite accuracy, those that matter most last."""
    run = run.best
    selected, curves = run.table("selection", SELECTED), run.table("selection", CURVES)
    if selected.empty or curves.empty:
        return []
    curves = curves.assign(epoch=numbers(curves, "epoch"), shown=numbers(curves, "validation_accuracy"))
    lines, chosen = [], run.architecture
    for _, row in selected.iterrows():
        own = curves[curves["architecture"] == row["architecture"]]
        if own["shown"].notna().any():
            lines.append((fate(row, chosen), own.sort_values("epoch")))
    return sorted(lines, key=lambda line: list(_LOOKS).index(line[0]), reverse=True)


def _sentence(selection: pd.DataFrame, cut: int | None) -> str:
    text = f"{count(len(selection), 'architecture')} of the searches {'was' if len(selection) == 1 else 'were'}"
    text += " trained from scratch, on the schedule of the final training"
    if cut is None:
        text += "; none was dropped."
    else:
        kept = int(flags(selection, "kept").sum())
        best = f"best {kept}" if kept > 1 else "best one"
        text += f". After epoch {cut} the {best} on validation went on to the end, and the others were dropped."
    return f"{text} The best at the end is chosen; the test data took no part."


def _table(selection: pd.DataFrame, chosen: str | None, cut: int | None, names: ShortNames) -> str:
    """The rows as they ended, best first."""
    ended = selection.assign(
        end=numbers(selection, "selection_accuracy"),
        cut=numbers(selection, "accuracy_at_cut"),
        epochs=numbers(selection, "epochs"),
        kept=flags(selection, "kept"),
        reason=failures(selection),
    ).sort_values(["kept", "end"], ascending=[False, False], ignore_index=True)
    fates = [fate(row, chosen) for _, row in ended.iterrows()]
    columns = [Column("Architecture", "name"), Column("At its end (%)", "number"), Column("Epochs", "number")]
    columns += [Column(f"At epoch {cut} (%)", "number")] if cut is not None else []
    columns += [Column("Outcome")]
    rows = [
        (
            names.of(row["architecture"]),
            _ACCURACY.bare(row["end"]),
            whole_number(row["epochs"]),
            *([_ACCURACY.bare(row["cut"])] if cut is not None else []),
            row["reason"] or name,
        )
        for name, (_, row) in zip(fates, ended.iterrows(), strict=True)
    ]
    return table(
        columns,
        rows,
        label="The architectures of the selection",
        marked=fates.index("chosen") if "chosen" in fates else None,
        faint=frozenset(place for place, name in enumerate(fates) if name == "dropped"),
    )
