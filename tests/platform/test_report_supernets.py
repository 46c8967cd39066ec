"""The report of searches that train supernets: its numbers, its sections, and its texts where data are missing."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from archray_test_report import HOSTILE, MISSING_NUMBER, rendered, section_ids, words
from archray_test_supernet_report import (
    CELLS,
    FAILED,
    RESULTS,
    SEEDS,
    gradient_run,
    gradient_tables,
    repeated_gradient_run,
    scored_run,
    scored_tables,
)

from archray.platform.methods.supernets.figures import (
    at_the_end,
    cut_epoch,
    discretization_section,
    entropies_section,
    entropy_panels,
    scored_supernets,
    selection_section,
    shared_scores_section,
    supernet_entropies,
    uniform_entropy,
)
from archray.platform.methods.supernets.report import SECTIONS, found_cells_section, headline, listings
from archray.platform.methods.supernets.tables import names_of, supernets
from archray.platform.report.cell import cell_section
from archray.platform.report.section import Section
from archray.platform.run.run import Run
from archray.platform.show import table_lines

TABLES = gradient_tables()
failures_section = SECTIONS[-2]

NewRun = Callable[..., Run[Any]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run[Any]:
    return gradient_run(tmp_path_factory.mktemp("run"))


@pytest.fixture
def new_run(tmp_path_factory: pytest.TempPathFactory) -> NewRun:
    """Makes a `gradient_run` in a new folder."""
    return lambda **content: gradient_run(tmp_path_factory.mktemp("run"), **content)


@pytest.fixture
def new_scored(tmp_path_factory: pytest.TempPathFactory) -> NewRun:
    """Makes a `scored_run` in a new folder."""
    return lambda **content: scored_run(tmp_path_factory.mktemp("run"), **content)


@pytest.fixture(scope="module")
def page(run: Run[Any]) -> str:
    return rendered(run)


@pytest.fixture(scope="module")
def scored_supernet_run(tmp_path_factory: pytest.TempPathFactory) -> Run[Any]:
    return scored_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def scored_page(scored_supernet_run: Run[Any]) -> str:
    return rendered(scored_supernet_run)


def table_rows(part: Section | None) -> list[list[str]]:
    """Returns the cells of all body rows of a section, as text."""
    assert part is not None
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", part.body.replace("<wbr>", ""), flags=re.S)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row, flags=re.S) for row in rows]
    return [[html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in row] for row in cells if row]


def drawings(part: Section | None) -> list[str]:
    assert part is not None
    return re.findall(r"<svg.*?</svg>", part.body, flags=re.S)


# Page


def test_no_missing_number_is_printed(page: str, scored_page: str) -> None:
    for text in (page, scored_page):
        text = text[: text.index('<section id="manifest"')]  # here a None is a null
        assert not MISSING_NUMBER.search(words(text).replace("train_loss is NaN", ""))


@pytest.mark.slow
def test_text_of_the_user_is_escaped(new_run: NewRun, new_scored: NewRun) -> None:
    def hostile(tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        texts = ("architecture", "failure", "group")
        return {
            name: table.assign(**{text: HOSTILE for text in texts if text in table}) for name, table in tables.items()
        }

    # This section is about architectures of the space
    shown = [section for section in SECTIONS if section is not cell_section]
    searched = {name: table for name, table in TABLES.items() if name not in ("final", "baseline")}
    page = rendered(new_run(**hostile(searched), chosen=HOSTILE), shown)
    page += rendered(new_scored(**hostile(scored_tables(1)), chosen=HOSTILE), shown)
    assert "<script>alert" not in page and "&lt;script&gt;" in page


# Header and comparison


# Results by search seed


def test_each_search_seed_has_a_row(run: Run[Any]) -> None:
    section = found_cells_section(run)
    rows = table_rows(section)
    assert [row[4] for row in rows] == [str(SEEDS[number]) for number in (4, 2, 1, 0, 3)]  # by value
    assert [row[0] for row in rows] == ["A2", "A3", "A1", "A4", "–"]  # the chosen architecture is A1
    assert [names_of(run).of(RESULTS[number]).short for number in (4, 2, 1, 0)] == ["A2", "A3", "A1", "A4"]
    assert [row[1] for row in rows] == ["54.00", "52.00", "51.00", "50.00", "–"]
    assert [row[2] for row in rows] == ["74.00", "72.00", "71.00", "70.00", "–"]
    assert [row[3] for row in rows] == [
        "trained to the end",
        "dropped after epoch 6",
        "chosen",
        "trained to the end",
        "train_loss is NaN at epoch 1",
    ]
    assert section is not None and section.body.count('class="marked"') == 1


def test_equal_results_of_seeds_share_a_name(new_run: NewRun) -> None:
    found = TABLES["found"]
    same = new_run(found=found.assign(architecture=CELLS[1], failure=None), selection=pd.DataFrame())
    assert [row[-2] for row in table_rows(found_cells_section(same))] == ["chosen"] * 5
    assert all(net.chosen for net in supernets(same, TABLES["entropies"]))


# Entropies


def test_mean_entropies_equal_those_of_a_plain_loop(run: Run[Any]) -> None:
    panels = entropy_panels(run)
    assert [panel.title for panel in panels] == ["all edges", "normal", "reduce"]
    for panel in panels:
        assert [net.seed for net in panel.nets] == [str(seed) for seed in SEEDS]
        for net, (_, edges) in zip(panel.nets, TABLES["entropies"].groupby("trial_id", sort=False), strict=True):
            for epoch, mean in zip(net.rows["epoch"], net.rows["entropy"], strict=True):
                own = [
                    row["entropy"]
                    for row in edges.to_dict("records")
                    if row["epoch"] == epoch and panel.title in ("all edges", row["group"])
                ]
                assert mean == pytest.approx(sum(own) / len(own))
    assert [net.chosen for net in panels[0].nets] == [False, True, False, False, False]


def test_the_uniform_entropy_is_that_of_the_operations(run: Run[Any]) -> None:
    uniform, operations = uniform_entropy(TABLES["entropies"])
    assert uniform == pytest.approx(math.log(5)) and operations == (5,)


def test_edges_may_have_different_numbers_of_operations(new_run: NewRun) -> None:
    wide_entropies = TABLES["entropies"].assign(operations=np.where(TABLES["entropies"]["edge"] < 3, 2, 8))
    assert uniform_entropy(wide_entropies) == (pytest.approx((math.log(2) + math.log(8)) / 2), (2, 8))


def test_a_failed_search_has_no_entropy_at_the_end(run: Run[Any]) -> None:
    last = TABLES["entropies"][TABLES["entropies"]["epoch"] == 12]
    ends = last.groupby("trial_id")["entropy"].mean()
    assert len(ends) == 4
    assert f"The final entropy is {ends.min():.2f} to {ends.max():.2f}." in words(entropies_section(run))


def test_every_panel_of_entropies_has_its_lines(new_run: NewRun) -> None:
    """In GAEA with partial channels each edge has five operations, and the inputs of a node one entry per source."""
    sources = {"edges": 5, "inputs_1": 1, "inputs_2": 2, "inputs_3": 3}
    rows = [
        {"trial_id": "s-1", "seed": 1, "epoch": epoch, "group": group, "edge": 0, "operations": number}
        for group, number in sources.items()
        for epoch in (1, 2)
    ]
    entropies = pd.DataFrame(rows)
    run = new_run(entropies=entropies.assign(entropy=np.log(entropies["operations"])))
    assert [panel.title for panel in entropy_panels(run)] == ["all edges", "edges", "inputs_2", "inputs_3"]
    for axes in supernet_entropies(run).axes:
        low, high = axes.get_ylim()
        for line in axes.lines:
            assert low <= min(line.get_ydata()) and max(line.get_ydata()) <= high


def test_entropies_that_cannot_be_drawn(new_run: NewRun) -> None:
    entropies = TABLES["entropies"]
    for nothing in (pd.DataFrame(), entropies.assign(entropy=math.nan), entropies.head(0)):
        assert section_ids(rendered(new_run(entropies=nothing), [entropies_section])) == []
    zero = new_run(entropies=entropies.assign(entropy=0.0))
    assert "The final entropy is 0.00." in words(entropies_section(zero))


# Discretization


def test_mixture_and_discretized_accuracy_in_the_last_epoch(run: Run[Any]) -> None:
    section = discretization_section(run)
    expected = []
    for number, seed in enumerate(SEEDS):
        mixture = 70.0 + number
        numbers = ["–"] * 3 if number == FAILED else [f"{mixture:.2f}", f"{mixture / 2:.2f}", f"{mixture / 2:.2f}"]
        expected.append([str(seed), *numbers])
    assert table_rows(section) == expected
    assert "35.88 percentage points above the discretized architecture on average over 4 seeds" in words(section)


def test_the_last_epoch_need_not_be_the_last_row(run: Run[Any], new_run: NewRun) -> None:
    mixed = TABLES["curves"].sample(frac=1, random_state=0).reset_index(drop=True)
    ends = {net.seed: at_the_end(net) for net in supernets(run, mixed)}
    assert ends["2968811710"] == pytest.approx((0.7, 0.35))
    gained = TABLES["curves"].assign(shared_accuracy=TABLES["curves"]["mixture_accuracy"] + 0.01)
    assert table_rows(discretization_section(new_run(curves=gained)))[0][-1] == "−1.00"


def test_the_discretization_section_needs_discretized_accuracies(new_run: NewRun) -> None:
    for curves in (
        TABLES["curves"].drop(columns="shared_accuracy"),
        TABLES["curves"].assign(shared_accuracy=math.nan),
        pd.DataFrame(),
    ):
        assert section_ids(rendered(new_run(curves=curves), [discretization_section])) == []
    only_final = new_run(curves=pd.DataFrame(), final_curves=TABLES["curves"])
    assert section_ids(rendered(only_final, [discretization_section])) == []
    no_mixture = TABLES["curves"].assign(mixture_accuracy=math.nan)  # for example of halving by rounds
    assert section_ids(rendered(new_run(curves=no_mixture), [discretization_section])) == []


# Scores with shared weights


def test_scores_with_shared_weights(scored_supernet_run: Run[Any]) -> None:
    rows = table_rows(shared_scores_section(scored_supernet_run))
    for row, seed, (_, scores) in zip(rows, SEEDS, scored_tables()["scores"].groupby("trial_id"), strict=False):
        accuracy = scores["shared_accuracy"].dropna() * 100
        best = f"{accuracy.max():.2f}"
        assert row == [str(seed), "199", "1", f"{accuracy.median():.2f}", best, best]
    assert [supernet.chosen for supernet in scored_supernets(scored_supernet_run)] == [False, True, False]


def test_few_scores_or_none(new_scored: NewRun) -> None:
    one = scored_tables(1)
    lost = one["scores"].assign(shared_accuracy=math.nan)
    assert section_ids(rendered(new_scored(scored=1, scores=lost), [shared_scores_section])) == []
    section = shared_scores_section(new_scored(scored=1, found=one["found"].assign(architecture="elsewhere")))
    assert [row[-1] for row in table_rows(section)] == ["–"] * 3 and "Blue" not in words(section)
    failed = new_scored(scored=1, scores=lost.assign(failure="CUDA out of memory"))
    assert ["scoring with shared weights", "CUDA out of memory", "3", "3"] in table_rows(failures_section(failed))


# Selection


def test_the_selection(run: Run[Any]) -> None:
    assert cut_epoch(TABLES["selection"]) == 6
    section = selection_section(run)
    rows = table_rows(section)
    assert [row[0] for row in rows] == [str(names_of(run).of(CELLS[number])) for number in (1, 3, 0, 2)]
    assert [row[2] for row in rows] == ["20", "20", "20", "6"]
    assert [row[1] for row in rows] == ["92.10", "90.30", "90.00", "71.20"]
    assert [row[4] for row in rows] == ["chosen", "kept", "kept", "dropped"]
    (svg,) = drawings(section)
    assert ">epoch 6<" in svg and ">dropped<" in svg


def test_a_selection_that_dropped_none(new_run: NewRun) -> None:
    whole = TABLES["selection"].assign(kept=True, epochs=20, accuracy_at_cut=math.nan)
    section = selection_section(new_run(selection=whole))
    assert "none was dropped" in words(section) and "Dashed" not in words(section)
    assert [len(row) for row in table_rows(section)] == [4] * 4


def test_a_failed_training_of_the_selection(new_run: NewRun) -> None:
    failed = TABLES["selection"].copy()
    columns = ["epochs", "accuracy_at_cut", "selection_accuracy", "kept", "failure"]
    failed.loc[0, columns] = [2, math.nan, math.nan, False, "lost"]
    assert cut_epoch(failed) == 6
    run = new_run(selection=failed)
    rows = {row[0]: row for row in table_rows(selection_section(run))}
    assert rows["A4"][1:] == ["–", "2", "–", "lost"]
    assert table_rows(found_cells_section(run))[3][-2] == "failed in the selection"
    assert ["selection", "lost", "1", "4"] in table_rows(failures_section(run))


def test_a_selection_without_curves_has_a_table(new_run: NewRun) -> None:
    section = selection_section(new_run(selection_curves=pd.DataFrame()))
    assert drawings(section) == [] and len(table_rows(section)) == 4
    assert selection_section(new_run(selection=pd.DataFrame())) is None


# Curves and rounds


# Small runs and repeats


@pytest.mark.slow
def test_the_best_repeat_is_shown(tmp_path: Path) -> None:
    run = repeated_gradient_run(tmp_path)
    assert "repeats" in section_ids(rendered(run))
    assert [row[-2] for row in table_rows(found_cells_section(run))] == ["chosen"] * 3
    assert [row[-1] for row in table_rows(selection_section(run))] == ["kept", "chosen", "kept", "dropped"]
    assert [net.chosen for net in entropy_panels(run)[0].nets] == [True, True, True, False, False]
    assert headline(run).names == (CELLS[3],) and headline(run).facts["Search"] == "3 supernets"


def test_the_terminal_lists_the_chosen_architecture_above_the_rejected_ones(run: Run[Any]) -> None:
    """The best architecture with shared weights was dropped.

    A list by that accuracy would start with it, without a mark.
    """
    [listing] = listings(run)
    assert [row["outcome"] for row in listing.rows[:2]] == ["chosen", "trained to the end"]
    assert listing.rows[0]["architecture"] == run.architecture
    assert all(row["outcome"].startswith("dropped") for row in listing.rows[3:-1]) and listing.rows[-1]["failure"]
    best_shared = max((row for row in listing.rows if row["shared_accuracy"]), key=lambda row: row["shared_accuracy"])
    assert best_shared["architecture"] != run.architecture
    first = next(line for line in table_lines(listing) if run.architecture in line)
    assert list(table_lines(listing)).index(first) == 1 and first.split()[0] == "chosen"
