"""The report of searches that train supernets: its numbers, its sections, and what it says where data are missing."""

from __future__ import annotations

import html
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from archray.platform.methods.supernets.discretisation import at_the_end, discretisation_section
from archray.platform.methods.supernets.entropies import entropies_section, entropy_panels, uniform_entropy
from archray.platform.methods.supernets.found_cells import found_cells_section
from archray.platform.methods.supernets.search_seeds import supernets
from archray.platform.methods.supernets.selection_curves import cut_epoch, selection_section
from archray.platform.methods.supernets.shared_score_plot import scored_supernets, shared_scores_section
from archray.platform.report import SUPERNET_SECTIONS, RunView, render
from archray.platform.report.comparison import comparison_section
from archray.platform.report.curves import curves_section
from archray.platform.report.failures import failures_section
from archray.platform.report.network_size import millions, network_size
from archray.platform.report.rounds import rounds_section
from archray.platform.report.section import Section
from archray.platform.report.view import decided
from archray.trainables.spaces import get_space

HOSTILE = "<script>alert('x')</script>&\"|+"
MISSING_NUMBER = re.compile(r"\b(nan|NaN|inf|None|NaT)\b")
SEEDS = (2968811710, 3677149159, 745650761, 2884920346, 1503136570)
OPERATIONS = 5
FAILED = 3  # the position of the search that fails


def cells(number: int, seed: int = 0) -> list[str]:
    space, rng = get_space("nasbench201"), np.random.default_rng(seed)
    return list(dict.fromkeys(space.encode(space.canonical(space.sample(rng))) for _ in range(3 * number)))[:number]


CELLS = cells(4)
FOUND = [CELLS[0], CELLS[1], CELLS[2], None, CELLS[3]]  # by the five seeds


def gradient_view(*, epochs: int = 12, groups: tuple[str, ...] = ("normal", "reduce"), repeats: int = 1) -> RunView:
    """Five supernets; the fourth fails. Selection drops after epoch 6, and chooses what the second seed found."""
    rng = np.random.default_rng(0)
    found, curves, entropies, selection, trainings = [], [], [], [], []
    for repeat in range(repeats):
        for number, (seed, name) in enumerate(zip(SEEDS, FOUND, strict=True)):
            key = {"repeat": repeat, "trial_id": f"s{repeat}-{number}", "seed": seed}
            last = 0.7 + 0.01 * number
            failure = "train_loss is NaN at epoch 1" if name is None else None
            values = (math.nan, math.nan) if failure else (last - 0.2, last)
            told = dict(zip(("value", "validation_accuracy"), values, strict=True))
            found.append({**key, "architecture": name, **told, "failure": failure})
            for epoch in range(1, epochs + 1):
                share = epoch / epochs
                if failure and epoch > 1:
                    break
                accuracy = math.nan if failure else last * share**0.5
                curves.append(
                    {
                        **key,
                        "stage": "search",
                        "architecture": name,
                        "epoch": epoch,
                        "validation_accuracy": accuracy,
                        "discretised_accuracy": accuracy * 0.5,
                        "train_loss": math.nan if failure else 2.3 - share,
                    }
                )
                for group in groups:
                    for edge in range(6):
                        pace = (1 + 0.2 * number) * (2 if group == "reduce" else 1)
                        entropy = math.log(OPERATIONS) * math.exp(-pace * (epoch - 1) / 4)
                        entropies.append({**key, "epoch": epoch, "group": group, "edge": edge, "entropy": entropy})
        for number, name in enumerate(CELLS):
            kept = number in (0, 1, 3)
            last = (0.9 if kept else 0.71) + 0.02 * (number == 1) + 0.001 * number
            until = 20 if kept else 6
            curve = last - 0.6 * np.exp(-np.arange(1, until + 1) / 3) + rng.normal(0, 0.004, until)
            curve[-1] = last
            key = {"repeat": repeat, "trial_id": f"t{repeat}-{number}", "architecture": name}
            trainings += [{**key, "epoch": e + 1, "validation_accuracy": v} for e, v in enumerate(curve)]
            row = {"repeat": repeat, "architecture": name, "epochs": until, "value": float(curve[5]), "failure": None}
            selection.append({**row, "validation_accuracy": last, "kept": kept})
    return RunView(
        method="gaea",
        space="nasbench201",
        data="cifar10",
        manifest={"config": {"search_seeds": 5}},
        architecture=CELLS[1],
        decisions=decided(get_space("nasbench201"), CELLS[1]),
        seed=0,
        seconds=3611.0,
        found=pd.DataFrame(found),
        curves=pd.DataFrame(curves),
        entropies=pd.DataFrame(entropies),
        selection=pd.DataFrame(selection),
        selection_curves=pd.DataFrame(trainings),
        final=pd.DataFrame(
            {
                "seed": [1, 2],
                "test_accuracy": [0.93, 0.94],
                "parameters": [3_349_342] * 2,
                "multiply_adds": [5.452e8] * 2,
            }
        ),
        baseline=pd.DataFrame({"architecture": CELLS, "test_accuracy": [0.9, 0.91, 0.92, 0.905]}),
    )


