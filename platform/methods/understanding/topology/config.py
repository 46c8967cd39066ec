"""Configuration of the study of cells by their connections. Shu 2022, ch. 4."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from archray.errors import InvalidArchitecture, InvalidInput
from archray.platform.methods.method import Method, Values
from archray.platform.methods.understanding import StudyConfig
from archray.platform.run.layout import MANIFEST
from archray.settings import REPEATED, Settings
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.spaces import Space, get_space
from archray.trainables.spaces.genotypes import GenotypeSpace, cell_space, is_name, named_architectures, spelt_out
from archray.trainables.training_settings import Count, NotNegative, Positive, TrainingSettings

POPULAR = ("darts-v2", "enas", "amoebanet", "nasnet", "snas-mild", "gaea-pc-darts")


class CellPlaneSettings(Settings):
    """The plane through trained weights, along two random directions that are normalised by filter (sec. 4.3.2).

    Attributes:
        points: number on each side of the square, 3 or more.
        radius: half of its side, in lengths of the weights' filters.
        images: number of validation images for losses and gradients.
        gradient_points: number on each side of the coarser square on which the variance of the gradient is measured.
    """

    points: int = 21
    radius: float = Field(1.0, gt=0)
    images: int = Field(256, ge=2)
    gradient_points: int = Field(5, ge=1)


class CellTraining(TrainingSettings):
    """How a cell is trained. The defaults are section A.1.3's: cosine to zero, and no Nesterov momentum.

    Attributes:
        epochs: of each training; 600 in the thesis.
        batch_size: 80 in the thesis.
        lr: at the start; 0.025 in the thesis.
        nesterov: whether the momentum is Nesterov's; not in the thesis.
        weight_decay: of SGD, on every parameter; 3e-4 in the thesis.
    """

    epochs: Count = 600
    batch_size: Count = 80
    lr: Positive = 0.025
    nesterov: bool = False
    weight_decay: NotNegative = 3e-4


class TopologyConfig(StudyConfig):
    """The study of cells by their connections.

    Fields:
        architectures: cells, by name (`archray list architectures`), as genotypes, or as the folders of runs that found
            them; of a run space, data and network are taken too.
        connections: variants of each with other connections.
        operations: variants of each with other operations.
        widest: whether the widest and shallowest form of each is one more.
        shapes: random connections of each whose width and depth alone are looked at.
        network: the skeleton that cells are put in.
        train: how each is trained: without regularisation, as section A.1.4.
        learning_rates: factors of `train.lr`, with each of which every cell is trained (sec. 4.3.1: 0.1, 1 and 10).
        seeds: trainings of each cell at each learning rate.
        plane: around the weights of each cell's first training with `train.lr`.
        linear_instances: random linear cells on which Theorems 4.3 and 4.4 are checked; 0 for none.
    """

    method: str = "topology"
    space: str = "darts"
    architectures: Annotated[tuple[str, ...], REPEATED] = POPULAR
    connections: int = Field(12, ge=0)
    operations: int = Field(4, ge=0)
    widest: bool = True
    shapes: int = Field(1000, ge=1)
    network: NetworkSettings = NetworkSettings(channels=36, cells=6)
    train: CellTraining = CellTraining()
    learning_rates: Annotated[tuple[float, ...], REPEATED] = (1.0,)
    seeds: int = Field(1, ge=1)
    plane: CellPlaneSettings = CellPlaneSettings()
    linear_instances: int = Field(1000, ge=0)

    @field_validator("architectures")
    @classmethod
    def _of_runs(cls, places: tuple[str, ...]) -> tuple[str, ...]:
        """Replaces the folder of a run by the architecture that the run found."""
        return tuple(found_in(place) if is_run(place) else place for place in places)

    @field_validator("learning_rates")
    @classmethod
    def _of_one(cls, factors: tuple[float, ...]) -> tuple[float, ...]:
        if 1.0 not in factors or len(set(factors)) < len(factors) or min(factors) <= 0:
            raise ValueError(f"expected distinct factors above 0 with 1 among them, got {factors}")
        return factors

    def check(self) -> None:
        super().check()
        if self.plane.points < 3:
            raise InvalidInput(
                f"expected a plane of 3 points or more on a side, got {self.plane.points}; give --points 3 at least"
            )
        cells = self.cells
        if not cells:
            raise InvalidInput(f"expected one architecture or more, got none; name one of {', '.join(POPULAR)}")
        texts = [text for _, _, text in cells]
        if len(set(texts)) < len(texts):
            raise InvalidInput(f"expected different architectures, got one twice: {', '.join(self.architectures)}")

    @property
    def cells(self) -> list[tuple[str, GenotypeSpace, str]]:
        """The name, the space and the string of each architecture. Raises: InvalidArchitecture."""
        return [_cell(number, text) for number, text in enumerate(self.architectures, start=1)]


def _cell(number: int, text: str) -> tuple[str, GenotypeSpace, str]:
    if is_name(text):
        spaces = named_architectures()
        if text not in spaces:
            raise InvalidArchitecture(
                f"there is no architecture {text!r}, and no run in a folder of that name; name one of "
                f"{', '.join(sorted(spaces))}, or give a genotype, or the folder of a run"
            )
        space = get_space(spaces[text][0])
        assert isinstance(space, GenotypeSpace)  # no other space has named architectures
        return text, space, spelt_out(space, text)
    if os.sep in text and "(" not in text:
        raise InvalidArchitecture(
            f"there is no run in the folder {text!r} (no {MANIFEST}), and no genotype is spelt like that; give the "
            "folder that --out named, or a name (archray list architectures)"
        )
    space = cell_space(text)
    string = spelt_out(space, text)
    names = [name for name, named in space.named.items() if spelt_out(space, named) == string]
    return (names[0] if names else f"cell {number}"), space, string


def is_run(place: str) -> bool:
    return len(place) < os.pathconf("/", "PC_PATH_MAX") and "(" not in place and (Path(place) / MANIFEST).is_file()


def found_in(place: str) -> str:
    """The architecture that a run found. Raises: InvalidInput if it found none."""
    from archray.platform.methods.catalogue import open_run

    run = open_run(place, uses="tables")
    if run.best.architecture is None:
        raise InvalidInput(f"expected a run that found one architecture, got {place}, which has none; name another")
    return run.best.architecture


def _of_first_run(options: Values) -> Values:
    """Data and network of the first run among `architectures`."""
    from archray.platform.methods.catalogue import open_run

    for place in options.get("architectures") or ():
        if is_run(str(place)):
            config: Mapping[str, Any] = open_run(place).manifest["config"]
            return {key: config[key] for key in ("data", "network") if key in config}
    return {}


def _serves(space: Space) -> str | None:
    if isinstance(space, GenotypeSpace):
        return None
    return "its architectures have no cells with a width and a depth; choose darts, darts-none or nasnet"


TINY: Values = {"channels": 4, "cells": 1}
NEAR = 0.25  # at 1 the losses of networks as small as these are in the hundreds all over the plane
TOPOLOGY = Method(
    name="topology",
    config=TopologyConfig,
    recipe_at="archray.platform.methods.understanding.topology.stages:RECIPE",
    presets={
        "smoke": {
            "architectures": ["darts-v2", "amoebanet"],
            "connections": 2,
            "operations": 1,
            "shapes": 50,
            "network": TINY,
            "train": {"epochs": 2, "batch_size": 128, "augmentation": None, "threads": 1},
            "plane": {"points": 3, "radius": NEAR, "images": 64, "gradient_points": 1},
            "linear_instances": 36,
        },
        "demo": {
            "connections": 4,
            "operations": 2,
            "network": TINY,
            "train": {"epochs": 6, "augmentation": None, "threads": 1},
            "plane": {"points": 11, "radius": NEAR, "images": 128},
        },
        "paper": {"data": {"name": "cifar10"}, "learning_rates": [1.0, 0.1, 10.0], "plane": {"points": 41}},
    },
    flags={
        "architecture": "architectures",
        "connections": "connections",
        "operations": "operations",
        "epochs": "train.epochs",
        "learning_rate": "learning_rates",
        "seeds": "seeds",
        "points": "plane.points",
        "linear": "linear_instances",
    },
    serves=_serves,
    words="architecture",
    stands_for=_of_first_run,
)
