"""What an actor does of an attacked run: it holds the ensemble and the images, and attacks a member at a time."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from archray.files import Folder
from archray.seeds import named_seed
from archray.trainables.adversarial.defence import attack_member, check_pixels
from archray.trainables.adversarial.settings import AttackSettings
from archray.trainables.data import DataSettings, load_images
from archray.trainables.devices import choose_device
from archray.trainables.ensembles.ensemble import load_ensemble


def chosen_images(images: int, number: int, seed: int) -> npt.NDArray[np.int64]:
    """`number` of so many images, drawn by `seed`, as ascending places; the same for every attack and member."""
    draw = np.random.default_rng(named_seed(seed, "attacked images")).permutation(images)[:number]
    return np.sort(draw).astype(np.int64)


class AttackWorker:
    """Attacks members of one trained ensemble on test images.

    Args:
        model: the folder of the ensemble's files, a path or a URI. space: of its members; see `load_ensemble`.
        data: settings of the data, as a dict. images: how many of the test images. settings: `AttackSettings`, as a
            dict. seed: of the draws.
        device: `auto` takes a GPU where one is visible.
    """

    def __init__(
        self,
        model: str,
        space: str,
        data: dict[str, Any],
        images: int,
        settings: dict[str, Any],
        seed: int,
        device: str,
    ) -> None:
        place = choose_device(device)
        dataset = load_images(DataSettings(**data))
        self.form = check_pixels(dataset)
        self.chosen = chosen_images(len(dataset.test), images, seed)
        rows = torch.from_numpy(self.chosen)
        self.images = dataset.test.images[rows].to(place)
        self.labels = dataset.test.labels[rows].to(place)
        self.ensemble = load_ensemble(Folder(model).read_bytes, space).to(place)
        self.settings, self.seed = AttackSettings(**settings), seed

    def __call__(self, item: tuple[str, int]) -> pd.DataFrame:
        """The table of `attack_member` for (attack, member); `image` is the place in the test split."""
        name, member = item
        table = attack_member(
            self.ensemble, self.form, self.images, self.labels, member, name, self.settings, seed=self.seed
        )
        return table.assign(image=self.chosen)
