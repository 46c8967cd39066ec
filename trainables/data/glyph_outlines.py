"""Letters of the fonts that matplotlib installs, as distance fields: how far each point is from a letter's edge."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from archray.errors import DataNotFound
from archray.trainables.data.data_cache import cached_array

SIDE = 64  # of a field, in cells
BOX = 44  # cells that the longer side of a letter takes; the margin is for thickened strokes
FINE = 2  # a field's cell is the mean of FINE x FINE finer ones, in which distances are measured
CURVE_POINTS = 8  # straight pieces of a quadratic or cubic curve
STEPS = 8  # a field is stored in 1/STEPS of a cell, clipped to 8 bits: 16 cells either way
FORMAT = 1  # of a stored field; raise it when anything here changes one

Point = tuple[float, float]
Outline = list[npt.NDArray[np.float64]]  # closed contours, (m, 2) points (x, y) each, y upwards


def font_folder() -> Path:
    """Where matplotlib keeps its fonts."""
    import matplotlib as mpl

    return Path(mpl.get_data_path()) / "fonts" / "ttf"


def check_fonts(fonts: Sequence[str]) -> None:
    """Raises: DataNotFound if matplotlib was installed without one of these files."""
    folder = font_folder()
    missing = [font for font in fonts if not (folder / font).is_file()]
    if missing:
        raise DataNotFound(
            f"glyphs: expected {', '.join(missing)} in {folder}; install matplotlib anew: pip install matplotlib"
        )


def distance_fields(fonts: Sequence[str], characters: str) -> npt.NDArray[np.int8]:
    """(fonts, characters, SIDE, SIDE): the signed distance to the letter's edge in 1/STEPS cells, positive inside.

    Row 0 is the top. A letter's bounding box is in the middle, its longer side BOX cells. Kept in the cache folder,
    under the checksum of the fonts and what is drawn from them.
    """
    return cached_array(f"glyphs-{_key(tuple(fonts), characters)}.npy", lambda: make_fields(fonts, characters))


def make_fields(fonts: Sequence[str], characters: str) -> npt.NDArray[np.int8]:
    """What `distance_fields` returns, made anew."""
    fields = np.empty((len(fonts), len(characters), SIDE, SIDE), dtype=np.int8)
    for row, font in zip(fields, fonts, strict=True):
        for field, character in zip(row, characters, strict=True):
            field[:] = _field(inside(outline(font_folder() / font, character)))
    return fields


def outline(font: Path, character: str) -> Outline:
    """The contours of a letter as the font's file has them, in its units, curves in straight pieces.

    Read by fontTools, on which matplotlib depends: what FreeType makes of a file depends on its version.
    Raises: DataNotFound for a font that lacks the letter.
    """
    from fontTools.pens.basePen import BasePen

    glyphs = _glyphs(font)
    contours: Outline = []

    class Pieces(BasePen):
        """Collects contours; BasePen takes composite letters and runs of curves apart."""

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
        raise DataNotFound(f"glyphs: {font} has no letter {character!r}; install matplotlib anew")
    glyphs[name].draw(Pieces(glyphs))
    return contours


@lru_cache(maxsize=1)
def _glyphs(font: Path) -> Any:
    from fontTools.ttLib import TTFont

    loaded = TTFont(font)
    dates = logging.getLogger("fontTools.ttLib.tables._h_e_a_d")  # it warns of the old fonts' dates
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
    """Which of the (SIDE FINE)^2 fine cells have their middle inside the letter, by the non-zero winding rule."""
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
        first = np.clip(np.ceil(at - 0.5), 0, size).astype(np.int64)  # the first cell whose middle is right of it
        np.add.at(winding, (rows, first), np.where(y_next[edges] > y[edges], 1, -1))
    return winding.cumsum(axis=1)[:, :size] != 0


def _field(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
    """Distances of fine cells to the edge, averaged into cells, in 1/STEPS cells."""
    from scipy.ndimage import distance_transform_edt

    distance = np.where(mask, distance_transform_edt(mask) - 0.5, 0.5 - distance_transform_edt(~mask))
    cells = distance.reshape(SIDE, FINE, SIDE, FINE).mean(axis=(1, 3)) / FINE
    return np.clip(np.rint(cells * STEPS), -127, 127).astype(np.int8)


def _key(fonts: tuple[str, ...], characters: str) -> str:
    digest = hashlib.sha256(repr((FORMAT, SIDE, BOX, FINE, STEPS, CURVE_POINTS, characters)).encode())
    for font in fonts:
        digest.update(f"{font};".encode())
        digest.update(hashlib.sha256((font_folder() / font).read_bytes()).digest())
    return digest.hexdigest()[:16]


def as_cells(fields: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Stored fields as distances in cells."""
    return fields.astype(np.float32) / np.float32(STEPS)
