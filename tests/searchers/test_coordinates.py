"""The optimizer's square over (mu, nu): its inverse and its invariances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archray.searchers.hnas.objective import (
    Coordinates,
    PaperCodeCoordinates,
    Penalty,
    Pool,
    PoolCoordinates,
    build_pool,
    objective,
)

BOTH: list[type[Coordinates]] = [PoolCoordinates, PaperCodeCoordinates]
places, weights = st.floats(0.0, 1.0), st.floats(-4.0, 4.0)
penalties: Any = st.sampled_from(["square", "absolute"])


def pool(rows: int = 50, unit: float = 1.0, kappa_unit: float = 1.0, tail: float = 1.0) -> Pool:
    rng = np.random.default_rng(1)
    metric, kappa = rng.lognormal(0, tail, rows), rng.lognormal(4, 2, rows)
    names = [f"a{row}" for row in range(rows)]
    return build_pool(pd.DataFrame({"architecture": names, "m": unit * metric, "kappa": kappa_unit * kappa}), "m")


@pytest.mark.parametrize("kind", BOTH)
@given(places, weights, penalties)
def test_point_is_the_inverse(kind: type[Coordinates], place: float, weight: float, penalty: Penalty) -> None:
    square = kind(pool(), penalty, (-4.0, 4.0))
    mu, nu = square.mu_nu([place, weight])
    assert 0 <= nu <= 1
    np.testing.assert_allclose(square.point(mu, nu), [place, weight], atol=1e-6)


@given(places, weights, penalties, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_units_of_the_pool_do_not_change_the_selection(
    place: float, weight: float, penalty: Penalty, unit: float, kappa_unit: float
) -> None:
    def selected(rows: Pool) -> float:
        mu, nu = PoolCoordinates(rows, penalty, (-4.0, 4.0)).mu_nu([place, weight])
        values = objective(rows.kappa, rows.metric, mu, nu, penalty)
        return float(np.sort(values)[0] / np.median(values))  # relative, because two rows may be equally good

    assert selected(pool(unit=unit, kappa_unit=kappa_unit)) == pytest.approx(selected(pool()), rel=1e-6)


@pytest.mark.parametrize("penalty", ["square", "absolute"])
def test_heavy_tails_leave_many_rows_within_reach(penalty: Penalty) -> None:
    rows = pool(rows=300, tail=2.0)

    def reached(square: Coordinates) -> int:
        grid = [square.mu_nu([u, v]) for u in np.linspace(0, 1, 40) for v in np.linspace(*square.log10_mu, 20)]
        return len({np.argmin(objective(rows.kappa, rows.metric, mu, nu, penalty)) for mu, nu in grid})

    by_pool = reached(PoolCoordinates(rows, penalty, PoolCoordinates.default_log10_mu))
    assert by_pool > 2 * reached(PaperCodeCoordinates(rows, penalty, PaperCodeCoordinates.default_log10_mu))


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("rows", [1, 2])
def test_tiny_pools(kind: type[Coordinates], rows: int) -> None:
    square = kind(pool(rows=rows), "square", (-2.0, 2.0))
    for number in range(5):
        mu, nu = square.mu_nu(square.first_point(number))
        assert np.isfinite([mu, nu]).all()
        assert mu > 0
