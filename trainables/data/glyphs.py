"""Glyphs: hard images without a download, letters of matplotlib's fonts; fonts of training, validation and test differ.

A letter is drawn at random place, size, rotation, shear and thickness, before clutter (parts of other letters), on a
background with a slope, in noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from archray.errors import InvalidInput
from archray.trainables.data.data_settings import DataSettings
from archray.trainables.data.glyph_outlines import BOX, SIDE, as_cells, check_fonts, distance_fields
from archray.trainables.data.raw import RawData

Floats = npt.NDArray[np.floating[Any]]  # float32

PREFIX = "glyphs:"  # before the number of classes
CHARACTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabdefghmnqrt23456789&?@#%="  # no two of one form in two sizes, as c and C
CLASSES = range(10, len(CHARACTERS) + 1)
DEFAULT_CLASSES = 20
IMAGE_SIZE = 32
IMAGES = {"train": 2000, "validation": 1000, "test": 1000}
FONTS = {  # no family of fonts is in two parts
    "train": (
        *(f"DejaVuSans{style}.ttf" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
        *(f"DejaVuSerif{style}.ttf" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
        *(f"cm{style}10.ttf" for style in ("b", "r", "ss", "ti", "tt")),
    ),
    "validation": tuple(f"DejaVuSansMono{style}.ttf" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    "test": tuple(f"STIXGeneral{style}.ttf" for style in ("", "Bol", "Italic", "BolIta")),
}

# What is drawn uniformly, for every letter. Lengths are in pixels.
HEIGHT = (16.0, 26.0)  # of the box around a letter
STRETCH = 0.2  # width against height, 1 - or + this
ROTATION = 0.25  # radians, either way
SHEAR = 0.25
THICKENED = (-0.4, 1.2)  # at the edge of strokes
OUTSIDE = 2.0  # how far a letter's box may reach over the border
CLUTTER = 1  # parts of other letters
CLUTTER_HEIGHT = (12.0, 40.0)
CLUTTER_DISTANCE = (13.0, 20.0)  # of another letter's middle from that of the letter
CONTRAST = (0.5, 0.9)  # of the letter
CLUTTER_CONTRAST = (0.1, 0.4)
SLOPE = 0.3  # of the background, from border to border
NOISE = 0.08  # standard deviation
CHUNK = 256  # images drawn at a time: what is computed for them stays in a CPU's cache


def check(settings: DataSettings) -> None:
    """Raises: InvalidInput for a number of classes that there is not; DataNotFound if a font is missing."""
    number_of_classes(settings.name)
    check_fonts([font for fonts in FONTS.values() for font in fonts])


def number_of_classes(name: str) -> int:
    """K of `glyphs:K`; of `glyphs` DEFAULT_CLASSES. Raises: InvalidInput if K is no number from 10 to 50."""
    if name + ":" == PREFIX:
        return DEFAULT_CLASSES
    number = name.removeprefix(PREFIX)
    if not (number.isascii() and number.isdigit() and int(number) in CLASSES):
        raise InvalidInput(
            f"expected glyphs, or glyphs: and a number of classes from {CLASSES[0]} to {CLASSES[-1]} "
            f"(glyphs:{CLASSES[-1]}), got {name!r}"
        )
    return int(number)


def read(settings: DataSettings) -> RawData:
    """Images of 8 bits, (n, 1, 32, 32), as many of each class as can be, drawn by `settings.seed`."""
    classes = number_of_classes(settings.name)
    fonts = [font for of_part in FONTS.values() for font in of_part]
    fields = distance_fields(fonts, CHARACTERS)[:, :classes]
    parts: dict[str, Any] = {}
    for stream, (part, of_part) in enumerate(FONTS.items()):
        rng = np.random.default_rng([settings.seed, classes, stream])
        own = as_cells(fields[[fonts.index(font) for font in of_part]])
        labels = rng.permutation(np.arange(IMAGES[part]) % classes)
        parts[part] = (draw(own, labels, rng), labels)
    return RawData(**parts, num_classes=classes, flip=False)


def draw(fields: Floats, labels: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """(n, 1, 32, 32): an image of each label. fields: (fonts, classes, SIDE, SIDE) distances in cells."""
    pieces = [_draw(fields, labels[at : at + CHUNK], rng) for at in range(0, len(labels), CHUNK)]
    return np.concatenate(pieces)[:, None]


def _draw(fields: Floats, labels: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    count, (fonts, classes) = len(labels), fields.shape[:2]
    height = _uniform(rng, HEIGHT, count)
    free = np.maximum(IMAGE_SIZE / 2 + OUTSIDE - height / 2, 0)  # how far its middle may be from the image's
    x, y = (free * _uniform(rng, (-1, 1), count) for _ in range(2))
    image = _ground(rng, count)
    for _ in range(CLUTTER):
        cosine, sine = _direction(_uniform(rng, (0, 2 * np.pi), count))
        distance = _uniform(rng, CLUTTER_DISTANCE, count)
        others = rng.integers(classes, size=count)
        other = _coverage(
            fields[rng.integers(fonts, size=count), others],
            _uniform(rng, CLUTTER_HEIGHT, count),
            x + distance * cosine,
            y + distance * sine,
            rng,
        )
        image += other * _uniform(rng, CLUTTER_CONTRAST, (count, 1, 1))
    letter = _coverage(fields[rng.integers(fonts, size=count), labels], height, x, y, rng)
    image = image * (1 - letter) + letter * _uniform(rng, CONTRAST, (count, 1, 1))
    image += NOISE * rng.standard_normal(image.shape, dtype=np.float32)
    return np.clip(np.rint(image * 255), 0, 255).astype(np.uint8)


def _ground(rng: np.random.Generator, count: int) -> Floats:
    """(count, 32, 32) of 0..SLOPE: planes."""
    at = (np.arange(IMAGE_SIZE, dtype=np.float32) + 0.5) / IMAGE_SIZE - 0.5
    x, y = (_uniform(rng, (-SLOPE / 2, SLOPE / 2), (count, 1, 1)) for _ in range(2))
    return np.abs(x) / 2 + np.abs(y) / 2 + x * at + y * at[:, None]


def _coverage(
    fields: Floats,
    height: Floats,
    x: Floats,
    y: Floats,
    rng: np.random.Generator,
) -> Floats:
    """(n, 32, 32) of 0..1: how much of each pixel a letter covers.

    fields: (n, SIDE, SIDE) of the letters. height: (n,) pixels that BOX cells take. x, y: (n,) the letter's middle in
    pixels from the image's.
    """
    count = len(fields)
    scale = BOX / height  # cells of a pixel
    wide = 1 + _uniform(rng, (-STRETCH, STRETCH), count)
    angle, shear = _uniform(rng, (-ROTATION, ROTATION), count), _uniform(rng, (-SHEAR, SHEAR), count)
    cosine, sine = _direction(angle)  # from pixels to cells: a rotation, then a shear and a stretch
    rows = ((cosine - shear * sine) / wide * scale, (sine + shear * cosine) / wide * scale)
    columns = (-sine * scale, cosine * scale)
    at = np.arange(IMAGE_SIZE, dtype=np.float32) - (IMAGE_SIZE - 1) / 2
    right, down = at - x[:, None], at - y[:, None]  # (n, 32) each
    u = _grid(rows, right, down)
    v = _grid(columns, right, down)
    pixels = bilinear(fields, u, v) / scale[:, None, None] + _uniform(rng, THICKENED, (count, 1, 1))
    return np.clip(pixels + 0.5, 0, 1)


def _grid(factors: tuple[Floats, ...], right: Floats, down: Floats) -> Floats:
    """(n, 32, 32) coordinates in a field: its middle, and a linear map of pixels, (n, 32) each."""
    a, b = (factor[:, None, None] for factor in factors)
    return a * right[:, None, :] + b * down[:, :, None] + np.float32((SIDE - 1) / 2)


def bilinear(fields: Floats, u: Floats, v: Floats) -> Floats:
    """Distances, in cells, at column u and row v between cells; beyond a field's border those of the border, less the
    way to it. fields: (n, SIDE, SIDE); u, v and the result: (n, 32, 32)."""
    near_u, near_v = np.clip(u, 0, SIDE - 1), np.clip(v, 0, SIDE - 1)
    away = np.abs(u - near_u) + np.abs(v - near_v)
    left, top = (np.minimum(near.astype(np.int32), SIDE - 2) for near in (near_u, near_v))
    s, t = near_u - left, near_v - top
    flat = fields.reshape(-1)
    corner = (np.arange(len(fields), dtype=np.int32) * SIDE * SIDE)[:, None, None] + top * SIDE + left
    upper = flat[corner] * (1 - s) + flat[corner + 1] * s
    lower = flat[corner + SIDE] * (1 - s) + flat[corner + SIDE + 1] * s
    return upper * (1 - t) + lower * t - away


def _direction(angle: Floats) -> tuple[Floats, Floats]:
    """Cosine and sine, computed in float64: machines differ in their last digit, which float32 does not show."""
    exact = angle.astype(np.float64)
    return np.cos(exact).astype(np.float32), np.sin(exact).astype(np.float32)


def _uniform(rng: np.random.Generator, bounds: tuple[float, float], shape: int | tuple[int, ...]) -> Floats:
    low, high = bounds
    return np.float32(low) + np.float32(high - low) * rng.random(shape, dtype=np.float32)
