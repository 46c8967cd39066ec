"""Hinge and log loss on dense and sparse features, and ridge on sparse ones, compared with scikit-learn."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from archray.errors import InvalidInput
from archray.trainables.data import DataSettings, TextDataset, TextSplit, load_images
from archray.trainables.feature_maps import linear
from archray.trainables.feature_maps.features import ridge_memory
from archray.trainables.feature_maps.hashed_ngrams import BinWeights, Corpus, featurize, weighted
from archray.trainables.feature_maps.linear import decisions, fit_logistic, fit_sparse_ridge, fit_svm
from archray.trainables.feature_maps.problems import FourierProblem, NGramProblem, assign, hash_seeds
from archray.trainables.feature_maps.solve_settings import SolveSettings
from archray.trainables.spaces import get_space

WORDS = ["array", "matrix", "sparse", "solver", "frame", "column", "the", "of", "index", "tensor", "gradient", "axis"]
LAM = 0.5


def sparse_problem(n: int, d: int, classes: int = 3) -> tuple[csr_matrix, np.ndarray]:
    rng = np.random.default_rng(n + d)
    dense = rng.poisson(0.2, (n, d)).astype(float)
    labels = np.arange(n) % classes
    dense[np.arange(n), labels] += 1
    return csr_matrix(dense), labels.astype(np.int64)


def texts(points: int, classes: int, seed: int) -> TextSplit:
    rng = np.random.default_rng(seed)
    labels = np.arange(points) % classes
    chosen = [rng.choice(WORDS[2 * label :], size=12) for label in labels]
    return TextSplit(tuple(" ".join(words) for words in chosen), labels.astype(np.int64))


def text_data(classes: int = 2) -> TextDataset:
    parts = [texts(points, classes, seed) for seed, points in enumerate((80, 40, 40))]
    return TextDataset("words", *parts, num_classes=classes, classes=tuple(map(str, range(classes))))


def sample_maps(count: int, *, bayes: bool = True) -> list[dict]:
    space, rng = get_space("ngrams"), np.random.default_rng(2)
    maps: list[dict] = []
    while len(maps) < count:
        each = space.configuration(space.encode(space.canonical(space.sample(rng))))
        if bayes or each["weights"] != "naive-bayes":
            maps.append(each)
    return maps


# Models


@pytest.mark.parametrize("classes", [2, 3])
def test_the_svm_equals_that_of_scikit_learn(classes: int) -> None:
    features, labels = sparse_problem(60, 20, classes)
    model = fit_svm(features, labels, classes, LAM, seed=3)
    expected = LinearSVC(loss="hinge", C=1.0, dual=True, random_state=3, max_iter=10_000).fit(features, labels)
    values = expected.decision_function(features)
    values = np.stack([-values, values], 1) if classes == 2 else values
    np.testing.assert_allclose(decisions(features, model), values)
    assert decisions(features, model).shape == (60, classes)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("lam", [0.5, 0.05])
def test_logistic_regression_equals_that_of_scikit_learn(classes: int, lam: float) -> None:
    features, labels = sparse_problem(60, 20, classes)
    model = fit_logistic(features, labels, classes, lam)
    expected = LogisticRegression(C=1 / (2 * lam), max_iter=10_000).fit(features, labels).predict_proba(features)
    np.testing.assert_allclose(decisions(features, model).softmax(1), expected, atol=1e-9)


@pytest.mark.parametrize("lam", [0.5, 0.05])
def test_logistic_weights_minimize_the_stated_objective(lam: float) -> None:
    """The gradient of lam ||w||^2 + summed log loss is zero, in the scale of W7."""
    features, labels = sparse_problem(60, 20)
    model = fit_logistic(features, labels, 3, lam)
    weights = model.weights.clone().requires_grad_()
    values = torch.from_numpy(features.toarray()) @ weights + model.intercept
    loss = torch.nn.functional.cross_entropy(values, torch.from_numpy(labels), reduction="sum")
    (gradient,) = torch.autograd.grad(lam * weights.square().sum() + loss, weights)
    assert gradient.abs().max() < 0.02


@pytest.mark.parametrize("fit", [fit_logistic, lambda *arguments: fit_svm(*arguments, seed=0)])
def test_a_class_without_points_raises_an_error(fit) -> None:
    features, labels = sparse_problem(20, 5)
    with pytest.raises(InvalidInput, match=r"all 4 classes, got none of \[3\]"):
        fit(features, labels, 4, LAM)


# Ridge on sparse features


@pytest.mark.parametrize(("n", "d"), [(90, 20), (20, 90)])
@pytest.mark.parametrize("rows", [7, 1024])
def test_sparse_ridge_equals_that_of_scikit_learn(n: int, d: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "SPARSE_ROWS", rows)
    features, labels = sparse_problem(n, d)
    expected = Ridge(alpha=LAM).fit(features.toarray(), 2.0 * np.eye(3)[labels] - 1).predict(features.toarray())
    exact = decisions(features, fit_sparse_ridge(features, labels, 3, LAM, memory_gib=1.0))
    np.testing.assert_allclose(exact, expected, atol=1e-10)
    little = ridge_memory(n, d, 3) / 2  # neither Gram matrix fits
    iterative = decisions(features, fit_sparse_ridge(features, labels, 3, LAM, memory_gib=little))
    np.testing.assert_allclose(iterative, expected, atol=1e-5)


# Problems


@pytest.mark.parametrize("loss", ["ridge", "svm", "logistic"])
@pytest.mark.parametrize("bases", ["shared", "independent"])
def test_a_shared_solve_over_ngram_maps_equals_a_loop(loss: str, bases: str) -> None:
    data, maps, dimension, seed = text_data(), sample_maps(5), 64, 3
    seeds = hash_seeds(5, seed, bases)
    assert len(set(seeds)) == (1 if bases == "shared" else 5)
    corpus, chosen = Corpus(data.train.texts), assign(80, 5, seed, "train")
    counts = featurize(corpus, np.arange(80), maps, chosen, dimension, seeds)
    weights = BinWeights.fit(counts, data.train.labels, 2)
    features = weighted(counts, maps, chosen, weights)
    model = {
        "ridge": lambda: fit_sparse_ridge(features, data.train.labels, 2, LAM, 1.0),
        "svm": lambda: fit_svm(features, data.train.labels, 2, LAM, seed),
        "logistic": lambda: fit_logistic(features, data.train.labels, 2, LAM),
    }[loss]()
    validation, labels = Corpus(data.validation.texts), data.validation.labels
    targets = 2.0 * np.eye(2)[labels] - 1
    losses = np.empty((5, 40))
    for number, each in enumerate(maps):
        for row in range(40):
            here = np.array([row]), [each], np.array([0])
            value = weighted(featurize(validation, *here, dimension, [seeds[number]]), *here[1:], weights)
            values = (value @ model.weights.numpy())[0] + model.intercept.numpy()
            losses[number, row] = {
                "ridge": ((values - targets[row]) ** 2).sum(),
                "svm": np.maximum(0, 1 - values * targets[row]).sum(),
                "logistic": -torch.log_softmax(torch.from_numpy(values), 0)[labels[row]].item(),
            }[loss]
    solved = NGramProblem(data, SolveSettings(loss=loss, validation="all", bases=bases)).solve(maps, dimension, seed)
    np.testing.assert_allclose(solved.losses, losses.mean(1), rtol=1e-6)
    settings = SolveSettings(loss=loss, validation="assigned", bases=bases)
    solved = NGramProblem(data, settings).solve(maps, dimension, seed)
    own = assign(40, 5, seed, "validation")
    np.testing.assert_allclose(solved.losses, [losses[c, own == c].mean() for c in range(5)], rtol=1e-6)


def test_the_loss_depends_on_the_data_unless_it_is_set() -> None:
    assert NGramProblem(text_data(), SolveSettings()).loss == "svm"
    assert FourierProblem(load_images(DataSettings(limit=60)), SolveSettings()).loss == "ridge"
    assert NGramProblem(text_data(), SolveSettings(loss="logistic")).loss == "logistic"


@pytest.mark.parametrize("loss", ["svm", "logistic"])
def test_other_losses_work_on_fourier_features(loss: str) -> None:
    data = load_images(DataSettings(name="digits", limit=200))
    problem = FourierProblem(data, SolveSettings(loss=loss))
    each = {"kernel": "gaussian", "preprocess": "none", "gamma": 0.005}
    solved = problem.solve([each], 200, 0)
    assert solved.accuracies[0] > 0.7
    assert problem.test(solved, 0).accuracy > 0.7


@pytest.mark.parametrize("loss", ["ridge", "svm", "logistic"])
def test_a_standalone_classifier_predicts_texts(loss: str) -> None:
    data = text_data(classes=3)
    (each,) = sample_maps(1, bayes=False)
    problem = NGramProblem(data, SolveSettings(loss=loss))
    solved = problem.solve([each], 256, 0)
    predicted = solved.classifier.predict(data.validation.texts).numpy()
    assert (predicted == data.validation.labels).mean() == pytest.approx(solved.accuracies[0])
    assert solved.accuracies[0] > 0.5


def test_naive_bayes_weights_with_three_classes_raise_an_error() -> None:
    each = {**sample_maps(1)[0], "weights": "naive-bayes"}
    with pytest.raises(InvalidInput, match="two classes"):
        NGramProblem(text_data(classes=3), SolveSettings()).check([each], 64)
