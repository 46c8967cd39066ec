"""The report of a search for an ensemble: its numbers, its sections, and what it says where data are missing."""

from __future__ import annotations

import html
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from archray.platform.methods.ensembles.diversity import diversity_section
from archray.platform.methods.ensembles.ensemble_delta import ensemble_delta_section, swept_deltas
from archray.platform.methods.ensembles.ensemble_result import ensemble_result_section
from archray.platform.methods.ensembles.estimated_true import agreements, estimated_true_section
from archray.platform.methods.ensembles.member_cells import common_decisions, member_cells_section
from archray.platform.methods.ensembles.particles import (
    lowest_density,
    particles,
    particles_section,
    shown_deltas,
    spread,
)
from archray.platform.methods.ensembles.posterior_curves import entropy, posterior_decisions, posterior_section
from archray.platform.methods.ensembles.sampled_ensembles import best_so_far, ensembles_section, member_numbers
from archray.platform.methods.ensembles.sampled_table import chosen_delta, chosen_ensemble, sampled_ensembles
from archray.platform.report import ENSEMBLE_SECTIONS, RunView, render
from archray.platform.report.header import header
from archray.platform.report.section import Section
from archray.platform.report.view import Decided, decided
from archray.trainables.spaces import get_space

HOSTILE = "<script>alert('x')</script>&\"|+"
MISSING_NUMBER = re.compile(r"\b(nan|NaN|inf|None|NaT)\b")
SPACE = get_space("nasbench201")
SECTIONS = {
    "ensembles": (ensembles_section, ensemble_delta_section, particles_section),
    "estimated_true": (estimated_true_section,),
    "diversity": (diversity_section,),
    "ensemble": (ensemble_result_section,),
}


def cells(number: int) -> list[str]:
    rng = np.random.default_rng(0)
    return list(dict.fromkeys(SPACE.encode(SPACE.canonical(SPACE.sample(rng))) for _ in range(3 * number)))[:number]


CELLS = cells(12)


def sampled_rows(seed: int = 0, repeat: int | None = None) -> pd.DataFrame:
    """Eight ensembles of SVGD-RD at each of two temperatures, four of MC, four uniform; the third failed."""
    rng, rows = np.random.default_rng(seed), []
    deltas = np.linspace(-2, 1, 8)
    kinds = [("svgd-rd", float(d), t) for t in (0.5, 1.0) for d in deltas]
    kinds += [("mc", math.nan, 1.0)] * 4 + [("urs", math.nan, 1.0)] * 4
    for number, (sampler, delta, temperature) in enumerate(kinds):
        members = [CELLS[i] for i in rng.choice(len(CELLS), 3, replace=False)]
        away = 0.0 if math.isnan(delta) else (delta - 0.2 / temperature) ** 2
        loss = 0.5 + 0.05 * away + 0.02 * rng.random() + {"mc": 0.03, "urs": 0.1}.get(sampler, 0.0)
        failed = number == 2
        told = {"number": number, "sampler": sampler, "delta": delta, "temperature": temperature, "members": members}
        told |= {"validation_loss": math.nan if failed else loss, "validation_error": 0.3 * loss}
        told |= {"failure": "out of memory" if failed else None}
        rows.append(told if repeat is None else {**told, "repeat": repeat})
    return pd.DataFrame(rows)


