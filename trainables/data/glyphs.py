"""Glyphs: letters of matplotlib's fonts as images, with different fonts for training, validation and test.

A letter has a random position, size, rotation, shear and thickness. Behind it are clutter (parts of other letters), a
sloped background and noise.
"""

import hashlib
import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from archray.errors import DataNotFound, InvalidInput
from archray.trainables.data.raw import RawData, cached_array
from archray.trainables.data.settings import DataSettings

# Letters of the fonts that matplotlib installs, as distance fields: the distance of each point from the edge.

SIDE = 64  # of a field, in cells
BOX = 44  # cells of the longer side of a letter; the margin is for thickened strokes
FINE = 2  # a cell is the mean of FINE x FINE finer cells, in which distances are measured
CURVE_POINTS = 8  # straight pieces of a quadratic or cubic curve
STEPS = 8  # a field is stored in units of 1/STEPS cell, clipped to 8 bits: 16 cells in both directions
FORMAT = 1  # version of a stored field; raise it when a change here changes a field

Point = tuple[float, float]
Outline = list[npt.NDArray[np.float64]]  # closed contours, (m, 2) points (x, y) each; y points up


def font_folder() -> Path:
    """Returns the folder of matplotlib's fonts."""
    import matplotlib as mpl

    return Path(mpl.get_data_path()) / "fonts" / "ttf"


def distance_fields(fonts: Sequence[str], characters: str) -> npt.NDArray[np.int8]:
    """Returns (fonts, characters, SIDE, SIDE): signed distances to the letter's edge in 1/STEPS cells, positive inside.

    Row 0 is the top. A letter's bounding box is centered; its longer side is BOX cells. The cache folder stores the
    result under the checksum of the fonts and of the characters.
    """
    digest = hashlib.sha256(repr((FORMAT, SIDE, BOX, FINE, STEPS, CURVE_POINTS, characters)).encode())
    for font in fonts:
        digest.update(f"{font};".encode())
        digest.update(hashlib.sha256((font_folder() / font).read_bytes()).digest())
    return cached_array(f"glyphs-{digest.hexdigest()[:16]}.npy", lambda: make_fields(fonts, characters))


def make_fields(fonts: Sequence[str], characters: str) -> npt.NDArray[np.int8]:
    """Computes `distance_fields` without the cache."""
    fields = np.empty((len(fonts), len(characters), SIDE, SIDE), dtype=np.int8)
    for row, font in zip(fields, fonts, strict=True):
        for field, character in zip(row, characters, strict=True):
            field[:] = _field(inside(outline(font_folder() / font, character)))
    return fields


def outline(font: Path, character: str) -> Outline:
    """Returns the contours of a letter in the font's units, with curves as straight pieces.

    fontTools, a dependency of matplotlib, reads the file, because FreeType's result depends on its version.

    Raises: DataNotFound for a font without the letter.
    """
    from fontTools.pens.basePen import BasePen

    glyphs = _glyphs(font)
    contours: Outline = []

    class Pieces(BasePen):
        """Collects contours. BasePen splits composite letters and runs of curves."""

        def _moveTo(self, point: Point) -> None:
            contours.append(np.array([point], dtype=np.float64))

        def _lineTo(self, point: Point) -> None:
            self._curveToOne(point)

        def _qCurveToOne(self, *points: Point) -> None:
            self._curveToOne(*points)

        def _curveToOne(self, *points: Point) -> None:
            control = np.concatenate([contours[-1][-1:], np.array(points, dtype=np.float64)])
            contours[-1] = np.concatenate([contours[-1], _bezier(control)])

    name = glyphs.font.getBestCmap().get(ord(character))
    if name is None:
        raise DataNotFound(f"glyphs: expected the letter {character!r} in {font}; reinstall matplotlib")
    glyphs[name].draw(Pieces(glyphs))
    return contours


@lru_cache(maxsize=1)
def _glyphs(font: Path) -> Any:
    from fontTools.ttLib import TTFont

    loaded = TTFont(font)
    dates = logging.getLogger("fontTools.ttLib.tables._h_e_a_d")  # suppress its warnings about the old fonts' dates
    dates.disabled = True
    try:
        _ = loaded["head"]
    finally:
        dates.disabled = False
    return loaded.getGlyphSet()


