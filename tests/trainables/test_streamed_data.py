"""Images that are read from files: passes that do not depend on processes, memory use, and bad files."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from archray.errors import DataNotFound, InvalidInput
from archray.trainables.data import AugmentationSettings, DataSettings, check_data, load_data, proxy_batch
from archray.trainables.data.dataset import View
from archray.trainables.data.image_stream import CENTER, MEAN, MIDDLE, STD, StreamedDataset, cut
from archray.trainables.data.load import read_data
from archray.trainables.training import Trainer
from archray.trainables.training_settings import TrainingSettings

CLASSES = ("cat", "dog")


def write_images(folder: Path, parts: dict[str, int], seed: int = 0) -> None:
    """Writes JPEG files of different sizes per part and class; without parts: `PATH/class/image`."""
    rng = np.random.default_rng(seed)
    for part, number in parts.items():
        for label in CLASSES:
            place = folder / part / label
            place.mkdir(parents=True)
            for index in range(number):
                shape = (int(rng.integers(20, 50)), int(rng.integers(20, 50)), 3)
                Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(place / f"{index}.jpg")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 images for training, 8 each for validation and test."""
    folder = tmp_path_factory.mktemp("images")
    write_images(folder, {"train": 8, "val": 4, "test": 4})
    return folder


def stream(folder: Path, **settings: object) -> StreamedDataset:
    dataset = read_data(DataSettings(name=f"imagefolder-stream:{folder}", image_size=16, **settings))
    assert isinstance(dataset, StreamedDataset)
    return dataset


def trainer(dataset: StreamedDataset, epochs: int = 2, seed: int = 1) -> Trainer:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.AvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 2))
    settings = TrainingSettings(epochs=epochs, batch_size=5, augmentation=AugmentationSettings(cutout=4))
    return Trainer(network, dataset, settings, seed=seed)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_epoch_is_the_same_with_any_number_of_processes(folder: Path, workers: int) -> None:
    alone, several = trainer(stream(folder, workers=0)), trainer(stream(folder, workers=workers))
    before = torch.random.get_rng_state()
    assert alone.epoch() == several.epoch() and alone.evaluate(alone.dataset.test) == several.evaluate(
        several.dataset.test
    )
    for own, other in zip(alone.network.parameters(), several.network.parameters(), strict=True):
        assert torch.equal(own, other)
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_training_resumed_at_an_epoch_equals_an_undisturbed_one(folder: Path) -> None:
    dataset = stream(folder, workers=0)
    undisturbed, stopped, again = (trainer(dataset) for _ in range(3))
    undisturbed.epoch()
    stopped.epoch()
    again.load_state_dict(stopped.state_dict())
    assert again.epoch() == undisturbed.epoch()
    assert torch.equal(again.network[2].weight, undisturbed.network[2].weight)


