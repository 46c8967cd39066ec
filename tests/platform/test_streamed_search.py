"""Searches on images that are read from files during training: a complete search, and the methods that reject them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import archray
from archray.errors import InvalidInput
from archray.platform.methods import get_method
from archray.platform.methods.catalog import METHODS
from archray.platform.methods.configure import check_config, make_config


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """40 images of two classes, dark and bright."""
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for label in (0, 1):
        (folder / str(label)).mkdir()
        for index in range(20):
            pixels = rng.integers(label * 100, 150 + label * 100, (24, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / str(label) / f"{index}.jpg")
    return f"imagefolder-stream:{folder}"


def test_methods_that_need_all_images_at_once_reject_them(data: str) -> None:
    streaming = [name for name in METHODS if get_method(name).streams]
    check_config(make_config("random", "smoke", None, {"data": data}))
    for name in ("gaea-darts", "nesbs", "fast-halving"):
        assert name not in streaming
        with pytest.raises(InvalidInput, match=r"which streams them from files; .*methods asha, bohb"):
            check_config(make_config(name, "smoke", None, {"data": data}))


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_hnas_on_streamed_images(data: str, tmp_path: Path) -> None:
    sizes = {"pool_size": 4, "budget": 2, "random": 1, "final_epochs": 1, "max_concurrent": 1, "resources__actors": 1}
    own = {"data__image_size": 8, "data__workers": 1, "proxies__batch_size": 8}
    run = archray.search("hnas", preset="smoke", data=data, out=tmp_path / "run", **sizes, **own)
    trials = run.trials
    assert trials["failure"].isna().all() and (trials["validation_loss"] < math.inf).all()
    assert run.test_accuracy is not None and run.model() is not None
