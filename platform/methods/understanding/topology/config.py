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
from archray.trainables.spaces.genotypes import GenotypeSpace, cell_space, is_name, named_architectures, spelled_out
from archray.trainables.training_settings import Count, NotNegative, Positive, TrainingSettings

POPULAR = ("darts-v2", "enas", "amoebanet", "nasnet", "snas-mild", "gaea-pc-darts")


class CellPlaneSettings(Settings):
    """The plane through trained weights, along two random directions that are normalized by filter (sec. 4.3.2).

    Attributes:
        points: number of grid points on each side of the plane, at least 3.
        radius: half the side of the plane, in units of the norms of the weights' filters.
        images: number of validation images for losses and gradients.
        gradient_points: number of grid points on each side of the coarser grid for the variance of the gradient.
    """

    points: int = 21
    radius: float = Field(1.0, gt=0)
    images: int = Field(256, ge=2)
    gradient_points: int = Field(5, ge=1)


class CellTraining(TrainingSettings):
    """Settings of the training of a cell. Defaults as in section A.1.3: cosine to zero, no Nesterov momentum.

    Attributes:
        epochs: number of epochs of each training run; 600 in Shu (2022).
        batch_size: number of images per batch; 80 in Shu (2022).
        lr: initial learning rate; 0.025 in Shu (2022).
        nesterov: use Nesterov momentum; false in Shu (2022).
        weight_decay: weight decay of SGD, on all parameters; 3e-4 in Shu (2022).
    """

    epochs: Count = 600
    batch_size: Count = 80
    lr: Positive = 0.025
    nesterov: bool = False
    weight_decay: NotNegative = 3e-4


class TopologyConfig(StudyConfig):
    """The configuration of the study of the connections of cells.

    Fields:
        architectures: cells: names (`archray list architectures`), genotypes, or folders of runs that selected a cell.
            A run also sets space, data and network.
        connections: number of variants of each cell with random connections.
        operations: number of variants of each cell with random operations.
        widest: add the widest and shallowest variant of each cell.
        shapes: number of random connections of each cell for the distribution of width and depth; they are not trained.
        network: the network that contains the cells.
        train: settings of the training of each cell, without regularization, as in section A.1.4.
        learning_rates: factors of `train.lr`; every cell is trained with each of them (0.1, 1 and 10 in section 4.3.1).
        seeds: number of training runs of each cell at each learning rate.
        plane: the plane around the weights of the first training run of each cell with `train.lr`.
        linear_instances: number of random linear cells that test Theorems 4.3 and 4.4; 0 for none.
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
        """Replaces the folder of a run by the architecture that the run selected."""
        return tuple(found_in(place) if is_run(place) else place for place in places)

    @field_validator("learning_rates")
    @classmethod
    def _of_one(cls, factors: tuple[float, ...]) -> tuple[float, ...]:
        if 1.0 not in factors or len(set(factors)) < len(factors) or min(factors) <= 0:
            raise ValueError(f"expected distinct positive factors that include 1, got {factors}")
        return factors

    def check(self) -> None:
        super().check()
        if self.plane.points < 3:
            raise InvalidInput(
                f"expected plane.points to be at least 3, got {self.plane.points}. Set --points 3 or more"
            )
        cells = self.cells
        if not cells:
            raise InvalidInput(f"expected one or more architectures, got none. Choose from {', '.join(POPULAR)}")
        texts = [text for _, _, text in cells]
        if len(set(texts)) < len(texts):
            raise InvalidInput(f"expected distinct architectures, got a duplicate in {', '.join(self.architectures)}")

    @property
    def cells(self) -> list[tuple[str, GenotypeSpace, str]]:
        """The name, the space and the string of each architecture. Raises: InvalidArchitecture."""
        return [_cell(number, text) for number, text in enumerate(self.architectures, start=1)]


def _cell(number: int, text: str) -> tuple[str, GenotypeSpace, str]:
    if is_name(text):
        spaces = named_architectures()
        if text not in spaces:
            raise InvalidArchitecture(
                f"expected a name ({', '.join(sorted(spaces))}), a genotype or the folder of a run, got {text!r}"
            )
        space = get_space(spaces[text][0])
        assert isinstance(space, GenotypeSpace)  # no other space has named architectures
        return text, space, spelled_out(space, text)
    if os.sep in text and "(" not in text:
        raise InvalidArchitecture(
            f"expected the folder of a run, got {text!r}, which has no {MANIFEST}. Pass the folder of --out, a name "
            "(archray list architectures) or a genotype"
        )
    space = cell_space(text)
    string = spelled_out(space, text)
    names = [name for name, named in space.named.items() if spelled_out(space, named) == string]
    return (names[0] if names else f"cell {number}"), space, string


def is_run(place: str) -> bool:
    return len(place) < os.pathconf("/", "PC_PATH_MAX") and "(" not in place and (Path(place) / MANIFEST).is_file()


def found_in(place: str) -> str:
    """The architecture that a run selected. Raises: InvalidInput if the run selected none."""
    from archray.platform.methods.catalog import open_run

    run = open_run(place, uses="tables")
    if run.best.architecture is None:
        raise InvalidInput(f"expected a run that selected an architecture, got {place}. Pass the folder of another run")
    return run.best.architecture


def _of_first_run(options: Values) -> Values:
    """Data and network of the first run among `architectures`."""
    from archray.platform.methods.catalog import open_run

    for place in options.get("architectures") or ():
        if is_run(str(place)):
            config: Mapping[str, Any] = open_run(place).manifest["config"]
            return {key: config[key] for key in ("data", "network") if key in config}
    return {}


def _serves(space: Space) -> str | None:
    if isinstance(space, GenotypeSpace):
        return None
    return "its architectures are not cells with a width and a depth. Choose darts, darts-none or nasnet"


TINY: Values = {"channels": 4, "cells": 1}
NEAR = 0.25  # with a radius of 1, the losses of such small networks are in the hundreds all over the plane
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
