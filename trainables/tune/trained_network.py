"""A trained network, out of the checkpoint that its trial left."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from archray.errors import InvalidInput
from archray.trainables.checkpoint import read_state
from archray.trainables.ensembles.dropped_paths import DROP_PATH, DroppedPaths
from archray.trainables.nets import build
from archray.trainables.spaces import Space
from archray.trainables.tune.standalone_trainable import StandaloneSettings
from archray.trainables.tune.trial_config import read_settings


def load_trained(folder: str | Path, space: str | Space | None = None) -> nn.Module:
    """The network in a `StandaloneTrainable`'s checkpoint, on the CPU, in evaluation mode.

    The checkpoint says all that is needed: settings, architecture, seed, channels, classes, and whether the network is
    to drop paths (`DroppedPaths`).

    folder: of the checkpoint. space: instead of the trial's own, for a reference whose file has moved.
    Raises: InvalidInput for the checkpoint of a trial that failed: it holds no network.
    """
    state = read_state(folder)
    if state["trainer"] is None:
        raise InvalidInput(f"the checkpoint {folder} holds no network, its trial failed: {state['result']['failure']}")
    settings = read_settings(StandaloneSettings, state["settings"])
    network = build(
        settings.space if space is None else space,
        state["architecture"],
        network=settings.network,
        in_channels=state["in_channels"],
        num_classes=state["num_classes"],
        seed=state["seed"],
    )
    network.load_state_dict(state["trainer"]["network"])
    dropped = state.get(DROP_PATH)
    return network.eval() if dropped is None else DroppedPaths(network, **dropped)
