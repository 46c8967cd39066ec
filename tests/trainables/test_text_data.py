"""Texts as data: docstrings of the installed libraries, their masking and cache, IMDb's folders, a user's texts."""

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archray.errors import DataNotFound, InvalidInput
from archray.trainables.data import (
    DataSettings,
    TextDataset,
    TextSplit,
    check_data,
    data_kind,
    load_data,
    load_images,
    load_text,
)
from archray.trainables.data import docstrings as source
from archray.trainables.data.docstrings import ALIASES, NAMES, docstrings_of, masker, module_names, package_folder
from archray.trainables.data.load import read_data
from archray.trainables.data.raw import cache_folder, cached_array, cached_json

ALL = DataSettings(name="docstrings")
MASK = masker({"linalg", "functional"})

LEAKS = [
    re.compile("|".join(NAMES), re.IGNORECASE),
    re.compile(rf"\b(?:{'|'.join(ALIASES)})\."),  # an alias and a dot
    re.compile(r"\b(?:np|pd)\b"),
    re.compile(r"\bimport\b"),
]


def parts(dataset):
    return dataset.train, dataset.validation, dataset.test


@pytest.fixture(scope="module")
def masked_docstrings(tmp_path_factory):
    """Every library's masked docstrings, made once here. The user's cache is not touched."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield source.masked_docstrings()


@pytest.fixture
def docstrings(masked_docstrings):
    return load_text(ALL)


# Masking


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Like numpy.linalg.norm of x", "Like of x"),
        ("a :class:`~torch.nn.Module` here", "a :class:` ` here"),
        ("x.to_numpy() and from_numpy", "() and"),
        (">>> import numpy as np\n>>> np.ones(3)", ">>> \n>>> (3)"),
        (">>> from sklearn.svm import SVC\n>>> SVC()", ">>> \n>>> SVC()"),
        ("use F.relu or functional.relu, not linalg", "use F.relu or , not linalg"),
        ("see https://example.org/a?b=c for more", "see for more"),
        ("PyTorch and SciPy, scikit-learn; PANDAS", "and , ; "),
        ("an np array, is_np_array, input", "an array, , input"),
        (".. versionadded:: 1.8.0\nsince version 0.20", ".. versionadded:: \nsince "),
        ("the {input} and %(klass)s of a tensor", "the and of a tensor"),
    ],
)
def test_masking(text, expected):
    assert MASK(text).split() == expected.split()


WORDS = ("linalg", "import", "from", "x", "Tensor", "1.2.3", ">>>")
pieces = st.sampled_from([*NAMES, *ALIASES, *WORDS, *"._ \n/-{}"])


@given(st.lists(pieces, max_size=12).map("".join))
def test_masked_text_has_no_name_alias_or_import(text):
    masked_docstrings = MASK(text)
    for leak in [*LEAKS, re.compile(r"\b(?:linalg|functional)\.\w")]:
        assert not leak.search(masked_docstrings), masked_docstrings


# Extraction


def test_extraction_uses_public_objects(tmp_path):
    files = {
        "__init__.py": '"""Module docstrings are not taken."""\ndef top():\n    "top"\n',
        "core.py": (
            'class A:\n    """class A"""\n    def m(self):\n        """\n        A.m\n          indented\n        """\n'
            '    def _hidden(self):\n        "hidden"\n    async def later(self):\n        "A.later"\n'
            'class _B:\n    "hidden"\n    def m(self):\n        "hidden"\n'
            'try:\n    import x\nexcept ImportError:\n    def fallback():\n        "fallback"\n'
            "def bare(): pass\n"
            'add_newdoc("numpy", "sin", "The sine of every element")\n'
        ),
        "_core/a.py": 'def f():\n    "from _core"\n',
        "_private/a.py": 'def f():\n    "hidden"\n',
        "tests/test_a.py": 'def f():\n    "hidden"\n',
        "broken.py": "def f(:\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = list(docstrings_of(tmp_path))
    assert found == [
        "top", "from _core", "class A", "A.m\n  indented", "A.later", "fallback", "The sine of every element"
    ]  # fmt: skip
    assert module_names(tmp_path) == ["broken", "core"]
    assert package_folder("no_such_package_here") is None


# Data set


@pytest.mark.slow  # reading the sources of five libraries takes long
def test_docstrings_are_split_and_labeled(docstrings):
    assert docstrings.kind == data_kind(ALL) == "text"
    assert docstrings.classes == ("numpy", "scipy", "scikit-learn", "pandas", "torch")
    sizes = np.array([len(part) for part in parts(docstrings)])
    assert np.abs(sizes / sizes.sum() - [0.6, 0.2, 0.2]).max() < 0.001
    labels = np.concatenate([part.labels for part in parts(docstrings)])
    counts = np.bincount(labels)
    assert counts.max() <= source.PER_LIBRARY and counts.min() > 500
    for part in parts(docstrings):
        assert np.abs(np.bincount(part.labels) / len(part) - counts / counts.sum()).max() < 0.002
    texts = [" ".join(text.split()) for part in parts(docstrings) for text in part.texts]
    assert len(set(texts)) == len(texts)
    assert min(len(text.split()) for text in texts) >= source.MINIMUM_WORDS


@pytest.mark.slow  # reading the sources of five libraries takes long
def test_no_docstring_reveals_its_library(masked_docstrings):
    paths = {name for package in source.PACKAGES.values() for name in module_names(package_folder(package))}
    assert {"linalg", "stats", "nn", "svm", "tseries"} <= paths
    dotted = re.compile(rf"\b(?:{'|'.join(paths)})\.\w")
    for library, texts in masked_docstrings.items():
        whole = "\n".join(texts)
        for leak in [*LEAKS, dotted]:
            found = leak.search(whole)
            assert found is None, (library, whole[found.start() - 60 : found.end() + 60])


@pytest.mark.slow  # reading the sources of five libraries takes long
def test_the_same_versions_give_the_same_texts(docstrings, monkeypatch):
    assert read_data(ALL).checksum() == docstrings.checksum()
    assert read_data(DataSettings(name="docstrings", seed=1)).checksum() != docstrings.checksum()
    small = {"numpy": package_folder("numpy") / "fft", "torch": package_folder("torch") / "amp"}
    monkeypatch.setattr(source, "PACKAGES", {name: name for name in small})
    monkeypatch.setattr(source, "package_folder", small.get)
    made = source.extract_masked()
    assert made == source.extract_masked()
    assert len(made["numpy"]) > 5


def test_a_text_of_two_libraries_is_left_out(monkeypatch, tmp_path):
    shared = "one two three four five six seven eight nine ten"
    for library, own in {"a": "eleven", "b": "twelve"}.items():
        (tmp_path / library).mkdir()
        texts = (shared, f"{shared} {own}", f"{shared}\n      {own}", "too short")
        (tmp_path / library / "m.py").write_text(
            "\n".join(f'def f{i}():\n    """{text}"""' for i, text in enumerate(texts))
        )
    monkeypatch.setattr(source, "PACKAGES", {"a": "a", "b": "b"})
    monkeypatch.setattr(source, "package_folder", tmp_path.joinpath)
    assert source.extract_masked() == {"a": [f"{shared} eleven"], "b": [f"{shared} twelve"]}


@pytest.mark.slow  # reading the sources of five libraries takes long
def test_two_libraries(masked_docstrings):
    pair = load_text(DataSettings(name="docstrings:torch,numpy"))
    assert pair.classes == ("numpy", "torch") and pair.num_classes == 2
    own = set(masked_docstrings["torch"])
    assert all((text in own) == label for text, label in zip(pair.test.texts, pair.test.labels, strict=True))


@pytest.mark.parametrize("libraries", ["", "numpy", "numpy,numpy", "numpy,jax", "numpy;torch"])
def test_an_invalid_choice_raises_an_error(libraries):
    for function in (check_data, load_data):
        with pytest.raises(
            InvalidInput, match=r"two or more of numpy, scipy, scikit-learn, pandas, torch .*got 'docst"
        ):
            function(DataSettings(name=f"docstrings:{libraries}"))


def test_a_library_that_is_not_installed_raises_an_error(monkeypatch):
    monkeypatch.setattr(source, "PACKAGES", {**source.PACKAGES, "torch": "no_such_package_here"})
    with pytest.raises(DataNotFound, match="pip install torch"):
        check_data(ALL)


@pytest.mark.slow  # reading the sources of five libraries takes long
def test_limit_and_options(masked_docstrings):
    few = load_text(DataSettings(name="docstrings", limit=50))
    assert [len(part) for part in parts(few)] == [50, 50, 50]
    with pytest.raises(InvalidInput, match="expected no image_size or flip for the texts of docstrings"):
        check_data(DataSettings(name="docstrings", image_size=8))


@pytest.mark.slow  # reading the sources of five libraries takes long
def test_the_checksum_depends_on_every_text_and_label(masked_docstrings):
    few = read_data(DataSettings(name="docstrings", limit=20))
    seen = {few.checksum()}
    for name in ("train", "validation", "test"):
        part = getattr(few, name)
        longer = TextSplit((part.texts[0] + "x", *part.texts[1:]), part.labels)
        moved = TextSplit(("", part.texts[0] + part.texts[1], *part.texts[2:]), part.labels)
        other = TextSplit(part.texts, (part.labels + 1) % 5)
        seen |= {TextDataset(**{**vars(few), name: each}).checksum() for each in (longer, moved, other)}
    assert len(seen) == 10


def test_images_and_texts_are_not_confused():
    assert data_kind(DataSettings()) == load_images(DataSettings()).kind == "images"
    with pytest.raises(InvalidInput, match=r"expected a data set of images, got 'docstrings' .*try 'digits'"):
        load_images(ALL)
    with pytest.raises(InvalidInput, match=r"expected a data set of text, got 'digits' .*try 'docstrings'"):
        load_text(DataSettings())


@pytest.mark.slow  # reading the sources of five libraries takes long
def test_texts_load_no_torch(masked_docstrings):
    code = (
        "import sys; from archray.trainables.data import DataSettings, load_text; "
        "load_text(DataSettings(name='docstrings:numpy,torch', limit=10)); "
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


# The cache


def test_the_cache_is_read_if_it_exists(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cached_json("a.json", lambda: {"x": [1]}) == {"x": [1]}
    assert cached_json("a.json", lambda: pytest.fail("made twice")) == {"x": [1]}
    assert [file.name for file in (tmp_path / "archray").iterdir()] == ["a.json"]
    (tmp_path / "archray" / "a.json").write_text('{"x": [')
    with caplog.at_level(logging.WARNING):
        assert cached_json("a.json", lambda: 2) == 2
    assert "computes it again" in caplog.text
    assert json.loads((tmp_path / "archray" / "a.json").read_text()) == 2


def test_a_cached_array_is_mapped_and_may_be_changed(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cached_array("a.npy", lambda: np.arange(6).reshape(2, 3))
    mapped = cached_array("a.npy", lambda: pytest.fail("made twice"))
    assert isinstance(mapped, np.memmap)
    mapped[0, 0] = 9
    assert cached_array("a.npy", lambda: None).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_cache_that_cannot_be_written(monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        assert cached_json("a.json", lambda: 3) == 3
    assert "cannot write" in caplog.text
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "archray"


# IMDb


def write_imdb(folder, reviews=6):
    for part in ("train", "test"):
        for cls in ("neg", "pos"):
            (folder / "aclImdb" / part / cls).mkdir(parents=True)
            for i in range(reviews):
                (folder / "aclImdb" / part / cls / f"{i}_7.txt").write_text(f"{part} {cls} {i} é", encoding="utf-8")
    (folder / "aclImdb" / "train" / "unsup").mkdir()
    (folder / "aclImdb" / "train" / "unsup" / "0_0.txt").write_text("no label")
    return DataSettings(name="imdb", data_dir=str(folder))


def test_imdb_halves_its_test_part(tmp_path):
    settings = write_imdb(tmp_path)
    check_data(settings)
    data = load_text(settings)
    assert data.classes == ("neg", "pos")
    assert [len(part) for part in parts(data)] == [12, 6, 6]
    for part, folder in zip(parts(data), ("train", "test", "test"), strict=True):
        for text, label in zip(part.texts, part.labels, strict=True):
            assert text.startswith(f"{folder} {data.classes[label]} ") and text.endswith("é")
    assert set(data.validation.texts).isdisjoint(data.test.texts)
    own = load_text(settings.model_copy(update={"validation_fraction": 0.25}))
    assert [len(part) for part in parts(own)] == [9, 3, 12]


def test_missing_or_damaged_imdb_files_raise_an_error(tmp_path):
    for data_dir in (None, str(tmp_path)):
        with pytest.raises(DataNotFound, match=r"aclImdb_v1\.tar\.gz"):
            check_data(DataSettings(name="imdb", data_dir=data_dir))
    settings = write_imdb(tmp_path)
    damaged = tmp_path / "aclImdb" / "test" / "pos" / "3_7.txt"
    damaged.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(DataNotFound, match=r"expected a text in UTF-8, got .*3_7\.txt"):
        load_text(settings)
    for file in damaged.parent.iterdir():
        file.unlink()
    with pytest.raises(DataNotFound, match=r"expected test/pos/\*\.txt in .*aclImdb"):
        check_data(settings)


def test_texts_of_the_user(tmp_path):
    file = tmp_path / "own_text.py"
    file.write_text(
        "import numpy as np\n"
        "from archray.trainables.data import TextDataset, TextSplit\n"
        "def proverbs(settings):\n"
        "    part = TextSplit(('many hands', 'too many cooks'), np.array([0, 1]))\n"
        "    return TextDataset('proverbs', part, part, part, 2, ('yes', 'no'))\n"
    )
    settings = DataSettings(name=f"{file}:proverbs")
    assert data_kind(settings) == "text"
    assert load_text(settings).train.texts == ("many hands", "too many cooks")
    with pytest.raises(InvalidInput, match="expected a data set of images"):
        load_images(settings)
    with pytest.raises(InvalidInput, match="a 64-bit label for each of 2 texts"):
        TextSplit(("a", "b"), np.array([0, 1, 0]))