def ensemble_view() -> RunView:
    """A run of NESBS that found three members."""
    rng = np.random.default_rng(1)
    sampled = sampled_rows()
    members = tuple(sampled["members"][int(sampled["validation_loss"].idxmin())])
    posterior, curves = [], []
    for place, decision in enumerate(SPACE.decisions):
        probabilities = rng.dirichlet(np.ones(len(decision.choices)))
        for choice, probability in zip(decision.choices, probabilities, strict=True):
            posterior.append({"decision": decision.name, "choice": choice, "probability": probability})
        for epoch in range(1, 11):
            told = {"epoch": epoch, "elbo": -2.0 / epoch, "kl": 0.3 * epoch**0.5}
            curves.append({**told, "decision": decision.name, "entropy": math.log(5) * (0.85 + 0.02 * place) ** epoch})
    pairs = [
        {"kind": "member", "name": name, "estimated": 0.5 + 0.02 * i, "true": 0.05 + 0.004 * i + 0.01 * noise}
        for i, (name, noise) in enumerate(zip(CELLS[:10], rng.random(10), strict=True))
    ]
    for size in (3, 5):
        pairs += [
            {"kind": "ensemble", "name": f"{size}-{i}", "size": size, "estimated": 0.4 + 0.01 * i, "true": 0.04 + e}
            for i, e in enumerate(rng.random(20) * 0.02)
        ]
    trained = [
        {"kind": "member", "name": f"member {i + 1}", "architecture": name, "test_error": 0.06 + 0.004 * i, "nll": 0.2,
         "ece": 0.03}
        for i, name in enumerate(members)
    ]  # fmt: skip
    trained.append({"kind": "ensemble", "name": "ensemble", "architecture": None, "test_error": 0.05, "nll": 0.15,
                    "ece": 0.012, "ate": 0.064, "ppd": 0.08})  # fmt: skip
    trained += [
        {"kind": "baseline", "name": name, "test_error": error, "nll": 0.17, "ece": 0.02, "ate": 0.07, "ppd": 0.06}
        for name, error in (("deep-ensemble", 0.054), ("urs", 0.057), ("snapshot", 0.059))
    ]
    diverse = [
        {"method": name, "members": 3, "ate": ate + 0.002 * rng.random(), "ppd": ppd, "test_error": ate - 0.01}
        for name, ate, ppd in (("nesbs", 0.064, 0.08), ("deep-ensemble", 0.06, 0.05), ("urs", 0.075, 0.09)) * 3
    ]
    return RunView(
        method="nesbs",
        space="nasbench201",
        data="digits",
        manifest={"config": {"ensemble_size": 3}},
        members=members,
        member_decisions=[decided(SPACE, member) for member in members],
        metric="validation_loss",
        mode="min",
        seed=0,
        seconds=611.0,
        posterior=pd.DataFrame(posterior),
        posterior_curves=pd.DataFrame(curves),
        ensembles=sampled,
        estimated_true=pd.DataFrame(pairs),
        diversity=pd.DataFrame(diverse),
        ensemble=pd.DataFrame(trained),
    )


@pytest.fixture(scope="module")
def view() -> RunView:
    return ensemble_view()


@pytest.fixture(scope="module")
def page(view: RunView) -> str:
    return render(view, ENSEMBLE_SECTIONS)


def anchors(page: str) -> set[str]:
    return set(re.findall(r'<section id="([^"]+)"', page))


def words(text: str | Section | None) -> str:
    """What a reader reads: no tags, entities, drawings."""
    assert text is not None
    body = text.body if isinstance(text, Section) else text
    body = re.sub(r"<style.*?</style>|<svg.*?</svg>", " ", body, flags=re.S)
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<(?!wbr)[^>]+>", " ", body).replace("<wbr>", "")))


def test_the_page_has_every_section_and_the_figures_that_matter(view: RunView, page: str) -> None:
    assert anchors(page) == {
        *(
            "ensemble",
            "members",
            "diversity",
            "posterior",
            "particles",
            "ensembles",
            "ensemble-delta",
            "estimated-true",
        ),
        *("failures", "manifest"),
    }
    told = words(page)
    assert "ensemble of 3 architectures below; trained in full, it has a test error of 5.00 %" in told
    assert "1.00 percentage points below its best member" in told
    assert "The best baseline, deep-ensemble, has 5.40 %" in told
    assert all(told.count(member) >= 2 for member in view.members)
    assert "24 ensembles" in told
    assert not MISSING_NUMBER.search(told)
    assert diversity_section(view) == diversity_section(ensemble_view())


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_without_data_is_left_out(view: RunView, name: str) -> None:
    frame = getattr(view, name)
    empty = frame.assign(**dict.fromkeys(frame.select_dtypes("number").columns, math.nan))
    for make in SECTIONS[name]:
        for lost in (None, frame.head(0), empty):
            assert make(replace(view, **{name: lost})) is None


@pytest.mark.parametrize("name", SECTIONS)
def test_a_column_may_be_missing(view: RunView, name: str) -> None:
    frame = getattr(view, name).head(4)
    for column in frame.columns:
        for make in SECTIONS[name][:1]:
            made = make(replace(view, **{name: frame.drop(columns=column)}))
            assert made is None or not MISSING_NUMBER.search(words(made))


def test_a_posterior_without_curves_and_curves_without_a_posterior(view: RunView) -> None:
    table, curves = replace(view, posterior_curves=None), replace(view, posterior=None)
    assert "<svg" not in str(posterior_section(table)) and "<table" in str(posterior_section(table))
    assert "<svg" in str(posterior_section(curves)) and "<table" not in str(posterior_section(curves))
    assert posterior_section(replace(table, posterior=None)) is None
    for name in ("elbo", "decision"):
        lost = replace(curves, posterior_curves=view.posterior_curves.drop(columns=name))
        assert not MISSING_NUMBER.search(words(posterior_section(lost)))


