"""Fourier features and shared solves, compared with loops over points in float64; assignments, bases, statistics."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from archray.errors import InvalidInput
from archray.trainables.data import Dataset, DataSettings, Split, load_images
from archray.trainables.feature_maps import problems
from archray.trainables.feature_maps.fourier_features import FourierBases, FourierFeatures, Statistics, every_map
from archray.trainables.feature_maps.problems import FourierProblem, assign, score_all
from archray.trainables.feature_maps.ridge import solve_ridge
from archray.trainables.feature_maps.solve_settings import SolveSettings
from archray.trainables.spaces import get_space

DIMENSION = 40
PREPROCESS = ("none", "minmax", "normalize", "standard")


def sample_maps(count: int, seed: int = 0) -> list[dict]:
    space, rng = get_space("fourier"), np.random.default_rng(seed)
    return [space.configuration(space.encode(space.sample(rng))) for _ in range(count)]


def random_inputs(points: int = 30, inputs: int = 12) -> torch.Tensor:
    values = torch.randn(points, inputs, generator=torch.Generator().manual_seed(1))
    values[:, 3] = 0.7  # a constant input
    return values


def preprocessed(x: np.ndarray, train: np.ndarray, how: str) -> np.ndarray:
    """Preprocesses one point in float64, with separate code."""
    if how == "normalize":
        return x / (np.linalg.norm(x) or 1)
    low, high, mean = train.min(0), train.max(0), train.mean(0)
    constant = low == high
    if how == "minmax":
        return (x - low) / np.where(constant, 1, high - low)
    if how == "standard":
        return (x - mean) / np.where(constant, 1, train.std(0))
    return x


def one_point(x: np.ndarray, train: np.ndarray, each: dict, basis: torch.Tensor, offset: torch.Tensor) -> np.ndarray:
    """Returns the features of one point by one map, in float64."""
    gaussian = each["kernel"] == "gaussian"
    scale = math.sqrt(2 * each["gamma"]) if gaussian else each["gamma"]
    projection = scale * preprocessed(x, train, each["preprocess"]) @ basis.double().numpy()
    return math.sqrt(2 / basis.shape[1]) * np.cos(projection + offset.double().numpy())


def reference_features(
    inputs: torch.Tensor, train: torch.Tensor, maps: list[dict], assignment: np.ndarray, bases: FourierBases
) -> np.ndarray:
    """Returns features in the order of the points, by a loop over them."""
    rows = []
    for x, number in zip(inputs.double().numpy(), assignment, strict=True):
        key = bases.key(maps[number]["kernel"], int(number))
        rows.append(one_point(x, train.double().numpy(), maps[number], *bases.draw(key)))
    return np.stack(rows)


# Assignments and streams


def test_assignments_are_uniform_with_separate_streams() -> None:
    drawn = assign(20_000, 16, 7, "train")
    assert drawn.min() == 0 and drawn.max() == 15
    assert chisquare(np.bincount(drawn)).pvalue > 1e-3
    pairs = np.bincount(drawn[:-1] * 16 + drawn[1:], minlength=256)
    assert chisquare(pairs).pvalue > 1e-3, "neighbors are independent"
    np.testing.assert_array_equal(drawn, assign(20_000, 16, 7, "train"))
    for other in (assign(20_000, 16, 8, "train"), assign(20_000, 16, 7, "validation")):
        assert (drawn == other).mean() == pytest.approx(1 / 16, abs=0.01)
    assert set(assign(50, 1, 3, "train")) == {0}


def test_every_candidate_uses_every_point_if_points_are_few() -> None:
    assert score_all("auto", 29 * 8, 8) and not score_all("auto", 30 * 8, 8)
    assert score_all("all", 10**6, 2) and not score_all("assigned", 1, 100)


# Features


@pytest.mark.parametrize("bases", ["shared", "independent"])
def test_features_equal_those_of_a_loop_over_points(bases: str) -> None:
    train, inputs, maps = random_inputs(), random_inputs(25), sample_maps(9)
    inputs[5] = 0  # a point of length zero
    drawn = FourierBases(12, DIMENSION, 5, bases)
    assignment = assign(25, 9, 0, "train")
    features = FourierFeatures(inputs, maps, assignment, drawn, Statistics.of(train))
    expected = reference_features(inputs, train, maps, assignment, drawn)[features.order.numpy()]
    np.testing.assert_allclose(features.block(slice(0, 25)), expected, atol=2e-4)
    assert sorted(features.order.tolist()) == list(range(25))
    np.testing.assert_allclose(features.block(slice(4, 19), slice(7, 30)), expected[4:19, 7:30], atol=2e-4)
    assert features.shape == (25, DIMENSION) and features.seconds > 0


def test_all_maps_on_all_points_equal_those_of_a_loop() -> None:
    train, maps = random_inputs(), sample_maps(9)
    drawn = FourierBases(12, DIMENSION, 5)
    found = np.full((9, 30, DIMENSION), np.nan)
    for number, rows, features in every_map(train, maps, drawn, Statistics.of(train), rows=8):
        found[number, rows] = features
    for number in range(9):
        expected = reference_features(train, train, maps, np.full(30, number), drawn)
        np.testing.assert_allclose(found[number], expected, atol=2e-4)


@pytest.mark.parametrize(("kernel", "order"), [("gaussian", 2), ("laplace", 1)])
def test_products_of_features_approach_the_kernel(kernel: str, order: int) -> None:
    inputs, gamma = 0.5 * random_inputs(12, 6), 0.4
    each = {"kernel": kernel, "preprocess": "none", "gamma": gamma}
    drawn = FourierBases(6, 60_000, 0)
    features = FourierFeatures(inputs, [each], np.zeros(12, dtype=np.int64), drawn, Statistics.of(inputs))
    values = features.block(slice(0, 12)).double()
    distances = torch.cdist(inputs, inputs, p=order) ** order
    torch.testing.assert_close(values @ values.T, torch.exp(-gamma * distances).double(), rtol=0, atol=0.03)


def test_maps_share_bases_or_have_separate_ones() -> None:
    shared, own = FourierBases(6, 10, 3), FourierBases(6, 10, 3, "independent")
    assert shared.key("gaussian", 0) == shared.key("gaussian", 1) != shared.key("laplace", 0)
    assert len({own.key("gaussian", 0), own.key("gaussian", 1), own.key("laplace", 0)}) == 3
    gaussian, offset = shared.draw(("gaussian",))
    cauchy, same = shared.draw(("laplace",))
    assert torch.equal(offset, same) and not torch.equal(gaussian, cauchy)
    one, other = own.draw(("gaussian", 0)), own.draw(("gaussian", 1))
    assert not torch.equal(one[0], other[0]) and not torch.equal(one[1], other[1])
    torch.testing.assert_close(own.draw(("gaussian", 0)), one)
    assert torch.equal(FourierBases(6, 10, 3).draw(("gaussian",))[0], gaussian)
    assert not torch.equal(FourierBases(6, 10, 4).draw(("gaussian",))[0], gaussian)
    assert offset.min() >= 0 and offset.max() < 2 * math.pi
    wide = FourierBases(200, 200, 0).draw(("laplace",))[0]
    assert torch.isfinite(wide).all()
    assert wide.abs().median() == pytest.approx(1, abs=0.05), "half of a standard Cauchy lies within 1"


def test_statistics_are_those_of_the_training_points() -> None:
    train = random_inputs()
    statistics = Statistics.of(train)
    for how in PREPROCESS:
        other = 3 * random_inputs(7) + 1
        expected = [preprocessed(x, train.double().numpy(), how) for x in other.double().numpy()]
        np.testing.assert_allclose(statistics.preprocess(other, how), expected, atol=1e-5)
    scaled = statistics.preprocess(train, "minmax")
    assert scaled.min() == 0 and float(scaled.max()) == pytest.approx(1)
    scaled = statistics.preprocess(train, "standard")
    assert torch.isfinite(scaled).all() and scaled[:, 3].abs().max() < 1e-5


# Shared solves


@pytest.fixture(scope="module")
def tiny() -> Dataset:
    return load_images(DataSettings(name="digits", limit=150))


def plain_shared_solve(
    data: Dataset, maps: list[dict], bases: FourierBases, seed: int, lam: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Computes one round of Algorithm 1, point by point in float64.

    Returns: losses (C, n) of every validation point by every map, hits (C, n), the assignment (n,), weights.
    """
    train = data.train.images.flatten(1)
    chosen = assign(len(train), len(maps), seed, "train")
    features = reference_features(train, train, maps, chosen, bases)
    targets = 2.0 * np.eye(10)[data.train.labels.numpy()] - 1
    extended = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    penalty = np.diag([lam] * features.shape[1] + [0.0])
    weights = np.linalg.solve(extended.T @ extended + penalty, extended.T @ targets)
    validation, labels = data.validation.images.flatten(1), data.validation.labels.numpy()
    losses, hits = [], []
    for number in range(len(maps)):
        values = reference_features(validation, train, maps, np.full(len(labels), number), bases)
        decisions = values @ weights[:-1] + weights[-1]
        losses.append(((decisions - (2.0 * np.eye(10)[labels] - 1)) ** 2).sum(1))
        hits.append(decisions.argmax(1) == labels)
    return np.stack(losses), np.stack(hits), assign(len(labels), len(maps), seed, "validation"), weights


