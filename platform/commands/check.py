"""`archray check`: the decisions of a space, the sizes of its networks, and the methods that can search it."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from archray.errors import ArchrayError, InvalidArchitecture, InvalidInput, MissingExtra
from archray.plurals import count

if TYPE_CHECKING:
    from archray.trainables.spaces import Space

SAMPLES = 8  # random architectures in the ranges of parameters and FLOPs
SCORED = 2  # architectures that the metrics of the default method score
IMAGES = 4  # random images of a check
LISTED = 8  # choices of a decision that are printed


def check(
    space: Annotated[
        str, typer.Argument(metavar="SPACE", help="Space ('archray list spaces'), or path.py:NAME, module:NAME.")
    ],
    image_size: Annotated[int, typer.Option(help="Height and width of the images.", min=1)] = 32,
    in_channels: Annotated[int, typer.Option(help="Channels of the images.", min=1)] = 3,
    classes: Annotated[int, typer.Option(help="Number of classes.", min=2)] = 10,
    channels: Annotated[int, typer.Option(help="Channels C of a built-in space's network.", min=1)] = 16,
    cells: Annotated[int, typer.Option(help="Cells N per stage of a built-in space's network.", min=1)] = 5,
) -> None:
    """Check a space: its decisions, its size, ranges of parameters and FLOPs, and the methods that can search it.

    Sampled networks compute a forward and a backward pass. The exit code is 1 if one of them fails.
    """
    # torch, which `archray --help` does not need
    import numpy as np
    import torch

    from archray.platform.config import validate
    from archray.platform.methods.catalog import METHODS
    from archray.platform.methods.plain.config import METRICS
    from archray.trainables.costs.measures import torch_threads
    from archray.trainables.costs.registry import get_cost
    from archray.trainables.nets.build_network import check_network, fitting_memory
    from archray.trainables.nets.network_settings import NetworkSettings
    from archray.trainables.proxies import ProxySettings
    from archray.trainables.proxies.registry import Score
    from archray.trainables.proxies.shared_pass import score
    from archray.trainables.spaces import TableSpace, get_space
    from archray.trainables.spaces.constrained_space import even_architectures

    loaded, console, rng = get_space(space), Console(highlight=False), np.random.default_rng(0)
    console.print(f"[bold]{loaded.name}[/bold]: {_size(loaded.size)}, {count(len(loaded.decisions), 'decision')}")
    table = Table("decision", "choices")
    for decision in loaded.decisions:
        more = f", ... ({len(decision.choices)})" if len(decision.choices) > LISTED else ""
        table.add_row(decision.name, ", ".join(decision.choices[:LISTED]) + more)
    console.print(table)

    failures: list[str] = []
    if loaded.kind == "network" and not isinstance(loaded, TableSpace):
        network = validate(NetworkSettings, {"channels": channels, "cells": cells})
        images = torch.randn(IMAGES, in_channels, image_size, image_size)
        shape = {"in_channels": in_channels, "image_size": image_size, "num_classes": classes}
        scores: list[dict[str, Score]] = []
        costs: dict[str, list[float]] = {"parameters": [], "flops": []}
        try:
            # A few images keep one thread busy; others would wait and use the CPU.
            with torch_threads(1), fitting_memory(network):
                loaded.check_model(images, num_classes=classes, channels=channels, cells=cells)
                drawn = [loaded.canonical(loaded.sample(rng)) for _ in range(SAMPLES)]
                architectures = list(dict.fromkeys([*even_architectures(loaded), *drawn]))
                for architecture in architectures:
                    try:
                        built = check_network(loaded, architecture, network, seed=0, **shape)
                    except InvalidArchitecture as error:
                        failures.append(str(error))
                        continue
                    for name, values in costs.items():
                        values.append(get_cost(name).function(built, (in_channels, image_size, image_size)))
                    if len(scores) < SCORED:
                        scores.append(score(built, images, torch.arange(IMAGES) % classes, METRICS, ProxySettings()))
        except MissingExtra:
            raise
        except InvalidInput as error:
            console.print("[bold]The networks of the space cannot run:[/bold]")
            console.print(str(error), markup=False, soft_wrap=True)
            raise typer.Exit(1) from error
        for name, values in costs.items():
            if values:
                console.print(
                    f"{name}: {min(values):,.0f} to {max(values):,.0f} in {count(len(values), 'sampled architecture')} "
                    f"for images of {in_channels} x {image_size} x {image_size}"
                )
        for metric, first in scores[0].items() if scores else ():
            if all(of_network[metric].failure for of_network in scores):
                console.print(f"the metric {metric} fails: {first.failure}", markup=False, soft_wrap=True)
        if failures:
            console.print(
                f"[bold]{len(failures)} of {count(len(architectures), 'sampled architecture')} cannot run.[/bold] The "
                "first error:"
            )
            console.print(failures[0], markup=False, soft_wrap=True)
    for note in loaded.notes:
        console.print(note, markup=False, soft_wrap=True)
    reasons = {name: reason_against(name, space, loaded) for name in METHODS}
    console.print("methods: " + ", ".join(name for name, reason in reasons.items() if reason is None))
    for reason in dict.fromkeys(reason for reason in reasons.values() if reason is not None):
        names = ", ".join(name for name, other in reasons.items() if other == reason)
        console.print(f"not {names}: {reason}", markup=False, soft_wrap=True)
    if failures:
        raise typer.Exit(1)


def reason_against(name: str, space: str, loaded: "Space") -> str | None:
    """Returns why a method cannot search a space with its default options; None if it can."""
    from archray.platform.methods.catalog import METHODS
    from archray.platform.methods.configure import make_config

    if (reason := METHODS.get(name).serves(loaded)) is not None:
        return reason
    try:
        make_config(name, None, None, {"space": space}).check()
    except MissingExtra:  # the space is fine
        return None
    except ArchrayError as error:
        return str(error)
    return None


def _size(size: float) -> str:
    return count(int(size), "architecture") if size < float("inf") else "continuous"
