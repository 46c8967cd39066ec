"""What a method is: a list of stages, a configuration, presets, and the spaces it serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from archray.platform.config import SearchConfig
from archray.platform.engine.stage import Stage
from archray.platform.methods.report_stage import print_trials
from archray.platform.report.page import MakeSection
from archray.platform.report.view import RunView
from archray.platform.run.run import Run
from archray.registry import Registry
from archray.trainables.spaces import Space


def serves_networks(space: Space) -> str | None:
    """None for a space whose architectures are networks; else why it cannot be searched."""
    return None if space.kind == "network" else f"its architectures are {space.kind}s, not networks"


@dataclass(frozen=True)
class Method:
    """A recipe.

    Attributes:
        name: as on the command line.
        summary: one sentence, with the paper.
        config: its configuration.
        stages: what it does, in order.
        defaults: the papers' options for a space, by its name or reference, where they are not those of `config`.
        presets: `smoke` (seconds), `demo` (minutes on two cores), `paper`, each a nested dictionary.
        flags: where the command line's short flags go in the configuration: `{"budget": "search.budget"}`.
        extendable: configuration paths that `resume` may change on a finished run.
        serves: None if the method can search the space, else why not.
        view: gathers what the report shows from a run's folder.
        sections: what the report is made of.
        show: prints the trials of the search.
    """

    name: str
    summary: str
    config: type[SearchConfig]
    stages: tuple[Stage, ...]
    presets: Mapping[str, Mapping[str, Any]]
    view: Callable[[Run], RunView]
    defaults: Callable[[str], Mapping[str, Any]] = lambda space: {}
    flags: Mapping[str, str] = field(default_factory=dict)
    extendable: tuple[str, ...] = ()
    serves: Callable[[Space], str | None] = serves_networks
    sections: Sequence[MakeSection] = ()
    show: Callable[[Run, Console], None] = print_trials


METHODS: Registry[Method] = Registry("method")


def get_method(name: str) -> Method:
    """The method called `name`. Raises: UnknownName, with the known ones."""
    import archray.platform.methods  # noqa: F401  # registers them

    return METHODS.get(name)


def config_class(name: str) -> type[SearchConfig]:
    return get_method(name).config
