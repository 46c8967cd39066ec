"""The configuration of a search that trains a supernet, the spaces it serves, and what the papers have in each."""

from __future__ import annotations

from pydantic import Field

from archray.errors import InvalidInput
from archray.platform.methods.method import network_spaces, serves_networks
from archray.platform.methods.trained_config import TrainedSearchConfig
from archray.settings import Settings
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.spaces import SPACES, Space, get_space
from archray.trainables.supernets.supernet_registry import SUPERNETS
from archray.trainables.tune.supernet_settings import SupernetOptions

IMAGE_CHANNELS, CLASSES = 3, 10  # of the networks that a check builds: what is wrong with them is so for any data


class SelectionSettings(Settings):
    """Which of the found architectures are trained to the end (GAEA, App. C.1; note G5).

    Fields:
        epoch: after which the worst on validation are dropped.
        keep: how many go on.
    """

    epoch: int = Field(20, ge=1)
    keep: int = Field(3, ge=1)


class SupernetSearchConfig(TrainedSearchConfig):
    """The configuration of a search that trains a supernet.

    Fields:
        supernet: what the supernet is, and how weights and architecture are trained.
        search_seeds: k, how many searches run, each from its own initial weights.
        selection: which of the architectures that they found are trained to the end.
    """

    space: str = "darts"
    supernet: SupernetOptions = SupernetOptions()
    search_seeds: int = Field(5, ge=1)
    selection: SelectionSettings = SelectionSettings()

    @property
    def mode(self) -> str:
        """Whether the best score with shared weights is the least (a loss) or the largest (an accuracy)."""
        return "max"

    def check(self) -> None:
        """Builds both networks without memory: what does not go together is refused before Ray starts."""
        if self.search_seeds > self.selection.keep and self.selection.epoch >= self.final.epochs:
            raise InvalidInput(
                f"expected selection.epoch to be below final.epochs, {self.final.epochs}, got {self.selection.epoch}; "
                f"lower it, or set selection.keep to {self.search_seeds}: then none is dropped"
            )
        check_supernet(self.space, self.supernet)
        check_network(self.space, self.network)


def check_supernet(space: str, options: SupernetOptions) -> None:
    """Builds the supernet without memory. Raises: InvalidInput if its options do not go together."""
    import torch  # not above: a configuration is read, and most that is wrong with it found, without

    with torch.device("meta"):
        options.build(space, in_channels=IMAGE_CHANNELS, num_classes=CLASSES, seed=None)


def check_network(space: str, network: NetworkSettings) -> None:
    """Builds a standalone network without memory. Raises: InvalidInput if its settings do not go together."""
    import torch

    from archray.trainables.nets import build

    some = next(iter(get_space(space).enumerate()))
    with torch.device("meta"):
        build(space, some, network=network, in_channels=IMAGE_CHANNELS, num_classes=CLASSES, seed=None)


def serves(space: Space) -> str | None:
    """None for a space that has a supernet; else why it cannot be searched."""
    if (reason := serves_networks(space)) is not None:
        return reason
    if space.name in SPACES or space.name in SUPERNETS:  # archray's have one each; a user's file registers its own
        return None
    return f"it has no supernet; choose {', '.join(network_spaces())}, or register one for it (docs/extending.md)"
