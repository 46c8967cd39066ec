"""Images from files and arrays are converted as the images of the data set were."""

import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from archray.errors import InvalidInput
from archray.trainables.data import DataSettings, load_data, save_arrays
from archray.trainables.data.image_form import ImageForm

GRAY_FORM = ImageForm(channels=1, size=8, mean=(0.25,), std=(0.5,))
COLOR_FORM = ImageForm(channels=3, size=8, mean=(0.1, 0.2, 0.3), std=(0.5, 0.5, 0.5))


@pytest.fixture
def folder(tmp_path):
    """Images of two classes, 12 x 12."""
    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for number in range(6):
            Image.fromarray(rng.integers(256, size=(12, 12, 3), dtype=np.uint8)).save(
                tmp_path / label / f"{number}.png"
            )
    return tmp_path


@pytest.mark.parametrize("name", ["folder", "imagefolder-stream"])
def test_files_are_converted_as_those_of_the_data_set(folder, name):
    data = load_data(DataSettings(name=f"{name}:{folder}", image_size=8, validation_fraction=0.5))
    assert data.classes == ("cat", "dog")
    files = sorted(folder.glob("*/*.png"))
    read = data.form.of_files(files)
    [test] = [images for images, _ in data.test.in_order(len(data.test))]
    for image in test:
        assert (read - image).abs().amax((1, 2, 3)).min() < 1e-5  # one of the files is this image


def test_arrays_are_converted_as_those_of_the_data_set(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(256, size=(40, 8, 8, 3), dtype=np.uint8), np.arange(40) % 2
    name = save_arrays(tmp_path / "a.npz", images, labels, images[:10], labels[:10])
    data = load_data(DataSettings(name=name))
    torch.testing.assert_close(data.form.of_arrays(images[:10]), data.test.images)
    torch.testing.assert_close(data.form.of_arrays(images[:10] / 255), data.test.images)
    torch.testing.assert_close(data.form.of_arrays(data.test.images, normalized=True), data.test.images)
    assert data.form.unit and not data.classes


def test_the_scale_of_floats_is_detected(tmp_path):
    images, labels = np.random.default_rng(0).normal(size=(40, 8, 8)), np.arange(40) % 2
    data = load_data(DataSettings(name=save_arrays(tmp_path / "a.npz", images, labels)))
    assert not data.form.unit
    with pytest.raises(InvalidInput, match=r"whose values are not in 0\.\.1, got image files"):
        data.form.of_files(["x.png"])


@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8), (8, 8, 1), (5, 8, 8), (5, 1, 8, 8), (5, 8, 8, 1), (5, 1, 16, 9)])
def test_gray_images_of_any_shape(shape):
    images = GRAY_FORM.of_arrays(np.full(shape, 0.5))
    assert images.shape == (5 if shape[0] == 5 else 1, 1, 8, 8) and torch.allclose(images, torch.tensor(0.5))


@pytest.mark.parametrize("shape", [(3, 8, 8), (8, 8, 3), (5, 3, 8, 8), (5, 8, 8, 3)])
def test_color_images_of_any_shape(shape):
    images = COLOR_FORM.of_arrays(np.full(shape, 0.5))
    assert images.shape == (5 if shape[0] == 5 else 1, 3, 8, 8)
    torch.testing.assert_close(images[0, :, 0, 0], torch.tensor([0.8, 0.6, 0.4]))


def test_a_gray_file_is_read_in_color_and_a_color_file_in_gray(tmp_path):
    Image.fromarray(np.full((20, 30), 255, dtype=np.uint8)).save(tmp_path / "gray.png")
    Image.fromarray(np.full((20, 30, 3), 255, dtype=np.uint8)).save(tmp_path / "colors.png")
    assert COLOR_FORM.of_files([tmp_path / "gray.png"]).shape == (1, 3, 8, 8)
    torch.testing.assert_close(GRAY_FORM.of_files([tmp_path / "colors.png"]), torch.full((1, 1, 8, 8), 1.5))


RAMP = np.tile(np.linspace(0, 1, 8), (8, 1))  # from black at the left to white at the right
GRAY = Image.fromarray((RAMP * 255).round().astype(np.uint8))
SHADES = (RAMP[0] * 255).round()


def deep_png(channels: int) -> bytes:
    """Returns a PNG of 16 bits per channel, gray with alpha (2) or RGB (3), which PIL reads and does not write."""
    pixels = np.repeat((RAMP * 65535).round().astype(">u2")[..., None], channels, axis=2)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", 8, 8, 16, {2: 4, 3: 2}[channels], 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    chunks = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def rotated(file):
    exif = Image.Exif()
    exif[274] = 6  # its top is at the right
    GRAY.rotate(90).save(file, exif=exif)


