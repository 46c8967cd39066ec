"""Settings of every kind are frozen and strict, and round-trip through JSON."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import Field, ValidationError

from archray.settings import Seed, Settings
from archray.trainables.data import AugmentationSettings, DataSettings
from archray.trainables.feature_maps.solve_settings import SolveSettings
from archray.trainables.nets import NetworkSettings
from archray.trainables.proxies import ProxySettings
from archray.trainables.training_settings import TrainingSettings
from archray.trainables.tune.feature_map_trainable import FeatureMapSettings
from archray.trainables.tune.settings import SupernetSettings
from archray.trainables.tune.standalone_trainable import StandaloneSettings

TRAINING = TrainingSettings(epochs=3, grad_clip=5.0, augmentation=AugmentationSettings(cutout=8))
SETTINGS: list[Settings] = [
    AugmentationSettings(cutout=16),
    DataSettings(name="cifar10", data_dir="/data", validation_fraction=0.1, limit=100),
    FeatureMapSettings(rungs=(10, 20), solve=SolveSettings(loss="svm", gram="int8")),
    NetworkSettings(channels=8, init="he"),
    ProxySettings(metrics=("snip", "kappa"), ntk_gradient="exact"),
    StandaloneSettings(data=DataSettings(limit=60), training=TRAINING),
    SupernetSettings(space="darts", partial_channels=4),
    TRAINING,
]


class Numbers(Settings):
    count: int | None = 1
    sizes: tuple[int, ...] = ()
    rate: float | tuple[float, ...] = 0.1
    percent: int = Field(1, le=10**12)
    seed: Seed = 0


@pytest.mark.parametrize(
    "values",
    [
        {"count": 10**22},
        {"count": -(10**22)},
        {"sizes": [1, 10**20]},
        *({"rate": value} for value in ("1e400", "nan", math.inf, [0.1, -math.inf])),
        {"percent": 10**13},
        {"seed": 2**64},
    ],
)
def test_numbers_are_finite_and_bounded(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(values))):
        Numbers.model_validate(values)


def test_a_specific_bound_overrides_the_common_one() -> None:
    assert Numbers(percent=10**12, seed=2**63 - 1, sizes=(10**9,), count=None).percent == 10**12


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: type(settings).__name__)
def test_settings_are_frozen_strict_and_round_trip(settings: Settings) -> None:
    kind, values = type(settings), settings.model_dump(mode="json")
    assert kind.model_validate_json(settings.model_dump_json()) == kind.model_validate(values) == settings
    assert hash(settings) == hash(settings.model_copy())
    with pytest.raises(ValidationError, match="chanels"):
        kind.model_validate({**values, "chanels": 8})
    first = next(iter(values))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(settings, first, values[first])