def test_nothing_found_and_a_run_without_tables(view: RunView) -> None:
    nothing = RunView("nesbs", "nasbench201", "digits", ensembles=view.ensembles)
    assert "The run found no ensemble" in words(header(nothing))
    assert anchors(render(RunView("nesbs", "nasbench201", "digits"), ENSEMBLE_SECTIONS)) == set()
    one = replace(view, members=view.members[:1], ensemble=view.ensemble.drop(index=[1, 2]))
    assert "chose the architecture below; trained in full, it has a test error of 5.00 %. The" in words(header(one))
    untrained = replace(view, ensemble=None)
    assert "There is no test error" in words(header(untrained))


def test_everything_is_escaped(view: RunView) -> None:
    hostile = {
        name: getattr(view, name).map(lambda value: HOSTILE if isinstance(value, str) else value)
        for name in ("posterior", "posterior_curves", "estimated_true", "diversity")
    }
    hostile["ensemble"] = view.ensemble.assign(name=HOSTILE, architecture=HOSTILE)
    hostile["ensembles"] = view.ensembles.assign(
        sampler=HOSTILE, failure=HOSTILE, members=[[HOSTILE, f"{i}{HOSTILE}"] for i in range(24)]
    )
    text = render(replace(view, members=(HOSTILE, HOSTILE + "2"), **hostile), ENSEMBLE_SECTIONS)
    assert "<script" not in text


def test_best_so_far_keeps_the_error_of_the_best_loss() -> None:
    frame = pd.DataFrame(
        {
            "sampler": "mc",
            "members": [["a", "b"]] * 4,
            "validation_loss": [math.nan, 2.0, 3.0, 1.0],
            "validation_error": [0.1, 0.2, 0.1, 0.3],
            "failure": ["broken", None, None, None],
        }
    )
    sampled = sampled_ensembles(RunView("nesbs", "s", "d", ensembles=frame))
    (loss,), (error,) = (best_so_far(sampled, name) for name in ("validation_loss", "validation_error"))
    np.testing.assert_array_equal(loss.mean, [math.nan, 2, 2, 1])
    np.testing.assert_array_equal(error.mean, [math.nan, 0.2, 0.2, 0.3])
    assert loss.repeats == 1


def test_repeats_are_averaged_and_the_shorter_keeps_its_last(view: RunView) -> None:
    first, second = sampled_rows(0, repeat=0), sampled_rows(5, repeat=1)
    both = pd.concat([first, second.head(20)])  # the second has no uniform ensembles
    told = replace(view, ensembles=both)
    lines = {line.sampler: line for line in best_so_far(sampled_ensembles(told), "validation_loss")}
    ends = [part[part["sampler"] == "svgd-rd"]["validation_loss"].min() for part in (first, second)]
    assert lines["svgd-rd"].mean[-1] == pytest.approx(np.mean(ends))
    assert lines["svgd-rd"].error[-1] == pytest.approx(abs(ends[0] - ends[1]) / 2)
    assert (lines["svgd-rd"].repeats, lines["urs"].repeats) == (2, 1)
    assert "Means of 2 repeats" in words(ensembles_section(told))


def test_the_chosen_ensemble_is_marked_whatever_the_order_of_its_members(view: RunView) -> None:
    told = replace(view, members=view.members[::-1])
    sampled = sampled_ensembles(told)
    row = chosen_ensemble(told, sampled)
    assert row == int(view.ensembles["validation_loss"].idxmin())
    assert chosen_delta(told) == view.ensembles["delta"][row]
    assert chosen_ensemble(replace(view, members=("other",)), sampled) is None
    section = ensembles_section(told)
    assert section is not None and section.body.count('<tr class="marked">') == 2  # among the best, and among all
    numbers = member_numbers(told, sampled)
    assert [numbers[member] for member in told.members] == [1, 2, 3]
    arrays = view.ensembles.assign(members=[np.array(members) for members in view.ensembles["members"]])
    assert sampled_ensembles(replace(view, ensembles=arrays))["members"].equals(
        sampled["members"]
    )  # as Parquet has them


def test_deltas_are_told_by_temperature(view: RunView) -> None:
    swept = swept_deltas(sampled_ensembles(view))
    assert [each.temperature for each in swept] == [0.5, 1.0]
    assert [len(each.rows) for each in swept] == [7, 8]  # one failed
    for each in swept:
        assert each.best == each.rows.loc[each.rows["validation_loss"].idxmin(), "delta"]
    one = replace(view, ensembles=view.ensembles.assign(delta=0.5))
    assert ensemble_delta_section(one) is None


