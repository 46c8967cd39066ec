"""The report in a real browser: no console output, no network requests, and nothing wider than the screen."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from archray_test_activations import activations_run
from archray_test_bench import bench_on_a_page
from archray_test_ensemble_report import ensemble_run, repeated_ensemble_run
from archray_test_feature_map_report import feature_map_run, method_progress
from archray_test_plain_report import pareto_run, plain_run
from archray_test_report import hnas_content, rendered, write_repeats
from archray_test_split import split_run
from archray_test_supernet_report import gradient_run, nasi_run, scored_run
from archray_test_topology import topology_run
from matplotlib.figure import Figure

from archray.platform.methods.feature_maps.report import equal_cost_sections
from archray.platform.report.figures import drawing, figure
from archray.platform.report.page import write_page
from archray.platform.report.section import Section
from archray.platform.run.run import Run

COLORS = "getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).color"
# Text that extends beyond its drawing by more than a pixel.
ESCAPED_TEXT = """() => [...document.querySelectorAll('.plot svg')].flatMap(svg => {
    const box = svg.getBoundingClientRect();
    if (box.width === 0) return [];
    return [...svg.querySelectorAll('text')].filter(text => {
        const inner = text.getBoundingClientRect();
        return inner.width && (inner.left < box.left - 1 || inner.right > box.right + 1
            || inner.top < box.top - 1 || inner.bottom > box.bottom + 1);
    }).map(text => text.textContent);
})"""
# Text in the drawings that is smaller than this many CSS pixels.
SMALL_TEXT = """(least) => [...document.querySelectorAll('.plot svg')].flatMap(svg => {
    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    return [...svg.querySelectorAll('text')]
        .filter(text => scale > 0 && parseFloat(getComputedStyle(text).fontSize) * scale < least)
        .map(text => text.textContent);
})"""
LEAST_TEXT = 9.0  # CSS pixels, readable on a phone, whose pixels are a third of these
# Labels of cells that cover each other.
COVERED_LABELS = """() => [...document.querySelectorAll('.plot svg.cell')].flatMap(svg => {
    const labels = [...svg.querySelectorAll('.edge rect')].map(label => label.getBoundingClientRect());
    return labels.filter((one, i) => labels.slice(0, i).some(other => one.width
        && one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom))
        .map(() => svg.getAttribute('aria-label'));
})"""
# Elements outside of scrolling boxes that extend beyond the screen.
WIDE = """() => [...document.querySelectorAll('body *')].filter(element => !element.closest('.scroll, .plot')
    && element.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map(e => e.outerHTML)"""
PHONE = 390
# Contrast of an element's text with the page (WCAG 2).
CONTRAST = """(selector) => {
    const light = color => {
        const [r, g, b] = color.match(/[\\d.]+/g).map(v => v / 255)
            .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const page = light(getComputedStyle(document.body).backgroundColor);
    return [...document.querySelectorAll(selector)].map(element => {
        const style = getComputedStyle(element);
        const own = light(element instanceof SVGElement ? style.fill : style.color);
        return (Math.max(own, page) + 0.05) / (Math.min(own, page) + 0.05);
    });
}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    long = "unbroken" * 100
    tables, documents = hnas_content()
    worse = {("search", "architecture.json"): {"architecture": long}}
    run = write_repeats(
        folder / "run", "hnas", [(tables, documents), ({}, worse)], config={"search": {"proxy": "ntk_trace"}}
    )
    run.manifest["long"] = {"key" * 60: long}
    file = folder / "report.html"
    file.write_text(rendered(run), encoding="utf-8")
    return file


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 700), ("dark", PHONE), ("light", 320)])
def test_the_report_opens_without_console_output(browser: Any, report: Path, scheme: str, width: int) -> None:
    assert drawings_shown(browser, report, scheme, width) == 6  # one of the two forms of each drawing


def comparison(folder: Path) -> str:
    methods = ("halving", "random-maps", "successive-halving", "hyperband")
    runs = [(method, method_progress(method)) for method in methods]
    return write_page("Comparison", "", equal_cost_sections(runs))