# At gamma near 10 a projection of the Laplace kernel is in the thousands, and its float32 cosine is accurate to 1e-3.
@pytest.mark.parametrize("bases", ["shared", "independent"])
@pytest.mark.parametrize("validation", ["all", "assigned"])
def test_a_shared_solve_equals_that_of_a_loop_over_points(tiny: Dataset, bases: str, validation: str) -> None:
    maps = [each for each in sample_maps(12) if each["gamma"] < 0.1][:6]
    seed, lam = 11, 0.5
    solved = FourierProblem(tiny, SolveSettings(bases=bases, validation=validation)).solve(maps, DIMENSION, seed)
    losses, hits, chosen, _ = plain_shared_solve(tiny, maps, FourierBases(64, DIMENSION, seed, bases), seed, lam)
    if validation == "all":
        expected = losses.mean(1), hits.mean(1), [losses.shape[1]] * 6
    else:
        own = [chosen == number for number in range(6)]
        expected = tuple([table[c, own[c]].mean() for c in range(6)] for table in (losses, hits))
        expected += ([int(mine.sum()) for mine in own],)
    np.testing.assert_allclose(solved.losses, expected[0], rtol=1e-3)
    np.testing.assert_allclose(solved.accuracies, expected[1], atol=0.02)
    assert solved.points == expected[2] and solved.classifier is None
    assert solved.seconds == solved.seconds_featurize + solved.seconds_solve + solved.seconds_score > 0


