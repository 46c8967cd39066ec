"""Ridge compared with scikit-learn and the normal equations in float64; sides, blocks, Gram precision, memory."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge, RidgeClassifier

from archray.errors import InvalidInput
from archray.trainables.feature_maps import ridge
from archray.trainables.feature_maps import ridge as cg
from archray.trainables.feature_maps.features import GIB, DenseFeatures, RidgePlan, ridge_memory
from archray.trainables.feature_maps.linear import point_hits, point_losses, signs
from archray.trainables.feature_maps.ridge import (
    BlasGram,
    LinearModel,
    NotConverged,
    SolveFailed,
    TorchGram,
    conjugate_gradients,
    int8_gram,
    quantize,
    solve_ridge,
)

LAM = 0.5
SHAPES = [(120, 30), (30, 120), (50, 50), (131, 17)]


def problem(n: int, d: int, classes: int = 3, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine features with nonzero means, and labels that depend on them."""
    draws = torch.Generator().manual_seed(n * 1000 + d)
    features = torch.cos(0.7 * torch.randn(n, d, generator=draws) + 0.3).mul_((2 / d) ** 0.5).to(dtype)
    return features, features[:, :classes].argmax(1)


def decisions(features: torch.Tensor, model: LinearModel) -> np.ndarray:
    return model.decisions(features.double()).numpy()


def normal_equations(features: torch.Tensor, targets: torch.Tensor, lam: float) -> LinearModel:
    """A slow and plain solution, with the intercept as an unpenalized column."""
    extended = np.concatenate([features.double().numpy(), np.ones((len(features), 1))], axis=1)
    penalty = np.diag([lam] * features.shape[1] + [0.0])
    solution = np.linalg.solve(extended.T @ extended + penalty, extended.T @ targets.numpy())
    return LinearModel(torch.from_numpy(solution[:-1]), torch.from_numpy(solution[-1]))


@pytest.mark.parametrize("gram", ["float64", "float32", "int8"])
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_it_equals_scikit_learn_and_the_normal_equations(n: int, d: int, gram: str) -> None:
    features, labels = problem(n, d)
    targets = signs(labels, 3)
    solution = solve_ridge(DenseFeatures(features), targets, LAM, gram=gram)
    assert solution.gram == gram and (solution.iterations == 0) == (gram == "float64")
    found = decisions(features, solution.model)
    tolerance = 1e-10 if gram == "float64" else 1e-7
    np.testing.assert_allclose(found, decisions(features, normal_equations(features, targets, LAM)), atol=tolerance)
    array = features.double().numpy()
    np.testing.assert_allclose(found, Ridge(alpha=LAM).fit(array, targets.numpy()).predict(array), atol=tolerance)
    classifier = RidgeClassifier(alpha=LAM).fit(array, labels.numpy())
    np.testing.assert_allclose(found, classifier.decision_function(array), atol=tolerance)


@pytest.mark.parametrize("gram", ["float64", "float32", "int8"])
def test_features_in_double_precision_are_used_as_such(gram: str) -> None:
    features, labels = problem(60, 20, dtype=torch.float64)
    targets = signs(labels, 3)
    found = decisions(features, solve_ridge(DenseFeatures(features), targets, LAM, gram=gram).model)
    np.testing.assert_allclose(found, decisions(features, normal_equations(features, targets, LAM)), atol=1e-7)


class Counted(DenseFeatures):
    """Records the size of its blocks."""

    def __init__(self, matrix: torch.Tensor) -> None:
        super().__init__(matrix)
        self.shapes: list[tuple[int, int]] = []

    def block(self, rows: slice, columns: slice = slice(None)) -> torch.Tensor:
        block = super().block(rows, columns)
        self.shapes.append((block.shape[0], block.shape[1]))
        return block


@pytest.mark.parametrize(("n", "d"), [(500, 40), (40, 500)])
def test_many_blocks_give_the_result_of_one(n: int, d: int) -> None:
    features, labels = problem(n, d)
    targets = signs(labels, 3)
    whole, parts = Counted(features), Counted(features)
    one = solve_ridge(whole, targets, LAM).model
    least = ridge_memory(n, d, 3)
    many = solve_ridge(parts, targets, LAM, memory_gib=least * 1.0001).model
    assert max(max(shape) for shape in whole.shapes) == 500
    assert all(min(shape) <= 64 for shape in parts.shapes) and len(parts.shapes) > len(whole.shapes)
    np.testing.assert_allclose(decisions(features, many), decisions(features, one), atol=1e-11)