# The maker of a page of another family, and its number of drawings; each cell counts once.
PAGES: dict[Callable[[Path], str | Run[Any]], int] = {
    feature_map_run: 3,
    comparison: 2,
    gradient_run: 6,
    scored_run: 2,
    nasi_run: 8,
    plain_run: 4,
    pareto_run: 6,
    activations_run: 4,
    split_run: 5,
    topology_run: 5,
    ensemble_run: 10,
    repeated_ensemble_run: 11,
    bench_on_a_page: 1,
}


FAST = (plain_run, feature_map_run)
PARAMETERS = [pytest.param(page, marks=() if page in FAST else (pytest.mark.slow, pytest.mark.ci)) for page in PAGES]


@pytest.fixture(scope="module", params=PARAMETERS, ids=lambda page: page.__name__)
def page_and_drawings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    folder = tmp_path_factory.mktemp(request.param.__name__)
    shown = request.param(folder / "run")
    text = shown if isinstance(shown, str) else rendered(shown)
    (folder / "report.html").write_text(text, encoding="utf-8")
    return folder / "report.html", PAGES[request.param]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", PHONE)])
def test_pages_of_other_families_open_without_console_output(
    browser: Any, page_and_drawings: tuple[Path, int], scheme: str, width: int
) -> None:
    file, drawings = page_and_drawings
    assert drawings_shown(browser, file, scheme, width) == drawings


def drawings_shown(browser: Any, report: Path, scheme: str, width: int) -> int:
    """Opens a page, checks that it logs and loads nothing and fits, and returns the number of visible drawings."""
    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
    console: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: console.append(message.text))
    page.on("pageerror", lambda error: console.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    assert console == []
    assert [url for url in requests if not url.startswith("data:")] == [report.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(WIDE) == []
    assert page.evaluate(ESCAPED_TEXT) == []
    assert page.evaluate(COVERED_LABELS) == []
    if width >= PHONE:
        assert page.evaluate(SMALL_TEXT, LEAST_TEXT) == []
    shown = page.evaluate("[...document.querySelectorAll('.plot')].filter(plot => plot.offsetParent).length")
    page.close()
    return int(shown)


def test_a_title_wider_than_its_panel_is_wrapped(browser: Any, tmp_path: Path) -> None:
    @figure(height=200)
    def panels(run: None, canvas: Figure) -> None:
        for axes in canvas.subplots(1, 3):
            axes.set_title("validation accuracy of the members of an ensemble")

    section = Section("panels", "Panels", drawing("panels", panels(None), description="Three panels."))
    (tmp_path / "page.html").write_text(write_page("Panels", "", [section]), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto((tmp_path / "page.html").as_uri())
    assert page.evaluate(ESCAPED_TEXT) == []
    words = "[...document.querySelectorAll('.plot text')].filter(t => /[a-z]/.test(t.textContent))"
    boxes = page.evaluate(f"{words}.map(t => t.getBoundingClientRect().toJSON())")
    page.close()
    assert len(boxes) >= 6, "each title has lines"
    for one, other in itertools.combinations(boxes, 2):
        assert one["right"] <= other["left"] or other["right"] <= one["left"] or abs(one["top"] - other["top"]) > 5


def test_light_and_dark_themes_differ_and_are_readable(browser: Any, report: Path) -> None:
    colors = {}
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme, viewport={"width": 1200, "height": 900})
        page.goto(report.as_uri())
        colors[scheme] = page.evaluate(COLORS)
        ratios = page.evaluate(
            CONTRAST, "p, h1, h2, dt, dd, figcaption, td, th, a, .card span, .plot text:not([style*='--surface'])"
        )
        assert len(ratios) > 100
        assert min(ratios) >= 4.5
        page.close()
    assert colors["light"] != colors["dark"]


def test_it_prints_light_and_complete(browser: Any, report: Path) -> None:
    page = browser.new_page(color_scheme="dark", viewport={"width": 1200, "height": 900})
    page.goto(report.as_uri())
    page.emulate_media(media="print", color_scheme="dark")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(253, 253, 252)"
    assert page.evaluate("document.querySelector('details.manifest dl').getBoundingClientRect().height") > 0
    page.close()