def test_estimates_are_told_of_members_and_of_ensembles_by_size(view: RunView) -> None:
    told = agreements(view.estimated_true)
    assert [each.kind for each in told] == ["members", "ensembles of 3", "ensembles of 5"]
    members = view.estimated_true[view.estimated_true["kind"] == "member"]
    assert told[0].spearman == pytest.approx(members["estimated"].corr(members["true"], method="spearman"))
    assert told[0].pearson == pytest.approx(members["estimated"].corr(members["true"]))
    assert (told[0].agreement, told[0].chance) == (1.0, 0.3)
    assert [each.kind for each in agreements(view.estimated_true.drop(columns="size"))] == ["members", "ensembles"]
    assert estimated_true_section(replace(view, estimated_true=members.head(2))) is None
    assert "10 members" in str(estimated_true_section(view)) and "20 ensembles of 5" in str(
        estimated_true_section(view)
    )


def test_members_are_drawn_or_told_in_a_table(view: RunView) -> None:
    section = member_cells_section(view)
    assert section is not None and section.body.count('<svg class="cell"') == 6  # a wide and a narrow one each
    same = common_decisions(view.member_decisions)
    assert f"The 3 members agree in {same} of 6 decisions." in words(section)
    pairs = [(Decided("width", width, ("8", "16")), Decided("depth", "2", ("1", "2"))) for width in ("8", "16")]
    table = member_cells_section(replace(view, member_decisions=pairs))
    assert "<svg" not in str(table) and "The 2 members agree in 1 of 2 decisions." in words(table)
    assert member_cells_section(replace(view, member_decisions=pairs[:1])) is None
    one = member_cells_section(replace(view, member_decisions=[pairs[0]] * 3))
    assert "All 3 members are one architecture." in words(one)


def test_posterior_tables_by_choices_and_entropy(view: RunView) -> None:
    (group,) = posterior_decisions(view.posterior)
    assert group.choices == SPACE.decisions[0].choices
    assert list(group.probabilities) == [decision.name for decision in SPACE.decisions]
    assert entropy(np.full(5, 0.2)) == pytest.approx(math.log(5))
    assert entropy(np.array([1.0, 0.0])) == 0
    assert math.isnan(entropy(np.array([1.0, math.nan])))
    other = pd.DataFrame(
        {"decision": ["pair", "pair", "only"], "choice": ["0 1", "0 2", "x"], "probability": [1, 0, 1]}
    )
    assert [g.choices for g in posterior_decisions(pd.concat([view.posterior, other]))][1:] == [("0 1", "0 2")]
    ruled_out = view.posterior.assign(probability=[0.0, *[0.25] * 4] * len(SPACE.decisions))
    assert "mean entropy is 1.39 nats, where uniform choices have 1.39" in words(
        posterior_section(replace(view, posterior=ruled_out))
    )
    assert "6 decisions with more than one choice" in words(posterior_section(view))


def test_particles_spread_with_delta_where_the_density_is_high(view: RunView) -> None:
    """Figure 5.2, as it is drawn: one start."""
    ends = np.stack([particles(delta) for delta in (-1.0, 0.0, 0.5, 1.0)])
    assert ends.shape == (4, 15, 2)
    assert (np.diff(spread(ends)) > 0.1).all()
    assert (lowest_density(ends) > 0.08).all() and (lowest_density(ends) <= 1).all()
    assert np.isfinite(particles(-2.0)).all()
    assert shown_deltas(None) == shown_deltas(0.02) == [-1, 0, 1]
    assert shown_deltas(0.37) == [-1, 0, 0.37, 1]
    own = chosen_delta(view)
    assert own is not None and f"{own:.3g}".replace("-", "−") in words(particles_section(view))
    assert particles_section(replace(view, ensembles=view.ensembles.assign(delta=math.nan))) is None


def test_a_failed_member_and_repeats_of_methods(view: RunView) -> None:
    frame = view.ensemble.assign(failure=["out of memory", *[None] * (len(view.ensemble) - 1)])
    told = words(ensemble_result_section(replace(view, ensemble=frame)))
    assert "1 training failed" in told and "out of memory" in told
    assert "0.36 percentage points" not in told and "1.40 percentage points below its best member" in told
    several = words(diversity_section(view))
    assert "Repeats" in several and "±" in several
    once = words(diversity_section(replace(view, diversity=view.diversity.head(3))))
    assert "Repeats" not in once and "±" not in once
    alone = diversity_section(replace(view, diversity=view.diversity.head(1)))
    assert alone is not None and "<svg" not in alone.body
