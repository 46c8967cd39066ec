"""Configurations, presets and flags of searches that train a supernet, and the options of the papers per space."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from pydantic import Field

from archray.errors import InvalidInput
from archray.platform.config import merge
from archray.platform.methods.config import TINY, TrainedSearchConfig
from archray.platform.methods.method import Method, Values, network_spaces, serves_networks
from archray.settings import Settings
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.spaces import SPACES, Space, get_space
from archray.trainables.supernets.settings import SUPERNETS, PathSettings
from archray.trainables.training_settings import TrainingSettings
from archray.trainables.tune.settings import SupernetOptions

FLOPS = "flops"  # the default cost of a penalty
IMAGE_CHANNELS, CLASSES = 3, 10  # of the networks that a check builds: their errors do not depend on the data set


class SelectionSettings(Settings):
    """Selection of the found architectures that are trained to the end (GAEA, App. C.1; note G5).

    Fields:
        epoch: epoch after which only the best architectures on validation data continue to train.
        keep: number of architectures that are trained to the end.
    """

    epoch: int = Field(20, ge=1)
    keep: int = Field(3, ge=1)


class SupernetSearchConfig(TrainedSearchConfig):
    """The configuration of a search that trains a supernet.

    Fields:
        supernet: the supernet, and the training of its weights and architecture parameters.
        search_seeds: number of searches, each with its own initial weights.
        selection: which of the found architectures are trained to the end.
    """

    space: str = "darts"
    supernet: SupernetOptions = SupernetOptions()
    search_seeds: int = Field(5, ge=1)
    selection: SelectionSettings = SelectionSettings()

    @property
    def penalized(self) -> str:
        """The cost in the penalty on the mixture."""
        return self.supernet.penalty.cost or next(iter(super().cost_names), FLOPS)

    @property
    def cost_names(self) -> tuple[str, ...]:
        if not self.supernet.penalty.active:
            return super().cost_names
        return tuple(dict.fromkeys((*super().cost_names, self.penalized)))

    @property
    def mode(self) -> str:
        """Whether the best score with shared weights is the smallest (a loss) or the largest (an accuracy)."""
        return "max"

    def check(self) -> None:
        """Builds both networks without memory, so that options that do not fit raise an error before Ray starts."""
        super().check()
        check_penalty(self.supernet)
        check_selection(self.search_seeds, self.selection, self.final)
        check_supernet(self.space, self.supernet)
        check_network(self.space, self.network)


def check_selection(search_seeds: int, selection: SelectionSettings, final: TrainingSettings) -> None:
    """Checks that the selection is before the last epoch of the training. Raises: InvalidInput."""
    if search_seeds > selection.keep and selection.epoch >= final.epochs:
        raise InvalidInput(
            f"expected selection.epoch to be below final.epochs, {final.epochs}, got {selection.epoch}. "
            f"Lower it, or set selection.keep to {search_seeds} to train all architectures to the end"
        )


def check_penalty(options: SupernetOptions) -> None:
    """Checks that the optimizer of a penalty uses the gradient of the mixture. Raises: InvalidInput."""
    if not options.penalty.active:
        return
    import torch

    from archray.trainables.supernets.optimizers import GradientLearner

    learner = None
    if options.optimizer.domain is not None:
        learner = options.optimizer.learner({"probe": torch.full((1, 2), 0.5, requires_grad=True)})
    if not isinstance(learner, GradientLearner):
        raise InvalidInput(
            f"expected an optimizer that uses the gradient of the mixture (adam, mirror-descent) with a cost's weight "
            f"or target, got {options.optimizer.name}. Remove --cost-weight and --cost-target, or choose darts, "
            "pc-darts, gdas or a gaea method"
        )


def check_supernet(space: str, options: SupernetOptions) -> None:
    """Builds the supernet without memory. Raises: InvalidInput if its options do not fit."""
    # By the space itself, not its name: the file of a user's space may change.
    _build_supernet(get_space(space), options.network, options.partial_channels, options.none)


@lru_cache(maxsize=64)
def _build_supernet(space: Space, network: NetworkSettings, partial_channels: int, none: bool) -> None:
    import torch  # here, as reading a configuration and most of its checks do not need torch

    options = SupernetOptions(network=network, partial_channels=partial_channels, none=none)
    with torch.device("meta"):
        options.build(space, in_channels=IMAGE_CHANNELS, num_classes=CLASSES, seed=None)


def check_network(space: str, network: NetworkSettings) -> None:
    """Builds a standalone network without memory. Raises: InvalidInput if its settings do not fit."""
    _build_network(get_space(space), network)


@lru_cache(maxsize=64)
def _build_network(space: Space, network: NetworkSettings) -> None:
    import torch

    from archray.trainables.nets import build

    architecture = space.sample(np.random.default_rng(0))  # `enumerate` may find none that meets a constraint
    with torch.device("meta"):
        build(space, architecture, network=network, in_channels=IMAGE_CHANNELS, num_classes=CLASSES, seed=None)


def mixed_spaces() -> list[str]:
    """The names of the built-in spaces that have a supernet of mixed operations."""
    return [name for name in network_spaces() if "mixed" in SPACES.get(name).supernets]


def serves(space: Space) -> str | None:
    """None for a space that has a supernet of mixed operations; otherwise the reason why it cannot be searched."""
    if (reason := serves_networks(space)) is not None:
        return reason
    if "mixed" in space.supernets or space.family in SUPERNETS:  # a user's file may register one
        return None
    if "sliced" in space.supernets:
        return (
            "its networks share slices of weights and have no operations to mix. Choose the method sliced-supernet, a "
            "method that trains or scores networks (random, evolution, zero-cost, hnas), or one of the spaces "
            f"{', '.join(mixed_spaces())}"
        )
    return f"it has no supernet. Choose {', '.join(mixed_spaces())}, or register one for it (docs/extending.md)"


# Shared by methods that train a supernet: defaults of each space, presets, flags.

# Small images are too small for an auxiliary tower, and few epochs too short for dropped paths.
PLAIN: Values = {
    "network": {"auxiliary": False},
    "final": {"auxiliary_weight": 0.0, "drop_path": 0.0, "augmentation": {"cutout": 0}},
}
SMALL: Values = {"channels": 8, "cells": 1}
PRESETS: Mapping[str, Values] = {
    "smoke": merge(
        PLAIN,
        {
            "supernet": {"network": TINY, "training": {"epochs": 2, "batch_size": 128, "warmup_epochs": 0}},
            "search_seeds": 2,
            "selection": {"epoch": 1, "keep": 1},
            "network": TINY,
            "final": {"epochs": 2, "batch_size": 64},
            "baseline": 1,
        },
    ),
    "demo": merge(
        PLAIN,
        {
            "supernet": {"network": SMALL, "training": {"epochs": 10, "batch_size": 64, "warmup_epochs": 2}},
            "search_seeds": 3,
            "selection": {"epoch": 3, "keep": 1},
            "network": SMALL,
            "final": {"epochs": 10, "batch_size": 64},
            "final_seeds": 2,
            "baseline": 3,
        },
    ),
    "paper": {"data": {"name": "cifar10"}, "search_seeds": 5, "selection": {"epoch": 20, "keep": 3}, "final_seeds": 10},
}
RANDOM_PATHS: Values = {"supernet": {"relaxation": {"name": "path"}, "optimizer": {"name": "none"}}}
FLAGS: Mapping[str, str] = {
    "epochs": "supernet.training.epochs",
    "objective": "supernet.training.objective",
    "cost_weight": "supernet.penalty.weight",
    "cost_target": "supernet.penalty.target",
    "search_channels": "supernet.network.channels",
    "search_cells": "supernet.network.cells",
    "search_seeds": "search_seeds",
    "final_epochs": "final.epochs",
    "final_seeds": "final_seeds",
    "random": "baseline",
}


def defaults_of(space: str, *method: Values) -> dict[str, Any]:
    """The options of supernet searches in a space, with the options of a method on top.

    Args:
        space: a registered name or a reference.
        method: options of the method; later ones override earlier ones.
    """
    return merge(get_space(space).defaults.get("supernets", {}), *method)


def supernet_method(
    name: str,
    recipe_at: str,
    *method: Values,
    config: type[SupernetSearchConfig] = SupernetSearchConfig,
    presets: Mapping[str, Values] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Method:
    """A method with the three stages of GAEA: search, selection, final training.

    Args:
        name: name of the method.
        recipe_at: location of its `supernet_recipe`.
        method: options of the method; later ones override earlier ones.
        config: class of its configuration.
        presets, flags: values that override or extend the shared ones.
    """
    return Method(
        name=name,
        config=config,
        recipe_at=recipe_at,
        defaults=lambda space: defaults_of(space, *method),
        presets={preset: merge(values, (presets or {}).get(preset, {})) for preset, values in PRESETS.items()},
        flags={**FLAGS, **(flags or {})},
        extendable=("final_epochs", "final_seeds", "random"),
        serves=serves,
    )


class RandomSearchWSConfig(SupernetSearchConfig):
    """The configuration of random search with weight sharing. Li and Talwalkar 2019, section 3.2.

    Fields:
        samples: number of random architectures that are scored with the weights of each supernet, at most all of the
            space; the authors' program scores 1,000.
    """

    method: Literal["rs-ws"] = "rs-ws"
    samples: int = Field(1000, ge=1)

    def check(self) -> None:
        if not isinstance(self.supernet.relaxation, PathSettings):
            raise InvalidInput(
                f"expected supernet.relaxation to be path for rs-ws, which trains a random path in each step, got "
                f"{self.supernet.relaxation.name}. Remove it, or choose another method"
            )
        super().check()


RS_WS = supernet_method(
    "rs-ws",
    "archray.platform.methods.supernets.random_paths:RS_WS_RECIPE",
    RANDOM_PATHS,
    config=RandomSearchWSConfig,
    presets={"smoke": {"samples": 16}, "demo": {"samples": 200}},
    flags={"samples": "samples"},
)


class SupernetHalvingConfig(SupernetSearchConfig):
    """The configuration of halving in a supernet; see `WeightSharingHalving`. Khodak et al. 2020, Algorithm 1.

    Every round trains for `supernet.training.epochs`, including the last one, which trains only the winner.

    Fields:
        search_seeds: number of searches, always 1; its replicas run at the same time.
        candidates: number of random architectures at the start, at most all of the space.
        replicas: number of supernets per round, each with its own initial weights; their scores are averaged.
        keep: share of the candidates that stay after each round.
        growth: factor by which the epochs grow from round to round; 1 in Algorithm 1.
        score: value on validation data that ranks the candidates.
    """

    method: Literal["supernet-halving"] = "supernet-halving"
    search_seeds: Literal[1] = 1
    candidates: int = Field(256, ge=2)
    replicas: int = Field(1, ge=1)
    keep: float = Field(0.5, gt=0, lt=1)
    growth: float = Field(1.0, ge=1)
    score: Literal["loss", "accuracy"] = "loss"

    @property
    def mode(self) -> str:
        return "min" if self.score == "loss" else "max"


SUPERNET_HALVING = supernet_method(
    "supernet-halving",
    "archray.platform.methods.supernets.random_paths:HALVING_RECIPE",
    RANDOM_PATHS,
    {"search_seeds": 1},
    config=SupernetHalvingConfig,
    presets={
        "smoke": {"candidates": 4, "search_seeds": 1},
        "demo": {"candidates": 32, "search_seeds": 1},
        "paper": {"search_seeds": 1},
    },
    flags={"candidates": "candidates", "replicas": "replicas"},
)


# Searches that learn architecture parameters with a supernet: a relaxation, an optimizer and an objective each.

SOFTMAX, SIMPLEX = {"name": "softmax"}, {"name": "simplex"}
GUMBEL = {"name": "gumbel", "start": 10.0, "end": 0.1, "form": "linear", "hard": True}  # GDAS
CONCRETE = {"name": "gumbel", "start": 1.0, "end": 0.03, "form": "exponential", "hard": False}  # SNAS
ADAM = {"name": "adam", "lr": 3e-4, "betas": [0.5, 0.999], "weight_decay": 1e-3}  # DARTS, App. A.1
EXPONENTIATED = {"name": "mirror-descent", "lr": 0.1}  # GAEA, App. C.1.1; note G1
CLIPPED = {"name": "xnas"}  # at the rate of its regret bound
CONTROLLER, REINFORCE = {"name": "controller"}, {"name": "reinforce"}  # ENAS
PARTIAL = {"batch_size": 256, "lr": 0.1, "lr_min": 0.0}  # weights under partial channels: PC-DARTS; GAEA, C.1.1


def learned(name: str, relaxation: Values, optimizer: Values, *, partial_channels: int = 1, **training: Any) -> Method:
    """A method composed of registered parts.

    Args:
        name: name of the method.
        relaxation: options of the relaxation.
        optimizer: options of the optimizer of the architecture parameters.
        partial_channels: the supernet mixes one in this number of channels (PC-DARTS); 1 for all.
        training: options of the supernet's training, including its objective.
    """
    supernet = {
        "relaxation": relaxation,
        "optimizer": optimizer,
        "partial_channels": partial_channels,
        "training": training,
    }
    return supernet_method(name, "archray.platform.methods.supernets.stages:LEARNED", {"supernet": supernet})


DARTS = learned("darts", SOFTMAX, ADAM)
DARTS_2ND = learned("darts-2nd", SOFTMAX, ADAM, objective="bilevel-second-order")
PC_DARTS = learned("pc-darts", SOFTMAX, {**ADAM, "lr": 6e-4}, partial_channels=4, warmup_epochs=15, **PARTIAL)
GDAS = learned("gdas", GUMBEL, ADAM, epochs=250)
SNAS = learned("snas", CONCRETE, ADAM, epochs=150, objective="erm")
GAEA_DARTS = learned("gaea-darts", SIMPLEX, EXPONENTIATED)
GAEA_PC_DARTS = learned("gaea-pc-darts", SIMPLEX, EXPONENTIATED, partial_channels=4, warmup_epochs=10, **PARTIAL)
GAEA_GDAS = learned("gaea-gdas", GUMBEL, EXPONENTIATED, epochs=150)
XNAS = learned("xnas", SIMPLEX, CLIPPED)
ENAS = learned("enas", CONTROLLER, REINFORCE, epochs=150)
