"""The Tune trainable of cells of several spaces, at factors of one learning rate. Shu 2022, A.1.3 and section 4.3.1."""

from __future__ import annotations

from typing import Any

from torch import nn

from archray.errors import InvalidInput
from archray.trainables.checkpoint import load_fitting, read_weights
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.spaces.named_architectures import cell_space
from archray.trainables.tune.standalone_trainable import StandaloneTrainable


class CellTrainable(StandaloneTrainable):
    """A `StandaloneTrainable` of a genotype of whichever space.

    Config: that of `StandaloneTrainable`, and `lr_factor`, by which the learning rate is multiplied (1). The space of
    the settings is the one that reads the architecture.
    """

    def _read(self, config: dict[str, Any]) -> None:
        super()._read(config)
        factor = config.get("lr_factor", 1.0)
        if not isinstance(factor, int | float) or factor <= 0:
            raise InvalidInput(f"expected the config's `lr_factor` to be a number above 0, got {factor!r}")
        training = self._settings.training
        self._settings = self._settings.model_copy(
            update={
                "space": cell_space(self._architecture).name,
                "training": training.model_copy(update={"lr": training.lr * factor}),
            }
        )


def network_state(state: dict[str, Any]) -> dict[str, Any]:
    """What `trained_cell` needs of the state in a checkpoint of a `CellTrainable`."""
    return {
        "architecture": state["architecture"],
        "network": state["trainer"]["network"],
        "settings": state["settings"]["network"],
        "in_channels": state["in_channels"],
        "num_classes": state["num_classes"],
    }


def trained_cell(uri: str) -> nn.Module:
    """The network of a `network_state` at a URI, on the CPU, in evaluation mode.

    Raises: InvalidInput if the weights are of another network.
    """
    state = read_weights(uri)
    network = build(
        cell_space(state["architecture"]),
        state["architecture"],
        network=NetworkSettings(**state["settings"]),
        in_channels=state["in_channels"],
        num_classes=state["num_classes"],
        seed=0,
    )
    load_fitting(network, state["network"], f"the weights of {state['architecture']} in {uri}")
    return network.eval()
