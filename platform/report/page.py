"""The page: a header, the sections a method chooses, and the style, in one file that asks for nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from string import Template

from archray.platform.report.cell import cell_section
from archray.platform.report.choice import choice_section
from archray.platform.report.comparison import comparison_section
from archray.platform.report.correlation import correlation_section
from archray.platform.report.curves import curves_section
from archray.platform.report.discretisation import discretisation_section
from archray.platform.report.diversity import diversity_section
from archray.platform.report.ensemble_delta import ensemble_delta_section
from archray.platform.report.ensemble_result import ensemble_result_section
from archray.platform.report.ensembles import ensembles_section
from archray.platform.report.entropies import entropies_section
from archray.platform.report.estimated_true import estimated_true_section
from archray.platform.report.failed import failures_section
from archray.platform.report.found import header, title
from archray.platform.report.found_cells import found_cells_section
from archray.platform.report.found_map import map_repeats_section
from archray.platform.report.landscape import landscape_section
from archray.platform.report.manifest import manifest_section
from archray.platform.report.member_cells import member_cells_section
from archray.platform.report.particles import particles_section
from archray.platform.report.pool import pool_section
from archray.platform.report.posterior import posterior_section
from archray.platform.report.repeats import repeats_section
from archray.platform.report.rounds import rounds_section
from archray.platform.report.section import Section, escape
from archray.platform.report.selection import selection_section
from archray.platform.report.shared_scores import shared_scores_section
from archray.platform.report.solver_calls import seconds_section, solver_calls_section
from archray.platform.report.trials import trials_section
from archray.platform.report.view import RunView

MakeSection = Callable[[RunView], Section | None]

HNAS_SECTIONS: tuple[MakeSection, ...] = (
    cell_section,
    comparison_section,
    repeats_section,
    choice_section,
    landscape_section,
    pool_section,
    curves_section,
    trials_section,
    failures_section,
    manifest_section,
)


FEATURE_MAP_SECTIONS: tuple[MakeSection, ...] = (
    cell_section,
    map_repeats_section,
    correlation_section,
    solver_calls_section,
    seconds_section,
    rounds_section,
    failures_section,
    manifest_section,
)


SUPERNET_SECTIONS: tuple[MakeSection, ...] = (
    cell_section,
    comparison_section,
    repeats_section,
    found_cells_section,
    entropies_section,
    discretisation_section,
    shared_scores_section,
    rounds_section,
    selection_section,
    curves_section,
    failures_section,
    manifest_section,
)


ENSEMBLE_SECTIONS: tuple[MakeSection, ...] = (
    cell_section,
    ensemble_result_section,
    member_cells_section,
    diversity_section,
    posterior_section,
    particles_section,
    ensembles_section,
    ensemble_delta_section,
    estimated_true_section,
    curves_section,
    failures_section,
    manifest_section,
)


def render(view: RunView, sections: Sequence[MakeSection] = HNAS_SECTIONS) -> str:
    """The report of a run as one self-contained HTML page: no script, no request, light and dark.

    Args:
        sections: what the page holds, in order; each makes a section of the view, or None where the view has no
            data for it, and then it is left out.

    Raises: ValueError if two sections have one anchor.
    """
    made = [section for make in sections if (section := make(view)) is not None]
    return write_page(f"archray: {title(view)}", header(view), made)


def write_page(title: str, header: str, sections: Sequence[Section]) -> str:
    """A page of its header, HTML, the list of its sections and these. Raises: ValueError if two have one anchor."""
    anchors = [section.anchor for section in sections]
    if len(set(anchors)) != len(anchors):
        raise ValueError(f"expected sections with distinct anchors, got {', '.join(anchors)}")
    here = files("archray.platform.report")
    return Template((here / "page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        style=(here / "page.css").read_text(encoding="utf-8"),
        header=header,
        contents="".join(f'<a href="#{escape(s.anchor)}">{escape(s.title)}</a>' for s in sections),
        sections="".join(
            f'<section id="{escape(s.anchor)}"><h2>{escape(s.title)}</h2>{s.body}</section>' for s in sections
        ),
    )
