"""The bounds of Theorems 4.3 and 4.4 on linear cells: where the printed bounds hold, and a bound that always holds."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

from archray.errors import InvalidInput
from archray.trainables.landscape.linear_cells import (
    NORMS,
    OBJECTIVES,
    LinearCells,
    Objective,
    bounds_table,
    draw_cells,
    indefinite,
    least_squares,
    lipschitz_bounds,
    variance_bounds,
)

ROUNDING = 1 + 1e-9  # for float64 sums, and for differences of gradients over short steps


@pytest.fixture(scope="module")
def bounds() -> pd.DataFrame:
    return bounds_table(instances=1000, seed=0)


def test_every_instance_is_present(bounds: pd.DataFrame) -> None:
    assert bounds["instance"].nunique() == 1000
    assert set(bounds["objective"]) == {"least-squares", "logistic", "indefinite"}
    assert set(bounds["norms"]) == set(NORMS)
    assert (bounds["measured"] > 0).all()


def test_the_corrected_bounds_hold_in_every_instance(bounds: pd.DataFrame) -> None:
    assert (bounds["measured"] <= bounds["corrected"] * ROUNDING).all()


def test_the_printed_bounds_hold_for_the_quantities_of_the_proofs(bounds: pd.DataFrame) -> None:
    premise = bounds[bounds["gradient"].isin(["proof", "uniform"])]
    assert (premise["measured"] <= premise["printed"] * ROUNDING).all()


def test_the_printed_bounds_do_not_hold_for_the_narrowest_cell(bounds: pd.DataFrame) -> None:
    narrow = bounds[bounds["gradient"] == "narrow"]
    fails = (narrow["measured"] > narrow["printed"] * 1.001).groupby(narrow["theorem"]).sum()
    assert fails["4.3"] > 500
    assert fails["4.4"] > 5


def test_bounds_have_the_right_order_of_magnitude(bounds: pd.DataFrame) -> None:
    """A bound that is orders of magnitude too large would hold too."""
    share = bounds["measured"] / bounds["corrected"]
    assert share.groupby([bounds["theorem"], bounds["gradient"]]).max().drop(("4.4", "uniform")).min() > 0.5


def one_cell(objective: Objective, matrix: list[list[float]]) -> LinearCells:
    """n = 2, d = 1, x = 1 and both weights 2, with f of a separate matrix."""
    fixed = Objective(**{**vars(objective), "matrix": torch.tensor([matrix], dtype=torch.float64)})
    ones = torch.ones(1, 2, 1, dtype=torch.float64)
    return LinearCells(torch.full((1, 2, 1, 1), 2.0, dtype=torch.float64), ones, fixed)


def test_two_numbers_break_theorem_4_3() -> None:
    """f = (y_1^2 + y_2^2) / 2 of y = (w_1, w_2 w_1) has the curvature 1 + w_2^2 by w_1, and w_1^2 by w_2."""
    generator = torch.Generator().manual_seed(0)
    cells = one_cell(least_squares(1, 2, 2, 2, generator), [[1.0, 0.0], [0.0, 1.0]])
    printed, corrected, measured = (v.item() for v in lipschitz_bounds(cells, 0, generator)["narrow"])
    assert (printed, corrected, measured) == pytest.approx((1.0, 5.0, 5.0))
    printed, corrected, measured = (v.item() for v in lipschitz_bounds(cells, 1, generator)["narrow"])
    assert (printed, corrected, measured) == pytest.approx((2.0, 4.0, 4.0))


def test_an_objective_without_block_curvature_has_some_in_the_narrowest_cell() -> None:
    """f = y_1 y_2 = w_2 w_1^2: every L^(i) of the widest cell is 0, so no multiple of them is a bound."""
    generator = torch.Generator().manual_seed(0)
    cells = one_cell(indefinite(1, 2, 2, 2, generator), [[0.0, 1.0], [1.0, 0.0]])
    printed, corrected, measured = (v.item() for v in lipschitz_bounds(cells, 0, generator)["narrow"])
    assert (printed, measured) == pytest.approx((0.0, 4.0))
    assert measured <= corrected


@pytest.mark.parametrize("make", OBJECTIVES)
def test_gradients_and_variances_equal_those_of_autograd(make: type) -> None:
    generator = torch.Generator().manual_seed(1)
    cells = draw_cells(2, objective=make, nodes=3, width=3, norms=(0.5, 2.0), generator=generator, samples=4)
    for block in range(3):
        by_outputs = cells.by_outputs(cells.narrow(), cells.objective.targets)
        ours = cells.narrow_gradients(block, by_outputs)
        measured = variance_bounds(cells, block)["narrow"][2]
        for instance in range(2):
            reference = torch.stack([_autograd(cells, make.__name__, instance, sample, block) for sample in range(4)])
            torch.testing.assert_close(ours[instance], reference, rtol=1e-10, atol=1e-12)
            spread = (reference - reference.mean(0)).flatten(1).norm(dim=1).square().mean()
            torch.testing.assert_close(measured[instance], spread, rtol=1e-10, atol=1e-12)


def _autograd(cells: LinearCells, name: str, instance: int, sample: int, block: int) -> torch.Tensor:
    weights = cells.weights[instance].clone().requires_grad_()
    y, nodes = cells.inputs[instance, sample], []
    for weight in weights:
        y = weight @ y
        nodes.append(y)
    z, matrix, t = torch.cat(nodes), cells.objective.matrix[instance], cells.objective.targets[instance, sample]
    f = {
        "least_squares": lambda: (matrix @ z - t).square().sum() / 2,
        "logistic": lambda: -(matrix @ z).log_softmax(0) @ t,
        "indefinite": lambda: z @ matrix @ z / 2 + t @ z,
    }[name]()
    return torch.autograd.grad(f, weights)[0][block]


def test_no_instances_raise_an_error() -> None:
    with pytest.raises(InvalidInput, match="at least one instance, got 0"):
        bounds_table(instances=0)