def scored_view(*, scored: int = 200) -> RunView:
    """Random search with weight sharing: three supernets, each of which scored architectures of its own."""
    rng = np.random.default_rng(1)
    found, scores = [], []
    for number, seed in enumerate(SEEDS[:3]):
        names = cells(scored, seed=number)
        accuracy = rng.normal(0.5, 0.08, len(names))
        key = {"repeat": 0, "trial_id": f"s{number}", "seed": seed}
        best = int(accuracy.argmax())
        if len(names) > 1:
            accuracy[best - 1] = math.nan
        scores.append(pd.DataFrame({**key, "architecture": names, "loss": -np.log(accuracy), "accuracy": accuracy}))
        found.append(
            {
                **key,
                "architecture": names[best],
                "value": accuracy[best],
                "validation_accuracy": math.nan,
                "failure": None,
            }
        )
    chosen = found[1]["architecture"]
    return RunView(
        method="rs-ws",
        space="nasbench201",
        data="cifar10",
        architecture=chosen,
        decisions=decided(get_space("nasbench201"), chosen),
        found=pd.DataFrame(found),
        scores=pd.concat(scores, ignore_index=True),
    )


@pytest.fixture(scope="module")
def view() -> RunView:
    return gradient_view()


@pytest.fixture(scope="module")
def page(view: RunView) -> str:
    return render(view, SUPERNET_SECTIONS)


@pytest.fixture(scope="module")
def scored() -> RunView:
    return scored_view()


@pytest.fixture(scope="module")
def scored_page(scored: RunView) -> str:
    return render(scored, SUPERNET_SECTIONS)


def sections(text: str) -> list[str]:
    return re.findall(r'<section id="([^"]*)"', text)


def words(part: Section | str | None) -> str:
    """A section, or a page, as it is read: without its style, its attributes and its tags."""
    assert part is not None
    text = part if isinstance(part, str) else part.body
    text = re.sub(r"<style>.*?</style>", " ", text, flags=re.S)
    return re.sub(r"[ \n]+", " ", html.unescape(re.sub(r"<[^>]*>", " ", text.replace("<wbr>", ""))))


def table_rows(part: Section | None) -> list[list[str]]:
    """The cells of all body rows of a section, as text."""
    assert part is not None
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", part.body.replace("<wbr>", ""), flags=re.S)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row, flags=re.S) for row in rows]
    return [[html.unescape(cell) for cell in row] for row in cells if row]


def drawings(part: Section | None) -> list[str]:
    assert part is not None
    return re.findall(r"<svg.*?</svg>", part.body, flags=re.S)


# The page