@pytest.mark.parametrize("gram", ["float64", "float32", "int8"])
def test_scores_do_not_depend_on_the_gram_matrix_or_the_memory(tiny: Dataset, gram: str) -> None:
    maps = sample_maps(8)
    expected = FourierProblem(tiny, SolveSettings(validation="all")).solve(maps, DIMENSION, 0).losses
    found = FourierProblem(tiny, SolveSettings(validation="all", gram=gram)).solve(maps, DIMENSION, 0).losses
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(("fast", "expected"), [(True, "int8"), (False, "float32")])
def test_auto_uses_bytes_where_the_cpu_multiplies_them_fast(
    tiny: Dataset, monkeypatch: pytest.MonkeyPatch, fast: bool, expected: str
) -> None:
    used = []

    def solve(*arguments: Any, gram: Any, **options: Any) -> Any:
        used.append(gram)
        return solve_ridge(*arguments, gram=gram, **options)

    monkeypatch.setattr(problems, "cpu_has", lambda *features: fast)
    monkeypatch.setattr(problems, "solve_ridge", solve)
    FourierProblem(tiny, SolveSettings(validation="all")).solve(sample_maps(2), DIMENSION, 0)
    assert used == [expected]


@pytest.mark.parametrize("dimension", [DIMENSION, 300])
def test_little_memory_changes_no_score(tiny: Dataset, dimension: int) -> None:
    maps = sample_maps(8)
    roomy = FourierProblem(tiny, SolveSettings()).solve(maps, dimension, 0)
    needed = next(gib for gib in np.linspace(1e-4, 0.02, 400) if fits(tiny, dimension, float(gib)))
    tight = FourierProblem(tiny, SolveSettings(memory_gib=needed)).solve(maps, dimension, 0)
    np.testing.assert_allclose(tight.losses, roomy.losses, rtol=1e-5)


def fits(data: Dataset, dimension: int, gib: float) -> bool:
    try:
        FourierProblem(data, SolveSettings(memory_gib=gib)).check([], dimension)
    except InvalidInput:
        return False
    return True


def test_a_single_candidate_equals_its_standalone_solve(tiny: Dataset) -> None:
    (each,) = sample_maps(1, seed=4)
    solved = FourierProblem(tiny, SolveSettings(validation="assigned")).solve([each], DIMENSION, 3)
    assert solved.points == [len(tiny.validation)]
    predicted = solved.classifier.predict(tiny.validation.images)
    assert solved.accuracies[0] == pytest.approx(float((predicted == tiny.validation.labels).double().mean()))


def test_a_candidate_without_a_point_gets_the_worst_score() -> None:
    data = load_images(DataSettings(name="digits", limit=40))
    problem = FourierProblem(data, SolveSettings(validation="assigned"))
    solved = problem.solve(sample_maps(60), 20, 0)
    empty = [number for number, count in enumerate(solved.points) if count == 0]
    assert empty and sum(solved.points) == len(data.validation)
    known = [loss for loss in solved.losses if not math.isnan(loss)]
    scores = solved.scores(problem.settings)
    assert all(scores[number] == max(known) for number in empty)
    by_accuracy = solved.scores(SolveSettings(score="accuracy"))
    assert all(by_accuracy[number] == min(a for a in solved.accuracies if not math.isnan(a)) for number in empty)


def test_nonfinite_inputs_raise_an_error(tiny: Dataset) -> None:
    from archray.trainables.feature_maps.ridge import SolveFailed

    images = tiny.train.images.clone()
    images[0, 0, 0, 0] = torch.inf
    broken = Dataset("broken", Split(images, tiny.train.labels), tiny.validation, tiny.test, 10, 1, 8)
    for loss in ("ridge", "svm", "logistic"):
        with pytest.raises(SolveFailed):
            FourierProblem(broken, SolveSettings(loss=loss)).solve(sample_maps(2), DIMENSION, 0)
