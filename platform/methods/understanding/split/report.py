"""What the study of validation sets shows: when they are enough, its figures, and the claims with their verdicts."""

from __future__ import annotations

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
from archray.platform.report.figures import NothingToDraw, drawing
from archray.platform.report.page import Card, Headline, MakeSection
from archray.platform.report.run_sections import Tables, failed, failures_section, manifest_section
from archray.platform.report.section import Column, Section, captioned, numeric, paragraphs, table
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.plurals import count

_TABLES: Tables = {"measures": (MEASURES, TRIALS), "spectral solutions": (SPECTRAL, TRIALS)}
_BANDS = "Lines are medians over the problems of all seeds, bands their quartiles."


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
    text = (
        f"{enough(run)} Every architecture fits the training set, so its loss there says nothing; with {top} "
        f"validation points and h = {h}, what they select has a median test loss of {significant(selected)}, the best "
        f"architecture {significant(best)}, equal weights {significant(uniform)}."
    )
    cards = (
        Card("found", significant(selected), f"test loss, selected with {top} points"),
        Card("trial", significant(best), "test loss of the best"),
        Card("random", significant(uniform), "test loss of equal weights"),
    )
    return Headline("finding", text, cards=cards, facts=facts)


def claims_section(run: Run[Any]) -> Section | None:
    """The paper's claims, and what was measured of each."""
    made = claims(run)
    if not made:
        return None
    rows = [(claim.claim, claim.measured, claim.verdict) for claim in made]
    columns = (Column("Claim"), Column("Measured here"), Column("Verdict"))
    text = (
        "The claims are those of the abstract of Oymak et al. 2021; the forms in which they are measured are our own. "
        "A value in brackets is the middle 90 % over resampled seeds; where it does not decide a claim, the claim is "
        "undecided."
    )
    body = paragraphs([text]) + table(columns, rows, label="Claims and verdicts", sortable=False)
    return Section("claims", "Which claims hold here?", body)


def losses_section(run: Run[Any]) -> Section:
    """Validation and test loss of what is selected, by the size of the validation set."""
    most = largest(measures_of(run))
    h = int(most["parameters"].iloc[0])
    shown = drawing("losses", split_losses(run), description=f"Losses of the selected architecture, h = {h}.")
    caption = (
        f"Of the architecture with the least loss on the first n validation points, h = {h}: its loss on them, and on "
        "the test set; green, the single activation with the least validation loss. Where the two curves of the "
        f"selected one meet, the validation set is no longer overfitted. {_BANDS}"
    )
    return Section("losses", "What does a validation set select?", captioned(shown, caption))


def gradients_section(run: Run[Any]) -> Section:
    """How far validation loss and hyper-gradient are from the test set's."""
    most = largest(measures_of(run))
    h, architectures = int(most["parameters"].iloc[0]), run.config.problem.architectures
    shown = drawing("gradients", split_gradients(run), description="Distances of loss and hyper-gradient by size.")
    caption = (
        f"Distance between validation and test of the loss, and of the exact hyper-gradient (Euclidean), over "
        f"{count(architectures, 'random architecture')}, h = {h}; the dashed line falls as n to the power −1/2. The "
        f"test set has {count(run.config.problem.test_size, 'point')} and bounds how small a distance can be. {_BANDS}"
    )
    columns = numeric(
        "Points", "Loss, mean", "Loss, largest", "Gradient, mean", "Gradient, largest", "Rank correlation"
    )
    names = ("loss_gap_mean", "loss_gap_sup", "gradient_gap_mean", "gradient_gap_sup", "rank_correlation")
    means = most.groupby("points")[list(names)].mean()
    rows = [(whole_number(size), *(significant(value) for value in row)) for size, row in means.iterrows()]
    body = captioned(shown, caption) + table(columns, rows, label="Distances by validation points, means over seeds")
    return Section("gradients", "Is the validation set's hyper-gradient that of the test set?", body)


def needed_section(run: Run[Any]) -> Section:
    """How many points suffice for so many parameters."""
    shown = drawing("needed", split_points_needed(run), description="Excess by points, and points needed by h.")
    caption = (
        "Left: excess test loss of the selected architecture over the best, dashed the tolerance. Right: the points "
        "from which on the median is within it, with the middle 90 % over resampled seeds; the dashed line grows as h. "
        "Where a line of the left does not come down to the tolerance, the right has no point."
    )
    _, excess = excess_by_parameters(run)
    columns = numeric("h", "Points needed (90 % of resampled seeds)", "Excess with fewest (%)", "with most (%)")
    rows = [
        (h, points(of), *(f"{100 * float(np.median(excess[h][:, end])):.1f}" for end in (0, -1)))
        for h, of in needed_by_parameters(run).items()
    ]
    body = captioned(shown, caption) + table(columns, rows, label="Validation points needed", sortable=False)
    return Section("needed", "How many validation points per architecture parameter?", body)


def spectral_section(run: Run[Any]) -> Section:
    """Spectral solutions beside gradient ascent, and their test losses."""
    frame = spectral_of(run)
    shown = drawing("spectral", split_spectral(run), description="Excess test loss of spectral solution and descent.")
    caption = (
        "Excess test loss over the best architecture, of the eigenvector that maximises the alignment of one gradient "
        "step's predictions with the validation labels, and of descent on the validation loss of the interpolating "
        f"models; h = {int(frame['parameters'].iloc[0])}. {_BANDS}"
    )
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
    text = (
        "Both solve the same problem: the largest difference is of any weight, relative to the largest one; medians of "
        "ascent's steps, and of its seconds by those of the eigenvector."
    )
    body = captioned(shown, caption) + paragraphs([text]) + table(columns, rows, label="Spectral solution and ascent")
    return Section("spectral", "Does an eigenvector solve the upper problem?", body)


def rank_one_section(run: Run[Any]) -> Section:
    """Whether the spectral solution finds a teacher."""
    shown = drawing("rank-one", split_rank_one(run), description="Angle between spectral solution and teacher.")
    caption = (
        "Labels are alpha* X w* and noise, X Gaussian: the angle between the top eigenvector of the two sets' moments "
        f"and alpha*. With fewer training points than features no architecture has a training loss. {_BANDS}"
    )
    return Section("rank-one", "Does it find the teacher of a low-rank problem?", captioned(shown, caption))


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
