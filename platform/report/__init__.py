"""The HTML report of a run: `render(view)` gives one self-contained page, built of the sections a method chooses."""

from __future__ import annotations

from archray.platform.report.page import HNAS_SECTIONS, render
from archray.platform.report.section import Section
from archray.platform.report.view import Decided, Objective, RunView

__all__ = ["HNAS_SECTIONS", "Decided", "Objective", "RunView", "Section", "render"]
