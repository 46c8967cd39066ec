"""The report as text: complete, self-contained, escaped, and consistent with the files of the run."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from archray_test_report import HOSTILE, hnas_content, hnas_run, rendered, words, write_repeats, write_run
from matplotlib import colormaps
from matplotlib.colors import to_hex

from archray.platform.methods import open_run
from archray.platform.methods.hnas.report import SECTIONS, choice_section, headline, trials_section
from archray.platform.methods.hnas.tables import best_trial
from archray.platform.report import figures
from archray.platform.report.cell import Decided, cell_section, decision_table
from archray.platform.report.measures import measured_networks
from archray.platform.report.page import Headline, render, without_folder
from archray.platform.report.run_sections import comparison_section, manifest_section, repeats_section
from archray.platform.report.section import Section, failures
from archray.platform.report.statistics import best_of
from archray.platform.run.run import Run
from archray.platform.run.run_summary import RunSummary
from archray.platform.show import run_lines, run_words

VOID = {"meta", "link", "br", "wbr", "img", "hr", "path", "use"}
POOL, SUGGESTIONS = ("pool", "pool.parquet"), ("search", "suggestions.parquet")
BASELINE, FINAL = ("baseline", "trials.parquet"), ("final", "trials.parquet")
CURVES = [(stage, "curves.parquet") for stage in ("search", "final", "baseline")]
NONE = pd.DataFrame()  # is not written


class Page(HTMLParser):
    """Collects ids, references and anchors of sections, and checks that elements nest."""

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


SMALL = {"pool_size": 30, "trials": 4, "baseline": 2, "final_seeds": 2, "epochs": 2}
SMALL_TABLES, SMALL_DOCUMENTS = hnas_content(**SMALL)
HNAS = {"search": {"proxy": "ntk_trace"}}


def with_tables(place: Path, tables: dict[tuple[str, str], pd.DataFrame]) -> Run[Any]:
    """Returns a small run of HNAS with some tables replaced."""
    return write_run(place, "hnas", config=HNAS, tables={**SMALL_TABLES, **tables}, documents=SMALL_DOCUMENTS)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run[Any]:
    return hnas_run(tmp_path_factory.mktemp("runs") / "hnas")


@pytest.fixture(scope="module")
def page(run: Run[Any]) -> str:
    return rendered(run)


@pytest.mark.slow
def test_the_page_loads_nothing_from_other_servers(page: str) -> None:
    parsed = Page(page)
    assert all(reference.startswith(("#", "data:")) for reference in parsed.references)
    assert not parsed.tags & {"iframe", "object", "embed", "video", "audio"}
    assert "@import" not in page
    assert "http://" not in page and "https://" not in page
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'" in page
    assert not re.search(r"fetch|XMLHttp|import\b|eval|innerHTML|src=", script)


def test_ids_are_unique_and_references_resolve(page: str) -> None:
    parsed = Page(page)
    assert len(parsed.ids) == len(set(parsed.ids))
    assert {reference[1:] for reference in parsed.references if reference.startswith("#")} <= set(parsed.ids)


def test_drawings_take_their_colors_from_the_page(page: str) -> None:
    drawings = re.findall(r"<svg viewBox.*?</svg>", page, flags=re.S)
    assert len(drawings) == 5  # comparison, landscape, pool, its bounds and curves
    values = {to_hex(color) for color in colormaps["viridis"](np.arange(256))}
    for drawing in drawings:
        assert "var(--ink)" in drawing
        text = re.sub(r"base64,[^\"]*", "", drawing)
        assert set(re.findall(r"#[0-9a-f]{6}\b", text)) <= values
        assert "font-family" not in drawing


@pytest.mark.slow
def test_the_same_run_gives_the_same_page(run: Run[Any], page: str) -> None:
    assert rendered(open_run(str(run.folder))) == page


def test_the_main_figures_are_on_the_page(run: Run[Any], page: str) -> None:
    final, random = (run.table(*place)["test_accuracy"] * 100 for place in (FINAL, BASELINE))
    assert f"{final.mean():.2f} ± {final.std(ddof=1):.2f} %" in page
    assert f"{random.mean():.2f} ± {random.std(ddof=1):.2f} %" in page
    assert f"{abs(final.mean() - random.mean()):.2f} percentage points above" in page


def test_the_best_of_k_is_the_mean_over_all_subsets_of_size_k() -> None:
    choice, value = np.array([0.3, 0.9, 0.5, 0.9, 0.1]), np.array([3.0, 1.0, 5.0, 2.0, 4.0])
    for k in range(1, 6):
        best = []
        for subset in map(list, combinations(range(5), k)):
            highest = choice[subset] == choice[subset].max()
            best.append(np.where(np.isin(choice[subset], 0.9), 1.5, value[subset])[highest].mean())
        assert best_of(choice, value, k) == pytest.approx(np.mean(best))


@pytest.mark.parametrize(
    ("random", "words_of_cost"), [(4, "as many training runs"), (6, "mean over all"), (2, "--random 4")]
)
def test_the_best_random_architecture_is_the_comparison_at_equal_cost(
    tmp_path: Path, random: int, words_of_cost: str
) -> None:
    validation, test = np.linspace(0.6, 0.8, random), np.linspace(0.9, 0.5, random)
    baseline = pd.concat([SMALL_TABLES[BASELINE].head(1)] * random, ignore_index=True)
    baseline = baseline.assign(validation_accuracy=validation, test_accuracy=test)
    curves = pd.DataFrame({"trial_id": list("abcd"), "epoch": 1, "validation_accuracy": 0.5, "train_loss": 1.0})
    run = with_tables(tmp_path, {BASELINE: baseline, ("search", "curves.parquet"): curves})
    best = measured_networks(run)["best_random_test_accuracy"].mean
    assert best == pytest.approx(best_of(validation, test, min(4, random)))
    assert random == 6 or best == test[-1]
    text = words(rendered(run, [comparison_section]))
    assert f"{100 * best:.2f} %" in text and words_of_cost in text


def test_equal_accuracies_are_called_equal(tmp_path: Path) -> None:
    equal = [SMALL_TABLES[place].assign(test_accuracy=0.75) for place in (FINAL, BASELINE)]
    made = with_tables(tmp_path, dict(zip((FINAL, BASELINE), equal, strict=True)))
    shown_text = words(rendered(made, [comparison_section]))
    assert (
        "equal to the mean of 2 random architectures" in shown_text
        and "equal to all 2 random architectures" in shown_text
    )
    assert "0.00 percentage points" not in shown_text


def test_the_head_of_the_page_names_the_limit_of_the_data_and_the_pretrained_weights(tmp_path: Path) -> None:
    made = with_tables(tmp_path, {})
    network = made.config.network.model_copy(update={"weights": "/a/user/w.pt"})
    data = made.config.data.model_copy(update={"limit": 2000})
    config = made.config.model_copy(update={"data": data, "network": network})
    made = Run(made.folder, {**made.manifest, "config": config.model_dump(mode="json")}, config)
    text = render(made, Headline("architecture", ""), [])
    assert "<h1>HNAS on digits (at most 2,000 points per part)</h1>" in text
    assert "w.pt, from which all networks start" in text and "/a/user" not in text
    made.folder.write_json("manifest.json", made.manifest)
    assert "digits (at most 2,000 points per part), seed" in run_words(RunSummary.read(made.folder))
    [_, line] = run_lines([RunSummary.read(made.folder)], "runs")
    assert "digits (at most 2,000 points per part)" in line


def test_the_page_names_the_data_without_the_folders_of_the_user(tmp_path: Path) -> None:
    made = with_tables(tmp_path / "the-runs" / "one", {})
    data, command = f"folder:{tmp_path}/a user/images/", f"archray search --data 'folder:{tmp_path}/a user/images'"
    config = made.config.model_copy(update={"data": named_data(data), "space": f"{tmp_path}/a user/mine.py:Space"})
    manifest = {**made.manifest, "command": command, "config": config.model_dump(mode="json")}
    text = render(
        Run(made.folder, manifest, config), Headline("architecture", f"from {made.folder}"), [manifest_section]
    )
    assert "<title>archray: HNAS on images</title>" in text and "<h1>HNAS on images</h1>" in text
    assert "<dd>mine.py:Space</dd>" in text and "from one" in text and "Weights" not in text
    assert "a user" not in text and str(tmp_path) not in text


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("digits", "digits"),
        ("docstrings:numpy,torch", "docstrings:numpy,torch"),
        ("folder:/home/me/images", "images"),
        ("imagefolder-stream:/home/me/images/", "images"),
        ("table:s3://bucket/costs.parquet", "costs.parquet"),
        ("/home/me/mine.py:load", "mine.py:load"),
        ("package.module:load", "package.module:load"),
        ("object:space:network", "network"),
    ],
)
def test_a_name_is_shown_without_its_folder(name: str, shown: str) -> None:
    assert without_folder(name) == shown


def test_failures_are_counted_by_reason(run: Run[Any], page: str) -> None:
    reasons = run.table(*POOL)["failure"].dropna().value_counts()
    assert len(reasons)
    for reason, number in reasons.items():
        escaped = str(reason).replace("<", "&lt;")
        row = f'<td class="text">{escaped}</td><td class="number">{number}</td><td class="number">300</td>'
        assert row in page
    assert f"{reasons.sum()} in scoring the pool, 1 in search" in page


def test_everything_is_escaped(tmp_path: Path) -> None:
    places = (SUGGESTIONS, BASELINE, FINAL, *CURVES)
    tables = {place: SMALL_TABLES[place].assign(architecture=HOSTILE) for place in places}
    run = with_tables(tmp_path, {**tables, POOL: SMALL_TABLES[POOL].assign(failure=HOSTILE)})
    config = run.config.model_copy(update={"method": HOSTILE, "space": HOSTILE, "data": named_data(HOSTILE)})
    manifest = {**run.manifest, HOSTILE: {HOSTILE: HOSTILE}, "plain": [HOSTILE]}
    decisions = (Decided("1<-0", HOSTILE, (HOSTILE, "none")), Decided("2<-1", "none", (HOSTILE, "none")))
    hostile = Run(run.folder, manifest, config)
    head = replace(headline(run), thing=HOSTILE, lead=HOSTILE, names=(HOSTILE,), facts={HOSTILE: HOSTILE})
    sections = [*SECTIONS[1:], lambda run: Section(HOSTILE, HOSTILE, decision_table(decisions))]
    text = render(hostile, head, sections)
    assert "<script>alert" not in text
    assert text.count("<script") == 1  # of the page itself
    assert "&lt;script&gt;" in text


def named_data(data: str) -> Any:
    """Settings of a data set with this name, which need not exist."""
    from archray.trainables.data import DataSettings

    return DataSettings(name=data)


def test_a_run_before_its_first_stage_has_a_page(tmp_path: Path) -> None:
    text = rendered(write_run(tmp_path, "hnas", config=HNAS))
    assert Page(text).sections == ["manifest"]
    assert "found no architecture" in text


def test_the_reason_of_the_result_precedes_that_of_tune() -> None:
    frame = pd.DataFrame({"failure": [None, np.nan, "", "NaN loss", np.nan], "error": [None, None, "lost", "lost", ""]})
    assert failures(frame).tolist() == [None, None, "lost", "NaN loss", None]
    assert failures(pd.DataFrame({"value": [1.0]})).tolist() == [None]


def sections_called(*names: str) -> list[Any]:
    return [make for make in SECTIONS if make.__name__.removesuffix("_section") in names]


@pytest.mark.parametrize(
    ("missing", "lost_column", "left"),
    [
        ([POOL], ["landscape", "pool"], ["choice", "trials"]),
        ([SUGGESTIONS], ["choice", "landscape", "trials"], ["pool"]),
        (CURVES, ["curves"], ["cell"]),
        ([BASELINE], [], ["comparison"]),
        ([FINAL], [], ["comparison"]),
        ([BASELINE, FINAL], ["comparison"], ["cell"]),
    ],
)
def test_a_section_without_data_is_left_out(
    tmp_path: Path, missing: list[tuple[str, str]], lost_column: list[str], left: list[str]
) -> None:
    run = with_tables(tmp_path, dict.fromkeys(missing, NONE))
    assert Page(rendered(run, sections_called(*lost_column, *left))).sections == left


TABLES = [POOL, SUGGESTIONS, FINAL]
DRAWN_FROM = {POOL: ["landscape", "pool"], SUGGESTIONS: ["choice", "trials"], FINAL: ["comparison"]}


def render_with(folder: Path, place: tuple[str, str], frame: pd.DataFrame) -> None:
    """Renders the sections that show a table, with `frame` in its place, and checks that the elements nest."""
    sections = [*sections_called(*DRAWN_FROM[place]), SECTIONS[-2]]
    run = with_tables(folder, {place: frame})
    Page(rendered(run, sections))


@pytest.mark.parametrize("place", TABLES)
def test_columns_of_nan_render(tmp_path: Path, place: tuple[str, str]) -> None:
    whole = SMALL_TABLES[place]
    numbers = [name for name in whole.select_dtypes("number").columns if name != "number"]
    render_with(tmp_path, place, whole.assign(**dict.fromkeys(numbers, np.nan)))


@pytest.mark.parametrize("place", TABLES)
def test_one_row_renders(tmp_path: Path, place: tuple[str, str]) -> None:
    render_with(tmp_path, place, SMALL_TABLES[place].head(1))


@pytest.mark.parametrize("place", TABLES)
def test_a_column_may_be_missing(tmp_path: Path, place: tuple[str, str]) -> None:
    whole = SMALL_TABLES[place]
    for column in whole.columns:
        render_with(tmp_path / column, place, whole.drop(columns=column))


def test_one_trial_and_one_seed_render(tmp_path: Path) -> None:
    run = hnas_run(tmp_path, **{**SMALL, "trials": 1, "baseline": 1, "final_seeds": 1})
    text = rendered(run, [comparison_section, choice_section, trials_section])
    assert "With one final seed, the spread between seeds is unknown" in text
    assert "±" not in words(re.sub(r"<figcaption>.*?</figcaption>", "", text, flags=re.S))


def test_very_long_strings_render(tmp_path: Path) -> None:
    long = "x" * 20_000
    run = with_tables(tmp_path, {POOL: SMALL_TABLES[POOL].assign(failure=long)})
    run.manifest["a"] = long
    text = render(run, replace(headline(run), names=(long,)), SECTIONS[-2:])
    assert text.count(long) == 2  # the reason of the failures is cut
    Page(text)


def test_a_space_without_edges_is_a_table(tmp_path: Path) -> None:
    decisions = (Decided("depth", "3", ("2", "3", "4")), Decided("width & more", "wide", ("wide", "narrow")))
    text = decision_table(decisions)
    assert "width &amp; more" in text and "narrow" in text
    found = {"architecture": "kernel=gaussian|preprocess=none|gamma=0.01", "value": 0.9}
    run = write_run(tmp_path, "hnas", config={**HNAS, "space": "fourier"}, documents={SEARCH_RESULT: found})
    section = cell_section(run)
    assert section is not None and '<svg class="cell"' not in section.body and section.title == "Found architecture"


SEARCH_RESULT = ("search", "architecture.json")


def training_rows(accuracies: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"test_accuracy": accuracies})


def test_repeats_have_mean_and_spread(tmp_path: Path) -> None:
    cell = "|nor_conv_3x3~0|+|none~0|none~1|+|none~0|none~1|nor_conv_3x3~2|"
    other = cell.replace("none~1|+", "nor_conv_1x1~1|+")
    repeats: list[Any] = [
        (
            {FINAL: training_rows([0.90, 0.92]), BASELINE: training_rows([0.80, 0.84])},
            {SEARCH_RESULT: {"architecture": cell}},
        ),
        ({FINAL: training_rows([0.95])}, {SEARCH_RESULT: {"architecture": other}}),
        ({FINAL: training_rows([float("nan")])}, {}),
    ]
    text = rendered(write_repeats(tmp_path / "three", "hnas", repeats, config={**HNAS, "seed": 5}))
    assert "93.00 ± 2.83 % test accuracy over 2 repeats, random architectures 82.00 %" in text
    assert "found 2 distinct architectures" in text and "nothing found" in text
    assert [f'<td class="number">{seed}</td>' in text for seed in (5, 6, 7, 8)] == [True, True, True, False]
    assert "repeats" in Page(text).sections
    assert repeats_section(write_repeats(tmp_path / "one", "hnas", repeats[:1], config=HNAS)) is None


def test_the_figures_of_repeats_show_the_best_repeat(tmp_path: Path) -> None:
    contents = [hnas_content(**SMALL, seed=seed) for seed in range(3)]
    values = [documents["", "architecture.json"]["value"] for _, documents in contents]
    best = int(np.argmax(values))
    run = write_repeats(tmp_path / "three", "hnas", contents, config=HNAS)
    alone = write_run(
        tmp_path / "alone", "hnas", config={**HNAS, "seed": best}, tables=contents[best][0], documents=contents[best][1]
    )
    sections = [cell_section, comparison_section, choice_section, trials_section]
    shown, shown_alone = ([words(make(run)) for make in sections] for run in (run, alone))
    numbers = re.compile(r"\bA\d+\b")  # in a run with architecture names, the results of other repeats have names too
    assert [numbers.sub("A", text) for text in shown] == [numbers.sub("A", text) for text in shown_alone]
    tests = [tables["final", "trials.parquet"]["test_accuracy"].mean() for tables, _ in contents]
    shown_text = f"{100 * np.mean(tests):.2f} ± {100 * np.std(tests, ddof=1):.2f} %"
    card, *_, trial = headline(run).cards
    assert (card.value, card.label) == (shown_text, "test accuracy, mean and standard deviation of 3 repeats")
    assert trial == headline(alone).cards[-1], "the result of the best repeat's search"
    assert repeats_section(run) is not None and repeats_section(alone) is None


def test_the_best_trial() -> None:
    trials_table = pd.DataFrame(
        {
            "value": [0.9, 0.5, 0.8, 0.8, np.nan],
            "failure": ["diverged", None, None, None, None],
            "repeat": [False, False, False, False, False],
        }
    )
    assert best_trial(trials_table) == 2  # the earliest of equal trials; failed trials do not count
    assert best_trial(trials_table.assign(repeat=[False, False, True, False, False])) == 3
    assert best_trial(trials_table.assign(value=np.nan)) is None and best_trial(pd.DataFrame()) is None


def test_errors_of_tune_count_as_failures(tmp_path: Path) -> None:
    final = SMALL_TABLES[FINAL].drop(columns="failure").assign(error=[None, "OutOfMemoryError: 2 < 3"])
    run = with_tables(tmp_path, {FINAL: final})
    assert "OutOfMemoryError: 2 &lt; 3" in rendered(run, SECTIONS[-2:])


def test_a_method_chooses_its_sections(run: Run[Any]) -> None:
    def own(run: Run[Any]) -> Section:
        return Section("own", "Its <own>", f"<p>{run.config.data.name}</p>")

    def nothing_to_draw(run: Run[Any]) -> Section:
        raise figures.NothingToDraw("this run has no data for it")

    text = rendered(run, [own, lambda run: None, nothing_to_draw])
    assert Page(text).sections == ["own"]
    assert "Its &lt;own&gt;" in text and "<p>digits</p>" in text
