"""Augmentation equals torchvision's transforms on the same crops, flips and squares. It is seeded and batched."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torchvision.transforms.v2 import functional as TF

from archray.trainables.data.dataset import Augmentation, cutout, flip, pad_crop
from archray.trainables.data.settings import AugmentationSettings

shapes = st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(2, 9), st.integers(2, 9))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(shape, seed=0):
    return torch.randn(shape, generator=generator(seed))


@settings(max_examples=40)
@given(shapes, st.integers(1, 4), st.integers(0, 999))
def test_pad_crop_equals_that_of_torchvision(shape, padding, seed):
    images = batch(shape)
    fill = torch.linspace(-1, 1, shape[1]).tolist()
    offsets = torch.randint(2 * padding + 1, (shape[0], 2), generator=generator(seed))
    ours = pad_crop(images, offsets, padding, fill)
    for image, (top, left), found in zip(images, offsets.tolist(), ours, strict=True):
        padded = torch.stack([TF.pad(c[None], [padding], fill=f)[0] for c, f in zip(image, fill, strict=True)])
        assert torch.equal(found, TF.crop(padded, top, left, *shape[2:]))


@given(shapes, st.integers(0, 999))
def test_flip_equals_that_of_torchvision(shape, seed):
    images = batch(shape)
    mask = torch.rand(shape[0], generator=generator(seed)) < 0.5
    for image, flipped, found in zip(images, mask, flip(images, mask), strict=True):
        assert torch.equal(found, TF.horizontal_flip(image) if flipped else image)


@settings(max_examples=60)
@given(shapes, st.integers(1, 12), st.integers(0, 999))
def test_cutout_equals_torchvisions_erase(shape, length, seed):
    images = batch(shape)
    height, width = shape[2:]
    rows = torch.randint(height, (shape[0], 1), generator=generator(seed))
    columns = torch.randint(width, (shape[0], 1), generator=generator(seed + 1))
    ours = cutout(images, torch.cat([rows, columns], 1), length)
    for image, row, column, found in zip(images, rows[:, 0].tolist(), columns[:, 0].tolist(), ours, strict=True):
        top, left = max(0, row - length // 2), max(0, column - length // 2)
        bottom, right = min(height, row - length // 2 + length), min(width, column - length // 2 + length)
        expected = TF.erase(image, top, left, max(0, bottom - top), max(0, right - left), torch.zeros(1, 1, 1))
        assert torch.equal(found, expected)


def test_inputs_are_not_changed():
    images = batch((4, 3, 8, 8))
    before = images.clone()
    settings = AugmentationSettings(crop=2, flip=True, cutout=4)
    out = Augmentation(settings, black=(1.0, 2.0, 3.0))(images, generator())
    assert torch.equal(images, before)
    assert out.shape == images.shape
    assert not torch.equal(out, images)


def test_augmentation_applies_the_functions_to_its_random_numbers():
    images = batch((16, 3, 32, 32))
    black = (-2.0, -1.0, 0.5)
    augment = Augmentation(AugmentationSettings(cutout=8), image_size=32, black=black)
    draws = generator(5)
    offsets = torch.randint(9, (16, 2), generator=draws)
    mask = torch.randint(2, (16,), generator=draws).bool()
    rows, columns = (torch.randint(32, (16, 1), generator=draws) for _ in range(2))
    expected = cutout(flip(pad_crop(images, offsets, 4, black), mask), torch.cat([rows, columns], 1), 8)
    assert torch.equal(augment(images, generator(5)), expected)
    assert not torch.equal(augment(images, generator(6)), expected)


def test_unset_options_are_taken_from_the_data():
    open_settings = AugmentationSettings()
    assert Augmentation(open_settings, image_size=8).crop == 1
    assert Augmentation(open_settings, flip=False).flip is False
    assert Augmentation(AugmentationSettings(flip=True), flip=False).flip is True
    off = Augmentation(AugmentationSettings(crop=0, flip=False))
    images = batch((3, 1, 4, 4))
    assert torch.equal(off(images, generator()), images)


def test_all_offsets_and_both_sides_occur():
    image = torch.arange(64.0).view(1, 1, 8, 8).expand(4000, 1, 8, 8)
    out = Augmentation(AugmentationSettings(crop=1, flip=True), black=(-1.0,))(image, generator())
    kinds, counts = out.flatten(1).unique(dim=0, return_counts=True)
    assert len(kinds) == 9 * 2
    # Each is Binomial(4000, 1/18): within five standard deviations.
    assert (counts - 4000 / 18).abs().max() < 5 * (4000 / 18) ** 0.5


def test_a_negative_crop_raises_an_error():
    with pytest.raises(ValidationError):
        AugmentationSettings(crop=-1)