def test_sections_come_in_order(page: str, scored_page: str) -> None:
    searched = ["cell", "comparison", "found-cells", "entropies", "discretisation", "selection", "curves"]
    assert sections(page) == [*searched, "failures", "manifest"]
    assert sections(scored_page) == ["cell", "found-cells", "shared-scores", "failures"]
    assert sections(render(RunView("gaea", "darts", "cifar10"), SUPERNET_SECTIONS)) == []


def test_no_missing_number_is_printed(page: str, scored_page: str) -> None:
    assert not MISSING_NUMBER.search(words(page + scored_page).replace("train_loss is NaN", ""))


def test_drawings_are_wide_and_narrow_and_take_the_pages_colours(page: str, scored_page: str) -> None:
    for text, anchor in (
        (page, "entropies"),
        (page, "discretisation"),
        (page, "selection"),
        (scored_page, "shared-scores"),
    ):
        section = text[text.index(f'<section id="{anchor}"') :]
        shown = drawings(Section(anchor, anchor, section[: section.index("</section>")]))
        assert [svg.split('"')[1].split()[2] for svg in shown] == ["760", "350"]
        for svg in shown:
            assert "var(--found)" in svg and "#0102" not in svg and "nan" not in svg.split(">", 1)[1].lower()


def test_what_a_user_wrote_is_escaped(view: RunView) -> None:
    def hostile(frame: pd.DataFrame) -> pd.DataFrame:
        texts = [name for name in ("architecture", "failure", "group") if name in frame]
        return frame.assign(**dict.fromkeys(texts, HOSTILE))

    frames = ("found", "curves", "entropies", "selection", "selection_curves")
    page = render(
        replace(view, architecture=HOSTILE, decisions=(), **{name: hostile(getattr(view, name)) for name in frames}),
        SUPERNET_SECTIONS,
    )
    scored = scored_view(scored=1)
    scored = replace(scored, found=hostile(scored.found), scores=hostile(scored.scores), decisions=())
    page += render(scored, SUPERNET_SECTIONS)
    assert "<script" not in page and "&lt;script&gt;" in page


# Header and comparison


def test_the_size_of_the_found_network_is_told(view: RunView, page: str) -> None:
    assert "3.3 M parameters, 545.2 M multiply-adds" in words(page)
    assert "The found network has 3.3 M parameters, 545.2 M multiply-adds." in words(comparison_section(view))
    assert network_size(view.final.drop(columns="multiply_adds")) == "3.3 M parameters"
    assert network_size(view.final.assign(parameters=math.nan, multiply_adds=None)) is None
    assert network_size(pd.DataFrame()) is None
    random = replace(view, baseline=view.baseline.assign(multiply_adds=[4e8, 5e8, 6e8, math.nan]))
    assert "a random one 500.0 M multiply-adds on average" in words(comparison_section(random))


def test_millions() -> None:
    assert millions(5.452e8) == "545.2 M" and millions(3_349_342) == "3.3 M"
    assert millions(73_306) == "0.073 M"
    assert millions(1.2345e10) == "12\N{NARROW NO-BREAK SPACE}345.0 M"


def test_the_header_counts_supernets_and_names_the_method(page: str, scored_page: str) -> None:
    assert "Search 5 supernets" in words(page) and "Failures 1 in search" in words(page)
    assert "RS-WS on cifar10" in words(scored_page)
    assert "Fast-halving on d" in render(RunView("fast-halving", "s", "d"), SUPERNET_SECTIONS)


# What each seed found


def test_a_row_per_search_seed(view: RunView) -> None:
    section = found_cells_section(view)
    rows = table_rows(section)
    assert [row[0] for row in rows] == [str(seed) for seed in SEEDS]
    assert [row[4] for row in rows] == [name or "–" for name in FOUND]
    assert [row[1] for row in rows] == ["50.00", "51.00", "52.00", "–", "54.00"]
    assert [row[2] for row in rows] == ["70.00", "71.00", "72.00", "–", "74.00"]
    assert [row[3] for row in rows] == [
        "trained to the end",
        "chosen",
        "dropped after epoch 6",
        "train_loss is NaN at epoch 1",
        "trained to the end",
    ]
    assert "5 searches, each from a seed of its own, found 4 distinct architectures. 1 search failed." in words(section)
    assert section is not None and section.body.count('class="marked"') == 1


