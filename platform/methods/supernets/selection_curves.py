"""The selection among what the seeds found, trained on the final schedule. GAEA, Li et al. 2021, App. C.1."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from archray.platform.methods.supernets.search_seeds import several_repeats, with_repeat
from archray.platform.report.plot import FOUND, INDIGO, MUTED, TRIAL, Size, plot
from archray.platform.report.quantity import MISSING, Quantity, count, whole_number
from archray.platform.report.section import Column, Section, figure, paragraphs, table
from archray.platform.report.view import RunView, failures, flags, numbers

_ACCURACY = Quantity.of("validation_accuracy")
_LOOKS = {
    "chosen": (FOUND, 2.4, 0.95),
    "kept": (INDIGO, 1.8, 0.9),
    "dropped": (TRIAL, 1.2, 0.5),
}  # colour, width, alpha


def selection_section(view: RunView) -> Section | None:
    """The curves of the selection, and the table of what became of each. Nothing without a selection."""
    if view.selection.empty or "architecture" not in view.selection:
        return None
    frame = with_repeat(view.selection)
    cut = cut_epoch(frame)
    lines = _lines(view, frame)
    body = paragraphs([_sentence(frame, cut)])
    if lines:

        def draw(canvas: Figure, narrow: bool) -> None:
            _draw(canvas, lines, cut, narrow)

        body += figure(
            plot(
                "selection",
                draw,
                description=f"Validation accuracy by epoch of {count(len(lines), 'architecture')} in the selection.",
                wide=Size(760, 330),
                narrow=Size(350, 300),
            ),
            _caption(lines, cut),
        )
    return Section("selection", "Selection", body + _table(view, frame, cut))


def cut_epoch(selection: pd.DataFrame) -> int | None:
    """The epoch after which the worst were dropped; None if none was."""
    dropped = ~flags(selection, "kept") & failures(selection).isna()
    epochs = numbers(selection, "epochs")[dropped].dropna()
    return int(epochs.max()) if len(epochs) else None


def fate(view: RunView, row: pd.Series) -> str:
    """`chosen`, `kept` or `dropped`, of a row of the selection."""
    if view.architecture is not None and row["architecture"] == view.architecture:
        return "chosen"
    return "kept" if pd.notna(row.get("kept")) and bool(row.get("kept")) else "dropped"


def _lines(view: RunView, selection: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Fate and curve of each training that has a finite accuracy, those that matter most last."""
    curves = with_repeat(view.selection_curves)
    if not {"architecture", "epoch", "validation_accuracy"} <= set(curves.columns):
        return []
    curves = curves.assign(epoch=numbers(curves, "epoch"), shown=numbers(curves, "validation_accuracy"))
    lines = []
    for _, row in selection.iterrows():
        own = curves[(curves["repeat"] == row["repeat"]) & (curves["architecture"] == row["architecture"])]
        if own["shown"].notna().any():
            lines.append((fate(view, row), own.sort_values("epoch")))
    return sorted(lines, key=lambda line: list(_LOOKS).index(line[0]), reverse=True)


def _draw(canvas: Figure, lines: list[tuple[str, pd.DataFrame]], cut: int | None, narrow: bool) -> None:
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
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel("epoch")
    axes.set_ylabel(_ACCURACY.axis if not narrow else _ACCURACY.unit)
    handles = [
        Line2D([], [], color=colour, linewidth=width, alpha=alpha, label=name)
        for name, (colour, width, alpha) in _LOOKS.items()
        if any(name == of for of, _ in lines)
    ]
    canvas.legend(handles=handles, loc="outside upper left", ncols=len(handles))


def _sentence(selection: pd.DataFrame, cut: int | None) -> str:
    text = f"{count(len(selection), 'architecture')} of the searches {'was' if len(selection) == 1 else 'were'}"
    text += " trained from scratch, on the schedule of the final training"
    if cut is None:
        text += "; none was dropped."
    else:
        kept = int(flags(selection, "kept").sum())
        text += f". After epoch {cut} the best {kept} on validation went on to the end, and the others were dropped."
    return f"{text} The best at the end is chosen; the test data took no part."


def _caption(lines: list[tuple[str, pd.DataFrame]], cut: int | None) -> str:
    text = f"Validation accuracy by epoch of {count(len(lines), 'architecture')}, each trained on its own."
    return text + (" Dashed: the epoch after which the worst were dropped." if cut is not None else "")


def _table(view: RunView, selection: pd.DataFrame, cut: int | None) -> str:
    """The rows as they ended, best first within a repeat."""
    frame = selection.assign(
        end=numbers(selection, "validation_accuracy"),
        cut=numbers(selection, "value"),
        epochs=numbers(selection, "epochs"),
        kept=flags(selection, "kept"),
        reason=failures(selection),
    ).sort_values(["repeat", "kept", "end"], ascending=[True, False, False], ignore_index=True)
    several = several_repeats(frame)
    columns = [Column("Repeat", "number")] if several else []
    columns += [Column("Outcome"), Column("Epochs", "number")]
    columns += [Column(f"At epoch {cut} (%)", "number")] if cut is not None else []
    columns += [Column("At its end (%)", "number"), Column("Architecture", "code")]
    rows = [
        (
            *([row["repeat"]] if several else []),
            row["reason"] or fate(view, row),
            whole_number(row["epochs"]),
            *([_ACCURACY.bare(row["cut"])] if cut is not None else []),
            _ACCURACY.bare(row["end"]),
            row["architecture"] if isinstance(row["architecture"], str) else MISSING,
        )
        for _, row in frame.iterrows()
    ]
    fates = [fate(view, row) for _, row in frame.iterrows()]
    return table(
        columns,
        rows,
        label="The architectures of the selection",
        marked=fates.index("chosen") if "chosen" in fates else None,
        faint=frozenset(place for place, name in enumerate(fates) if name == "dropped"),
    )
