"""Data settings, splits, digits, gaussian, the batch of the proxies, and a data set by reference."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sklearn.datasets import load_digits

from archray.errors import DataNotFound, InvalidInput, UnknownName
from archray.trainables.data import DATASETS, DataSettings, Split, check_data, load_data, proxy_batch, sources
from archray.trainables.data.dataset import make_dataset
from archray.trainables.data.load import read_data
from archray.trainables.data.raw import RawData, stratified_split
from archray.trainables.data.settings import AugmentationSettings


def parts(dataset):
    return dataset.train, dataset.validation, dataset.test


def test_settings_have_absolute_paths_and_valid_sizes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = DataSettings(name="folder:pictures", data_dir="data")
    assert settings.name == f"folder:{tmp_path / 'pictures'}"
    assert settings.data_dir == str(tmp_path / "data")
    assert DataSettings(name="arrays:~/x.npz").path.is_absolute()
    assert DataSettings(name="own.py:data").name == "own.py:data"
    with pytest.raises(ValidationError):
        DataSettings(validation_fraction=1.0)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("digits", {"data_dir": "x"}, "expected no data.data_dir for digits, .* choose one of cifar10, cifar100, imag"),
        ("folder:x", {"data_dir": "x"}, "expected no data.data_dir for folder:"),
        ("docstrings", {"data_dir": "x"}, "expected no data.data_dir for docstrings"),
        ("parquet:x", {"data_dir": "x"}, "expected no data.data_dir for parquet:"),
        ("glyphs", {"label_column": "x"}, "expected no data.label_column for glyphs, .* hf:NAME, parquet:PATH"),
        ("arrays:x", {"image_column": "x"}, "expected no data.image_column for arrays:"),
    ],
)
def test_an_option_that_the_data_do_not_use_raises_an_error(name, options, message):
    with pytest.raises(InvalidInput, match=message):
        check_data(DataSettings(name=name, **options))


def test_an_unknown_name_lists_the_known_names():
    for function in (check_data, load_data):
        with pytest.raises(
            UnknownName, match=r"no data set 'cifar11'; did you mean 'cifar10'\? .*cifar10.*digits.*gaussian"
        ):
            function(DataSettings(name="cifar11"))
    with pytest.raises(UnknownName, match="folder"):
        check_data(DataSettings(name="folder:"))


def test_every_source_has_a_one_line_description():
    for name in DATASETS:
        assert 10 < len(DATASETS.get(name).description) < 90


def test_digits_equal_those_of_scikit_learn_bit_for_bit():
    expected = load_digits()
    [images, labels] = sources.read_digits(DataSettings()).train
    assert images.dtype == np.float32 and labels.dtype == np.int64
    assert np.array_equal(images[:, 0], (expected.images / 16).astype(np.float32))
    assert np.array_equal(labels, expected.target)


def test_digits_without_their_table_raise_an_error(monkeypatch):
    monkeypatch.setattr(sources, "TABLE", "datasets/data/absent.csv.gz")
    with pytest.raises(DataNotFound, match=r"file datasets/data/absent\.csv\.gz in scikit-learn, got none; rein"):
        sources.read_digits(DataSettings())


def test_digits_are_complete_without_repetition():
    dataset = load_data(DataSettings())
    assert [len(part) for part in parts(dataset)] == [1078, 360, 359]
    assert (dataset.num_classes, dataset.in_channels, dataset.image_size, dataset.flip) == (10, 1, 8, False)
    assert dataset.train.images.mean().item() == pytest.approx(0, abs=1e-5)
    assert dataset.train.images.std().item() == pytest.approx(1, abs=1e-3)
    # Without the normalization they are scikit-learn's 0..16.
    black = dataset.black[0]
    scale = 16 / (torch.cat([part.images for part in parts(dataset)]).max().item() - black)
    restored = torch.cat([(part.images - black) * scale for part in parts(dataset)]).round().to(torch.int64)
    expected = torch.from_numpy(load_digits().images).to(torch.int64)
    assert sorted(map(tuple, restored.flatten(1).tolist())) == sorted(map(tuple, expected.flatten(1).tolist()))


@pytest.mark.parametrize("part", [0, 1, 2])
def test_digits_keep_class_proportions(part):
    labels = parts(load_data(DataSettings()))[part].labels
    whole = np.bincount(load_digits().target) / 1797
    assert np.abs(np.bincount(labels) / len(labels) - whole).max() < 0.005


def test_splits_depend_only_on_the_seed():
    same = load_data(DataSettings(seed=5)), read_data(DataSettings(seed=5))
    other = load_data(DataSettings(seed=6))
    assert same[0].checksum() == same[1].checksum() != other.checksum()
    assert len(same[0].checksum()) == 64


def test_the_checksum_depends_on_every_tensor():
    dataset = read_data(DataSettings(limit=50))
    seen = {dataset.checksum()}
    for part in parts(dataset):
        part.images[0, 0, 0, 0] += 1
        seen.add(dataset.checksum())
        part.labels[0] += 1
        seen.add(dataset.checksum())
    assert len(seen) == 7


def test_load_data_caches_its_results():
    assert load_data(DataSettings(seed=9)) is load_data(DataSettings(seed=9))


def test_resizing_and_limit():
    dataset = load_data(DataSettings(image_size=16, limit=40))
    assert [tuple(part.images.shape) for part in parts(dataset)] == [(40, 1, 16, 16)] * 3
    assert np.bincount(dataset.train.labels).min() >= 3
    assert dataset.image_size == 16


@pytest.mark.parametrize("statistics", [{}, {"mean": (0.4, 0.5, 0.6), "std": (0.2, 0.25, 0.3)}])
@pytest.mark.parametrize("seed", range(3))
def test_8_bit_images_equal_float_images_bit_for_bit(seed, statistics):
    rng = np.random.default_rng(seed)
    pixels = rng.normal(100, 60, (600, 3, 9, 9)).clip(0, 255).astype(np.uint8)
    labels = np.arange(600) % 4
    inputs = pixels, pixels.astype(np.float32) / np.float32(255)
    data, exact = (
        make_dataset(RawData(train=(x, labels), num_classes=4, **statistics), DataSettings(limit=200)) for x in inputs
    )
    assert data.train.pixels.dtype == torch.uint8 and type(exact.train) is Split
    assert (data.form, data.black, data.checksum()) == (exact.form, exact.black, exact.checksum())
    for split, whole in zip(parts(data), parts(exact), strict=True):
        assert torch.equal(split.images, whole.images) and torch.equal(split.labels, whole.labels)
        places = torch.randperm(len(split)).split(33)
        for ours, theirs in zip(split.batches(places), whole.batches(places), strict=True):
            assert torch.equal(ours, theirs)
        for ours, theirs in zip(split.in_order(50, slice(7, 160)), whole.in_order(50, slice(7, 160)), strict=True):
            assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])
    for ours, theirs in zip(proxy_batch(data, 64, 42), proxy_batch(exact, 64, 42), strict=True):  # augmented
        assert torch.equal(ours, theirs)


def test_a_split_without_images_is_one_empty_batch():
    split = load_data(DataSettings()).train
    [(images, labels)] = split.in_order(10, slice(0, 0))
    assert images.shape == (0, 1, 8, 8) and labels.shape == (0,)


def test_validation_fraction_refers_to_the_remaining_training_data():
    dataset = load_data(DataSettings(validation_fraction=0.5))
    assert [len(part) for part in parts(dataset)] == [719, 719, 359]


def test_gaussian():
    dataset = load_data(DataSettings(name="gaussian", seed=1))
    assert tuple(dataset.train.images.shape) == (1024, 3, 32, 32)
    assert dataset.train.images.mean().abs() < 5 / np.sqrt(1024 * 3072)
    assert set(dataset.train.labels.tolist()) == set(range(10))
    assert load_data(DataSettings(name="gaussian", seed=2)).checksum() != dataset.checksum()
    assert load_data(DataSettings(name="gaussian", image_size=8)).train.images.shape[-1] == 8


@given(st.lists(st.integers(0, 5), min_size=2, max_size=300).map(np.array), st.floats(0.05, 0.95), st.integers(0, 99))
def test_stratified_split(labels, fraction, seed):
    total = round(fraction * len(labels))
    if total in (0, len(labels)):
        with pytest.raises(InvalidInput):
            stratified_split(labels, fraction, seed)
        return
    kept, held = stratified_split(labels, fraction, seed)
    assert sorted([*kept, *held]) == list(range(len(labels)))
    assert len(held) == total
    for cls in np.unique(labels):
        assert abs((labels[held] == cls).sum() - fraction * (labels == cls).sum()) <= 1
    again = stratified_split(labels, fraction, seed)
    assert (again[0] == kept).all()


def test_proxy_batch_depends_on_its_seed_and_comes_from_the_training_data():
    dataset = load_data(DataSettings())
    images, labels = proxy_batch(dataset, 64, 42, augment=False)
    again = proxy_batch(dataset, 64, 42, augment=False)
    assert torch.equal(images, again[0])
    assert torch.equal(labels, again[1])
    assert not torch.equal(images, proxy_batch(dataset, 64, 43, augment=False)[0])
    place = {row.numpy().tobytes(): i for i, row in enumerate(dataset.train.images)}
    drawn = [place[row.numpy().tobytes()] for row in images]
    assert len(set(drawn)) == 64
    assert torch.equal(dataset.train.labels[drawn], labels)


def test_proxy_batch_is_augmented_as_in_training():
    dataset = load_data(DataSettings())
    plain, labels = proxy_batch(dataset, 64, 42, augment=False)
    augmented, same_labels = proxy_batch(dataset, 64, 42)
    assert torch.equal(labels, same_labels)
    assert not torch.equal(plain, augmented)
    unchanged = proxy_batch(dataset, 64, 42, augment=AugmentationSettings(crop=0, flip=False))[0]
    assert torch.equal(plain, unchanged)
    noise = load_data(DataSettings(name="gaussian"))
    assert torch.equal(proxy_batch(noise, 64, 42)[0], proxy_batch(noise, 64, 42, augment=False)[0])
    with pytest.raises(InvalidInput, match=r"1 to 1,078 images, .* got 5000"):
        proxy_batch(dataset, 5000, 42)


def test_a_data_set_by_reference(tmp_path):
    file = tmp_path / "own_data.py"
    file.write_text(
        "import torch\n"
        "from archray.trainables.data import Dataset, Split\n"
        "def stripes(settings):\n"
        "    g = torch.Generator().manual_seed(settings.seed)\n"
        "    part = Split(torch.randn(20, 1, 4, 4, generator=g), torch.arange(20) % 2)\n"
        "    return Dataset('stripes', part, part, part, 2, 1, 4)\n"
        "def wrong(settings):\n"
        "    return 3\n"
        "number = 3\n"
    )
    settings = DataSettings(name=f"{file}:stripes")
    check_data(settings)
    assert load_data(settings).name == "stripes"
    with pytest.raises(UnknownName, match="function from DataSettings to a Dataset, got int"):
        check_data(DataSettings(name=f"{file}:number"))
    with pytest.raises(InvalidInput, match=r"to return an archray\.trainables\.data\.Dataset .*got int"):
        load_data(DataSettings(name=f"{file}:wrong"))


PARTS = """
import torch
from archray.trainables.data import Dataset, Split

