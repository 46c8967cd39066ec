"""The data set of letters: its fonts, the drawing of its images, and its cache."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path as Curve
from matplotlib.textpath import TextPath
from scipy.ndimage import map_coordinates

from archray.errors import DataNotFound, InvalidInput
from archray.trainables.data import DataSettings, check_data, glyphs, load_data
from archray.trainables.data.glyphs import FINE, SIDE, STEPS, font_folder, inside, make_fields, outline
from archray.trainables.data.load import read_data

FEW = dict.fromkeys(glyphs.IMAGES, 40)


@pytest.fixture(autouse=True)
def few_images(monkeypatch):
    monkeypatch.setattr(glyphs, "IMAGES", FEW)


def read(name="glyphs", **options):
    return read_data(DataSettings(name=name, **options))


def test_images_and_classes():
    dataset = read()
    assert (dataset.num_classes, dataset.in_channels, dataset.image_size, dataset.flip) == (20, 1, 32, False)
    for part in (dataset.train, dataset.validation, dataset.test):
        assert tuple(part.images.shape) == (40, 1, 32, 32)
        assert np.bincount(part.labels).tolist() == [2] * 20
        assert part.images.flatten(1).std(dim=1).min() > 0.1  # none is empty
    assert read("glyphs:50").num_classes == 50
    assert read("glyphs:10", limit=20, image_size=16).train.images.shape == (20, 1, 16, 16)


def test_the_seed_determines_the_images():
    first = read().checksum()
    assert first == read().checksum()
    assert len({first, read(seed=1).checksum(), read("glyphs:21").checksum()}) == 3


def test_images_are_the_same_on_every_machine():
    images = glyphs.read(DataSettings(name="glyphs")).train[0]
    recorded = "0750f76e75dd677e"  # with NumPy's kernels for AVX-512, for AVX2 and without either
    assert hashlib.sha256(images.tobytes()).hexdigest()[:16] == recorded


def test_parts_have_separate_fonts():
    fonts = [font for of_part in glyphs.FONTS.values() for font in of_part]
    assert len(set(fonts)) == len(fonts) == 21
    families = [{font[:11] for font in of_part if font.startswith("DejaVu")} for of_part in glyphs.FONTS.values()]
    assert families == [{"DejaVuSans.", "DejaVuSans-", "DejaVuSerif"}, {"DejaVuSansM"}, set()]


@pytest.mark.parametrize("name", ["glyphs:", "glyphs:9", "glyphs:51", "glyphs:many", "glyphs:-20", "glyphs:²"])
def test_an_unsupported_number_of_classes_raises_an_error(name):
    for function in (check_data, load_data):
        with pytest.raises(InvalidInput, match="expected glyphs, or glyphs: with a number of classes from 10 to 50"):
            function(DataSettings(name=name))


def test_missing_fonts_raise_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(glyphs, "font_folder", lambda: tmp_path)
    with pytest.raises(DataNotFound, match=r"expected DejaVuSans\.ttf, .* reinstall matplotlib"):
        check_data(DataSettings(name="glyphs"))


def test_a_font_without_a_letter_raises_an_error():
    with pytest.raises(DataNotFound, match=r"the letter 'ж' in .*cmr10\.ttf; reinstall matplotlib"):
        outline(font_folder() / "cmr10.ttf", "ж")


@pytest.mark.parametrize("font", ["STIXGeneral.ttf", "cmb10.ttf", "DejaVuSansMono-Oblique.ttf"])
def test_outlines_equal_those_of_matplotlib(font):
    path = TextPath((0, 0), "Q", size=100, prop=FontProperties(fname=str(font_folder() / font)))
    drawn = np.concatenate([vertices.reshape(-1, 2) for vertices, code in path.iter_segments() if code != 79])
    points = np.concatenate(outline(font_folder() / font, "Q"))
    low, high = points.min(axis=0), points.max(axis=0)
    scaled = (points - low) / (high - low) * np.ptp(drawn, axis=0) + drawn.min(axis=0)
    for x, y in drawn[:: len(drawn) // 8]:  # a control point of a curve is near it
        assert np.hypot(*(scaled - [x, y]).T).min() < 8
    ratio = (high - low) / np.ptp(drawn, axis=0)
    assert ratio[0] == pytest.approx(ratio[1], rel=0.02)


@pytest.mark.parametrize("font", ["DejaVuSerif-Italic.ttf", "STIXGeneralBol.ttf", "cmti10.ttf"])
@pytest.mark.parametrize("letter", "8&")
def test_letters_are_filled_as_by_matplotlib(font, letter):
    contours = outline(font_folder() / font, letter)
    points = np.concatenate(contours)
    low, high = points.min(axis=0), points.max(axis=0)
    size = SIDE * FINE
    scale = glyphs.BOX * FINE / (high - low).max()
    columns, rows = np.meshgrid(np.arange(size) + 0.5, np.arange(size) + 0.5)
    x, y = (columns - size / 2) / scale, (size / 2 - rows) / scale
    at = np.stack([x.ravel(), y.ravel()], axis=1) + (low + high) / 2
    # Holes of these letters are single contours, so the winding and parity rules agree.
    reference = sum(Curve(np.concatenate([c, c[:1]])).contains_points(at).astype(int) for c in contours) % 2
    assert (inside(contours).ravel() != reference.astype(bool)).mean() < 1e-3


def test_fields_are_distances():
    [[field]] = make_fields(["DejaVuSans-Bold.ttf"], "L")
    cells = field.astype(float) / STEPS
    mask = cells > 0
    assert 0.1 < mask.mean() < 0.4
    assert np.abs(np.diff(cells, axis=0)).max() <= 1 + 2 / STEPS  # no two neighbors differ by more than their distance
    stroke = cells[SIDE // 2]  # through the vertical stroke: its middle is half its width from its edges
    assert stroke.max() == pytest.approx((stroke > 0).sum() / 2, abs=0.6)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_sampling_between_cells(seed):
    rng = np.random.default_rng(seed)
    field = rng.normal(size=(1, SIDE, SIDE)).astype(np.float32)
    u, v = rng.uniform(0, SIDE - 1, (2, 1, 8, 8)).astype(np.float32)
    expected = map_coordinates(field[0].astype(float), [v[0], u[0]], order=1)
    assert np.allclose(glyphs.bilinear(field, u, v)[0], expected, atol=1e-4)
    beyond = glyphs.bilinear(field, np.full_like(u, -3), v)
    assert np.allclose(beyond, glyphs.bilinear(field, np.zeros_like(u), v) - 3, atol=1e-4)


def test_the_cache_depends_on_the_fonts(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(glyphs, "font_folder", lambda: tmp_path)
    calls = []

    def make(fonts, characters):
        calls.append(characters)
        return np.full((len(fonts), len(characters), 2, 2), len(calls), dtype=np.int8)

    monkeypatch.setattr(glyphs, "make_fields", make)
    (tmp_path / "a.ttf").write_bytes(b"a font")
    first = glyphs.distance_fields(["a.ttf"], "AB")
    assert np.array_equal(first, glyphs.distance_fields(["a.ttf"], "AB"))
    [file] = (tmp_path / "cache" / "archray").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert (glyphs.distance_fields(["a.ttf"], "AB") == 2).all()  # a damaged file is made again
    assert np.array_equal(np.load(file), np.full_like(first, 2))
    (tmp_path / "a.ttf").write_bytes(b"another font")
    assert (glyphs.distance_fields(["a.ttf"], "AB") == 3).all()
    assert (glyphs.distance_fields(["a.ttf"], "BA") == 4).all()
    assert len(calls) == 4


@pytest.mark.slow
@pytest.mark.ci
def test_two_processes_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code = (
        "from archray.trainables.data import DataSettings, glyphs, load_data; "
        f"glyphs.IMAGES = {FEW}; print(load_data(DataSettings(name='glyphs', seed=3)).checksum())"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=300)[0].strip() for process in processes]
    assert outputs == [read(seed=3).checksum()] * 2
    [file] = (tmp_path / "archray").iterdir()
    assert file.suffix == ".npy"