@pytest.mark.parametrize("gram", ["float64", "float32", "int8"])
def test_the_two_sides_agree(gram: str) -> None:
    features, labels = problem(40, 60)
    targets = signs(labels, 3)
    mean = targets.mean(0)
    found = {}
    for dual in (True, False):
        plan = RidgePlan(dual=dual, gram=gram, keep=True, rows=16, columns=16)
        arguments = DenseFeatures(features), targets - mean, mean, LAM, plan
        if gram == "float64":
            found[dual] = (ridge.solve_dual if dual else ridge.solve_primal)(*arguments)
        else:
            found[dual] = ridge.solve_preconditioned(*arguments).model
    np.testing.assert_allclose(decisions(features, found[True]), decisions(features, found[False]), atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_both_kinds_of_gram_matrix_are_the_same_matrix(dtype: torch.dtype) -> None:
    """The GPU's kind also runs on a CPU, with the same computation."""
    features, _ = problem(50, 20)
    features, right = features.double(), torch.eye(20, 3, dtype=torch.float64)
    expected = {}
    for name, gram in {"blas": BlasGram(20, dtype), "torch": TorchGram(20, dtype, "cpu")}.items():
        for part in features.split(16):
            gram.add(part)
        gram.subtract_mean(features.mean(0), 50)
        address = gram.matrix.data_ptr() if isinstance(gram, TorchGram) else None
        gram.factorize(LAM)
        assert address is None or gram.matrix.data_ptr() == address  # the factor replaces the matrix
        kernel = {"blas": BlasGram, "torch": TorchGram}[name](50, dtype, *(["cpu"] if name == "torch" else []))
        kernel.add(features.T)
        kernel.center()
        kernel.factorize(LAM)
        expected[name] = gram.solve(right), kernel.solve(torch.eye(50, 3, dtype=torch.float64))
    centered = features - features.mean(0)
    exact = (
        torch.linalg.solve(centered.T @ centered + LAM * torch.eye(20), right),
        torch.linalg.solve(centered @ centered.T + LAM * torch.eye(50), torch.eye(50, 3, dtype=torch.float64)),
    )
    for found in expected.values():
        for one, other in zip(found, exact, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10 if dtype == torch.float64 else 1e-4)


# Products, the 8-bit preconditioner and conjugate gradients


@pytest.mark.parametrize(
    ("dtype", "rows", "threads"), [(torch.float32, 1, 1), (torch.float32, 200, 2), (torch.float64, 3, 2)]
)
def test_products_equal_those_in_float64(
    dtype: torch.dtype, rows: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cg, "CACHE_BYTES", 1)  # 16 rows per block
    torch.set_num_threads(threads)  # as many parts; the next test starts with one thread again
    draws = torch.Generator().manual_seed(0)
    matrix, right, left = (torch.randn(size, generator=draws).double() for size in ((rows, 9), (9, 4), (rows, 4)))
    matrix = matrix.to(dtype)
    torch.testing.assert_close(cg.times(matrix, right), matrix.double() @ right)
    torch.testing.assert_close(cg.transpose_times(matrix, left), matrix.double().T @ left)
    torch.testing.assert_close(cg.normal_times(matrix, right), matrix.double().T @ (matrix.double() @ right))


@pytest.mark.parametrize("dual", [False, True])
def test_the_8_bit_gram_matrix_equals_that_of_the_rounded_features(dual: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ridge, "PANEL", 7)
    monkeypatch.setattr(ridge, "LONGEST", 13)
    features, _ = problem(40, 30)
    rounded, scale, sums = quantize(features)
    assert rounded.dtype == torch.int8 and rounded.abs().max() == ridge.LEVELS
    torch.testing.assert_close(rounded * scale, features, rtol=0, atol=scale / 2 * 1.001)
    torch.testing.assert_close(sums, rounded.double().sum(0))
    exact = rounded.double() * scale
    exact = exact - exact.mean(0)
    exact = exact @ exact.T if dual else exact.T @ exact
    found = np.tril(int8_gram(DenseFeatures(features), dual=dual).matrix)
    np.testing.assert_allclose(found, np.tril(exact.numpy()), atol=1e-4 * float(exact.abs().max()))


def test_products_of_the_largest_bytes_are_exact_on_every_cpu() -> None:
    signs_of_bytes = torch.tensor([[1, 1], [1, -1], [-1, 1], [-1, -1]]).repeat(8, 1)  # (32, 2)
    matrix = (signs_of_bytes * ridge.LEVELS).to(torch.int8)
    expected = matrix.long().T @ matrix.long()
    assert torch.equal(torch._int_mm(matrix.T, matrix).long(), expected)


def test_conjugate_gradients_solve_each_right_hand_side() -> None:
    draws = torch.Generator().manual_seed(0)
    root = torch.randn(30, 30, dtype=torch.float64, generator=draws)
    matrix = root @ root.T + torch.eye(30)
    right = torch.randn(30, 3, dtype=torch.float64, generator=draws)
    right[:, 1] = 0
    found, iterations = conjugate_gradients(
        lambda x: matrix @ x, lambda r: r / matrix.diagonal()[:, None], right, tolerance=1e-10, limit=200
    )
    torch.testing.assert_close(found, torch.linalg.solve(matrix, right), rtol=1e-6, atol=1e-8)
    assert 1 < iterations < 200 and not found[:, 1].any()
    with pytest.raises(NotConverged, match="within 2 iterations"):
        conjugate_gradients(lambda x: matrix @ x, lambda r: r, right, tolerance=1e-10, limit=2)


def test_an_inaccurate_cheap_gram_matrix_is_replaced_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    features, labels = problem(60, 20)
    targets = signs(labels, 3)
    monkeypatch.setattr(ridge, "MAX_ITERATIONS", 0)
    solution = solve_ridge(DenseFeatures(features), targets, LAM, gram="int8")
    assert (solution.gram, solution.iterations) == ("float64", 0)
    assert "int8" in caplog.text and "float64" in caplog.text
    expected = decisions(features, normal_equations(features, targets, LAM))
    np.testing.assert_allclose(decisions(features, solution.model), expected, atol=1e-10)


def test_a_lam_far_below_the_rounding_still_gives_the_solution() -> None:
    features, labels = problem(80, 20)
    targets = signs(labels, 3)
    for gram in ("float32", "int8"):
        found = decisions(features, solve_ridge(DenseFeatures(features), targets, 1e-9, gram=gram).model)
        np.testing.assert_allclose(found, decisions(features, normal_equations(features, targets, 1e-9)), atol=1e-5)


def test_equal_features_give_the_mean_of_the_targets() -> None:
    features, labels = torch.full((40, 10), 0.3), torch.arange(40) % 2
    for gram in ("float64", "float32", "int8"):
        found = decisions(features, solve_ridge(DenseFeatures(features), signs(labels, 2), LAM, gram=gram).model)
        np.testing.assert_allclose(found, 0, atol=1e-6)


@pytest.mark.parametrize("gram", ["float64", "float32", "int8"])
@pytest.mark.parametrize(("n", "d"), [(40, 10), (10, 40)])
def test_nonfinite_features_raise_an_error(n: int, d: int, gram: str) -> None:
    features, labels = problem(n, d)
    features[3, 3] = torch.nan
    with pytest.raises(SolveFailed, match="Cholesky"):
        solve_ridge(DenseFeatures(features), signs(labels, 3), LAM, gram=gram)


# Memory


def test_a_plan_uses_the_smaller_side_within_its_memory() -> None:
    for n, d in ((5000, 300), (300, 5000)):
        for gram in ("float64", "float32", "int8"):
            for gib in (ridge_memory(n, d, 10) * 1.001, 0.01, 0.1, 4.0):
                plan = RidgePlan.make(n, d, 10, memory_gib=gib, gram=gram)
                assert plan.dual == (n < d)
                block = (plan.columns * n if plan.dual else plan.rows * d) * 12
                held = 8 * min(n, d) ** 2 + block + plan.keep * n * d * (5 if gram == "int8" else 4)
                assert held <= gib * GIB
                assert plan.gram == (gram if plan.keep else "float64")
    assert RidgePlan.make(5000, 300, 10, memory_gib=4, gram="int8").keep


def test_a_side_beyond_the_memory_raises_an_error_with_advice() -> None:
    with pytest.raises(InvalidInput, match=r"at least 12 for ridge's d x d Gram matrix of 40,000 .*; raise memory_gib"):
        RidgePlan.make(50_000, 40_000, 10, memory_gib=4)
    features, labels = problem(50, 40)
    with pytest.raises(InvalidInput, match="memory_gib"):
        solve_ridge(DenseFeatures(features), signs(labels, 3), LAM, memory_gib=1e-6)


# Losses


def test_losses_and_hits_by_hand() -> None:
    values = torch.tensor([[0.5, -2.0, 0.0], [3.0, 1.0, -1.0]])
    labels = torch.tensor([0, 1])
    square = [0.5**2 + 1 + 1, 16 + 0 + 0]
    hinge = [0.5 + 0 + 1, 4 + 0 + 0]
    log = [-np.log(np.exp(row[label]) / np.exp(row).sum()) for row, label in zip(values.numpy(), labels, strict=True)]
    for loss, expected in {"ridge": square, "svm": hinge, "logistic": log}.items():
        np.testing.assert_allclose(point_losses(values, labels, loss), expected, rtol=1e-6)
    assert point_hits(values, labels).tolist() == [1, 0]
    assert point_hits(torch.tensor([[torch.nan, 1.0]]), torch.tensor([0])).tolist() == [0]