def test_epochs_and_seeds_use_different_crops(folder: Path) -> None:
    split = stream(folder, workers=0).train
    everything = [torch.arange(len(split))]
    first, again, other = (next(split.batches(everything, View(seed))) for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert not torch.equal(first, next(split.batches(everything)))


def test_random_numbers_of_an_image_do_not_depend_on_its_batch(folder: Path) -> None:
    split = stream(folder, workers=0).train
    whole = next(split.batches([torch.arange(16)], View(3)))
    for image, index in zip(split.batches([torch.tensor([9]), torch.tensor([2])], View(3)), (9, 2), strict=True):
        assert torch.equal(image[0], whole[index])


def test_an_evaluation_uses_the_center_crop_normalized_as_for_imagenet(tmp_path: Path) -> None:
    """A white frame outside of the middle 7/8 is not visible; the visible part has one color."""
    for part in ("train", "val", "test"):
        for label in CLASSES:
            (tmp_path / part / label).mkdir(parents=True)
            pixels = np.full((64, 96, 3), 255, dtype=np.uint8)
            pixels[2:62, 18:78] = (51, 102, 153)  # 2 pixels wider: the filter reads that far
            Image.fromarray(pixels).save(tmp_path / part / label / "image.png")
    images, labels = next(stream(tmp_path, workers=0).test.in_order(8))
    expected = (torch.tensor([0.2, 0.4, 0.6]) - torch.tensor(MEAN)) / torch.tensor(STD)
    torch.testing.assert_close(images, expected.view(1, 3, 1, 1).expand(2, 3, 16, 16))
    assert labels.tolist() == [0, 1]


def test_crops_are_inside_the_image_with_the_areas_and_ratios_of_the_paper() -> None:
    boxes = [cut((60, 40), View(7), index)[0] for index in range(500)]
    sides = np.array([(right - left, bottom - top) for left, top, right, bottom in boxes])
    assert all(0 <= left < right <= 60 and 0 <= top < bottom <= 40 for left, top, right, bottom in boxes)
    area, ratio = sides.prod(1) / 2400, sides[:, 0] / sides[:, 1]
    assert 0.07 < area.min() < 0.12 and area.max() > 0.8, "8 to 100 %"
    assert 0.65 < ratio.min() < 0.85 and 1.2 < ratio.max() < 1.5, "3/4 to 4/3, except for rounding to pixels"
    mirrored = [cut((60, 40), View(7), index)[1] for index in range(500)]
    assert 200 < sum(mirrored) < 300 and not any(cut((60, 40), View(7, flip=False), index)[1] for index in range(50))
    left, top, right, bottom = cut((60, 40), MIDDLE, 0)[0]
    assert (right - left, bottom - top) == (40 * CENTER, 40 * CENTER) and left + right == 60 and top + bottom == 40


def test_an_image_too_narrow_for_any_crop_gives_its_center() -> None:
    boxes = {cut((300, 10), View(5), index)[0] for index in range(100)}
    assert (143, 0, 156, 10) in boxes


def test_only_a_few_batches_are_in_memory(folder: Path) -> None:
    split = stream(folder, workers=0).train
    batches: list[weakref.ref[torch.Tensor]] = []
    for images in split.batches([torch.tensor([index]) for index in range(16)], View(0)):
        batches.append(weakref.ref(images))
        assert sum(batch() is not None for batch in batches) <= 2
    assert len(batches) == 16


def test_images_are_opened_when_their_batch_is_needed(tmp_path: Path) -> None:
    write_images(tmp_path, {"train": 4, "val": 1, "test": 1})
    (tmp_path / "train" / "dog" / "3.jpg").write_bytes(b"no image")
    split = stream(tmp_path, workers=0).train
    batches = split.batches(list(torch.arange(8).split(2)))
    assert [len(next(batches)) for _ in range(3)] == [2, 2, 2]
    with pytest.raises(InvalidInput, match=r"train/dog/3\.jpg as an image"):
        next(batches)


def test_a_broken_image_in_a_worker_process_is_named(tmp_path: Path) -> None:
    write_images(tmp_path, {"train": 2, "val": 1, "test": 1})
    whole = (tmp_path / "train" / "cat" / "1.jpg").read_bytes()
    (tmp_path / "train" / "cat" / "1.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidInput, match=r"^archray cannot read \S+/train/cat/1\.jpg as an image \(.*\); repair or"):
        trainer(stream(tmp_path, workers=2)).epoch()


def test_one_folder_is_split_by_seed(tmp_path: Path) -> None:
    write_images(tmp_path, {"": 20})
    dataset = stream(tmp_path, workers=0)
    assert [len(part) for part in (dataset.train, dataset.validation, dataset.test)] == [26, 6, 8]
    parts = [
        {part.files.path(index) for index in range(len(part))}
        for part in (dataset.train, dataset.validation, dataset.test)
    ]
    assert len(set.union(*parts)) == 40
    other = stream(tmp_path, workers=0, seed=1).test
    assert {other.files.path(index) for index in range(8)} != parts[2]
    limited = stream(tmp_path, workers=0, limit=4)
    assert [len(part) for part in (limited.train, limited.validation, limited.test)] == [4, 4, 4]


def test_the_checksum_depends_on_names_and_sizes(tmp_path: Path) -> None:
    write_images(tmp_path, {"train": 2, "val": 1, "test": 1})
    before = stream(tmp_path).checksum()
    assert stream(tmp_path).checksum() == before != stream(tmp_path, limit=1).checksum()
    file = tmp_path / "train" / "cat" / "0.jpg"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"x")
    assert stream(tmp_path).checksum() == before, "the pixels are not read"
    file.write_bytes(content + b"x")
    assert stream(tmp_path).checksum() != before
    os.rename(file, file.with_name("9.jpg"))
    assert stream(tmp_path).checksum() != before


@pytest.mark.parametrize("make", [Path.touch, os.mkfifo])
def test_the_checksum_rejects_files_that_are_not_images(tmp_path: Path, make: Callable[[Path], object]) -> None:
    write_images(tmp_path, {"train": 6})
    file = next(path for path in tmp_path.rglob("*.*") if path.is_file())
    file.unlink()
    make(file)
    with pytest.raises(InvalidInput, match=f"expected an image file, got {file}"):
        stream(tmp_path).checksum()


def test_training_free_metrics_receive_a_batch(folder: Path) -> None:
    dataset = stream(folder, workers=2)
    images, labels = proxy_batch(dataset, 6, 42)
    assert images.shape == (6, 3, 16, 16) and labels.shape == (6,)
    assert torch.equal(images, proxy_batch(stream(folder, workers=0), 6, 42)[0])
    plain, same = proxy_batch(dataset, 6, 42, augment=False)
    assert torch.equal(labels, same) and not torch.equal(images, plain)


@pytest.mark.parametrize(("crop", "differs"), [(0, False), (2, True)])
def test_a_crop_in_pixels_is_centered(folder: Path, crop: int, differs: bool) -> None:
    dataset = stream(folder, workers=0)
    chosen, generator = torch.arange(4), torch.Generator().manual_seed(0)
    images = dataset.sampled(chosen, AugmentationSettings(crop=crop, flip=False), generator)
    assert torch.equal(images, dataset.sampled(chosen, None, generator)) is not differs


def test_options_that_need_all_images_at_once_raise_an_error(folder: Path) -> None:
    with pytest.raises(InvalidInput, match=r"expected images in memory, .*. Use folder:PATH"):
        _ = stream(folder).train.images


def test_files_are_checked_like_those_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DataNotFound, match="expected a folder"):
        check_data(DataSettings(name=f"imagefolder-stream:{tmp_path / 'nowhere'}"))
    write_images(tmp_path, {"train": 1})
    (tmp_path / "train" / "empty").mkdir()
    with pytest.raises(DataNotFound, match="expected images"):
        load_data(DataSettings(name=f"imagefolder-stream:{tmp_path}"))
