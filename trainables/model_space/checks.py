"""Checks of a model with choices by forward passes, before a search."""

import itertools
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from archray.errors import InvalidInput
from archray.trainables.devices import restored_randomness
from archray.trainables.model_space.choices import ChoiceModule, isolated_choices, reached_choices


def check_forward(model: nn.Module, images: Tensor) -> Tensor:
    """Computes a forward pass with every choice of every decision, and returns the logits of the default network.

    Raises: InvalidInput if the alternatives of a choice have unequal shapes, or the pass does not reach a choice.
    """
    choices, reached = _choices_of(model), list[ChoiceModule]()
    token = reached_choices.set(reached)
    try:
        logits: Tensor = _logits(model, images, choices.values())
    finally:
        reached_choices.reset(token)
    for path, module in choices.items():
        if not any(module is other for other in reached):
            raise InvalidInput(
                f"{type(module).__name__} {module.name!r} ({path}): Expected every forward pass to reach the choice, "
                "but a pass on random images did not. Call it without a condition on data"
            )
    return logits


def check_in_place(model: nn.Module, images: Tensor) -> None:
    """Checks that changes of tensors in place leave a supernet equal to its networks. Follows a `check_forward`.

    In a supernet, a branch that changes its input in place receives a copy. A network does not copy. The two differ if
    the model reads the changed tensor again, which a comparison of networks with and without copies shows.

    Raises: InvalidInput with the first choice whose copies make a difference.
    """
    choices = _choices_of(model)
    suspects = [choice.suspects() for choice in choices.values()]
    defaults = [choice.default for choice in choices.values()]
    rounds = max(map(len, suspects), default=0)
    try:
        for shift, step in itertools.product(range(rounds), range(min(rounds, 2))):
            for number, (choice, labels) in enumerate(zip(choices.values(), suspects, strict=True)):
                if labels:
                    choice.default = labels[(shift + step * number) % len(labels)]
            _compare(model, images, choices)
    finally:
        for choice, default in zip(choices.values(), defaults, strict=True):
            choice.default = default


def _compare(model: nn.Module, images: Tensor, choices: Mapping[str, ChoiceModule]) -> None:
    def differs(isolated: Iterable[ChoiceModule]) -> bool:
        return not torch.allclose(_logits(model, images, isolated), expected, rtol=1e-4, atol=1e-6, equal_nan=True)

    expected, modules = _logits(model, images, choices.values()), list(choices.values())
    if not differs(()) or differs(modules):  # a model whose equal passes differ cannot be checked
        return
    number = next(number for number in range(len(modules)) if differs(modules[number + 1 :]))
    path, choice = list(choices.items())[number]
    writers = [f"{path}.{branch}".lstrip(".") for branch in choice.writers()]
    places = f"in {', '.join(writers)}" if writers else f"after {path}"
    raise InvalidInput(
        f"{type(choice).__name__} {choice.name!r} ({path}): Expected no change in place of a tensor that the model "
        f"reads again, got one with {choice.default!r}. Use modules without inplace=True {places}, or copy the tensor"
    )


def _logits(model: nn.Module, images: Tensor, isolated: Iterable[ChoiceModule]) -> Tensor:
    """Computes the default network, in which some choices copy their inputs.

    Raises: InvalidInput if it changes the images, which are part of a data set.
    """
    token, copied = isolated_choices.set(frozenset(isolated)), images.clone()
    version = copied._version
    try:
        with restored_randomness(0):
            logits: Tensor = model(copied)
    finally:
        isolated_choices.reset(token)
    if copied._version != version:
        raise InvalidInput(
            "Expected a model that leaves its images unchanged, got one that changes them in place. Use its first "
            "modules without inplace=True, or copy the images"
        )
    return logits


def _choices_of(model: nn.Module) -> dict[str, ChoiceModule]:
    return {path: module for path, module in model.named_modules() if isinstance(module, ChoiceModule)}
