"""What the networks of a space need, whatever the method: of their trainings, and as a metric to go by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from archray.platform.config import SearchConfig
from archray.trainables.spaces import get_space
from archray.trainables.training_settings import TrainingSettings


@dataclass(frozen=True)
class SpaceDefaults:
    """Options of a space's networks: of every training, and the metric that a search by one goes by."""

    training: Mapping[str, Any]
    metric: str


# A transformer at the learning rate of convolutional networks, 0.1, learnt nothing of digits without clipping; and
# synflow has no value on it. Nor on ConvNeXts, which learn at that rate.
OF_SPACE: Mapping[str, SpaceDefaults] = {
    "vit": SpaceDefaults({"grad_clip": 1.0}, "snip"),
    "timm:convnext": SpaceDefaults({}, "snip"),
}


def space_defaults(config: type[SearchConfig], space: str) -> dict[str, Any]:
    """The options that a space's networks need in a method's configuration, as far as it has such fields.

    space: a registered name or a reference.
    """
    options = OF_SPACE.get(get_space(space).name)
    if options is None:
        return {}
    fields = config.model_fields
    values: dict[str, Any] = {
        name: dict(options.training) for name, field in fields.items() if field.annotation is TrainingSettings
    }
    search = fields.get("search")
    if search is not None and "proxy" in getattr(search.annotation, "model_fields", {}):
        values["search"] = {"proxy": options.metric}
    return values
