"""Draws a thumbnail of each figure of `archray.plots` from finished runs: `python thumbnails.py RUN_OR_BENCH...`."""

import io
import sys
from pathlib import Path
from typing import Any

from PIL import Image

from archray.errors import ArchrayError
from archray.platform.plots import FIGURES, figure_of
from archray.platform.run.layout import MANIFEST

FOLDER = Path(__file__).with_name("plots")
WIDTH = 420  # pixels
COLORS = 48  # a palette makes the files small


def draw(name: str, place: Any) -> None:
    """Writes NAME.png. Raises: ArchrayError if the figure cannot be drawn from `place`."""
    image = io.BytesIO()
    figure_of(name)(place).savefig(image, format="png", dpi=110, facecolor="white")
    drawing = Image.open(image).convert("RGB")
    small = drawing.resize((WIDTH, round(drawing.height * WIDTH / drawing.width)), Image.Resampling.LANCZOS)
    small.quantize(COLORS).save(FOLDER / f"{name}.png", optimize=True)


def main(places: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    runs = [place for place in places if (Path(place) / MANIFEST).exists()]
    several = [[a, b] for a in runs for b in runs if a < b]
    of = {"run": runs, "bench": sorted(set(places) - set(runs))}
    for name, (kind, _) in FIGURES.items():
        for place in of.get(kind, several):
            try:
                draw(name, place)
            except ArchrayError:
                continue
            break
        else:
            sys.stderr.write(f"no run for {name}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
