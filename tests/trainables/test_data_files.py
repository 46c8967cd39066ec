"""Readers of users' files, tested with small files in the published formats."""

import hashlib
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, random_split
from torchvision.datasets import CIFAR10, CIFAR100, FakeData
from torchvision.transforms import ToTensor

from archray.errors import DataNotFound, InvalidInput
from archray.trainables.data import DataSettings, check_data, load_data, save_arrays
from archray.trainables.data.arrays import check_arrays, read_arrays
from archray.trainables.data.load import file_checksums, read_data
from archray.trainables.data.sources import CIFAR
from archray.trainables.devices import machine_memory

RNG = np.random.default_rng(0)


def parts(dataset):
    return dataset.train, dataset.validation, dataset.test


def to_bytes(split, mean, std):
    """Converts normalized images back to bytes."""
    mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (mean, std))
    return (split.images * std + mean).round().to(torch.uint8).numpy()


def write_batch(file, images, **more):
    """Writes one batch in the format of CIFAR and Downsampled ImageNet, and returns its MD5."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(pickle.dumps({"data": images.reshape(len(images), -1), **more}))
    return hashlib.md5(file.read_bytes()).hexdigest()


def write_cifar(folder, kind, monkeypatch, per_class):
    """Writes a small CIFAR and registers its MD5 with torchvision, which checks the published files."""
    coarse = kind is CIFAR100
    classes, key = (100, "fine_labels") if coarse else (10, "labels")
    base = folder / kind.base_folder
    meta = {kind.meta["key"]: [f"class {i}" for i in range(classes)]}
    base.mkdir(parents=True)
    (base / kind.meta["filename"]).write_bytes(pickle.dumps(meta))
    monkeypatch.setitem(kind.meta, "md5", hashlib.md5((base / kind.meta["filename"]).read_bytes()).hexdigest())
    written = {}
    for attribute in ("train_list", "test_list"):
        sums = []
        for name, _ in getattr(kind, attribute):
            labels = np.repeat(np.arange(classes), per_class)
            images = RNG.integers(0, 256, (len(labels), 3, 32, 32), dtype=np.uint8)
            sums.append([name, write_batch(base / name, images, **{key: labels.tolist()})])
            written[name] = images, labels
        monkeypatch.setattr(kind, attribute, sums)
    return written


def test_cifar10(tmp_path, monkeypatch):
    written = write_cifar(tmp_path, CIFAR10, monkeypatch, per_class=2)
    settings = DataSettings(name="cifar10", data_dir=str(tmp_path))
    check_data(settings)
    dataset = load_data(settings)
    assert [len(part) for part in parts(dataset)] == [50, 50, 20]  # halves, as cifar10-valid
    assert np.bincount(dataset.validation.labels).tolist() == [5] * 10
    images, labels = written["test_batch"]
    assert (to_bytes(dataset.test, CIFAR["cifar10"].mean, CIFAR["cifar10"].std) == images).all()
    assert dataset.test.labels.tolist() == labels.tolist()
    assert (dataset.num_classes, dataset.in_channels, dataset.image_size, dataset.flip) == (10, 3, 32, True)
    assert (
        file_checksums(settings)["cifar-10-batches-py/test_batch"]
        == hashlib.sha256((tmp_path / "cifar-10-batches-py" / "test_batch").read_bytes()).hexdigest()
    )
    assert len(file_checksums(settings)) == 6 and file_checksums(DataSettings(name="digits")) == {}
    tenth = load_data(DataSettings(name="cifar10", data_dir=str(tmp_path), validation_fraction=0.1))
    assert [len(part) for part in parts(tenth)] == [90, 10, 20]


def test_cifar100_halves_the_test_images(tmp_path, monkeypatch):
    write_cifar(tmp_path, CIFAR100, monkeypatch, per_class=2)
    dataset = load_data(DataSettings(name="cifar100", data_dir=str(tmp_path)))
    assert [len(part) for part in parts(dataset)] == [200, 100, 100]
    assert dataset.num_classes == 100
    own = load_data(DataSettings(name="cifar100", data_dir=str(tmp_path), validation_fraction=0.5))
    assert [len(part) for part in parts(own)] == [100, 100, 200]


def test_cifar_files_missing_or_damaged_raise_an_error(tmp_path, monkeypatch):
    write_cifar(tmp_path, CIFAR10, monkeypatch, per_class=1)
    settings = DataSettings(name="cifar10", data_dir=str(tmp_path))
    batch = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    batch.write_bytes(batch.read_bytes() + b"x")
    with pytest.raises(DataNotFound, match=r"expected the published files.*again"):
        load_data(settings)
    batch.unlink()
    with pytest.raises(DataNotFound, match=r"expected data_batch_3 in .*cifar-10-batches-py"):
        check_data(settings)


def write_imagenet16(folder):
    count = 0
    for number in range(1, 11):
        labels = RNG.integers(1, 1001, 400)
        labels[:120] = np.arange(1, 121)
        images = RNG.integers(0, 256, (400, 3, 16, 16), dtype=np.uint8)
        write_batch(folder / f"train_data_batch_{number}", images, labels=labels.tolist())
        count += int((labels <= 120).sum())
    labels = np.repeat(np.arange(1, 1001), 2)
    images = RNG.integers(0, 256, (2000, 3, 16, 16), dtype=np.uint8)
    write_batch(folder / "val_data", images, labels=labels.tolist())
    return count, images


@pytest.mark.parametrize("subfolder", ["", "ImageNet16"])
def test_imagenet16_keeps_the_first_120_classes(tmp_path, subfolder):
    count, images = write_imagenet16(tmp_path / subfolder)
    settings = DataSettings(name="imagenet16-120", data_dir=str(tmp_path))
    check_data(settings)
    dataset = load_data(settings)
    assert [len(part) for part in parts(dataset)] == [count, 120, 120]
    assert (dataset.num_classes, dataset.image_size) == (120, 16)
    assert sorted(dataset.validation.labels.tolist() + dataset.test.labels.tolist()) == sorted([*range(120)] * 2)
    mean, std = (122.68, 116.66, 104.01), (63.22, 61.26, 65.09)
    ours = {row.tobytes() for part in (dataset.validation, dataset.test) for row in to_bytes(part, mean, std)}
    assert ours == {row.tobytes() for row in images[:240]}


def test_imagenet16_rejects_other_files(tmp_path):
    write_imagenet16(tmp_path)
    settings = DataSettings(name="imagenet16-120", data_dir=str(tmp_path))
    (tmp_path / "train_data_batch_4").write_bytes(pickle.dumps({"data": len, "labels": [1]}))
    with pytest.raises(DataNotFound, match=r"train_data_batch_4: contains builtins\.len"):
        load_data(settings)
    (tmp_path / "train_data_batch_4").write_bytes(b"rubbish")
    with pytest.raises(DataNotFound, match="train_data_batch_4"):
        load_data(settings)
    (tmp_path / "val_data").unlink()
    with pytest.raises(DataNotFound, match="expected val_data in"):
        check_data(settings)


def write_image(file, value, size=(40, 24)):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, value).save(file)


def test_a_folder_without_parts_is_split(tmp_path):
    for label, color in (("cat", (255, 0, 0)), ("dog", (0, 0, 255))):
        for number in range(20):
            write_image(tmp_path / label / f"{number}.png", color)
    (tmp_path / ".thumbnails").mkdir()
    settings = DataSettings(name=f"folder:{tmp_path}")
    check_data(settings)
    dataset = load_data(settings)
    assert [len(part) for part in parts(dataset)] == [26, 6, 8]  # 20 % for test, then 20 % for validation
    assert (dataset.num_classes, dataset.in_channels, dataset.image_size, dataset.flip) == (2, 3, 32, True)
    for part in parts(dataset):
        red = part.images[:, 0].flatten(1).mean(1) > 0
        assert torch.equal(red, part.labels == 0)
    assert load_data(DataSettings(name=f"folder:{tmp_path}", image_size=8, flip=False)).flip is False


def test_folder_with_parts(tmp_path):
    sizes = {"train": 5, "val": 3, "test": 2}
    for part, count in sizes.items():
        for label in ("cat", "dog"):
            for number in range(count):
                write_image(tmp_path / part / label / f"{number}.jpg", (number * 40, 10, 10))
    settings = DataSettings(name=f"folder:{tmp_path}", image_size=12)
    check_data(settings)
    assert [tuple(part.images.shape) for part in parts(load_data(settings))] == [
        (2 * count, 3, 12, 12) for count in sizes.values()
    ]


def test_invalid_folders_raise_an_error(tmp_path):
    settings = DataSettings(name=f"folder:{tmp_path}")
    with pytest.raises(DataNotFound, match="two or more class folders"):
        check_data(settings)
    write_image(tmp_path / "train" / "cat" / "1.png", 3)
    (tmp_path / "train" / "dog").mkdir()
    with pytest.raises(DataNotFound, match=r"expected images .*\.png.* got none"):
        check_data(settings)
    write_image(tmp_path / "train" / "dog" / "1.png", 3)
    write_image(tmp_path / "test" / "cow" / "1.png", 3)
    with pytest.raises(InvalidInput, match=r"expected the same class folders .* test and train: cat, cow, dog"):
        check_data(settings)
    for label in ("cat", "dog"):
        write_image(tmp_path / "test" / label / "1.png", 3)
    (tmp_path / "test" / "cow" / "1.png").unlink()
    (tmp_path / "test" / "cow").rmdir()
    (tmp_path / "train" / "dog" / "2.png").write_bytes(b"no image")
    check_data(settings)
    with pytest.raises(InvalidInput, match=r"2\.png as an image"):
        load_data(settings)


def test_a_folder_of_one_image_per_class(tmp_path):
    for label in ("cat", "dog"):
        write_image(tmp_path / label / "1.png", 3)
    with pytest.raises(InvalidInput, match="expected several images of each class"):
        check_data(DataSettings(name=f"folder:{tmp_path}"))


@pytest.mark.parametrize("kind", ["folder", "imagefolder-stream"])
def test_links_are_followed_without_loops_and_other_folders_are_ignored(tmp_path, kind):
    root, elsewhere = tmp_path / "set", tmp_path / "elsewhere"
    for place in ("a", "a/__MACOSX", "a/deep", "a/deep/.thumbnails", "b", "__MACOSX", ".cache"):
        for number in range(10):
            write_image(root / place / f"{number}.png", 3)
    for number in range(10):
        write_image(elsewhere / "c" / f"{number}.png", 3)
        write_image(elsewhere / "more" / f"{number}.png", 3)
    (root / "a" / "._1.png").write_bytes(b"of macOS")
    (root / "c").symlink_to(elsewhere / "c")  # a class elsewhere
    (root / "b" / "more").symlink_to("../../elsewhere/more")  # images elsewhere
    (root / "all").symlink_to(root)
    (root / "a" / "parent").symlink_to("..")
    (root / "a" / "deep" / "self").symlink_to(root / "a" / "deep")
    (elsewhere / "c" / "parent").symlink_to("..")
    (elsewhere / "c" / "set").symlink_to(root)
    (elsewhere / "more" / "b").symlink_to(root / "b")
    (root / "b" / "again").symlink_to("more")
    settings = DataSettings(name=f"{kind}:{root}")
    check_data(settings)
    dataset = read_data(settings)
    assert dataset.classes == ("a", "b", "c")
    counts = sum(np.bincount(part.labels, minlength=3) for part in parts(dataset))
    assert counts.tolist() == [20, 20, 10]


def test_a_folder_of_links_to_itself_has_no_images(tmp_path):
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        (tmp_path / label / "up").symlink_to(tmp_path)
    with pytest.raises(DataNotFound, match="expected images"):
        check_data(DataSettings(name=f"folder:{tmp_path}"))


def test_a_pipe_is_not_an_image(tmp_path):
    for label in ("cat", "dog"):
        for number in range(5):
            write_image(tmp_path / label / f"{number}.png", 3)
    os.mkfifo(tmp_path / "cat" / "pipe.png")
    with pytest.raises(InvalidInput, match=r"expected an image file, got .*pipe\.png"):
        load_data(DataSettings(name=f"folder:{tmp_path}"))


def images(n, *shape, dtype=np.uint8):
    return RNG.integers(0, 256, (n, *shape)).astype(dtype)


@pytest.mark.parametrize(
    ("shape", "channels"), [((10, 10), 1), ((3, 10, 10), 3), ((10, 10, 3), 3), ((10, 10, 1), 1), ((2, 10, 10), 2)]
)
def test_arrays_of_all_layouts(tmp_path, shape, channels):
    x, y = images(60, *shape), np.arange(60) % 3
    name = save_arrays(tmp_path / "own.npz", x, y)
    assert name == f"arrays:{tmp_path / 'own.npz'}"
    settings = DataSettings(name=name)
    check_data(settings)
    dataset = load_data(settings)
    assert [tuple(part.images.shape) for part in parts(dataset)] == [(n, channels, 10, 10) for n in (38, 10, 12)]
    assert dataset.num_classes == 3
    torch.testing.assert_close(dataset.train.images.mean((0, 2, 3)), torch.zeros(channels), atol=1e-5, rtol=0)


def test_arrays_with_explicit_parts(tmp_path):
    x = {part: images(12, 6, 6, dtype=np.float64) for part in ("train", "test", "validation")}
    y = np.arange(12) % 2
    name = save_arrays(tmp_path / "deep" / "own.npz", x["train"], y, x["test"], y, x["validation"], y)
    dataset = load_data(DataSettings(name=name))
    mean, std = x["train"].mean(), x["train"].std()
    for part, found in zip(("train", "validation", "test"), parts(dataset), strict=True):
        torch.testing.assert_close(found.images[:, 0], torch.from_numpy((x[part] - mean) / std).float())
        assert found.labels.tolist() == y.tolist()
    assert dataset.black[0] == pytest.approx(-mean / std, rel=1e-5)


def test_other_arrays_are_ignored(tmp_path, caplog):
    x, y = images(60, 6, 6), np.arange(60) % 3
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, names=np.array(["a"]), extra=np.array([None], dtype=object))
    settings = DataSettings(name=f"arrays:{tmp_path / 'own.npz'}")
    check_data(settings)
    assert (
        load_data(settings).checksum() == load_data(DataSettings(name=save_arrays(tmp_path / "b.npz", x, y))).checksum()
    )
    assert [record.getMessage().partition("archray ignores ")[2] for record in caplog.records] == [
        "the arrays extra, names"
    ]


def test_a_damaged_array_raises_an_error(tmp_path):
    name = save_arrays(tmp_path / "a.npz", np.zeros((8, 8, 8)), [0, 1] * 4)
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[90] ^= 255
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(InvalidInput, match="cannot read"):
        read_data(DataSettings(name=name))


def test_files_of_other_content_raise_an_error(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for name in ("x_train", "y_train.npy"):
            archive.writestr(name, "text")
    with pytest.raises(InvalidInput, match=r"expected arrays in .*, got other content as x_train"):
        read_data(DataSettings(name=f"arrays:{tmp_path / 'a.npz'}"))


def test_invalid_arrays_raise_an_error(tmp_path):
    x, y = images(10, 6, 6), np.arange(10) % 2
    path = tmp_path / "own.npz"
    for arguments, message in [
        ((x, y[:5]), "expected y_train .* as 10 non-negative integers"),
        ((x, y - 1), r"non-negative .* got int64 of \(10,\), such as -1, -1, -1\. Number the classes from 0"),
        ((x, y + 0.5), r"integers .* got float64 of \(10,\), such as 0\.5, 1\.5, 0\.5\. "),
        ((x, np.array(["cat", "dog"])[y]), r"integers .* such as 'cat', 'dog', 'cat'\. "),
        ((x, y * 2), r"label 0\.\.2 .* y_train .* missing: 1"),
        ((x, y * 0), "two or more classes in y_train .*, got only 0"),
        ((x[0], y), "shape"),
        ((x[:, :0], y), r"shape \(n, H, W\), .* got uint8 of \(10, .*0, 6"),
        ((x.astype(str), y), "numbers of shape"),
        ((x, y, x), "both x_test and y_test or neither"),
        ((x, y, images(4, 5, 5), y[:4]), "same shape"),
        ((x, y, x, y + 1), "expected labels from 0 to 1 in y_test of the arrays, got 1 to 2"),
        ((x, y * 2**62), r"label 0\.\.4611686018427387904 .* missing: 1, 2, .*, 10\. Renumber"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            save_arrays(path, *arguments)
        assert not path.exists()
    with pytest.raises(InvalidInput, match=r"ends in \.npz"):
        save_arrays(tmp_path / "own.pt", x, y)
    np.savez(path, x_train=x, labels=y)
    with pytest.raises(InvalidInput, match="lacks y_train; expected"):
        check_data(DataSettings(name=f"arrays:{path}"))
    path.write_bytes(b"no archive")
    with pytest.raises(InvalidInput, match=r"expected an \.npz file"):
        check_data(DataSettings(name=f"arrays:{path}"))


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([[1], [1, 2]], [0, 1], "expected x_train as an array, or lists of equal lengths, got a list"),
        ([[[1]], [[2]]], [[0], [1, 2]], "expected y_train as an array"),
        (torch.zeros(2, 4, 4, requires_grad=True), [0, 1], "got a Tensor that NumPy rejects"),
    ],
)
def test_values_that_are_no_arrays_raise_an_error(tmp_path, x, y, message):
    with pytest.raises(InvalidInput, match=message):
        save_arrays(tmp_path / "own.npz", x, y)


class Items(Dataset):
    """A data set of these items. An item that is an exception is raised."""

    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        if isinstance(self.items[index], Exception):
            raise self.items[index]
        return self.items[index]


class Stream(IterableDataset):
    def __iter__(self):
        yield torch.zeros(3, 4, 4), 0


def arrays_of(data):
    check_arrays(data)
    return read_arrays(data, print)


def test_torch_data_sets_are_read_once(tmp_path):
    fake = FakeData(6, (3, 8, 8), 2)
    pixels = np.stack([np.asarray(image) for image, _ in fake])
    labels = np.array([int(label) for _, label in fake])
    scaled = FakeData(6, (3, 8, 8), 2, transform=ToTensor())
    tensors = TensorDataset(torch.arange(6 * 16).view(6, 1, 4, 4).to(torch.uint8), torch.arange(6, dtype=torch.uint8))
    train, test = random_split(fake, [4, 2], torch.Generator().manual_seed(0))
    floats = (pixels / 255).astype(np.float32).transpose(0, 3, 1, 2)
    gray = Items(*((Image.fromarray(image).convert(mode), np.int32(1)) for image in pixels for mode in ("L", "1", "L")))
    for data, expected in (
        (fake, (pixels, labels)),
        (scaled, (floats, labels)),
        (Subset(fake, [4, 1]), (pixels[[4, 1]], labels[[4, 1]])),
        (
            (train, test),
            (pixels[train.indices], labels[train.indices], pixels[test.indices], labels[test.indices]),
        ),
        ([tensors], (np.arange(6 * 16, dtype=np.uint8).reshape(6, 1, 4, 4), np.arange(6))),
        (Items((pixels[0].astype(float), [[3]])), (pixels[:1].astype(np.float32), np.array([3]))),
        (
            Items((Image.fromarray(pixels[0]).convert("P", palette=Image.Palette.ADAPTIVE), 0)),
            (np.asarray(Image.fromarray(pixels[0]).convert("P", palette=Image.Palette.ADAPTIVE).convert("RGB"))[None],),
        ),
        ((pixels, labels), (pixels, labels)),
    ):
        arrays = arrays_of(data)
        for array, values in zip(arrays, expected, strict=len(expected) > 1):
            assert array.dtype == values.dtype
            np.testing.assert_array_equal(array, values)
    assert arrays_of(gray)[0].shape == (18, 8, 8)
    save_arrays(tmp_path / "fake.npz", *arrays_of((train, test)))


def test_data_sets_that_are_no_images_and_labels_raise_an_error():
    image = torch.zeros(3, 4, 4)
    for data, message in (
        (Stream(), "got the IterableDataset Stream. Collect"),
        (DataLoader(Items((image, 0))), "got a DataLoader. Pass loader.dataset"),
        (Items, "got type"),
        (np.zeros((2, 3)), "got ndarray"),
        (3, "got int"),
        ((image, image, image), r"got 3 objects \(Tensor, Tensor, Tensor\)"),
        ((Items((image, 0)), image), r"got 2 objects \(Items, Tensor\)"),
        (Items(), "items in the training data, got a Items of length 0"),
        (Items((image, 0), {"image": image}), r"item 1 of the training data as \(image, label\), got a dict"),
        (Items((image, 0, 1)), r"as \(image, label\), got 3 values"),
        (Items((image, 0), (image, 0.5)), "label in item 1 of the training data as an integer .* got 0.5"),
        (Items((image, torch.eye(2)[0])), "label in item 0 .* as an integer"),
        (Items((image, "cat")), "label in item 0 .* got 'cat'"),
        (Items((image, 0), (image[:, 1:], 1)), r"one size and type, got float32 of \(3, 3, 4\) in item 1"),
        (Items((image, 0), (image.to(torch.uint8), 1)), "one size and type, got uint8"),
        (Items((image[0, 0], 0)), r"image in item 0 .* got float32 of \(4,\)"),
        (Items(("cat.png", 0)), "image in item 0 .* as a PIL image or numbers"),
        (Items((image.clone().requires_grad_(), 0)), "the image in item 0 .* got a Tensor that NumPy rejects"),
        ((Items((image, 0)), Items(OSError("no disk"))), r"'item 0 of the test data' failed .*no disk"),
    ):
        with pytest.raises(InvalidInput, match=message):
            arrays_of(data)


@pytest.mark.parametrize(
    "settings",
    [
        DataSettings(name="digits", image_size=100_000),
        DataSettings(name="gaussian", image_size=100_000),
        DataSettings(name="digits", image_size=int(machine_memory() ** 0.5) // 40),
    ],
)
def test_images_that_do_not_fit_in_memory_raise_an_error(settings):
    with pytest.raises(InvalidInput, match=r"expected data that fit in memory, got .* Lower data.image_size"):
        read_data(settings)


def test_arrays_that_cannot_be_trained_on_raise_an_error(tmp_path):
    y = np.arange(40) % 2
    wide = DataSettings(name=save_arrays(tmp_path / "wide.npz", images(40, 6, 8), y))
    with pytest.raises(InvalidInput, match=r"got 6 x 8 pixels\. Set image_size"):
        load_data(wide)
    assert load_data(wide.model_copy(update={"image_size": 8})).image_size == 8
    x = images(40, 6, 6, dtype=np.float32)
    x[3, 0, 0] = np.nan
    with pytest.raises(InvalidInput, match="got NaN or infinity"):
        load_data(DataSettings(name=save_arrays(tmp_path / "nan.npz", x, y)))
    constant = load_data(DataSettings(name=save_arrays(tmp_path / "constant.npz", images(40, 6, 6) * 0, y)))
    assert torch.isfinite(constant.train.images).all()
