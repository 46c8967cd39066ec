"""The script of the report in a real browser: hovering, sorting, and the page without the script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from archray_test_ensemble_report import ensemble_run
from archray_test_feature_map_report import feature_map_run
from archray_test_report import hnas_run, rendered, write_summaries
from archray_test_supernet_report import gradient_run

from archray.platform.compare import compare
from archray.platform.report.page import write_page
from archray.platform.report.section import Column, Section, table

NUMBERS = ("12", "1\N{NARROW NO-BREAK SPACE}207", "−0.5 ± 0.1", "1.2 × 10⁻⁶", "3.0 × 10⁷", "–", "0")
# The position of a vertex inside a line on the screen.
MIDDLE = """line => {
    const point = line.points.getItem(Math.floor(line.points.numberOfItems / 2));
    return new DOMPoint(point.x, point.y).matrixTransform(line.getScreenCTM()).toJSON();
}"""
FAMILIES = {"hnas": hnas_run, "supernets": gradient_run, "ensembles": ensemble_run, "maps": feature_map_run}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    (folder / "report.html").write_text(rendered(hnas_run(folder / "run")), encoding="utf-8")
    return folder / "report.html"


def column(page: Any, within: str, place: int) -> list[str]:
    return [text.strip() for text in page.locator(f"{within} tbody td:nth-child({place})").all_inner_texts()]


@pytest.mark.slow
@pytest.mark.ci
def test_a_table_is_sorted_by_click_and_by_key(browser: Any, report: Path) -> None:
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(report.as_uri())
    trials = "#trials .scroll:not(details *)"
    heading = page.locator(f"{trials} th").nth(1)
    assert heading.get_attribute("aria-sort") == "descending"
    values = column(page, trials, 2)
    assert values[-1] == "–" and values[:-1] == sorted(values[:-1], key=float, reverse=True)
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert column(page, trials, 2) == [*reversed(values[:-1]), "–"]  # rows without a value stay last
    page.locator(f"{trials} th").nth(0).locator("button").press("Enter")
    assert heading.get_attribute("aria-sort") is None
    names = column(page, trials, 1)
    assert names == sorted(names, key=lambda name: int(name[1:])) and names[0] == "A1"  # and A10 is behind A9
    assert page.locator(f"{trials} tr.marked td").first.inner_text() == "A1"  # a row keeps its style
    page.close()


def test_numbers_are_sorted_by_value(browser: Any, tmp_path: Path) -> None:
    shown = table([Column("Number", "number"), Column("Word")], [(number, "b") for number in NUMBERS], label="numbers")
    (tmp_path / "page.html").write_text(write_page("Numbers", "", [Section("numbers", "Numbers", shown)]))
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    page.locator("th button").first.click()
    assert column(page, "#numbers", 1) == [NUMBERS[i] for i in (4, 1, 0, 3, 6, 2, 5)]
    page.locator("th button").first.click()
    assert column(page, "#numbers", 1) == [NUMBERS[i] for i in (2, 6, 3, 0, 1, 4, 5)]
    page.close()


def test_points_and_names_have_tooltips(browser: Any, report: Path) -> None:
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(report.as_uri())
    tip = page.locator("#tip")
    assert tip.is_hidden()
    name = page.locator("#trials td.name a").first
    name.hover()
    assert tip.inner_text().startswith("|") and "~0|" in tip.inner_text()
    page.keyboard.press("Escape")
    assert tip.is_hidden()
    name.focus()
    assert tip.is_visible()
    page.locator("#pool circle.spot").last.hover()
    assert tip.inner_text().startswith("A") and "validation accuracy" in tip.inner_text() and "κ = " in tip.inner_text()
    line = page.locator("#curves .line").last
    line.scroll_into_view_if_needed()
    at = line.evaluate(MIDDLE)
    page.mouse.move(at["x"], at["y"])
    assert " in epoch " in tip.inner_text()
    page.locator("h1").hover()
    assert tip.is_hidden()
    name.click()
    assert page.url.endswith("#A1") and page.locator("#A1").is_visible()
    page.close()


def test_the_page_is_readable_without_its_script(browser: Any, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator("button").count() == 0 and page.locator("#tip").count() == 0
    assert page.locator("#trials th[aria-sort]").first.get_attribute("aria-sort") == "descending"
    assert page.locator("#trials td.name a").first.get_attribute("title").startswith("|")
    assert page.locator("#pool .spot > title").first.text_content().startswith("A")
    context.close()


def test_the_main_columns_of_a_comparison_are_visible_on_a_phone(browser: Any, tmp_path: Path) -> None:
    runs = [write_summaries(hnas_run(tmp_path / "hnas")), write_summaries(gradient_run(tmp_path / "gaea", epochs=2))]
    compare(runs, out=tmp_path / "page.html")
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto((tmp_path / "page.html").as_uri())
    headings = page.locator("#side-by-side table").first.locator("th")
    assert headings.all_inner_texts()[:2] == ["Run", "Test accuracy (%)"]
    box = headings.nth(1).bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    page.locator("#side-by-side circle.spot").first.hover()
    assert page.locator("#tip").inner_text().startswith("hnas") and "test accuracy" in page.locator("#tip").inner_text()
    page.close()


@pytest.mark.parametrize(
    "family", ["hnas", *(pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES if name != "hnas")]
)
def test_the_key_columns_are_visible_on_a_phone(browser: Any, tmp_path: Path, family: str) -> None:
    (tmp_path / "report.html").write_text(rendered(FAMILIES[family](tmp_path / "run")), encoding="utf-8")
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto((tmp_path / "report.html").as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    boxes = [heading.bounding_box() for heading in page.locator("th[aria-sort]").all()]
    assert boxes and all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes)
    page.close()