def data(settings):
    images, labels, classes = torch.rand(8, 1, 4, 4), torch.arange(8) % 2, 2
    good = Split(images, labels)
    {change}
    return Dataset("own", Split(images, labels), good, good, classes, 1, 4)
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("labels = labels + 1", "labels from 0 to 1 in train of .*, got 1 to 2"),
        ("labels = labels - 1", "labels from 0 to 1 in train of .*, got -1 to 0"),
        ("labels = labels.float()", r"labels \(n,\) int64 in train of .*, got \(8,\) float32"),
        ("labels = labels.tolist()", "labels as a tensor in train of .*, got list"),
        ("labels = labels[:5]", r"images \(5, 1, 4, 4\) float32 in train of .*, got \(8, 1, 4, 4\) float32"),
        ("images = images.numpy()", "images as a tensor in train of .*, got ndarray"),
        ("images = images.double()", r"float32 in train of .*, got \(8, 1, 4, 4\) float64"),
        ("images = images[:, 0]", r"got \(8, 4, 4\) float32"),
        ("images = images / 0", "finite images in train of .*, got NaN or infinity"),
        ("images, labels = images[:0], labels[:0]", "one or more images in train of .*, got none"),
        ("classes = '2'", "2 or more classes in num_classes of .*, got '2'"),
        ("good = Split(images, labels + 2)", "labels from 0 to 1 in validation of .*, got 2 to 3"),
    ],
)
def test_an_unusable_data_set_by_reference_raises_an_error(tmp_path, change, message):
    (tmp_path / "own_data.py").write_text(PARTS.format(change=change))
    with pytest.raises(InvalidInput, match=message):
        load_data(DataSettings(name=f"{tmp_path}/own_data.py:data"))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("cifar10", "cifar-10-python.tar.gz"),
        ("cifar100", "cifar-100-python.tar.gz"),
        ("imagenet16-120", "image-net.org"),
        ("folder:nowhere", "PATH/train/CLASS/IMAGE"),
        ("arrays:nowhere.npz", "save_arrays"),
    ],
)
def test_missing_files_name_their_source(tmp_path, name, hint):
    for data_dir in (None,) if ":" in name else (None, str(tmp_path)):
        settings = DataSettings(name=name, data_dir=data_dir)
        for function in (check_data, load_data):
            with pytest.raises(DataNotFound) as caught:
                function(settings)
            assert hint in str(caught.value)
