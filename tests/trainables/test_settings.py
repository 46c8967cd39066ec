"""Settings of every kind: frozen, strict, and the same again from JSON."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from archray.settings import Settings
from archray.trainables.data import AugmentationSettings, DataSettings
from archray.trainables.feature_maps.solve_settings import SolveSettings
from archray.trainables.nets import NetworkSettings
from archray.trainables.proxies import ProxySettings
from archray.trainables.training_settings import TrainingSettings
from archray.trainables.tune.feature_map_trainable import FeatureMapSettings
from archray.trainables.tune.standalone_trainable import StandaloneSettings
from archray.trainables.tune.supernet_trainable import SupernetSettings

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
