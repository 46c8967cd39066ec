"""The HTML report of a run: `render(view)` gives one self-contained page, built of the sections a method chooses.

`render_comparison` sets several runs side by side, and `comparison_table` gives its numbers.
"""

from __future__ import annotations

from archray.platform.report.compare import render_comparison
from archray.platform.report.equal_cost import comparison_table
from archray.platform.report.oracle_error import error_at
from archray.platform.report.page import (
    ENSEMBLE_SECTIONS,
    FEATURE_MAP_SECTIONS,
    HNAS_SECTIONS,
    SUPERNET_SECTIONS,
    render,
)
from archray.platform.report.section import Section
from archray.platform.report.view import Decided, Objective, RunView

__all__ = [
    "ENSEMBLE_SECTIONS",
    "FEATURE_MAP_SECTIONS",
    "HNAS_SECTIONS",
    "SUPERNET_SECTIONS",
    "Decided",
    "Objective",
    "RunView",
    "Section",
    "comparison_table",
    "error_at",
    "render",
    "render_comparison",
]