def test_seeds_that_agree(view: RunView) -> None:
    same = replace(view, found=view.found.assign(architecture=CELLS[1], failure=None), selection=pd.DataFrame())
    text = words(found_cells_section(same))
    assert "found 1 distinct architecture. There was nothing to select from." in text
    assert [row[-2] for row in table_rows(found_cells_section(same))] == ["chosen"] * 5
    assert all(net.chosen for net in supernets(same, same.entropies))
    one = replace(view, found=view.found.head(1))
    assert "1 search found 1 distinct architecture." in words(found_cells_section(one))


def test_methods_without_a_mixture_have_no_column_for_it(scored: RunView) -> None:
    assert "Mixture" not in words(found_cells_section(scored))
    assert [len(row) for row in table_rows(found_cells_section(scored))] == [4] * 3


# Entropies


def test_mean_entropies_are_those_of_a_plain_loop(view: RunView) -> None:
    panels = entropy_panels(view)
    assert [panel.title for panel in panels] == ["all edges", "normal", "reduce"]
    for panel in panels:
        assert [net.seed for net in panel.nets] == [str(seed) for seed in SEEDS]
        for net, (_, edges) in zip(panel.nets, view.entropies.groupby("trial_id", sort=False), strict=True):
            for epoch, mean in zip(net.rows["epoch"], net.rows["entropy"], strict=True):
                own = [
                    row["entropy"]
                    for row in edges.to_dict("records")
                    if row["epoch"] == epoch and panel.title in ("all edges", row["group"])
                ]
                assert mean == pytest.approx(sum(own) / len(own))
    assert [net.chosen for net in panels[0].nets] == [False, True, False, False, False]


def test_the_uniform_entropy_is_known_from_a_first_epoch_that_moved_nothing(view: RunView) -> None:
    uniform, operations = uniform_entropy(view.entropies)
    assert uniform == pytest.approx(math.log(5)) and operations == (5,)
    text = words(entropies_section(view))
    assert "log 5 = 1.61" in text and "the mixture has decided" in text and "Li et al. 2021" in text


def test_the_uniform_entropy_is_not_guessed(view: RunView) -> None:
    moved = view.entropies.assign(entropy=0.9 * view.entropies["entropy"])
    assert math.isnan(uniform_entropy(moved)[0]) and uniform_entropy(moved)[1] == ()
    assert "Dashed" not in words(entropies_section(replace(view, entropies=moved)))
    told = moved.assign(operations=np.where(moved["edge"] < 3, 2, 8))
    assert uniform_entropy(told) == (pytest.approx((math.log(2) + math.log(8)) / 2), (2, 8))
    assert "no decision at all. At zero" in words(entropies_section(replace(view, entropies=told)))


def test_a_search_that_failed_has_no_entropy_at_the_end(view: RunView) -> None:
    last = view.entropies[view.entropies["epoch"] == 12]
    ends = last.groupby("trial_id")["entropy"].mean()
    assert len(ends) == 4
    assert f"At the end of the search it is {ends.min():.2f} to {ends.max():.2f}." in words(entropies_section(view))


@pytest.mark.parametrize(("groups", "panels"), [(("cell",), 1), (("a", "b"), 3), (("a", "b", "c", "d"), 5)])
def test_panels_of_groups(groups: tuple[str, ...], panels: int) -> None:
    view = gradient_view(epochs=2, groups=groups)
    assert len(entropy_panels(view)) == panels
    for svg in drawings(entropies_section(view)):
        assert [name for name in groups if f">{name}<" in svg] == (list(groups) if panels > 1 else [])


