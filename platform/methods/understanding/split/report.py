"""What the study of validation sets shows: when they are enough, its figures, and the claims with their verdicts."""

from typing import Any

import numpy as np

from archray.platform.methods.understanding.split.figures import (
    split_gradients,
    split_losses,
    split_points_needed,
    split_rank_one,
    split_spectral,
)
from archray.platform.methods.understanding.split.tables import (
    DESIGNS,
    MEASURES,
    SPECTRAL,
    at_largest_size,
    claims,
    enough,
    excess_by_parameters,
    largest,
    measures_of,
    needed_by_parameters,
    of_problems,
    points,
    spectral_of,
)
from archray.platform.quantities import significant, whole_number
from archray.platform.report.figures import NothingToDraw, figure_section
from archray.platform.report.page import Card, Headline, MakeSection
from archray.platform.report.run_sections import Tables, failed, failures_section, manifest_section
from archray.platform.report.section import Column, Section, numeric, paragraphs, table
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.plurals import count

_TABLES: Tables = {"measures": (MEASURES, TRIALS), "spectral solutions": (SPECTRAL, TRIALS)}
_text = texts_of(__package__)


def headline(run: Run[Any]) -> Headline:
    """When validation data are enough, in a sentence and three numbers."""
    config, problem = run.config, run.config.problem
    facts = {
        "Problems": count(config.seeds * len(config.parameters), "problem"),
        "Models": "one layer, activations added up" if problem.form == "activation" else "a layer of each activation",
        "Training points": whole_number(problem.train_size),
        "Hidden units": whole_number(problem.width),
        "Failed": failed(run, _TABLES),
    }
    try:
        most = largest(measures_of(run))
    except NothingToDraw:
        return Headline("finding", enough(run), facts=facts)
    h = int(most["parameters"].iloc[0])
    selected, best, uniform = (
        float(np.median(values))
        for values in (
            at_largest_size(most, "selected_test_loss"),
            of_problems(most, "best"),
            of_problems(most, "uniform"),
        )
    )
    top = whole_number(most["points"].max())
    values = {"selected": significant(selected), "best": significant(best), "uniform": significant(uniform)}
    text = _text("lead", enough=enough(run), points=top, h=h, **values)
    cards = (
        Card("found", values["selected"], f"test loss, selected with {top} points"),
        Card("trial", values["best"], "test loss of the best"),
        Card("random", values["uniform"], "test loss of equal weights"),
    )
    return Headline("finding", text, cards=cards, facts=facts)


def claims_section(run: Run[Any]) -> Section | None:
    """The paper's claims, and what was measured of each."""
    rows = [(claim.text, claim.measure, claim.verdict) for claim in claims(run)]
    if not rows:
        return None
    columns = (Column("Claim"), Column("Measured here"), Column("Verdict"))
    body = paragraphs([_text("claims")]) + table(columns, rows, label="Claims and verdicts", sortable=False)
    return Section("claims", "Which claims hold here?", body)


def losses_section(run: Run[Any]) -> Section:
    """Validation and test loss of what is selected, by the size of the validation set."""
    most = largest(measures_of(run))
    h = int(most["parameters"].iloc[0])
    return figure_section(
        "losses",
        "What does a validation set select?",
        split_losses(run),
        description=f"Losses of the selected architecture, h = {h}.",
        caption=_text("losses", h=h),
    )


def gradients_section(run: Run[Any]) -> Section:
    """How far validation loss and hyper-gradient are from the test set's."""
    most = largest(measures_of(run))
    h, architectures = int(most["parameters"].iloc[0]), run.config.problem.architectures
    columns = numeric(
        "Points", "Loss, mean", "Loss, largest", "Gradient, mean", "Gradient, largest", "Rank correlation"
    )
    names = ("loss_gap_mean", "loss_gap_sup", "gradient_gap_mean", "gradient_gap_sup", "rank_correlation")
    means = most.groupby("points")[list(names)].mean()
    rows = [(whole_number(size), *(significant(value) for value in row)) for size, row in means.iterrows()]
    return figure_section(
        "gradients",
        "Is the validation set's hyper-gradient that of the test set?",
        split_gradients(run),
        description="Distances of loss and hyper-gradient by size.",
        caption=_text("gradients", architectures=architectures, h=h, points=run.config.problem.test_size),
        below=table(columns, rows, label="Distances by validation points, means over seeds"),
    )


def needed_section(run: Run[Any]) -> Section:
    """How many points suffice for so many parameters."""
    _, excess = excess_by_parameters(run)
    columns = numeric("h", "Points needed (90 % of resampled seeds)", "Excess with fewest (%)", "with most (%)")
    rows = [
        (h, points(of), *(f"{100 * float(np.median(excess[h][:, end])):.1f}" for end in (0, -1)))
        for h, of in needed_by_parameters(run).items()
    ]
    return figure_section(
        "needed",
        "How many validation points per architecture parameter?",
        split_points_needed(run),
        description="Excess by points, and points needed by h.",
        caption=_text("needed"),
        below=table(columns, rows, label="Validation points needed", sortable=False),
    )


def spectral_section(run: Run[Any]) -> Section:
    """Spectral solutions beside gradient ascent, and their test losses."""
    frame = spectral_of(run)
    columns = [Column("Problem"), *numeric("Comparisons", "Largest difference", "Steps of ascent", "Times as long")]
    rows = [
        (
            DESIGNS[str(design)],
            len(of),
            significant(of["difference"].max()),
            significant(of["ascent_steps"].median()),
            significant((of["ascent_seconds"] / of["spectral_seconds"]).median()),
        )
        for design, of in frame.groupby("design", sort=False)
    ]
    return figure_section(
        "spectral",
        "Does an eigenvector solve the upper problem?",
        split_spectral(run),
        description="Excess test loss of spectral solution and descent.",
        caption=_text("spectral", h=int(frame["parameters"].iloc[0])),
        below=paragraphs([_text("ascent")]) + table(columns, rows, label="Spectral solution and ascent"),
    )


def rank_one_section(run: Run[Any]) -> Section:
    """Whether the spectral solution finds a teacher."""
    return figure_section(
        "rank-one",
        "Does it find the teacher of a low-rank problem?",
        split_rank_one(run),
        description="Angle between spectral solution and teacher.",
        caption=_text("rank_one"),
    )


def listings(run: Run[Any]) -> list[Listing]:
    """The points needed by h."""
    try:
        needed = needed_by_parameters(run)
    except NothingToDraw:
        return []
    rows = [{"h": h, "points": of.value, "low": of.low, "high": of.high} for h, of in needed.items()]
    return [Listing.of("validation points needed, by the number of architecture parameters", rows)]


SECTIONS: tuple[MakeSection, ...] = (
    claims_section,
    losses_section,
    gradients_section,
    needed_section,
    spectral_section,
    rank_one_section,
    failures_section(_TABLES),
    manifest_section,
)