def _bezier(control: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(degree + 1, 2) control points -> (m, 2) points on the curve after its first, by de Casteljau's rule."""
    if len(control) == 2:
        return control[1:]
    t = np.arange(1, CURVE_POINTS + 1)[:, None, None] / CURVE_POINTS
    points = np.broadcast_to(control, (CURVE_POINTS, *control.shape))
    while points.shape[1] > 1:
        points = points[:, :-1] + t * (points[:, 1:] - points[:, :-1])
    return points[:, 0]


def inside(contours: Outline) -> npt.NDArray[np.bool_]:
    """Returns which of the (SIDE FINE)^2 fine cells have their center inside the letter (non-zero winding rule)."""
    size = SIDE * FINE
    points = np.concatenate(contours)
    low, high = points.min(axis=0), points.max(axis=0)
    scale = BOX * FINE / (high - low).max()
    winding = np.zeros((size, size + 1), dtype=np.int64)
    for contour in contours:
        moved = (contour - (low + high) / 2) * scale
        x, y = size / 2 + moved[:, 0], size / 2 - moved[:, 1]  # rows go down
        x_next, y_next = np.roll(x, -1), np.roll(y, -1)
        middles = np.arange(size)[:, None] + 0.5
        crossed = (y <= middles) != (y_next <= middles)  # (size, m)
        rows, edges = np.nonzero(crossed)
        slope = (x_next - x)[edges] / (y_next - y)[edges]
        at = x[edges] + (rows + 0.5 - y[edges]) * slope
        first = np.clip(np.ceil(at - 0.5), 0, size).astype(np.int64)  # the first cell whose center is to the right
        np.add.at(winding, (rows, first), np.where(y_next[edges] > y[edges], 1, -1))
    return winding.cumsum(axis=1)[:, :size] != 0


def _field(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
    """Distances of fine cells to the edge, averaged into cells, in 1/STEPS cells."""
    from scipy.ndimage import distance_transform_edt

    distance = np.where(mask, distance_transform_edt(mask) - 0.5, 0.5 - distance_transform_edt(~mask))
    cells = distance.reshape(SIDE, FINE, SIDE, FINE).mean(axis=(1, 3)) / FINE
    return np.clip(np.rint(cells * STEPS), -127, 127).astype(np.int8)


Floats = npt.NDArray[np.floating[Any]]  # float32

PREFIX = "glyphs:"  # before the number of classes
CHARACTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabdefghmnqrt23456789&?@#%="  # without pairs that differ only in size: c and C
CLASSES = range(10, len(CHARACTERS) + 1)
DEFAULT_CLASSES = 20
IMAGE_SIZE = 32
IMAGES = {"train": 2000, "validation": 1000, "test": 1000}
FONTS = {  # each font family is in one part only
    "train": (
        *(f"DejaVuSans{style}.ttf" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
        *(f"DejaVuSerif{style}.ttf" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
        *(f"cm{style}10.ttf" for style in ("b", "r", "ss", "ti", "tt")),
    ),
    "validation": tuple(f"DejaVuSansMono{style}.ttf" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    "test": tuple(f"STIXGeneral{style}.ttf" for style in ("", "Bol", "Italic", "BolIta")),
}

# Ranges of uniform draws for every letter. Lengths are in pixels.
HEIGHT = (16.0, 26.0)  # of the box around a letter
STRETCH = 0.2  # relative width, 1 - or + this
ROTATION = 0.25  # radians, in both directions
SHEAR = 0.25
THICKENED = (-0.4, 1.2)  # at the edge of strokes
OUTSIDE = 2.0  # how far a letter's box may extend over the border
CLUTTER = 1  # parts of other letters
CLUTTER_HEIGHT = (12.0, 40.0)
CLUTTER_DISTANCE = (13.0, 20.0)  # between the centers of another letter and of the letter
CONTRAST = (0.5, 0.9)  # of the letter
CLUTTER_CONTRAST = (0.1, 0.4)
SLOPE = 0.3  # of the background, from border to border
NOISE = 0.08  # standard deviation
CHUNK = 256  # images drawn at a time, so that intermediate arrays fit into a CPU's cache


def check(settings: DataSettings) -> None:
    """Raises: InvalidInput for a number of classes out of range; DataNotFound if a font is missing."""
    number_of_classes(settings.name)
    folder = font_folder()
    missing = [font for fonts in FONTS.values() for font in fonts if not (folder / font).is_file()]
    if missing:
        raise DataNotFound(
            f"glyphs: expected {', '.join(missing)} in {folder}; reinstall matplotlib: pip install matplotlib"
        )


def number_of_classes(name: str) -> int:
    """Returns K of `glyphs:K`, or DEFAULT_CLASSES for `glyphs`. Raises: InvalidInput unless K is from 10 to 50."""
    if name + ":" == PREFIX:
        return DEFAULT_CLASSES
    number = name.removeprefix(PREFIX)
    if not (number.isascii() and number.isdigit() and int(number) in CLASSES):
        raise InvalidInput(
            f"expected glyphs, or glyphs: with a number of classes from {CLASSES[0]} to {CLASSES[-1]} "
            f"(glyphs:{CLASSES[-1]}), got {name!r}"
        )
    return int(number)


def read(settings: DataSettings) -> RawData:
    """Creates 8-bit images, (n, 1, 32, 32), with balanced classes, drawn by `settings.seed`."""
    classes = number_of_classes(settings.name)
    fonts = [font for of_part in FONTS.values() for font in of_part]
    fields = distance_fields(fonts, CHARACTERS)[:, :classes]
    parts: dict[str, Any] = {}
    for stream, (part, of_part) in enumerate(FONTS.items()):
        rng = np.random.default_rng([settings.seed, classes, stream])
        distances = fields[[fonts.index(font) for font in of_part]].astype(np.float32) / np.float32(STEPS)  # in cells
        labels = rng.permutation(np.arange(IMAGES[part]) % classes)
        images = [_draw(distances, labels[at : at + CHUNK], rng) for at in range(0, len(labels), CHUNK)]
        parts[part] = (np.concatenate(images)[:, None], labels)
    return RawData(**parts, num_classes=classes, flip=False)


def _draw(fields: Floats, labels: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Draws (n, 32, 32), one image per label. fields: (fonts, classes, SIDE, SIDE) distances in cells."""
    count, (fonts, classes) = len(labels), fields.shape[:2]
    height = _uniform(rng, HEIGHT, count)
    free = np.maximum(IMAGE_SIZE / 2 + OUTSIDE - height / 2, 0)  # the largest distance of the letter from the center
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
    """Draws planes, (count, 32, 32), with values in 0..SLOPE."""
    at = (np.arange(IMAGE_SIZE, dtype=np.float32) + 0.5) / IMAGE_SIZE - 0.5
    x, y = (_uniform(rng, (-SLOPE / 2, SLOPE / 2), (count, 1, 1)) for _ in range(2))
    return np.abs(x) / 2 + np.abs(y) / 2 + x * at + y * at[:, None]


def _coverage(fields: Floats, height: Floats, x: Floats, y: Floats, rng: np.random.Generator) -> Floats:
    """Returns the share of each pixel that a letter covers, (n, 32, 32) in 0..1.

    Args:
        fields: (n, SIDE, SIDE) distances of the letters.
        height: (n,) pixels of BOX cells.
        x, y: (n,) pixels from the image's center to the letter's.
    """
    count = len(fields)
    scale = BOX / height  # cells per pixel
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
    """Returns (n, 32, 32) coordinates in a field: its center plus a linear map of pixels, (n, 32) each."""
    a, b = (factor[:, None, None] for factor in factors)
    return a * right[:, None, :] + b * down[:, :, None] + np.float32((SIDE - 1) / 2)


def bilinear(fields: Floats, u: Floats, v: Floats) -> Floats:
    """Interpolates distances, in cells, at column u and row v.

    Outside a field, the result is the border's distance minus the distance to the border.
    fields: (n, SIDE, SIDE); u, v and the result: (n, 32, 32).
    """
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
    """Computes cosine and sine in float64, because machines differ in the last digit, and rounds to float32."""
    exact = angle.astype(np.float64)
    return np.cos(exact).astype(np.float32), np.sin(exact).astype(np.float32)


def _uniform(rng: np.random.Generator, bounds: tuple[float, float], shape: int | tuple[int, ...]) -> Floats:
    low, high = bounds
    return np.float32(low) + np.float32(high - low) * rng.random(shape, dtype=np.float32)
