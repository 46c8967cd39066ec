"""The configuration of a search with a sliced supernet, trained here or by another run. Chen et al. 2021."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator

from archray.errors import InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.config import flat, merge
from archray.platform.methods.config import TINY, TrainedSearchConfig
from archray.platform.methods.method import Method, Values, network_spaces, serves_networks
from archray.platform.methods.plain.config import check_population
from archray.platform.methods.supernets.config import SMALL, SelectionSettings, check_network, check_selection
from archray.platform.run.layout import DONE
from archray.platform.run.run_summary import read_manifest
from archray.settings import Settings
from archray.trainables.spaces import SPACES, Space
from archray.trainables.supernets.settings import SandwichSettings

STAGE = "supernet"
WEIGHTS, DESCRIPTION = "weights.pt", "supernet.json"


@dataclass(frozen=True)
class TrainedSupernet:
    """The weights of a trained supernet, by path and checksum; the file is not copied.

    Attributes:
        place: URI of the folder that contains `weights.pt`.
        sha256: checksum of that file.
        settings: fields of `SlicedSettings` of the training.
        config: configuration of the run that trained the weights or took them from another run.
        data_checksum: checksum of the data of that run.
    """

    place: str
    sha256: str
    settings: dict[str, Any]
    config: dict[str, Any]
    data_checksum: str | None

    @classmethod
    def of_run(cls, run: str) -> Self:
        """The supernet of a run. Raises: InvalidInput if the folder is not a run with a trained sliced supernet."""
        advice = "pass the folder of a run of sliced-supernet whose stage `supernet` has finished"
        try:
            manifest = read_manifest(Folder(run))
        except RunFolderError as error:
            raise InvalidInput(f"expected the folder of a run as supernet, got {run}: {error}; {advice}") from error
        folder = Folder(run) / STAGE
        if not folder.exists(DONE) or not folder.exists(DESCRIPTION):
            raise InvalidInput(f"expected a run with a trained sliced supernet, got {run}; {advice}")
        document = folder.read_json(DESCRIPTION)
        return cls(
            place=document["place"] or folder.uri,
            sha256=document["sha256"],
            settings=document["settings"],
            config=manifest["config"],
            data_checksum=manifest["data_checksum"],
        )

    def write(self, folder: Folder) -> None:
        """Writes the description into the folder of a stage, without the path of weights that are stored there."""
        place = None if self.place == folder.uri else self.place
        folder.write_json(DESCRIPTION, {"place": place, "sha256": self.sha256, "settings": self.settings})

    def weights(self) -> dict[str, Any]:
        """The state of the supernet, tensors by name. Raises: InvalidInput if the file is missing or has changed."""
        from archray.trainables.checkpoint import read_weights  # which imports torch

        folder = Folder(self.place)
        if not folder.exists(WEIGHTS):
            raise InvalidInput(
                f"expected the supernet's weights at {folder}/{WEIGHTS}, which does not exist; restore the run that "
                "trained them"
            )
        if folder.sha256(WEIGHTS) != self.sha256:
            raise InvalidInput(
                f"the supernet's weights {folder}/{WEIGHTS} have changed since this run started. Start a new run"
            )
        return read_weights((folder / WEIGHTS).uri)


class SlicedSearchOptions(Settings):
    """The search with the shared weights.

    Fields:
        evolve: search by aging evolution (Real et al. 2019) if true, at random otherwise.
        budget: number of evaluations with shared weights.
        population: size of the population of the evolution; 50 in Chen et al. (2021).
        sample_size: number of members of the population that are drawn to choose a parent from.
    """

    evolve: bool = True
    budget: int = Field(1000, ge=1)
    population: int = Field(50, ge=1)
    sample_size: int = Field(10, ge=1)


class SlicedConfig(TrainedSearchConfig):
    """The configuration of a search with a sliced supernet.

    Fields:
        supernet: folder of another run of this method with the same space, data and network, whose trained weights are
            used. Default: train a supernet.
        sandwich: settings of the training of the supernet; ignored with the weights of another run.
        search: options of the search with the shared weights.
        candidates: number of architectures, the best by shared weights, that start the final training.
        selection: which of the candidates are trained to the end.
    """

    method: Literal["sliced-supernet"] = "sliced-supernet"
    space: str = "vit"
    supernet: str | None = None
    sandwich: SandwichSettings = SandwichSettings()
    search: SlicedSearchOptions = SlicedSearchOptions()
    candidates: int = Field(5, ge=1)
    selection: SelectionSettings = SelectionSettings()

    @property
    def mode(self) -> str:
        """The direction of the score with shared weights, an accuracy: `max`."""
        return "max"

    @field_validator("supernet")
    @classmethod
    def _absolute_folder(cls, place: str | None) -> str | None:
        """Makes the path absolute: a run may be resumed from another folder."""
        return place if place is None or "://" in place else str(Path(place).expanduser().absolute())

    def check(self) -> None:
        super().check()
        check_selection(self.candidates, self.selection, self.final)
        check_network(self.space, self.network)
        if self.search.evolve:
            check_population(self.search.population, self.search.budget)
        if self.candidates > self.search.budget:
            raise InvalidInput(
                f"expected candidates to be at most search.budget, {self.search.budget}, got {self.candidates}. "
                "Lower it"
            )
        if self.supernet is not None:
            self.check_source(TrainedSupernet.of_run(self.supernet))

    def check_source(self, source: TrainedSupernet) -> None:
        """Checks that space, data and network of the other run are the same. Raises: InvalidInput."""
        config = self.model_dump(mode="json")
        for part in ("space", "data", "network"):
            expected, leaves = _leaves(part, source.config[part]), _leaves(part, config[part])
            differ = [key for key in leaves if expected.get(key) != leaves[key]]
            if differ:
                raise InvalidInput(
                    f"expected {differ[0]} to be {expected.get(differ[0])!r}, as in the training of the supernet in "
                    f"{self.supernet}, got {leaves[differ[0]]!r}. Set the same value, or remove supernet to train one"
                )


def _leaves(part: str, value: Any) -> dict[str, Any]:
    """Settings by their paths, without the local folder of the data."""
    leaves = flat(value, f"{part}.") if isinstance(value, Mapping) else {part: value}
    return {key: leaf for key, leaf in leaves.items() if key != "data.data_dir"}


def serves(space: Space) -> str | None:
    """None for a space whose networks are slices of its largest one; otherwise the reason why it cannot be searched."""
    if (reason := serves_networks(space)) is not None:
        return reason
    if "sliced" in space.supernets:
        return None
    sliced = ", ".join(name for name in network_spaces() if "sliced" in SPACES.get(name).supernets)
    return (
        f"its networks are not slices of its largest network. Choose the space {sliced}, or the method rs-ws, which "
        "mixes operations"
    )


_FINAL: Values = {"epochs": 30, "batch_size": 64}
PRESETS: Mapping[str, Values] = {
    "smoke": {
        "network": TINY,
        "sandwich": {"epochs": 1, "batch_size": 128, "draws": 1},
        "search": {"budget": 8, "population": 4, "sample_size": 2},
        "candidates": 2,
        "selection": {"epoch": 1, "keep": 1},
        "final": {"epochs": 2, "batch_size": 128},
        "baseline": 1,
    },
    "demo": {
        "network": SMALL,
        "sandwich": {"epochs": 30},
        "search": {"budget": 100, "population": 25},
        "candidates": 3,
        "selection": {"epoch": 10, "keep": 1},
        "final": _FINAL,
        "final_seeds": 2,
        "baseline": 3,
    },
    # the schedule of AutoFormer (500 epochs), with networks for the images of CIFAR
    "paper": {
        "data": {"name": "cifar10"},
        "network": {"channels": 32, "cells": 1},
        "sandwich": {"epochs": 500, "batch_size": 256},
        "final": merge(_FINAL, {"epochs": 200, "batch_size": 256}),
        "final_seeds": 3,
    },
}
FLAGS: Mapping[str, str] = {
    "supernet": "supernet",
    "epochs": "sandwich.epochs",
    "budget": "search.budget",
    "population": "search.population",
    "candidates": "candidates",
    "final_epochs": "final.epochs",
    "final_seeds": "final_seeds",
    "random": "baseline",
}

SLICED_SUPERNET = Method(
    name="sliced-supernet",
    config=SlicedConfig,
    recipe_at="archray.platform.methods.supernets.sliced:RECIPE",
    presets=PRESETS,
    flags=FLAGS,
    extendable=("final_epochs", "final_seeds", "random"),
    serves=serves,
)
