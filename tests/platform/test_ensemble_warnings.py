"""The report of an ensemble warns about a falling ELBO and about poor calibration."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from archray_test_ensemble_report import ensemble_documents, ensemble_run, posterior_curves
from archray_test_report import words

from archray.platform.methods.ensembles.figures import posterior_section
from archray.platform.methods.ensembles.report import ensemble_result_section
from archray.platform.methods.ensembles.tables import POOR_ECE, calibration_doubt, elbo_doubt

EPOCHS = np.arange(1, 21)
NOISE = 0.02 * (-1.0) ** EPOCHS


@pytest.mark.parametrize(
    ("elbo", "expected"),
    [
        (-2.0 / EPOCHS + NOISE, None),
        (-1.0 - 0.02 * EPOCHS + NOISE, "The ELBO fell from"),
        (-1.0 - 0.02 * (EPOCHS - 11.0) ** 2, "The ELBO was highest around epoch 13"),  # means of five: epochs 9 to 13
        (np.where(EPOCHS < 15, -2.0 / EPOCHS, -2.0 / EPOCHS - 0.05), None),  # it loses less than it has gained
        (np.full(20, math.nan), None),
    ],
)
def test_a_falling_elbo_gives_a_warning(elbo: np.ndarray, expected: str | None) -> None:
    doubt = elbo_doubt(pd.Series(elbo, index=EPOCHS))
    assert doubt is None if expected is None else expected in str(doubt)


def test_a_single_epoch_cannot_fall() -> None:
    assert elbo_doubt(pd.Series([-1.0], index=[1])) is None
    assert "in 2 epochs" in str(elbo_doubt(pd.Series([-1.0, -1.5], index=[1, 2])))


def test_poor_calibration_gives_a_warning() -> None:
    assert calibration_doubt(pd.Series([POOR_ECE - 1e-9, 0.2, 0.2])) is None
    assert calibration_doubt(pd.Series([math.nan, 0.2])) is None
    poor = str(calibration_doubt(pd.Series([0.081, 0.03, 0.05])))
    assert "its ECE is 8.10 %. With an ECE of 5 %" in poor and "a lower ECE, 4.00 % on average" in poor
    assert "members" not in str(calibration_doubt(pd.Series([0.081, 0.1, 0.2])))


def test_the_page_shows_both_warnings(tmp_path: Path) -> None:
    good = ensemble_run(tmp_path / "good")
    assert "poorly calibrated" not in words(ensemble_result_section(good))
    assert "The ELBO fell" not in words(posterior_section(good))
    measures = ensemble_documents()["final", "ensemble.json"]
    curves = posterior_curves()
    poor = ensemble_run(
        tmp_path / "poor",
        {("posterior", "curves.parquet"): curves.assign(elbo=-curves["elbo"] - 3)},
        {("final", "ensemble.json"): {**measures, "ece": 0.09}},
    )
    assert "poorly calibrated: its ECE is 9.00 %" in words(ensemble_result_section(poor))
    assert "The ELBO fell from" in words(posterior_section(poor))
