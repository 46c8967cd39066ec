"""Pictures as a network takes them: of files and of arrays, as the data set's own were made."""

import numpy as np
import pytest
import torch
from PIL import Image

from archray.errors import InvalidInput
from archray.trainables.data import DataSettings, load_data, save_arrays
from archray.trainables.data.image_form import ImageForm

GREY = ImageForm(channels=1, size=8, mean=(0.25,), std=(0.5,))
COLOURS = ImageForm(channels=3, size=8, mean=(0.1, 0.2, 0.3), std=(0.5, 0.5, 0.5))


@pytest.fixture
def folder(tmp_path):
    """Pictures of two classes, 12 x 12."""
    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for number in range(6):
            Image.fromarray(rng.integers(256, size=(12, 12, 3), dtype=np.uint8)).save(
                tmp_path / label / f"{number}.png"
            )
    return tmp_path


@pytest.mark.parametrize("name", ["folder", "imagefolder-stream"])
def test_files_become_what_the_data_set_made_of_them(folder, name):
    data = load_data(DataSettings(name=f"{name}:{folder}", image_size=8, validation_fraction=0.5))
    assert data.classes == ("cat", "dog")
    files = sorted(folder.glob("*/*.png"))
    read = data.form.of_files(files)
    [test] = [images for images, _ in data.test.in_order(len(data.test))]
    for image in test:
        assert (read - image).abs().amax((1, 2, 3)).min() < 1e-5  # one of the files is this image


def test_arrays_become_what_the_data_set_made_of_them(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(256, size=(40, 8, 8, 3), dtype=np.uint8), np.arange(40) % 2
    name = save_arrays(tmp_path / "a.npz", images, labels, images[:10], labels[:10])
    data = load_data(DataSettings(name=name))
    torch.testing.assert_close(data.form.of_arrays(images[:10]), data.test.images)
    torch.testing.assert_close(data.form.of_arrays(images[:10] / 255), data.test.images)
    torch.testing.assert_close(data.form.of_arrays(data.test.images, normalised=True), data.test.images)
    assert data.form.unit and not data.classes


def test_the_scale_of_floats_is_known(tmp_path):
    images, labels = np.random.default_rng(0).normal(size=(40, 8, 8)), np.arange(40) % 2
    data = load_data(DataSettings(name=save_arrays(tmp_path / "a.npz", images, labels)))
    assert not data.form.unit
    with pytest.raises(InvalidInput, match=r"whose values are not in 0\.\.1, got image files"):
        data.form.of_files(["x.png"])


@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8), (8, 8, 1), (5, 8, 8), (5, 1, 8, 8), (5, 8, 8, 1), (5, 1, 16, 9)])
def test_grey_images_of_any_shape(shape):
    images = GREY.of_arrays(np.full(shape, 0.5))
    assert images.shape == (5 if shape[0] == 5 else 1, 1, 8, 8) and torch.allclose(images, torch.tensor(0.5))


@pytest.mark.parametrize("shape", [(3, 8, 8), (8, 8, 3), (5, 3, 8, 8), (5, 8, 8, 3)])
def test_coloured_images_of_any_shape(shape):
    images = COLOURS.of_arrays(np.full(shape, 0.5))
    assert images.shape == (5 if shape[0] == 5 else 1, 3, 8, 8)
    torch.testing.assert_close(images[0, :, 0, 0], torch.tensor([0.8, 0.6, 0.4]))


def test_a_grey_file_is_read_in_colours_and_a_coloured_one_in_grey(tmp_path):
    Image.fromarray(np.full((20, 30), 255, dtype=np.uint8)).save(tmp_path / "grey.png")
    Image.fromarray(np.full((20, 30, 3), 255, dtype=np.uint8)).save(tmp_path / "colours.png")
    assert COLOURS.of_files([tmp_path / "grey.png"]).shape == (1, 3, 8, 8)
    torch.testing.assert_close(GREY.of_files([tmp_path / "colours.png"]), torch.full((1, 1, 8, 8), 1.5))


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (np.zeros((5, 2, 8, 8)), r"expected images of 3 channels.*got \(5, 2, 8, 8\)"),
        (np.zeros((5, 8, 8)), r"expected images of 3 channels"),
        (np.full((3, 8, 8), np.nan), "expected finite images"),
        (np.array(["a"]), "expected images as numbers"),
        (torch.zeros(3, 8, 8, dtype=torch.bool), "expected images of 8 bits or floats, got bool"),
        ([np.zeros((3, 8, 8)), np.zeros((3, 9, 9))], "expected images of one size"),
    ],
)
def test_what_is_no_image_is_refused(images, said):
    with pytest.raises(InvalidInput, match=said):
        COLOURS.of_arrays(images)


def test_files_that_are_no_pictures_are_named(tmp_path):
    (tmp_path / "notes.png").write_text("no picture")
    with pytest.raises(InvalidInput, match=r"notes\.png cannot be read as an image"):
        GREY.of_files([tmp_path / "notes.png"])
    with pytest.raises(InvalidInput, match=r"there is no file .*absent\.png"):
        GREY.of_files([tmp_path / "absent.png"])
    with pytest.raises(InvalidInput, match=r"pictures of 1, 3, 4 channels, got one for 2"):
        ImageForm(channels=2, size=8, mean=(0, 0), std=(1, 1)).of_files([tmp_path / "notes.png"])


def test_data_that_do_not_say_their_form_are_refused():
    unknown = ImageForm(channels=1, size=8)
    with pytest.raises(InvalidInput, match="says how its images are normalised"):
        unknown.of_arrays(np.zeros((1, 8, 8)))
    assert unknown.of_arrays(np.zeros((1, 8, 8)), normalised=True).shape == (1, 1, 8, 8)
