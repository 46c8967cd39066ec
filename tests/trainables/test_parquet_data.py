"""Images in Parquet files: the layout of model hubs, the published CIFAR-10 in this layout, and bad files."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from archray.errors import DataNotFound, InvalidInput, MissingExtra
from archray.platform.run.manifest import data_checksums
from archray.trainables.data import DataSettings, check_data, load_data, parquet
from archray.trainables.data.load import file_checksums, read_data

CIFAR10 = Path(__file__).resolve().parents[3] / "shared" / "data" / "cifar10"
IMAGES = np.random.default_rng(0).integers(256, size=(30, 6, 6, 3), dtype=np.uint8)
LABELS = np.arange(30) % 3


def encoded(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def write(
    file: Path,
    images: Any = None,
    labels: Any = LABELS,
    *,
    nested: bool = True,
    classes: Any = ("cat", "dog", "emu"),
    **columns: Any,
) -> None:
    """Writes images as the library `datasets` does, or as plain bytes."""
    content = [encoded(pixels) for pixels in IMAGES] if images is None else images
    column = (
        pa.array([{"bytes": image, "path": None} for image in content]) if nested else pa.array(content, pa.binary())
    )
    table = pa.table({"image": column, "label": pa.array(labels), **columns})
    features = {"label": {"names": list(map(str, classes)), "_type": "ClassLabel"}}
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})}), file)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "archray"


def pixels(dataset: Any, part: str) -> np.ndarray:
    form, split = dataset.form, getattr(dataset, part)
    mean, std = (np.array(values).reshape(1, -1, 1, 1) for values in (form.mean, form.std))
    return np.rint((split.images.numpy() * std + mean) * 255).astype(np.uint8).transpose(0, 2, 3, 1)


def test_a_folder_of_shards_has_its_parts_and_class_names(tmp_path: Path, cache: Path) -> None:
    content = [encoded(image) for image in IMAGES]
    write(tmp_path / "set" / "data" / "train-00000-of-00002.parquet", content[:12], LABELS[:12])
    write(tmp_path / "set" / "data" / "train-00001-of-00002.parquet", content[12:20], LABELS[12:20])
    write(tmp_path / "set" / "data" / "validation-00000-of-00001.parquet", content[20:25], LABELS[20:25])
    write(tmp_path / "set" / "data" / "test-00000-of-00001.parquet", content[25:], LABELS[25:])
    settings = DataSettings(name=f"parquet:{tmp_path / 'set'}")
    check_data(settings)
    dataset = load_data(settings)
    assert dataset.classes == ("cat", "dog", "emu") and dataset.image_size == 6
    for part, places in (("train", slice(20)), ("validation", slice(20, 25)), ("test", slice(25, None))):
        np.testing.assert_array_equal(pixels(dataset, part), IMAGES[places])
        np.testing.assert_array_equal(getattr(dataset, part).labels.numpy(), LABELS[places])
    assert len(list(cache.glob("parquet-*.npy"))) == 3
    assert read_data(settings).checksum() == dataset.checksum()  # from the cache


def test_one_file_of_gray_bytes_is_split_by_seed_and_resized(tmp_path: Path) -> None:
    gray = [encoded(image[..., 0], "WEBP" if i % 2 else "PNG") for i, image in enumerate(IMAGES)]
    write(tmp_path / "a.parquet", gray, nested=False)
    dataset = load_data(DataSettings(name=f"parquet:{tmp_path / 'a.parquet'}", image_size=4))
    assert dataset.in_channels == 1 and dataset.image_size == 4
    assert len(dataset.train) + len(dataset.validation) + len(dataset.test) == 30


def test_a_changed_file_is_decoded_again(tmp_path: Path) -> None:
    settings = DataSettings(name=f"parquet:{tmp_path / 'a.parquet'}")
    write(tmp_path / "a.parquet")
    before = read_data(settings).checksum()
    write(tmp_path / "a.parquet", [encoded(255 - image) for image in IMAGES])
    assert read_data(settings).checksum() != before


def test_columns_may_be_named(tmp_path: Path) -> None:
    other = pa.array([{"bytes": encoded(255 - image), "path": None} for image in IMAGES])
    write(tmp_path / "a.parquet", coarse=pa.array(LABELS // 2), picture=other)
    settings = DataSettings(name=f"parquet:{tmp_path / 'a.parquet'}", image_column="picture", label_column="coarse")
    dataset = load_data(settings)
    assert dataset.num_classes == 2 and dataset.classes == ()
    with pytest.raises(
        InvalidInput, match=r"among image, label, coarse, picture, got image, picture\. Set data.image_column to"
    ):
        check_data(settings.model_copy(update={"image_column": None}))
    with pytest.raises(
        InvalidInput,
        match=r"picture of struct<.*>\. Convert it to integers or strings, or set data.label_column to one of label",
    ):
        check_data(settings.model_copy(update={"label_column": "picture"}))


def table_of(file: Path, **columns: Any) -> DataSettings:
    """Writes images next to columns, without class names, and returns the settings of the file."""
    images = pa.array([encoded(IMAGES[0])] * len(next(iter(columns.values()))), pa.binary())
    pq.write_table(pa.table({"image": images, **{name: pa.array(values) for name, values in columns.items()}}), file)
    return DataSettings(name=f"parquet:{file}")


NAMES = np.array(["emu", "cat", "dog"])[LABELS]
STAMPS = pa.array(range(1_700_000_000, 1_700_000_030))


@pytest.mark.parametrize(
    ("columns", "classes"),
    [
        ({"id": range(30), "label": NAMES}, ("cat", "dog", "emu")),
        ({"id": range(30), "label": pa.array(NAMES).dictionary_encode()}, ("cat", "dog", "emu")),
        ({"id": LABELS, "Class": LABELS}, ()),
        ({"coarse_label": LABELS // 2, "fine_label": LABELS}, ()),
        ({"size": range(30), "labels": LABELS}, ()),
        ({"taken": STAMPS.cast(pa.timestamp("s")), "kind": LABELS}, ()),
        ({"label": [0, 0, 1, 1]}, ()),
        ({"label": np.arange(20) % 10}, ()),
    ],
)
def test_the_label_column_is_found_by_name_then_by_type(tmp_path: Path, columns: Any, classes: Any) -> None:
    settings = table_of(tmp_path / "a.parquet", **columns)
    check_data(settings)
    raw = parquet.read(settings)
    assert raw.classes == classes
    expected = [classes.index(name) for name in NAMES] if classes else [*columns.values()][-1]
    assert raw.train[1].tolist() == list(expected) and raw.num_classes == max(expected) + 1


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"id": range(30), "text": NAMES},
            "at most 10 classes for 30 images among image, id, text, got id with 30 dis",
        ),
        ({"id": range(4)}, "at most 2 classes for 4 images"),
        ({"stamp": STAMPS}, "got stamp with 30 distinct values. Set data.label_column to the column of the labels"),
        ({"label": [f"{n}.png" for n in range(30)]}, "got label with 30 distinct values"),
        (
            {"label": LABELS * 10**9},
            "label 0..2000000000 at least once in the column label of train in .*missing: 1, 2",
        ),
        (
            {"label": [None, *LABELS[1:].tolist()]},
            r"a label for each image in the column label of train, got 1 null, the first one in row 0 of .*a\.parq",
        ),
        ({"label": ["cat"] * 30}, "expected two or more classes"),
        (
            {"label": [0.5] * 30, "id": LABELS},
            "got the column label of double. Convert it to integers or strings, or set data.label_column to one of id",
        ),
        ({"label": [0.5] * 30}, "got the column label of double. Convert it to integers or strings$"),
        ({"label": [[0]] * 30}, "got the column label of list<.*>. Convert it to integers or strings$"),
        ({"score": [0.5] * 30}, "with labels among image, score, got none. Add a column of integers or strings$"),
        ({"label": STAMPS.cast(pa.timestamp("s")), "id": LABELS}, "got the column label of timestamp"),
    ],
)
def test_other_columns_are_no_labels(tmp_path: Path, columns: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_data(table_of(tmp_path / "a.parquet", **columns))


def test_the_user_may_choose_a_column_of_many_classes(tmp_path: Path) -> None:
    settings = table_of(tmp_path / "a.parquet", label=np.arange(30) // 2)
    with pytest.raises(InvalidInput, match="at most 10 classes"):
        check_data(settings)
    assert parquet.read(settings.model_copy(update={"label_column": "label"})).num_classes == 15


def test_class_names_of_other_parts_are_those_of_train(tmp_path: Path) -> None:
    table_of(tmp_path / "train.parquet", label=NAMES)
    table_of(tmp_path / "test.parquet", label=["cat", "yak"])
    with pytest.raises(InvalidInput, match="in the column label of test only classes of train, got yak"):
        check_data(DataSettings(name=f"parquet:{tmp_path}"))


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        ([b"no picture"] * 30, LABELS, "expected encoded images"),
        ([encoded(IMAGES[0])] * 29 + [b"broken"], LABELS, r"a picture in row 29 of .*/a\.parquet .*, got other bytes"),
        ([b"broken"] + [encoded(IMAGES[0])] * 29, LABELS, r"a picture in row 0 of .*/a\.parquet .*, got other bytes"),
        ([encoded(IMAGES[0])[:80]] + [encoded(IMAGES[0])] * 29, LABELS, r"row 0 of .*, got a broken one \(.*truncated"),
        ([encoded(IMAGES[0])] * 29 + [None], LABELS, r"an encoded image in row 29 of .*/a\.parquet .*, got null"),
        ([None] + [encoded(IMAGES[0])] * 29, LABELS, r"an encoded image in row 0 of .*/a\.parquet .*, got null"),
        ([encoded(IMAGES[0])] * 29 + [encoded(IMAGES[0][:5])], LABELS, r"row 29 of .* got 6 x 5\. Set data.image_size"),
        ([encoded(IMAGES[0][:5])] * 30, LABELS, "expected square images in the column image, got 6 x 5 pixels"),
        (None, LABELS + 1, "expected labels from 0 to 2 in the column label"),
        (None, LABELS - 1, "expected labels from 0 to 2 in the column label"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, images: Any, labels: Any, message: str) -> None:
    write(tmp_path / "a.parquet", images, labels)
    with pytest.raises(InvalidInput, match=message):
        read_data(DataSettings(name=f"parquet:{tmp_path / 'a.parquet'}"))


def test_a_bad_row_of_a_later_file_is_named(tmp_path: Path) -> None:
    write(tmp_path / "train-0.parquet")
    write(tmp_path / "train-1.parquet", [encoded(IMAGES[0])] * 4 + [b"broken"], LABELS[:5])
    with pytest.raises(InvalidInput, match=r"row 4 of .*/train-1\.parquet"):
        read_data(DataSettings(name=f"parquet:{tmp_path}"))


def test_bad_files_are_named_before_a_run(tmp_path: Path) -> None:
    def check(place: Path, message: str, error: type[Exception] = InvalidInput) -> None:
        with pytest.raises(error, match=message):
            check_data(DataSettings(name=f"parquet:{place}"))

    check(tmp_path / "nothing", "expected Parquet files of training images", DataNotFound)
    (tmp_path / "a.parquet").write_text("text")
    check(tmp_path / "a.parquet", "expected a Parquet file, got")
    write(tmp_path / "set" / "train.parquet")
    whole = (tmp_path / "set" / "train.parquet").read_bytes()
    (tmp_path / "set" / "test.parquet").write_bytes(whole[:-20])
    check(tmp_path / "set", r"expected a Parquet file, got .*test\.parquet, which cannot be read")
    (tmp_path / "set" / "test.parquet").write_bytes(whole[:4] + bytes(len(whole) // 2) + whole[len(whole) // 2 + 4 :])
    with pytest.raises(InvalidInput, match=r"expected a Parquet file, got .*test\.parquet, which cannot be read"):
        read_data(DataSettings(name=f"parquet:{tmp_path / 'set'}"))
    write(tmp_path / "set" / "test.parquet", extra=pa.array(LABELS))
    check(tmp_path / "set", "expected the columns of .*train.parquet in .*test.parquet")
    pq.write_table(pa.table([[0], [0]], ["label", "label"]), tmp_path / "twice.parquet")
    check(tmp_path / "twice.parquet", "expected distinct names of columns, got label more than once")
    pq.write_table(pa.table({"text": ["a"], "label": [0]}), tmp_path / "texts.parquet")
    check(tmp_path / "texts.parquet", "expected one column with encoded images among text, label, got none")


@pytest.mark.extra("huggingface")
def test_a_data_set_of_the_library_datasets(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub")
    for part, places in {"train": slice(20), "validation": slice(20, 25), "test": slice(25, None)}.items():
        write(tmp_path / "set" / f"{part}.parquet", [encoded(pixels) for pixels in IMAGES[places]], LABELS[places])
    read_by = {kind: read_data(DataSettings(name=f"{kind}:{tmp_path / 'set'}")) for kind in ("parquet", "hf")}
    assert read_by["hf"].checksum() == read_by["parquet"].checksum()
    assert read_by["hf"].classes == ("cat", "dog", "emu")
    assert len(list(cache.glob("parquet-*.npy"))) == 6
    with pytest.raises(InvalidInput, match=r"got the column picture\. Set data.image_column to one of image"):
        read_data(DataSettings(name=f"hf:{tmp_path / 'set'}", image_column="picture"))


@pytest.mark.extra("huggingface")
def test_image_files_of_the_library_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub")
    monkeypatch.chdir(tmp_path)
    for number, image in enumerate(IMAGES):
        file = Path("photos", "train", ("cat", "dog", "emu")[LABELS[number]], f"{number:02d}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encoded(image))
    settings = DataSettings(name="hf:photos")
    assert settings.name == f"hf:{tmp_path / 'photos'}" and settings.paths == [str(tmp_path / "photos")]
    dataset = load_data(settings)
    assert dataset.classes == ("cat", "dog", "emu")
    found = np.concatenate([pixels(dataset, part) for part in ("train", "validation", "test")])
    assert sorted(image.tobytes() for image in found) == sorted(image.tobytes() for image in IMAGES)


@pytest.mark.extra("huggingface")
def test_an_unknown_name_of_the_library_datasets_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataNotFound, match=r"that datasets\.load_dataset loads, got hf:"):
        read_data(DataSettings(name=f"hf:{tmp_path / 'none'}"))


def test_hf_needs_a_name() -> None:
    with pytest.raises(InvalidInput, match="expected hf: with the name of a data set or a folder"):
        check_data(DataSettings(name="hf:"))


def test_a_missing_library_datasets_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archray.trainables.data.hub.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[huggingface\]'"):
        check_data(DataSettings(name="hf:uoft-cs/cifar10"))


def test_cifar10_may_be_in_parquet_files(tmp_path: Path) -> None:
    names = pa.array(LABELS % 3)
    write(tmp_path / "train.parquet", labels=names)
    settings = DataSettings(name="cifar10", data_dir=str(tmp_path))
    with pytest.raises(InvalidInput, match="expected 10 classes in the Parquet files of cifar10"):
        read_data(settings)
    write(tmp_path / "data" / "train-0.parquet", labels=np.arange(30) % 10, classes=range(10))
    (tmp_path / "train.parquet").unlink()
    assert len(read_data(settings).classes) == 10
    content = (tmp_path / "data" / "train-0.parquet").read_bytes()
    files = {"data/train-0.parquet": hashlib.sha256(content).hexdigest()}
    assert file_checksums(settings) == files
    assert data_checksums(settings)["data_files"] == files  # in the manifest


@pytest.mark.slow
@pytest.mark.skipif(not CIFAR10.is_dir(), reason="needs the real CIFAR-10 in ../shared/data")
def test_the_real_cifar10() -> None:
    settings = DataSettings(name="cifar10", data_dir=str(CIFAR10))
    dataset = load_data(settings)
    assert [len(part) for part in (dataset.train, dataset.validation, dataset.test)] == [25_000, 25_000, 10_000]
    assert dataset.classes[:3] == ("airplane", "automobile", "bird")
    published = load_data(DataSettings(name=f"parquet:{CIFAR10}", limit=2000))
    np.testing.assert_allclose(published.form.mean, np.array([125.3, 123.0, 113.9]) / 255, atol=0.02)
