"""The configuration of a search that trains a supernet, the spaces it serves, and what the papers have in each."""

from __future__ import annotations

from pydantic import Field

from archray.errors import InvalidInput
from archray.platform.methods.method import network_spaces, serves_networks
from archray.platform.methods.trained_config import TrainedSearchConfig
from archray.settings import Settings
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.spaces import SPACES, Space, get_space
from archray.trainables.supernets.settings import SUPERNETS
from archray.trainables.training_settings import TrainingSettings
from archray.trainables.tune.settings import SupernetOptions

FLOPS = "flops"  # the cost that is penalised where none is named
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
    def penalised(self) -> str:
        """The cost that the mixture's penalty is on."""
        return self.supernet.penalty.cost or next(iter(super().cost_names), FLOPS)

    @property
    def cost_names(self) -> tuple[str, ...]:
        if not self.supernet.penalty.active:
            return super().cost_names
        return tuple(dict.fromkeys((*super().cost_names, self.penalised)))

    @property
    def mode(self) -> str:
        """Whether the best score with shared weights is the least (a loss) or the largest (an accuracy)."""
        return "max"

    def check(self) -> None:
        """Builds both networks without memory: what does not go together is refused before Ray starts."""
        super().check()
        check_penalty(self.supernet)
        check_selection(self.search_seeds, self.selection, self.final)
        check_supernet(self.space, self.supernet)
        check_network(self.space, self.network)


def check_selection(search_seeds: int, selection: SelectionSettings, final: TrainingSettings) -> None:
    """Raises: InvalidInput if some are to be dropped after an epoch that the training does not have."""
    if search_seeds > selection.keep and selection.epoch >= final.epochs:
        raise InvalidInput(
            f"expected selection.epoch to be below final.epochs, {final.epochs}, got {selection.epoch}; "
            f"lower it, or set selection.keep to {search_seeds}: then none is dropped"
        )


def check_penalty(options: SupernetOptions) -> None:
    """Raises: InvalidInput if the cost of a mixture is to count where nothing learns by its gradient."""
    if not options.penalty.active:
        return
    import torch

    from archray.trainables.supernets.optimizers import GradientLearner

    learner = None
    if options.optimizer.domain is not None:
        learner = options.optimizer.learner({"probe": torch.full((1, 2), 0.5, requires_grad=True)})
    if not isinstance(learner, GradientLearner):
        raise InvalidInput(
            f"a cost's weight or target needs an optimizer that takes a mixture's gradient (adam, mirror-descent), got "
            f"{options.optimizer.name}; leave --cost-weight and --cost-target out, or choose darts, pc-darts, gdas "
            "or one of gaea"
        )


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


def mixed_spaces() -> list[str]:
    """The names of archray's spaces that have a supernet of mixed operations."""
    return [name for name in network_spaces() if not (SPACES.get(name).sliced or SPACES.get(name).standalone)]


def serves(space: Space) -> str | None:
    """None for a space that has a supernet of mixed operations; else why it cannot be searched."""
    if (reason := serves_networks(space)) is not None:
        return reason
    if space.sliced:
        return (
            "it has no operations to mix, its networks share slices of weights; choose sliced-supernet, a method that "
            f"trains or scores networks (random, evolution, zero-cost, hnas), or {', '.join(mixed_spaces())}"
        )
    of_archray = space.name in SPACES and not space.standalone
    if of_archray or space.name in SUPERNETS:  # a user's file registers its own
        return None
    return f"it has no supernet; choose {', '.join(mixed_spaces())}, or register one for it (docs/extending.md)"