def test_entropies_that_cannot_be_drawn(view: RunView) -> None:
    assert entropies_section(replace(view, entropies=pd.DataFrame())) is None
    assert entropies_section(replace(view, entropies=view.entropies.assign(entropy=math.nan))) is None
    assert entropies_section(replace(view, entropies=view.entropies.head(0))) is None
    zero = replace(view, entropies=view.entropies.assign(entropy=0.0))
    assert "At the end of the search it is 0.00." in words(entropies_section(zero))


# Discretisation


def test_mixture_and_discretised_in_the_last_epoch(view: RunView) -> None:
    section = discretisation_section(view)
    expected = []
    for number, seed in enumerate(SEEDS):
        mixture = 70.0 + number
        numbers = ["–"] * 3 if number == FAILED else [f"{mixture:.2f}", f"{mixture / 2:.2f}", f"{mixture / 2:.2f}"]
        expected.append([str(seed), *numbers])
    assert table_rows(section) == expected
    assert "loses 35.88 percentage points on average over 4 seeds" in words(section)


def test_the_last_epoch_is_not_the_last_row(view: RunView) -> None:
    mixed = view.curves.sample(frac=1, random_state=0).reset_index(drop=True)
    ends = {net.seed: at_the_end(net) for net in supernets(view, mixed)}
    assert ends["2968811710"] == pytest.approx((0.7, 0.35))
    gained = view.curves.assign(discretised_accuracy=view.curves["validation_accuracy"] + 0.01)
    assert table_rows(discretisation_section(replace(view, curves=gained)))[0][-1] == "−1.00"


def test_discretisation_needs_discretised_accuracies(view: RunView) -> None:
    for curves in (
        view.curves.drop(columns="discretised_accuracy"),
        view.curves.assign(discretised_accuracy=math.nan),
        view.curves.assign(stage="final"),
        pd.DataFrame(),
    ):
        assert discretisation_section(replace(view, curves=curves)) is None


# Scores with shared weights


def test_scores_with_shared_weights(scored: RunView) -> None:
    rows = table_rows(shared_scores_section(scored))
    for row, seed, (_, scores) in zip(rows, SEEDS, scored.scores.groupby("trial_id"), strict=False):
        accuracy = scores["accuracy"].dropna() * 100
        best = f"{accuracy.max():.2f}"
        assert row == [str(seed), "199", "1", f"{accuracy.median():.2f}", best, best]
    assert [each.chosen for each in scored_supernets(scored)] == [False, True, False]


def test_few_scores_or_none() -> None:
    one = scored_view(scored=1)
    lost = replace(one, scores=one.scores.assign(accuracy=math.nan))
    assert shared_scores_section(lost) is None
    unknown = replace(one, found=one.found.assign(architecture="elsewhere"))
    section = shared_scores_section(unknown)
    assert [row[-1] for row in table_rows(section)] == ["–"] * 3 and "Blue" not in words(section)
    failed = replace(lost, scores=lost.scores.assign(failure="CUDA out of memory"))
    assert ["scoring with shared weights", "CUDA out of memory", "3", "3"] in table_rows(failures_section(failed))
    many = pd.concat([one.scores.assign(trial_id=f"s{i}") for i in range(15)], ignore_index=True)
    assert "10 of 15 are drawn" in words(shared_scores_section(replace(one, scores=many)))


# Selection


def test_the_selection(view: RunView) -> None:
    assert cut_epoch(view.selection) == 6
    section = selection_section(view)
    rows = table_rows(section)
    assert [row[4] for row in rows] == [CELLS[1], CELLS[3], CELLS[0], CELLS[2]]
    assert [row[1] for row in rows] == ["20", "20", "20", "6"]
    assert [row[3] for row in rows] == ["92.10", "90.30", "90.00", "71.20"]
    assert [row[0] for row in rows] == ["chosen", "kept", "kept", "dropped"]
    assert "After epoch 6 the best 3 on validation went on" in words(section)
    assert all(">epoch 6<" in svg and ">dropped<" in svg for svg in drawings(section))