PICTURES = {
    "8.png": GRAY.save,
    "16.png": Image.fromarray((RAMP * 65535).round().astype(np.uint16)).save,
    "16.tif": Image.fromarray((RAMP * 65535).round().astype(np.uint16)).save,
    "16.pgm": lambda file: file.write_bytes(b"P5 8 8 65535\n" + (RAMP * 65535).round().astype(">u2").tobytes()),
    "16-rgb.png": lambda file: file.write_bytes(deep_png(3)),
    "16-alpha.png": lambda file: file.write_bytes(deep_png(2)),
    "float.tif": Image.fromarray(RAMP.astype(np.float32)).save,
    "alpha.png": GRAY.convert("LA").save,
    "rgba.png": GRAY.convert("RGBA").save,
    "palette.png": GRAY.quantize(8).save,
    "transparent.png": lambda file: GRAY.quantize(8).save(file, transparency=bytes(range(0, 256, 32))),
    "cmyk.tif": GRAY.convert("RGB").convert("CMYK").save,
    "rotated.png": rotated,
    "animated.gif": lambda file: GRAY.save(file, save_all=True, append_images=[GRAY.rotate(180)]),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", PICTURES)
def test_images_of_every_depth_are_equal(tmp_path, name):
    PICTURES[name](tmp_path / name)
    for channels in (1, 3):
        found = ImageForm(channels=channels, size=8).read(tmp_path / name)
        np.testing.assert_allclose(found, np.tile(SHADES[:, None], (8, 1, channels)), atol=1)


def test_an_image_of_1_bit(tmp_path):
    Image.fromarray(RAMP > 0.5).save(tmp_path / "1.png")
    assert ImageForm(channels=1, size=8).read(tmp_path / "1.png")[0, :, 0].tolist() == [0] * 4 + [255] * 4


@pytest.mark.parametrize(
    ("name", "pixels"),
    [("32.tif", RAMP.astype(np.int32)), ("255.tif", np.float32(RAMP * 255)), ("nan.tif", np.float32(RAMP * np.nan))],
)
def test_images_of_unknown_depth_raise_an_error(tmp_path, name, pixels):
    Image.fromarray(pixels).save(tmp_path / name)
    with pytest.raises(InvalidInput, match=name):
        ImageForm(channels=3, size=8).read(tmp_path / name)


@pytest.mark.parametrize("name", ["cut.png", "cut.jpg", "cut.gif", "cut.tif"])
def test_a_truncated_file_is_named(tmp_path, name):
    Image.effect_noise((64, 64), 50).save(tmp_path / name)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:400])
    with pytest.raises(InvalidInput, match=name):
        ImageForm(channels=3, size=8).read(tmp_path / name)


@pytest.mark.parametrize("alike", [True, False])
def test_a_warning_if_all_images_of_a_part_are_alike(tmp_path, caplog, alike):
    images = np.random.default_rng(0).integers(256, size=(40, 8, 8)).astype(np.uint8)
    test = images[:10] // 255 + 100 if alike else images[:10]  # by a shade at most
    name = save_arrays(tmp_path / "a.npz", images, np.arange(40) % 2, test, np.arange(10) % 2)
    load_data(DataSettings(name=name))
    assert [record.args[2] for record in caplog.records] == (["test"] if alike else [])


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((5, 2, 8, 8)), r"expected images with 3 channels.*got \(5, 2, 8, 8\)"),
        (np.zeros((5, 8, 8)), r"expected images with 3 channels"),
        (np.full((3, 8, 8), np.nan), "expected finite images"),
        (np.array(["a"]), "expected images as numbers"),
        (torch.zeros(3, 8, 8, dtype=torch.bool), "expected 8-bit or float images, got bool"),
        ([np.zeros((3, 8, 8)), np.zeros((3, 9, 9))], "expected images of one size"),
    ],
)
def test_objects_that_are_not_images_raise_an_error(images, message):
    with pytest.raises(InvalidInput, match=message):
        COLOR_FORM.of_arrays(images)


def test_files_that_are_not_images_are_named(tmp_path):
    (tmp_path / "notes.png").write_text("no picture")
    with pytest.raises(InvalidInput, match=r"notes\.png as an image"):
        GRAY_FORM.of_files([tmp_path / "notes.png"])
    with pytest.raises(InvalidInput, match=r"expected an image file .*absent\.png"):
        GRAY_FORM.of_files([tmp_path / "absent.png"])
    with pytest.raises(InvalidInput, match=r"pictures with 1, 3, 4 channels, got one for 2"):
        ImageForm(channels=2, size=8, mean=(0, 0), std=(1, 1)).of_files([tmp_path / "notes.png"])


def test_data_without_a_form_raise_an_error():
    unknown = ImageForm(channels=1, size=8)
    with pytest.raises(InvalidInput, match="a known normalization"):
        unknown.of_arrays(np.zeros((1, 8, 8)))
    assert unknown.of_arrays(np.zeros((1, 8, 8)), normalized=True).shape == (1, 1, 8, 8)
