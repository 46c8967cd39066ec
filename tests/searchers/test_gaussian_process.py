"""The Gaussian processes over a pool, compared with scikit-learn's with the same kernel."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Kernel

from archray.searchers.rank_surrogate.surrogate import KernelSetting, PoolProcess, RankKernel, counts_of

ROWS = [7, 3, 40, 12, 0, 33, 21]
TARGETS = [0.3, -1.0, 1.2, 0.1, -0.4, 0.0, 0.7]
SETTINGS = {
    "default": KernelSetting(),
    "other": KernelSetting(linear=0.2, smooth=0.0, encoding=1.0, counts=0.3, noise=0.05, prior=0.0),
}


class Tabulated(Kernel):
    """A covariance matrix as a kernel of row numbers for scikit-learn."""

    hyperparameters: tuple[()] = ()
    theta = np.zeros(0)
    bounds = np.zeros((0, 2))

    def __init__(self, matrix: np.ndarray) -> None:
        self.matrix = matrix

    def __call__(self, X, Y=None, eval_gradient=False):  # type: ignore[no-untyped-def]
        rows, columns = X[:, 0].astype(int), (X if Y is None else Y)[:, 0].astype(int)
        return self.matrix[np.ix_(rows, columns)]

    def diag(self, X):  # type: ignore[no-untyped-def]
        return np.diag(self.matrix)[X[:, 0].astype(int)]

    def is_stationary(self) -> bool:
        return False


@pytest.fixture(params=SETTINGS)
def setting(request: pytest.FixtureRequest) -> KernelSetting:
    return SETTINGS[request.param]


@pytest.fixture
def kernel() -> RankKernel:
    rng = np.random.default_rng(0)
    return RankKernel(rng.standard_normal((50, 3)), rng.integers(0, 3, (50, 5)))


def covariance(kernel: RankKernel, setting: KernelSetting) -> np.ndarray:
    return np.stack([kernel.row(row, setting) for row in range(50)])


def process_of(kernel: RankKernel, setting: KernelSetting) -> PoolProcess:
    return PoolProcess(
        partial(kernel.row, setting=setting), kernel.variance(setting), kernel.mean(setting), setting.noise
    )


def test_it_equals_scikit_learn(kernel: RankKernel, setting: KernelSetting) -> None:
    process = process_of(kernel, setting)
    process.observe(ROWS)
    posterior = process.posterior(TARGETS)
    reference = GaussianProcessRegressor(Tabulated(covariance(kernel, setting)), alpha=setting.noise, optimizer=None)
    reference.fit(np.array(ROWS)[:, None], np.array(TARGETS) - kernel.mean(setting)[ROWS])
    expected, deviation = reference.predict(np.arange(50)[:, None], return_std=True)
    np.testing.assert_allclose(posterior.mean, expected + kernel.mean(setting), atol=1e-10)
    np.testing.assert_allclose(posterior.deviation, deviation, atol=1e-8)
    assert posterior.evidence == pytest.approx(reference.log_marginal_likelihood_value_, abs=1e-9)


def test_the_kernel_is_a_covariance(kernel: RankKernel, setting: KernelSetting) -> None:
    matrix = covariance(kernel, setting)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
    np.testing.assert_allclose(np.diag(matrix), kernel.variance(setting), atol=1e-9)
    assert np.linalg.eigvalsh(matrix).min() > -1e-9


def test_operations_count_wherever_they_are() -> None:
    codes = np.array([[0, 1, 1], [1, 1, 0], [0, 0, 0], [2, 2, 2]])
    kernel, setting = RankKernel(np.zeros((4, 0)), codes), KernelSetting(encoding=0.0)
    assert kernel.row(0, setting)[1] == pytest.approx(kernel.row(0, setting)[0])  # other positions
    assert kernel.row(0, setting)[1] > kernel.row(0, setting)[2] > kernel.row(0, setting)[3]


def test_codes_of_few_rows_are_not_counted() -> None:
    codes = np.stack([np.arange(300) + 10, np.arange(300) % 3, 2 - np.arange(300) % 3], axis=1)
    assert counts_of(codes).shape == (300, 3)
    assert counts_of(codes[:, :1]).shape == (300, 0)


def test_results_count_the_same_at_once_one_by_one_and_after_others(kernel: RankKernel, setting: KernelSetting) -> None:
    whole, grown, changed = process_of(kernel, setting), process_of(kernel, setting), process_of(kernel, setting)
    whole.observe(ROWS)
    for end in range(1, len(ROWS) + 1):
        grown.observe(ROWS[:end])
    changed.observe([7, 3, 9, 8, 1])
    changed.observe(ROWS)
    for other in (grown, changed):
        for ours, theirs in zip(
            vars(whole.posterior(TARGETS)).values(), vars(other.posterior(TARGETS)).values(), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_a_pending_row_narrows_the_variance_and_keeps_the_mean(kernel: RankKernel, setting: KernelSetting) -> None:
    known, pending = process_of(kernel, setting), process_of(kernel, setting)
    known.observe(ROWS[:5])
    pending.observe([*ROWS[:2], 20, *ROWS[2:5]])
    before, after = known.posterior(TARGETS[:5]), pending.posterior([*TARGETS[:2], None, *TARGETS[2:5]])
    np.testing.assert_allclose(after.mean, before.mean, atol=1e-9)
    np.testing.assert_allclose(after.evidence, before.evidence, atol=1e-9)
    assert (after.deviation <= before.deviation + 1e-9).all()
    assert after.deviation[20] < 0.9 * before.deviation[20]


def test_without_results_it_is_the_prior(kernel: RankKernel, setting: KernelSetting) -> None:
    process = process_of(kernel, setting)
    np.testing.assert_allclose(process.posterior([]).mean, kernel.mean(setting))
    process.observe([4])
    np.testing.assert_allclose(process.posterior([None]).mean, kernel.mean(setting))


def test_it_grows_beyond_its_initial_capacity(kernel: RankKernel, setting: KernelSetting) -> None:
    process, rows = process_of(kernel, setting), list(range(45))
    process.observe(rows)
    targets = np.sin(rows)
    matrix = covariance(kernel, setting)
    noisy = matrix[:45, :45] + setting.noise * np.eye(45)
    expected = kernel.mean(setting) + matrix[:, :45] @ np.linalg.solve(noisy, targets - kernel.mean(setting)[:45])
    np.testing.assert_allclose(process.posterior(targets.tolist()).mean, expected, atol=1e-8)