def test_a_selection_that_dropped_none(view: RunView) -> None:
    whole = view.selection.assign(kept=True, epochs=20, value=math.nan)
    section = selection_section(replace(view, selection=whole))
    assert "none was dropped" in words(section) and "Dashed" not in words(section)
    assert [len(row) for row in table_rows(section)] == [4] * 4


def test_a_training_of_the_selection_that_failed(view: RunView) -> None:
    failed = view.selection.copy()
    failed.loc[0, ["epochs", "value", "validation_accuracy", "kept", "failure"]] = [
        2,
        math.nan,
        math.nan,
        False,
        "lost",
    ]
    view = replace(view, selection=failed)
    assert cut_epoch(view.selection) == 6
    rows = {row[-1]: row for row in table_rows(selection_section(view))}
    assert rows[CELLS[0]][:-1] == ["lost", "2", "–", "–"]
    assert table_rows(found_cells_section(view))[0][-2] == "failed in the selection"
    assert ["selection", "lost", "1", "4"] in table_rows(failures_section(view))


def test_a_selection_without_curves_has_a_table(view: RunView) -> None:
    section = selection_section(replace(view, selection_curves=pd.DataFrame()))
    assert drawings(section) == [] and len(table_rows(section)) == 4
    assert selection_section(replace(view, selection=pd.DataFrame())) is None


# Curves and rounds


def test_curves_say_what_they_are_of(view: RunView) -> None:
    text = words(curves_section(view))
    assert "5 of supernets" in text and "which share its weights" in text and "1 curve ended" in text
    trained = [view.selection_curves.assign(stage="selection"), view.selection_curves.head(20).assign(stage="final")]
    whole = pd.concat([view.curves, trained[0], trained[1].assign(trial_id="final")], ignore_index=True)
    text = words(curves_section(replace(view, curves=whole)))
    assert "5 of supernets, 4 in the selection, 1 of the found architecture in full" in text


def test_rounds_are_of_supernets(view: RunView) -> None:
    rounds = pd.DataFrame(
        {
            "repeat": 0,
            "round": [1, 1, 1, 2, 2],
            "candidate": [*CELLS[:3], *CELLS[:2]],
            "score": [0.5, 0.6, 0.4, 0.7, 0.8],
            "kept": [True, True, False, False, True],
            "budget": [5, 5, 5, 10, 10],
        }
    )
    text = words(rounds_section(replace(view, rounds=rounds)))
    assert "share the weights of one supernet" in text and "Epochs" in text and "Architecture" in text
    assert "solve" not in text and "Features" not in text and "Feature map" not in text


# Small runs and repeats


def test_one_epoch_is_a_point() -> None:
    view = gradient_view(epochs=1, groups=("cell",))
    for section in (entropies_section(view), discretisation_section(view)):
        assert len(drawings(section)) == 2
    assert not MISSING_NUMBER.search(words(entropies_section(view)) + words(discretisation_section(view)))


def test_repeats_are_told_apart() -> None:
    view = gradient_view(epochs=2, groups=("cell",), repeats=2)
    for section, rows in (
        (found_cells_section(view), 10),
        (discretisation_section(view), 10),
        (selection_section(view), 8),
    ):
        told = table_rows(section)
        assert [row[0] for row in told] == ["0"] * (rows // 2) + ["1"] * (rows // 2)
    assert len(entropy_panels(view)[0].nets) == 10
    assert "of every repeat" in words(entropies_section(view))


def test_frames_without_a_repeat_are_of_one(view: RunView, page: str) -> None:
    frames = ("found", "curves", "entropies", "selection", "selection_curves")
    plain = replace(view, **{name: getattr(view, name).drop(columns="repeat") for name in frames})
    assert render(plain, SUPERNET_SECTIONS) == page
