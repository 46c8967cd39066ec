"""What a `FeatureMapTrainable` is told, and whether its solves fit the memory."""

from __future__ import annotations

import itertools

from pydantic import Field, field_validator

from archray.errors import InvalidInput
from archray.settings import Settings
from archray.trainables.data import DataSettings, TextDataset, data_kind, load_data
from archray.trainables.feature_maps.solve_settings import SolveSettings
from archray.trainables.spaces import get_space
from archray.trainables.spaces.feature_map import FeatureMapSpace


class FeatureMapSettings(Settings):
    """All options of a `FeatureMapTrainable`; they stand in its Tune config under the key `settings`.

    Args:
        space: `fourier`, `ngrams`, or a reference to a space of the user's derived from one of these.
        dimension: features of a solve, where the config has no `budget`.
        rungs: dimensions of the steps of a config with `architecture`, increasing; none: one step of `dimension`.
        device: "auto" (a GPU if the trial was given one, else the CPU), or torch's own word. Texts are solved for on
            the CPU.
        threads: of BLAS and torch; None: as many as the CPUs that Tune gave the trial.
        seed: of a trial whose config has no `seed` of its own: assignments, bases, hashes.
        evaluate_test: whether a standalone solve is evaluated on the test points.
    """

    space: str = "fourier"
    data: DataSettings = DataSettings()
    solve: SolveSettings = SolveSettings()
    dimension: int = Field(2000, ge=1)
    rungs: tuple[int, ...] = ()
    device: str = "auto"
    threads: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0)
    evaluate_test: bool = True

    @field_validator("rungs")
    @classmethod
    def _increasing(cls, rungs: tuple[int, ...]) -> tuple[int, ...]:
        if any(rung < 1 for rung in rungs) or any(a >= b for a, b in itertools.pairwise(rungs)):
            raise ValueError(f"expected increasing dimensions of 1 or more, got {rungs}")
        return rungs

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Of the steps of a config with `architecture`."""
        return self.rungs or (self.dimension,)


def feature_map_space(name_or_reference: str) -> FeatureMapSpace:
    """The space of that name. Raises: InvalidInput if it is not one of feature maps; UnknownName."""
    space = get_space(name_or_reference)
    if not isinstance(space, FeatureMapSpace):
        raise InvalidInput(
            f"expected a space of feature maps, got {name_or_reference!r}, whose architectures are networks; "
            "choose fourier or ngrams"
        )
    return space


def check_data_kind(space: FeatureMapSpace, data: DataSettings) -> None:
    """Raises: InvalidInput if the data are not of the kind that the space's maps are for."""
    kind = data_kind(data)
    if kind != space.data_kind:
        example = "docstrings" if space.data_kind == "text" else "digits"
        raise InvalidInput(
            f"expected {space.data_kind} for the space {space.name}, got {data.name!r} ({kind}); try {example!r}"
        )


def check_memory(solve: SolveSettings, *, data: DataSettings, space: str, dimension: int) -> None:
    """Whether solves of so many features fit `solve.memory_gib`; the data are read for their size.

    Raises: InvalidInput, saying what is needed; as `load_data`.
    """
    feature_maps = feature_map_space(space)
    check_data_kind(feature_maps, data)
    loaded = load_data(data)
    if isinstance(loaded, TextDataset):
        from archray.trainables.feature_maps.ngram_problem import check_ngram_memory

        check_ngram_memory(solve, len(loaded.train), loaded.num_classes, dimension)
    else:
        from archray.trainables.feature_maps.fourier_problem import check_fourier_memory

        inputs = loaded.train.images[0].numel()
        check_fourier_memory(solve, len(loaded.train), inputs, loaded.num_classes, dimension)
