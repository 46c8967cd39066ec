"""The report as text: complete, self-contained, escaped, and made of what the view has."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from archray_test_report import hnas_view

from archray.platform.report import HNAS_SECTIONS, Decided, Objective, RunView, Section, render
from archray.platform.report.cell import cell_section
from archray.platform.report.comparison import comparison_section
from archray.platform.report.repeats_section import repeats_section
from archray.platform.report.section import table
from archray.platform.report.view import failures

VOID = {"meta", "link", "br", "wbr", "img", "hr", "path", "use"}
HOSTILE = "<script>alert('x')</script>&\"|+"


class Page(HTMLParser):
    """What is in a page: ids, references, anchors of sections, and whether its elements nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.references: list[str] = []
        self.sections: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._see(tag, attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._see(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self._open and self._open.pop() == tag, f"</{tag}> closes nothing"

    def _see(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "section":
            self.sections.append(given["id"])
        self.references += [given[name] for name in ("src", "href", "xlink:href", "action") if name in given]
        self.references += re.findall(r"url\(([^)]*)\)", given.get("style", "") + given.get("clip-path", ""))


@pytest.fixture(scope="module")
def view() -> RunView:
    return hnas_view()


@pytest.fixture(scope="module")
def small() -> RunView:
    return hnas_view(pool_size=30, trials=4, baseline=2, final_seeds=2, epochs=2)


@pytest.fixture(scope="module")
def page(view: RunView) -> str:
    return render(view)


def test_every_section_is_there(page: str) -> None:
    assert Page(page).sections == [
        "cell",
        "comparison",
        "choice",
        "landscape",
        "pool",
        "curves",
        "trials",
        "failures",
        "manifest",
    ]


def test_the_page_asks_for_nothing(page: str) -> None:
    parsed = Page(page)
    assert all(reference.startswith(("#", "data:")) for reference in parsed.references)
    assert not parsed.tags & {"script", "iframe", "object", "embed", "video", "audio"}
    assert "@import" not in page
    assert "http://" not in page and "https://" not in page
    assert "default-src 'none'" in page


def test_ids_are_unique_and_references_resolve(page: str) -> None:
    parsed = Page(page)
    assert len(parsed.ids) == len(set(parsed.ids))
    assert {reference[1:] for reference in parsed.references if reference.startswith("#")} <= set(parsed.ids)


def test_plots_take_their_colours_from_the_page(page: str) -> None:
    drawings = re.findall(r"<svg viewBox.*?</svg>", page, flags=re.S)
    assert len(drawings) == 8  # comparison, landscape, pool and curves, each for a wide and for a narrow screen
    for drawing in drawings:
        assert "var(--ink)" in drawing
        assert "#0102" not in drawing  # no placeholder is left
        assert "#000000" not in drawing
        assert "font-family" not in drawing


def test_the_same_view_gives_the_same_page(view: RunView, page: str) -> None:
    assert render(view) == page


def test_the_page_stays_small_with_the_whole_space() -> None:
    assert len(render(hnas_view(pool_size=100_000)).encode()) < 1_500_000


def test_the_figures_that_matter(view: RunView, page: str) -> None:
    final, random = view.final["test_accuracy"] * 100, view.baseline["test_accuracy"] * 100
    assert f"{final.mean():.2f} ± {final.std(ddof=1):.2f} %" in page
    assert f"{random.mean():.2f} ± {random.std(ddof=1):.2f} %" in page
    assert "3 seeds" in page and "8 architectures" in page
    assert f"{abs(final.mean() - random.mean()):.2f} percentage points above" in page


def test_failures_are_counted_by_reason(view: RunView, page: str) -> None:
    reasons = view.pool["failure"].dropna().value_counts()
    assert len(reasons)
    for reason, number in reasons.items():
        escaped = str(reason).replace("<", "&lt;")
        row = f'<td class="text">{escaped}</td><td class="number">{number}</td><td class="number">300</td>'
        assert row in page
    assert "train_loss is NaN at epoch 3" in page


def test_everything_is_escaped(view: RunView) -> None:
    frames = {
        name: getattr(view, name).assign(architecture=HOSTILE) for name in ("evaluated", "baseline", "final", "curves")
    }
    hostile = replace(
        view,
        method=HOSTILE,
        space=HOSTILE,
        data=HOSTILE,
        architecture=HOSTILE,
        started=HOSTILE,
        decisions=(Decided("1<-0", HOSTILE, (HOSTILE, "none")), Decided("2<-1", "none", (HOSTILE, "none"))),
        manifest={HOSTILE: {HOSTILE: HOSTILE}, "plain": [HOSTILE]},
        pool=view.pool.assign(failure=HOSTILE),
        repeats=[{"architecture": HOSTILE, "seed": HOSTILE}, {"repeat": HOSTILE}],
        **frames,
    )
    text = render(hostile)
    assert "<script" not in text
    assert "script" not in Page(text).tags
    assert "&lt;script&gt;" in text


def test_dollars_are_kept() -> None:
    assert "$style ${x} $$" in render(RunView("hnas", "$style ${x} $$", "digits"))


def test_an_empty_view_has_a_page() -> None:
    text = render(RunView(method="hnas", space="nasbench201", data="digits"))
    assert Page(text).sections == []
    assert "found no architecture" in text


def test_a_row_without_a_failure_has_no_note() -> None:
    frame = pd.DataFrame({"failure": [None, float("nan"), "", "NaN loss"], "error": [None, None, "lost", "lost"]})
    assert failures(frame).tolist() == [None, None, "lost", "NaN loss"]
    assert failures(pd.DataFrame({"value": [1.0]})).tolist() == [None]


def test_frames_may_be_none() -> None:
    empty = dict.fromkeys(("pool", "evaluated", "baseline", "final", "curves"))
    assert Page(render(RunView("hnas", "nasbench201", "digits", **empty))).sections == []


@pytest.mark.parametrize(
    ("missing", "gone"),
    [
        ("pool", {"landscape", "pool"}),
        ("evaluated", {"choice", "landscape", "trials"}),
        ("curves", {"curves"}),
        ("baseline", set()),
        ("final", set()),
    ],
)
def test_a_section_without_data_is_left_out(small: RunView, page: str, missing: str, gone: set[str]) -> None:
    text = render(replace(small, **{missing: pd.DataFrame()}))
    assert set(Page(page).sections) - set(Page(text).sections) == gone


def test_without_a_baseline_the_page_says_so(small: RunView) -> None:
    text = render(replace(small, baseline=pd.DataFrame()), [comparison_section])
    assert "No random architectures were trained for comparison" in text


FRAMES = ["pool", "evaluated", "baseline", "final", "curves"]
DRAWN_FROM = {"baseline": {"comparison"}, "final": {"comparison"}, "curves": {"curves"}}  # of the others, many


def render_with(view: RunView, frame: str, table: pd.DataFrame) -> None:
    """Renders the sections that show `frame`, with `table` in its place; it must be a page whose elements nest."""
    others = {"cell", "manifest", "repeats"} | ({"curves", "comparison"} if frame not in DRAWN_FROM else set())
    wanted = DRAWN_FROM.get(frame)
    sections = [
        make
        for make in HNAS_SECTIONS
        if (name := make.__name__.removesuffix("_section")) not in others
        and (wanted is None or name in wanted | {"failures"})
    ]
    Page(render(replace(view, **{frame: table}), sections))


@pytest.mark.parametrize("frame", FRAMES)
def test_columns_of_nan(small: RunView, frame: str) -> None:
    whole = getattr(small, frame)
    numbers = [name for name in whole.select_dtypes("number").columns if name != "number"]
    render_with(small, frame, whole.assign(**dict.fromkeys(numbers, np.nan)))


@pytest.mark.parametrize("frame", FRAMES)
def test_one_row(small: RunView, frame: str) -> None:
    render_with(small, frame, getattr(small, frame).head(1))


@pytest.mark.parametrize("frame", FRAMES)
def test_a_column_may_be_missing(small: RunView, frame: str) -> None:
    whole = getattr(small, frame)
    for column in whole.columns:
        render_with(small, frame, whole.drop(columns=column))


def test_one_trial_and_one_seed() -> None:
    text = render(hnas_view(trials=1, baseline=1, final_seeds=1))
    assert "With one final seed, the spread between seeds is not known" in text
    assert "±" not in re.sub(r"<figcaption>.*?</figcaption>", "", text, flags=re.S)


def test_very_long_strings(small: RunView) -> None:
    long = "x" * 20_000
    text = render(replace(small, architecture=long, manifest={"a": long}, pool=small.pool.assign(failure=long)))
    assert text.count(long) == 2  # the reason of the failures is cut
    Page(text)


def test_a_space_without_edges_is_a_table(view: RunView) -> None:
    decisions = (Decided("depth", "3", ("2", "3", "4")), Decided("width & more", "wide", ("wide", "narrow")))
    text = render(replace(view, space="own_space.py:MySpace", decisions=decisions), [cell_section])
    assert '<svg class="cell"' not in text
    assert "width &amp; more" in text and "narrow" in text


def test_repeats_have_mean_and_spread(view: RunView) -> None:
    repeats = [
        {"repeat": 0, "seed": 0, "architecture": "a", "test_accuracy": [0.90, 0.92], "baseline": [0.80, 0.84]},
        {"repeat": 1, "seed": 1, "architecture": "b", "test_accuracy": 0.95, "baseline": []},
        {"repeat": 2, "seed": 2, "architecture": None, "test_accuracy": float("nan"), "baseline": None},
    ]
    text = render(replace(view, repeats=repeats), [repeats_section])
    assert "93.00 ± 2.83 % test accuracy over 2 repeats" in text
    assert "nothing found" in text
    assert "repeats" in Page(text).sections
    assert "repeats" not in Page(render(replace(view, repeats=repeats[:1]), [repeats_section])).sections


def test_a_loss_that_is_minimised(view: RunView) -> None:
    evaluated = view.evaluated.assign(value=1 - view.evaluated["value"])
    text = render(replace(view, evaluated=evaluated, metric="validation_loss", mode="min"))
    assert "has the lowest validation loss" in text
    assert replace(view, evaluated=evaluated, mode="min").best_trial() == view.best_trial()


def test_points_of_the_users_have_no_number(view: RunView) -> None:
    given = pd.DataFrame([{"number": -1, "architecture": "|none~0|", "value": 0.5}])
    text = render(replace(view, evaluated=pd.concat([given, view.evaluated], ignore_index=True)))
    assert '<td class="number">given</td>' in text


def test_errors_of_tune_count_as_failures(view: RunView) -> None:
    final = view.final.drop(columns="failure").assign(error=[None, "OutOfMemoryError: 2 < 3", None])
    assert "OutOfMemoryError: 2 &lt; 3" in render(replace(view, final=final))


def test_a_method_chooses_its_sections(view: RunView) -> None:
    text = render(view, sections=[lambda v: Section("own", "Its <own>", f"<p>{v.data}</p>"), lambda v: None])
    assert Page(text).sections == ["own"]
    assert "Its &lt;own&gt;" in text


def test_two_sections_with_one_anchor_are_refused(view: RunView) -> None:
    with pytest.raises(ValueError, match="distinct anchors"):
        render(view, sections=[lambda v: Section("a", "A", ""), lambda v: Section("a", "B", "")])


def test_an_objective_without_bounds_takes_those_of_the_trials(view: RunView) -> None:
    assert view.objective is not None
    text = render(replace(view, objective=Objective(view.objective.scale, "absolute")))
    assert "landscape" in Page(text).sections and "|M² − ν|" in text


def test_a_table_needs_a_value_for_every_column() -> None:
    with pytest.raises(ValueError, match="zip"):
        table([], [("too", "many")], label="x")
